"""The console's cookie: set at sign-in, checked on every page."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from omniroute_litellm.api.auth import COOKIE
from omniroute_litellm.console.links import Links
from omniroute_litellm.console.views import is_partial
from omniroute_litellm.errors import BackendUnavailableError, UnauthenticatedError
from omniroute_litellm.sign_in import SESSION_S, Principal, SignIn


def principal(request: Request) -> Principal:
    """Return who is signed in; raise UnauthenticatedError when nobody is."""
    sign_in: SignIn = request.app.state.runtime.sign_in
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        message = "sign in first"
        raise UnauthenticatedError(message)
    return sign_in.by_cookie(cookie)


SignedIn = Annotated[Principal, Depends(principal)]


def is_signed_in(request: Request) -> bool:
    """Tell whether somebody is signed in; nobody is while that cannot be checked."""
    try:
        principal(request)
    except (UnauthenticatedError, BackendUnavailableError):
        return False
    return True


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Give a browser its session."""
    response.set_cookie(
        COOKIE,
        value,
        max_age=SESSION_S,
        path=_path(request),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def clear_cookie(request: Request, response: Response) -> None:
    """Take a browser's session away."""
    response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="lax")


def to_sign_in(request: Request) -> Response:
    """Send a browser to the sign-in page, and back to where it wanted to go afterwards."""
    links = Links.of(request)
    if is_partial(request):
        shown = urlsplit(request.headers.get("hx-current-url", ""))
        wanted = f"{shown.path}?{shown.query}" if shown.query else shown.path
        return Response(status_code=401, headers={"HX-Redirect": links("login", next=wanted)})
    wanted = request.url.path if request.method == "GET" else ""
    query = f"?{request.url.query}" if wanted and request.url.query else ""
    return RedirectResponse(links("login", next=wanted + query), 303)


def _path(request: Request) -> str:
    return str(request.scope.get("root_path", "")) or "/"
