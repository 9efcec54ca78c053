"""The REST API as an app of its own, mounted by the console below ``/api``."""

from fastapi import Depends, FastAPI

from omniroute_litellm import __version__
from omniroute_litellm.api import engine, errors, memory, settings
from omniroute_litellm.api.auth import SECURITY
from omniroute_litellm.runtime import Runtime


def create_api(runtime: Runtime) -> FastAPI:
    """Build the API over a runtime."""
    app = FastAPI(
        title="omniroute_litellm",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        dependencies=[Depends(scheme) for scheme in SECURITY],
    )
    app.state.runtime = runtime
    app.state.sign_in = runtime.sign_in
    errors.install(app)
    app.include_router(engine.router)  # its names would be ids to the routes of memories
    app.include_router(memory.router)
    app.include_router(settings.router)
    return app
