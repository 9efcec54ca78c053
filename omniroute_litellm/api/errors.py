"""One table from errors to answers, and one envelope for all of them."""

import logging
import uuid
from collections.abc import Sequence
from typing import Final, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from omniroute_litellm.errors import (
    BackendUnavailableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    OmniRouteError,
    ThrottledError,
    UnauthenticatedError,
    ValidationError,
)

logger = logging.getLogger(__name__)

STATUS: Final[dict[type[OmniRouteError], tuple[int, str]]] = {
    ValidationError: (422, "invalid_value"),
    NotFoundError: (404, "not_found"),
    ConflictError: (409, "conflict"),
    UnauthenticatedError: (401, "unauthenticated"),
    ForbiddenError: (403, "forbidden"),
    ThrottledError: (429, "throttled"),
    BackendUnavailableError: (503, "backend_unavailable"),
}
_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ErrorDetail(BaseModel):
    """One field that was refused, and why."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """A machine code, a sentence, and the fields concerned."""

    code: str
    message: str
    details: list[ErrorDetail] = []


class ErrorEnvelope(BaseModel):
    """The body of every error answer."""

    error: ErrorBody
    requestId: str  # noqa: N815 - the name on the wire


def envelope(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[ErrorDetail] = (),
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Return an error answer."""
    body = ErrorEnvelope(
        error=ErrorBody(code=code, message=message, details=list(details)),
        requestId=uuid.uuid4().hex,
    )
    return JSONResponse(body.model_dump(), status, headers=headers)


def responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Declare error answers of a route for the OpenAPI document."""
    return {status: {"model": ErrorEnvelope} for status in statuses}


def install(app: FastAPI) -> None:
    """Answer every error of an app in the envelope."""
    app.add_exception_handler(OmniRouteError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unforeseen)


async def _on_ours(request: Request, error: Exception) -> JSONResponse:
    status, code = next(
        (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), (500, "internal_error")
    )
    details: list[ErrorDetail] = []
    headers: dict[str, str] = {}
    if isinstance(error, ValidationError):
        details.append(ErrorDetail(field=error.field, message=str(error)))
    elif isinstance(error, ThrottledError):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    return envelope(status, code, str(error), details=details, headers=headers)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    faults = cast("RequestValidationError", error).errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        return envelope(400, "malformed_json", "the body is not valid JSON")
    details = [
        ErrorDetail(
            field=".".join(str(part) for part in fault["loc"][1:]) or str(fault["loc"][0]),
            message=str(fault["msg"]).removeprefix("Value error, "),
        )
        for fault in faults
    ]
    first = details[0]
    return envelope(422, "invalid_value", f"{first.field}: {first.message}", details=details)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    fault = cast("HTTPException", error)
    code = _CODES.get(fault.status_code, "http_error")
    headers = dict(fault.headers) if fault.headers else None
    return envelope(fault.status_code, code, str(fault.detail), headers=headers)


async def _on_unforeseen(request: Request, error: Exception) -> JSONResponse:
    logger.error("api.unforeseen path=%s", request.url.path, exc_info=error)
    return envelope(500, "internal_error", "something went wrong here; the log says what")
