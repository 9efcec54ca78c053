"""Sign in with an admin key or a one-time link, and sign out."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from omniroute_litellm.api.auth import client_of
from omniroute_litellm.console.links import Links
from omniroute_litellm.console.pages import Frame, LoginPage
from omniroute_litellm.console.session import clear_cookie, set_cookie
from omniroute_litellm.console.views import THEME_COOKIE, THEMES, render
from omniroute_litellm.errors import ForbiddenError, ThrottledError, UnauthenticatedError
from omniroute_litellm.sign_in import SignIn

router = APIRouter()
_YEAR_S = 365 * 86_400


@router.get("/login")
def show(request: Request, wanted: Annotated[str, Query(alias="next")] = "") -> Response:
    """Show the sign-in form."""
    return _form(request, wanted)


@router.post("/login")
async def sign_in(
    request: Request,
    key: Annotated[str, Form()] = "",
    wanted: Annotated[str, Form(alias="next")] = "",
) -> Response:
    """Check the key and start a session."""
    authority: SignIn = request.app.state.runtime.sign_in
    try:
        cookie = await authority.cookie_for(key.strip(), client=client_of(request))
    except UnauthenticatedError:
        return _form(request, wanted, error="This key is not valid here.", status=401)
    except ForbiddenError:
        return _form(
            request, wanted, error="This key belongs to no administrator of the proxy.", status=403
        )
    except ThrottledError as error:
        return _form(
            request,
            wanted,
            error="Too many wrong keys. Try again in a few minutes.",
            status=429,
            headers={"Retry-After": str(error.retry_after_s)},
        )
    response = RedirectResponse(Links.of(request).local(wanted), 303)
    set_cookie(request, response, cookie)
    return response


@router.get("/login/link")
def show_link(request: Request, token: str = "") -> Response:
    """Show the button of a one-time link: a preview that only looks must not use it up."""
    page = LoginPage(Frame("Sign in", "login", is_signed_in=False), next="", token=token)
    return render(request, "login/page.html", page)


@router.post("/login/link")
def use_link(request: Request, token: Annotated[str, Form()] = "") -> Response:
    """Redeem a one-time link."""
    authority: SignIn = request.app.state.runtime.sign_in
    try:
        cookie = authority.cookie_for_link(token, client=client_of(request))
    except UnauthenticatedError as error:
        return _form(request, "", error=f"{str(error).capitalize()}.", status=401)
    except ThrottledError as error:
        wait = {"Retry-After": str(error.retry_after_s)}
        text = "Too many tries. Try again in a few minutes."
        return _form(request, "", error=text, status=429, headers=wait)
    response = RedirectResponse(Links.of(request)(), 303)
    set_cookie(request, response, cookie)
    return response


@router.post("/logout")
def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    response = RedirectResponse(Links.of(request)("login"), 303)
    clear_cookie(request, response)
    return response


@router.post("/theme")
def set_theme(
    request: Request,
    theme: Annotated[str, Form()] = "",
    back: Annotated[str, Form()] = "",
) -> Response:
    """Remember light, dark, or as the system has it."""
    links = Links.of(request)
    response = RedirectResponse(links.local(back), 303)
    if theme in THEMES:
        path = str(request.scope.get("root_path", "")) or "/"
        response.set_cookie(
            THEME_COOKIE, theme, max_age=_YEAR_S, path=path, httponly=True, samesite="lax"
        )
    return response


def _form(
    request: Request,
    wanted: str,
    *,
    error: str | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    frame = Frame("Sign in", "login", is_signed_in=False)
    page = LoginPage(frame, next=wanted, error=error)
    return render(request, "login/page.html", page, status=status, headers=headers)
