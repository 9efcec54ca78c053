"""Who calls: a bearer key or the console's cookie."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from omniroute_litellm.errors import ForbiddenError, UnauthenticatedError
from omniroute_litellm.sign_in import Principal, SignIn
from omniroute_litellm.types import OwnerId

COOKIE: Final = "omniroute_session"

_BEARER: Final = HTTPBearer(auto_error=False, description="A LiteLLM key")
_COOKIE: Final = APIKeyCookie(name=COOKIE, auto_error=False, description="The console's session")
_NO_CLIENT: Final = "unknown"


def client_of(request: Request) -> str:
    """Return the address that failures are counted for."""
    return request.client.host if request.client else _NO_CLIENT


async def principal(request: Request) -> Principal:
    """Return who calls; raise UnauthenticatedError when nobody who is known does."""
    sign_in: SignIn = request.app.state.sign_in
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.casefold() == "bearer" and key.strip():
        return await sign_in.by_key(key.strip())
    cookie = request.cookies.get(COOKIE)
    if cookie:
        return sign_in.by_cookie(cookie)
    message = "expected a LiteLLM key as bearer token, or a console session"
    raise UnauthenticatedError(message)


async def admin(caller: Annotated[Principal, Depends(principal)]) -> Principal:
    """Return the caller when it is a proxy admin; raise ForbiddenError else."""
    if not caller.is_admin:
        message = "this needs the key of a proxy admin"
        raise ForbiddenError(message)
    return caller


Caller = Annotated[Principal, Depends(principal)]
Admin = Annotated[Principal, Depends(admin)]
SECURITY: Final[list[Callable[..., Awaitable[object]]]] = [_BEARER, _COOKIE]


def owner_asked_for(caller: Principal, api_key_id: str | None) -> OwnerId | None:
    """Return the owner that a request is about: None (an admin alone) means all.

    Raises ForbiddenError when a caller without the admin role names somebody else.
    """
    if caller.is_admin:
        return OwnerId(api_key_id) if api_key_id else None
    if api_key_id and api_key_id != caller.owner:
        message = "this key reaches its own memories only"
        raise ForbiddenError(message)
    return caller.owner
