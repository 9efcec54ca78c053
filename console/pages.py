"""What each page shows, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from omniroute_litellm.identity import MASTER_KEY_TOKEN
from omniroute_litellm.placement import BlockForm, next_form
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.types import OwnerId

_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around every page of a signed-in admin. ``fault`` is one line or None."""

    title: str
    screen: str
    fault: str | None = None
    notice: str | None = None
    undo: str | None = None
    is_signed_in: bool = True


@dataclass(frozen=True, slots=True)
class LoginPage:
    """The sign-in form, or the button of a one-time link."""

    frame: Frame
    next: str
    error: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """What went wrong, what to try, and the id to look for in the log."""

    frame: Frame
    status: int
    heading: str
    message: str
    advice: str
    request_id: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One memory of the list. ``hidden`` counts the characters after the end of ``content``."""

    id: str
    type: str
    status: str
    content: str
    hidden: int
    key: str
    tokens: int
    used: int
    updated_at: datetime
    pinned: bool
    source: str
    owner: OwnerId

    @property
    def owner_label(self) -> str:
        """The owner's short name."""
        return owner_label(self.owner)


@dataclass(frozen=True, slots=True)
class DeletePage:
    """The question before a memory goes, and the view to come back to."""

    frame: Frame
    state: Mapping[str, str]
    row: MemoryRow


@dataclass(frozen=True, slots=True)
class Filter:
    """One choice of a filter with how many memories it leaves."""

    value: str
    label: str
    count: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class OwnerChoice:
    """One owner of the switcher."""

    id: str
    label: str
    count: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class MemorySwitch:
    """Whether memory was switched on, and what keeps it from being on.

    ``pinned_by`` names the variable that decides the switch, if one does; while there are
    ``problems`` with the configuration memory stays off whatever the switch says.
    """

    is_set: bool
    max_tokens: int
    pinned_by: str | None
    problems: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Whether memory is at work."""
        return self.is_set and not self.problems


@dataclass(frozen=True, slots=True)
class MemoriesPage:
    """The list of memories with everything around it.

    ``state`` is the query of this view; links change one value of it.
    """

    frame: Frame
    state: Mapping[str, str]
    switch: MemorySwitch
    owners: tuple[OwnerChoice, ...]
    types: tuple[Filter, ...]
    statuses: tuple[Filter, ...]
    rows: tuple[MemoryRow, ...]
    total: int
    stored: int
    tokens: int
    hit_share: float | None
    first: int
    previous_page: int | None
    next_page: int | None
    proxy_url: str
    sorts: tuple[tuple[str, str], ...]

    @property
    def last(self) -> int:
        """The number of the last row that is shown."""
        return self.first + len(self.rows) - 1

    @property
    def told(self) -> str:
        """What a screen reader says about the new content."""
        noun = "memory" if self.total == 1 else "memories"
        return self.frame.notice or f"{self.total:,} {noun} found"

    @property
    def chosen(self) -> str:
        """The filters in force, in words."""
        names = (self.state.get(name) for name in ("type", "status"))
        return ", ".join(name for name in names if name) or "none"

    @property
    def is_filtered(self) -> bool:
        """Whether anything but the owner narrows the list."""
        return any(self.state.get(name) for name in ("q", "type", "status"))

    def changed(self, **change: str | int | None) -> dict[str, str | int | None]:
        """Return the state with some values changed, back on the first page unless one is named."""
        return {**self.state, "page": None, **change}


def owner_label(owner: OwnerId) -> str:
    """Return a short name of an owner that shows no whole key."""
    if owner == MASTER_KEY_TOKEN:
        return "master key"
    if len(owner) <= 3 * _SHOWN or ":" in owner[: 3 * _SHOWN]:
        return owner
    return f"{owner[:_SHOWN]}…{owner[-_SHOWN:]}"


def fault_line(runtime: Runtime) -> str | None:
    """Return what fails at present in one line, or None."""
    faults = runtime.health.faults
    if faults:
        return f"{faults[0].operation}: {faults[0].message}"
    for deployment, forms in runtime.refusals.all().items():
        if next_form(BlockForm.SYSTEM, forms) is None:
            return f"{deployment} refuses memory in every form and gets none"
    return None
