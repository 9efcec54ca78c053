"""Error pages: what happened, what to try, and an id for the log."""

import logging
import uuid
from typing import Final, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from omniroute_litellm.api.auth import COOKIE
from omniroute_litellm.api.errors import STATUS
from omniroute_litellm.console.pages import ErrorPage, Frame
from omniroute_litellm.console.session import to_sign_in
from omniroute_litellm.console.views import render
from omniroute_litellm.errors import OmniRouteError, UnauthenticatedError

logger = logging.getLogger(__name__)

_HEADINGS: Final = {
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "It changed meanwhile",
    422: "Not understood",
    503: "Memory is not available",
}
_ADVICE: Final = {
    404: "It may have been deleted. Go back to the list and look again.",
    409: "Load the page again and repeat the change if it still makes sense.",
    422: "Go back, correct the value and try again.",
    503: "Requests through the proxy still work. Mend the store; it is tried again every second.",
}


def install(app: FastAPI) -> None:
    """Answer every error of the console with a page."""
    app.add_exception_handler(UnauthenticatedError, _on_signed_out)
    app.add_exception_handler(OmniRouteError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unforeseen)


async def _on_signed_out(request: Request, error: Exception) -> Response:
    return to_sign_in(request)


async def _on_ours(request: Request, error: Exception) -> Response:
    status, _ = STATUS.get(type(cast("OmniRouteError", error)), (500, ""))
    return _page(request, status, str(error))


async def _on_invalid(request: Request, error: Exception) -> Response:
    return _page(request, 422, "A value of the request is not valid.")


async def _on_http(request: Request, error: Exception) -> Response:
    fault = cast("HTTPException", error)
    if fault.status_code == 404 and COOKIE not in request.cookies:
        return to_sign_in(request)
    return _page(request, fault.status_code, "There is no page at this address.")


async def _on_unforeseen(request: Request, error: Exception) -> Response:
    return _page(request, 500, "Something went wrong here.", cause=error)


def _page(
    request: Request, status: int, message: str, *, cause: Exception | None = None
) -> Response:
    request_id = uuid.uuid4().hex
    logger.log(
        logging.ERROR if cause else logging.INFO,
        "console.error status=%d id=%s",
        status,
        request_id,
        exc_info=cause,
    )
    page = ErrorPage(
        frame=Frame(f"Error {status}", "error", is_signed_in=COOKIE in request.cookies),
        status=status,
        heading=_HEADINGS.get(status, "Something went wrong"),
        message=message,
        advice=_ADVICE.get(status, "Try again; if it stays, look for the id in the proxy's log."),
        request_id=request_id,
    )
    return render(request, "error/page.html", page, status=status)
