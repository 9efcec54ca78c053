"""The console as an ASGI app: pages, static files, and the REST API below ``/api``."""

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from omniroute_litellm.api.app import create_api
from omniroute_litellm.console import errors, login, memories
from omniroute_litellm.console.security import BodyLimit, SameOrigin, SecurityHeaders
from omniroute_litellm.runtime import Runtime


def create_app(runtime: Runtime) -> FastAPI:
    """Build the console over a runtime."""
    app = FastAPI(
        title="omniroute_litellm console", docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.runtime = runtime
    app.mount("/api", create_api(runtime), name="api")
    app.mount(
        "/static", StaticFiles(packages=[("omniroute_litellm.console", "static")]), name="static"
    )
    app.include_router(login.router)
    app.include_router(memories.router)
    errors.install(app)
    # The last one added runs first.
    app.add_middleware(BodyLimit)
    app.add_middleware(SameOrigin)
    app.add_middleware(SecurityHeaders)
    return app
