"""A LiteLLM configuration file: the admin's key and a model to talk to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

from omniroute_litellm.errors import OmniRouteError

KEY_VARIABLE: Final = "LITELLM_MASTER_KEY"
"""Where LiteLLM looks for its master key when the file names none."""
_REFERENCE: Final = "os.environ/"
_DEMO_MODEL: Final = "demo/"
_CHAT_MODES: Final = frozenset({None, "chat", "responses"})


class ProxyConfigError(OmniRouteError):
    """A configuration cannot be used; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What a client of the proxy has to know.

    ``key`` is None when the file says that it stands in ``variable``, and that is not set.
    ``model`` is None when the file lists no model to chat with.
    """

    key: str | None
    variable: str | None
    model: str | None


def read_proxy_config(path: Path, *, environ: Mapping[str, str]) -> ProxyConfig:
    """Read a file as LiteLLM does; raise ProxyConfigError when that is not possible.

    A file without a master key, and no ``LITELLM_MASTER_KEY`` either, is an error: LiteLLM would
    not start.
    """
    if not path.is_file():
        message = f"no LiteLLM configuration at {path}"
        raise ProxyConfigError(message)
    try:
        content = _mapping(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path}: {' '.join(str(error).split())}"
        raise ProxyConfigError(message) from error
    settings = _mapping(content.get("general_settings"))
    # LiteLLM puts this section into the environment before it looks anything up there.
    variables = {**environ, **_mapping(content.get("environment_variables"))}
    key, variable = _resolved(settings.get("master_key", _REFERENCE + KEY_VARIABLE), variables)
    if key is None and (variable is None or "master_key" not in settings):
        message = f"{path} names no master key: set general_settings.master_key or {KEY_VARIABLE}"
        raise ProxyConfigError(message)
    return ProxyConfig(key, variable, _chat_model(content.get("model_list")))


def _resolved(named: object, variables: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Return a key and None, or None and the variable that it should stand in."""
    if not isinstance(named, str) or not named:
        return None, None
    if not named.startswith(_REFERENCE):
        return named, None
    variable = named.removeprefix(_REFERENCE)
    value = variables.get(variable)
    return (value, None) if isinstance(value, str) and value else (None, variable)


def _chat_model(listed: object) -> str | None:
    """Return the first model to chat with; the demo's own, which costs nothing, goes first."""
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    found = [entry for entry in map(_mapping, entries) if _is_for_chat(entry)]
    return _name_of(filter(_is_demo, found)) or _name_of(found)


def _name_of(entries: Iterable[Mapping[str, object]]) -> str | None:
    return next((str(entry["model_name"]) for entry in entries), None)


def _is_for_chat(entry: Mapping[str, object]) -> bool:
    name = entry.get("model_name")
    if not isinstance(name, str) or "*" in name:
        return False
    return _mapping(entry.get("model_info")).get("mode") in _CHAT_MODES


def _is_demo(entry: Mapping[str, object]) -> bool:
    return str(_mapping(entry.get("litellm_params")).get("model")).startswith(_DEMO_MODEL)


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
