"""Which form a deployment takes a memory block in. Pure functions."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NO_SYSTEM_PROVIDERS: Final = frozenset({"glm", "glmt", "glm-cn", "zai", "qianfan"})
NO_SYSTEM_MODELS: Final = ("o1", "o1-mini", "o1-preview", "glm", "glmt", "glm-cn", "zai", "qianfan")
"""OmniRoute's list of what rejects the system role."""

_SEPARATORS: Final = re.compile(r"[/:@]")
_VERSION: Final = re.compile(r"-\d[\w.-]*$")


class BlockForm(StrEnum):
    """How the block goes into the messages."""

    SYSTEM = "system"
    MERGED = "merged"
    USER = "user"


class Placement(StrEnum):
    """Where a request carries its memory: in front of everything, or behind human turns."""

    LEADING = "leading"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The model that one attempt really calls.

    ``takes_system`` is what LiteLLM knows about the system role: None when it says nothing.
    ``host`` is the address of the server where one is configured, without a path; ``group`` the
    model that LiteLLM's router took it from, empty where a call says nothing of it.
    """

    provider: str
    model: str
    base_model: str | None = None
    takes_system: bool | None = None
    host: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        """The name under which this deployment is remembered."""
        return f"{self.provider}/{self.model}" + (f" at {self.host}" if self.host else "")


def block_form(
    deployment: Deployment, *, no_system: Iterable[str] = (), strict_system: Iterable[str] = ()
) -> BlockForm:
    """Choose the form for a deployment; a model that nothing is known of takes a system message.

    The two settings name providers or models in addition to the built-in list.
    """
    refused = {name.casefold() for name in no_system}
    if deployment.takes_system is False or _is_listed(deployment, refused, built_in=True):
        return BlockForm.USER
    strict = {name.casefold() for name in strict_system}
    return BlockForm.MERGED if _is_listed(deployment, strict, built_in=False) else BlockForm.SYSTEM


def next_form(preferred: BlockForm, refused: Collection[str]) -> BlockForm | None:
    """Return the first form that a deployment has not refused, or None when none is left."""
    ladder = (preferred, BlockForm.MERGED, BlockForm.USER, BlockForm.SYSTEM)
    return next((form for form in ladder if form not in refused), None)


def _is_listed(deployment: Deployment, extra: set[str], *, built_in: bool) -> bool:
    provider = deployment.provider.casefold()
    if provider in extra or (built_in and provider in NO_SYSTEM_PROVIDERS):
        return True
    for name in filter(None, (deployment.model, deployment.base_model)):
        whole = name.casefold()
        # A name has parts: organisation, model, and a variant such as ``:free``.
        parts = _SEPARATORS.split(whole)
        if whole in extra or not extra.isdisjoint(parts):
            return True
        if built_in and any(map(_is_refusing, parts)):
            return True
    return False


def _is_refusing(model: str) -> bool:
    """Whether a bare model name is one of the list, or a version of one (``glm-4.6``)."""
    return model in NO_SYSTEM_MODELS or _VERSION.sub("", model) in NO_SYSTEM_MODELS
