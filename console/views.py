"""Render templates: one environment, one set of helpers."""

from datetime import datetime, timedelta
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from omniroute_litellm import __version__
from omniroute_litellm.console.links import Links
from omniroute_litellm.types import to_iso, utc_now

THEME_COOKIE: Final = "omniroute_theme"
THEMES: Final = ("system", "light", "dark")
_UNITS: Final = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
)


def ago(moment: datetime) -> str:
    """Say how long ago a moment was, in its largest unit."""
    passed = utc_now() - moment
    for size, name in _UNITS:
        if passed >= size:
            return f"{passed // size} {name}"
    return "now"


def grouped(number: int) -> str:
    """Write a number with thousands set apart."""
    return f"{number:,}"


def environment() -> Environment:
    """Return the template environment: everything escaped, nothing undefined."""
    made = Environment(
        loader=PackageLoader("omniroute_litellm", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({"ago": ago, "grouped": grouped, "iso": to_iso})
    return made


_ENVIRONMENT: Final = environment()


def render(
    request: Request,
    template: str,
    page: object,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> HTMLResponse:
    """Render a page for a request."""
    theme = request.cookies.get(THEME_COOKIE, THEMES[0])
    text = _ENVIRONMENT.get_template(template).render(
        page=page,
        url=Links.of(request),
        version=__version__,
        theme=theme if theme in THEMES else THEMES[0],
        here=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
    )
    return HTMLResponse(text, status, headers=headers)


def is_partial(request: Request) -> bool:
    """Tell whether only the changed part is asked for."""
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers
