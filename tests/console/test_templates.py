"""Every template renders in every state, with nothing undefined."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from jinja2 import BaseLoader, ChoiceLoader, Environment

from omniroute_litellm.console.links import Links
from omniroute_litellm.console.pages import (
    DeletePage,
    ErrorPage,
    Filter,
    Frame,
    LoginPage,
    MemoriesPage,
    MemoryRow,
    MemorySwitch,
    OwnerChoice,
)
from omniroute_litellm.console.views import environment
from omniroute_litellm.types import OwnerId, utc_now

FRAME: Final = Frame("Memories", "memories")
STATE: Final = {"owner": "", "q": "", "type": "", "status": "", "sort": "", "page": ""}
ROW: Final = MemoryRow(
    id="1",
    type="factual",
    status="active",
    content="I prefer tea",
    hidden=0,
    key="preference:tea",
    tokens=4,
    used=3,
    updated_at=utc_now() - timedelta(hours=3),
    pinned=False,
    source="user message",
    owner=OwnerId("a3f9" * 16),
)
ODD_ROW: Final = replace(ROW, id="2", status="quarantined", hidden=1_200, pinned=True)
OFF: Final = MemorySwitch(is_set=False, max_tokens=2_000, pinned_by=None, problems=())
PAGE: Final = MemoriesPage(
    frame=FRAME,
    state=STATE,
    switch=OFF,
    owners=(OwnerChoice("x", "x", 1, is_chosen=False),),
    types=(Filter("", "all types", 2, is_chosen=True), Filter("factual", "factual", 2, False)),
    statuses=(Filter("", "all states", 2, is_chosen=True),),
    rows=(ROW, ODD_ROW),
    total=102,
    stored=102,
    tokens=8,
    hit_share=0.614,
    first=51,
    previous_page=1,
    next_page=3,
    proxy_url="http://localhost:4000",
    sorts=(("updated", "newest first"),),
)
EMPTY: Final = replace(PAGE, rows=(), total=0, hit_share=None)
PINNED: Final = replace(OFF, pinned_by="OMNIROUTE_MEMORY_ENABLED")
ERROR: Final = ErrorPage(FRAME, 503, "Memory is not available", "No room.", "Make some.", "id")
CASES: Final[tuple[tuple[str, object], ...]] = (
    ("login/page.html", LoginPage(replace(FRAME, is_signed_in=False), next="/memories")),
    ("login/page.html", LoginPage(FRAME, next="", error="This key is not valid here.")),
    ("login/page.html", LoginPage(FRAME, next="", token="t")),
    ("error/page.html", ERROR),
    ("error/page.html", replace(ERROR, frame=replace(FRAME, fault="x", is_signed_in=False))),
    ("error/_alert.html", ERROR),
    ("error/_alert.html", replace(ERROR, status=404)),
    ("memories/page.html", PAGE),
    ("memories/page.html", replace(PAGE, switch=replace(OFF, is_set=True))),
    ("memories/page.html", replace(PAGE, switch=replace(OFF, is_set=True, problems=("x",)))),
    ("memories/page.html", replace(PAGE, switch=PINNED)),
    ("memories/page.html", replace(PAGE, state={**STATE, "owner": "x"})),
    ("memories/page.html", EMPTY),
    ("memories/page.html", replace(EMPTY, switch=PINNED)),
    ("memories/page.html", replace(EMPTY, switch=replace(OFF, is_set=True))),
    ("memories/page.html", replace(EMPTY, switch=replace(OFF, is_set=True, problems=("x",)))),
    ("memories/page.html", replace(EMPTY, state={**STATE, "owner": "x"})),
    (
        "memories/page.html",
        replace(EMPTY, state={**STATE, "q": "x", "type": "factual", "status": "active"}),
    ),
    (
        "memories/_results.html",
        replace(PAGE, frame=replace(FRAME, notice="Memory deleted.", undo="1", fault="x")),
    ),
    ("memories/_results.html", replace(EMPTY, frame=replace(FRAME, notice="Memory restored."))),
    ("memories/delete.html", DeletePage(FRAME, STATE, ROW)),
    ("memories/_delete.html", DeletePage(FRAME, STATE, ODD_ROW)),
)


class NotingLoader(BaseLoader):
    """Hands on what another loader finds, and notes what was asked for."""

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner
        self.asked: set[str] = set()

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        self.asked.add(template)
        return self._inner.get_source(environment, template)


def rendered(made: Environment, template: str, page: object) -> str:
    """Render a template below a mount."""
    return made.get_template(template).render(
        page=page, url=Links("/omniroute"), version="1", theme="dark", here="/omniroute/memories"
    )


@pytest.mark.parametrize(("template", "page"), CASES)
def test_every_state_renders(template: str, page: object) -> None:
    """No state of a page asks for something that is not there, or links past the mount."""
    html = rendered(environment(), template, page)
    assert html.strip()
    for attribute in ("href", "action", "src", "hx-get", "hx-post", "hx-delete"):
        links = [part.split('"')[0] for part in html.split(f' {attribute}="')[1:]]
        assert all(link.startswith(("/omniroute/", "#")) for link in links), links


def test_every_template_is_among_them() -> None:
    """A new template must join the states above."""
    made = environment()
    assert made.loader is not None
    noting = NotingLoader(made.loader)
    known = set(made.list_templates(extensions=["html"]))
    made.loader = ChoiceLoader([noting])
    for template, page in CASES:
        rendered(made, template, page)
    assert noting.asked == known
