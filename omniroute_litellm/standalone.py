"""The console without a proxy: one process, one admin key or a one-time link."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority

KEY_VARIABLES = ("OMNIROUTE_ADMIN_KEY", "LITELLM_MASTER_KEY")


def serve(host: str, port: int, *, environ: Mapping[str, str]) -> None:
    """Serve the console until it is interrupted."""
    key = next((environ[name] for name in KEY_VARIABLES if environ.get(name)), None)
    runtime = Runtime(environ=environ, authority=AdminKeyAuthority(key))
    url = f"http://{host}:{port}/"
    lines = [f"Console:  {url}", f"Data:     {runtime.data_directory}"]
    if key is None:
        token = quote(runtime.sign_in.new_link_token())
        lines.append(f"Sign in once with:  {url}login/link?token={token}")
        lines.append("(set OMNIROUTE_ADMIN_KEY to sign in with a key)")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    uvicorn.run(standalone_app(runtime), host=host, port=port, log_level="warning")


def standalone_app(runtime: Runtime) -> Starlette:
    """Return the console with the runtime's background work around it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        runtime.ensure_started()
        yield
        await runtime.close()

    return Starlette(routes=[Mount("/", app=runtime.console())], lifespan=lifespan)
