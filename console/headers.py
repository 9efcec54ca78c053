"""The head of every answer: what the browser may do with it, and what it may keep."""

from typing import Final

from starlette.datastructures import MutableHeaders

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ASSETS: Final = ("text/css", "text/javascript", "application/javascript", "image/")


def harden(headers: MutableHeaders) -> None:
    """Complete the head of an answer.

    Pages and data are never kept. Assets are, but asked for again each time, so that an upgrade
    never meets the style or script of the release before it.
    """
    headers["content-security-policy"] = POLICY
    headers["x-content-type-options"] = "nosniff"
    headers["x-frame-options"] = "DENY"
    headers["referrer-policy"] = "same-origin"
    if headers.get("content-type", "").startswith(_ASSETS):
        headers["cache-control"] = "no-cache"
    else:
        headers["cache-control"] = "no-store"
        headers.add_vary_header("HX-Request")
