"""Errors as an operator meets them: what happened, what to try, and an id for the log."""

import logging
import uuid
from typing import Final, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from omniroute_litellm.api.errors import STATUS
from omniroute_litellm.console.headers import harden
from omniroute_litellm.console.pages import ErrorPage, Frame, fault_line
from omniroute_litellm.console.session import is_signed_in, to_sign_in
from omniroute_litellm.console.views import is_partial, render
from omniroute_litellm.errors import OmniRouteError, UnauthenticatedError
from omniroute_litellm.runtime import Runtime

logger = logging.getLogger(__name__)

_HEADINGS: Final = {
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "It changed meanwhile",
    413: "Too large",
    422: "Not understood",
    429: "Too many tries",
    503: "Memory is not available",
}
_ADVICE: Final = {
    403: "Open the console in a window of its own and try it there.",
    404: "It may have been deleted. Load the list again and look there.",
    405: "Go to the memories and start from there.",
    409: "Load the page again and repeat the change if it still makes sense.",
    413: "Send less at once.",
    422: "Go back, correct the value and try again.",
    429: "Wait a few minutes and try again.",
    503: "Requests through the proxy still work. Mend the store; it is tried again every second.",
}
_MESSAGES: Final = {
    404: "there is no page at this address",
    405: "this address does not take such a request",
}
_ALERT_HEADERS: Final = {
    "HX-Retarget": "#alert",
    "HX-Reswap": "outerHTML",
    "HX-Push-Url": "false",
}
"""Put a message beside the list that was there, and its address not into the history."""


def install(app: FastAPI) -> None:
    """Answer every error of the console. Plain functions: what they ask may block."""
    app.add_exception_handler(UnauthenticatedError, _on_signed_out)
    app.add_exception_handler(OmniRouteError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unforeseen)


def answer_error(
    request: Request, status: int, message: str, *, cause: Exception | None = None
) -> Response:
    """Return the page of an error, or the message alone for a request from within a page."""
    request_id = uuid.uuid4().hex
    logger.log(
        logging.ERROR if cause else logging.INFO,
        "console.error status=%d id=%s",
        status,
        request_id,
        exc_info=cause,
    )
    runtime = cast("Runtime", request.app.state.runtime)
    is_down = status == 503
    page = ErrorPage(
        frame=Frame(
            f"Error {status}",
            "error",
            fault=message if is_down else fault_line(runtime),
            is_signed_in=is_signed_in(request),
        ),
        status=status,
        heading=_HEADINGS.get(status, "Something went wrong"),
        message=_sentence(message),
        advice=_ADVICE.get(status, "Try again; if it stays, look for the id in the proxy's log."),
        request_id=request_id,
    )
    if is_partial(request):
        return render(request, "error/_alert.html", page, status=status, headers=_ALERT_HEADERS)
    return render(request, "error/page.html", page, status=status)


def _on_signed_out(request: Request, error: Exception) -> Response:
    return to_sign_in(request)


def _on_ours(request: Request, error: Exception) -> Response:
    status, _ = STATUS.get(type(cast("OmniRouteError", error)), (500, ""))
    return answer_error(request, status, str(error))


def _on_invalid(request: Request, error: Exception) -> Response:
    return answer_error(request, 422, "a value of the request is not valid")


def _on_http(request: Request, error: Exception) -> Response:
    fault = cast("HTTPException", error)
    if fault.status_code == 404 and not is_signed_in(request):
        return to_sign_in(request)
    message = _MESSAGES.get(fault.status_code, str(fault.detail))
    return answer_error(request, fault.status_code, message)


def _on_unforeseen(request: Request, error: Exception) -> Response:
    answer = answer_error(request, 500, "something went wrong here", cause=error)
    # This one is sent from outside of the middleware.
    harden(answer.headers)
    return answer


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
