"""What an operator can set: fields, ranges, defaults, and where each value came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, cast

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from omniroute_litellm.errors import ValidationError
from omniroute_litellm.types import JsonObject, JsonValue

ENVIRONMENT_PREFIX: Final = "OMNIROUTE_MEMORY_"

MAX_BUDGET_TOKENS: Final = 16_000
"""The one upper limit of every token budget: setting, preview, MCP and retrieval."""

Strategy = Literal["recent", "semantic", "hybrid"]


def canonical_strategy(name: object) -> object:
    """Return ``recent`` for OmniRoute's other name of it, ``exact``; anything else as it is."""
    return "recent" if name == "exact" else name


ExtractFrom = Literal["both", "user", "assistant"]
OwnerField = Literal["api_key", "user", "end_user", "team"]
ScopeName = Literal["apiKey", "session", "global"]
InjectionPlacement = Literal["auto", "leading", "tail"]
Fusion = Literal["score", "rrf"]
EmbeddingSource = Literal["auto", "static", "transformers", "remote"]
VectorStore = Literal["auto", "sqlite-vec"]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]
ModelNames = tuple[Annotated[str, Field(min_length=1, max_length=200)], ...]


class Settings(BaseModel):
    """Every setting with its range and default. Names are camel case outside of Python."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, strict=True
    )

    enabled: bool = Field(
        default=False,
        description="Turn memory on: learn from conversations and add what is known to requests.",
    )
    max_tokens: int = Field(
        default=2_000,
        ge=0,
        le=MAX_BUDGET_TOKENS,
        description="Most tokens of memory that one request may carry; 0 injects nothing.",
    )
    retention_days: int = Field(
        default=30,
        ge=1,
        le=365,
        description="Days after which a memory that nobody restated is no longer used.",
    )
    strategy: Annotated[Strategy, BeforeValidator(canonical_strategy)] = Field(
        default="hybrid",
        description="How memories are chosen: newest first, relevant only, or both and profile.",
    )
    skills_enabled: bool = Field(
        default=False,
        description="Stored for OmniRoute compatibility; it changes no request yet.",
    )
    extraction_enabled: bool = Field(
        default=True, description="Learn facts from conversations while memory is on."
    )
    injection_enabled: bool = Field(
        default=True, description="Add memories to requests while memory is on."
    )
    extract_from: ExtractFrom = Field(
        default="both", description="Whose sentences are read: the person's, the answer's or both."
    )
    owner_field: OwnerField = Field(
        default="api_key",
        description="Whose memories a request uses: of its key, user, end user or team.",
    )
    scope: ScopeName = Field(
        default="apiKey",
        description="Read all of the owner's memories, only the session's, or the shared ones too.",
    )
    injection_placement: InjectionPlacement = Field(
        default="auto",
        description=(
            "Where memory stands: in front, behind the newest human text, or behind it as soon as "
            "a provider may cache the request."
        ),
    )
    profile_max_tokens: int = Field(
        default=400,
        ge=0,
        le=MAX_BUDGET_TOKENS,
        description="Tokens kept for pinned memories, preferences and habits in every request.",
    )
    fusion: Fusion = Field(
        default="score",
        description="How keyword and vector matches are combined: by their scores or their ranks.",
    )
    embedding_source: EmbeddingSource = Field(
        default="auto",
        description=(
            "Which model turns texts into vectors: the bundled table, a local transformer, any "
            "model of the proxy, or the best of what is set up."
        ),
    )
    embedding_provider_model: ModelName | None = Field(
        default=None,
        description="The embedding model of the proxy to use; its calls are billed.",
    )
    static_enabled: bool = Field(
        default=True, description="Let the automatic choice take the bundled table."
    )
    transformers_enabled: bool = Field(
        default=False, description="Let the automatic choice take the local transformer."
    )
    rerank_enabled: bool = Field(
        default=False,
        description="Have a rerank model of the proxy order what was found; its calls are billed.",
    )
    rerank_provider_model: ModelName | None = Field(
        default=None, description="The rerank model of the proxy to use."
    )
    vector_store: VectorStore = Field(
        default="auto", description="Where vectors are kept: in the same database."
    )
    no_system_models: ModelNames = Field(
        default=(),
        max_length=200,
        description="More models or providers that refuse the system role and get a user message.",
    )
    strict_system_models: ModelNames = Field(
        default=(),
        max_length=200,
        description="Models that take one system message, at the start: memory is merged into it.",
    )
    history_days: int = Field(
        default=30, ge=1, le=365, description="Days for which a change can be undone."
    )
    trace_days: int = Field(
        default=7, ge=1, le=90, description="Days for which the record of a request is kept."
    )


class Origin(StrEnum):
    """Where the value of a setting came from, strongest first."""

    ENVIRONMENT = "environment"
    DATABASE = "database"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The settings in force, the origin of each field, and what could not be read.

    ``problems`` are one-line texts. While there are any, memory stays off: a half-read
    configuration must not decide what is billed or stored.
    """

    values: Settings
    origins: Mapping[str, Origin]
    problems: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether memory is on and its configuration was read in full."""
        return self.values.enabled and not self.problems


FIELDS: Final = Settings.model_fields
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_MAX_DIGITS: Final = 20
"""More are out of every range, and Python raises on thousands of them."""


def public_name(field: str) -> str:
    """Return a field's name outside of Python, e.g. ``maxTokens``."""
    return to_camel(field)


def variable_of(field: str) -> str:
    """Return the environment variable that pins a field, e.g. ``OMNIROUTE_MEMORY_MAX_TOKENS``."""
    return ENVIRONMENT_PREFIX + field.upper()


_FIELD_BY_PUBLIC_NAME: Final = {public_name(field): field for field in FIELDS}


def resolve(stored: Mapping[str, JsonValue], environ: Mapping[str, str]) -> ResolvedSettings:
    """Combine environment, database and defaults, strongest first.

    ``stored`` is keyed by public name. Unknown stored names are ignored (a newer release wrote
    them); a value that does not fit its field is a problem and leaves the default in place.
    """
    values: dict[str, object] = {}
    origins = dict.fromkeys(FIELDS, Origin.DEFAULT)
    problems: list[str] = []
    for field in FIELDS:
        text = environ.get(variable_of(field))
        if text is not None:
            origin, name, raw = Origin.ENVIRONMENT, variable_of(field), _parse(field, text)
        elif public_name(field) in stored:
            origin, name, raw = Origin.DATABASE, public_name(field), stored[public_name(field)]
        else:
            continue
        problem = _fault_of(field, raw)
        if problem is None:
            values[field] = raw
            origins[field] = origin
        else:
            problems.append(f"{name}: {problem}")
    return ResolvedSettings(_validated(values), origins, tuple(problems))


def apply_change(current: ResolvedSettings, change: Mapping[str, JsonValue]) -> JsonObject:
    """Check a partial change and return what to store, keyed by public name.

    Raises ValidationError for an unknown name, a value out of range, and a field that the
    environment pins to another value.
    """
    accepted: JsonObject = {}
    for name, value in change.items():
        field = _FIELD_BY_PUBLIC_NAME.get(name)
        if field is None:
            message = f"unknown setting; expected one of {', '.join(sorted(_FIELD_BY_PUBLIC_NAME))}"
            raise ValidationError(message, field=name)
        problem = _fault_of(field, value)
        if problem is not None:
            raise ValidationError(problem, field=name)
        if current.origins[field] is Origin.ENVIRONMENT:
            if _validated({field: value}) != _validated({field: getattr(current.values, field)}):
                message = f"pinned by the environment variable {variable_of(field)}"
                raise ValidationError(message, field=name)
            continue
        accepted[name] = value
    return accepted


def _validated(values: Mapping[str, object]) -> Settings:
    # Lists come from JSON, the model holds tuples: lax mode converts just these.
    return Settings.model_validate(
        {
            name: tuple(cast("list[object]", v)) if isinstance(v, list) else v
            for name, v in values.items()
        }
    )


def _fault_of(field: str, value: object) -> str | None:
    try:
        _validated({field: value})
    except pydantic.ValidationError as error:
        return f"{error.errors()[0]['msg']}; got {value!r}"
    return None


def _parse(field: str, text: str) -> object:
    """Read an environment text as the field's type; an unreadable one stays text and is refused."""
    default = FIELDS[field].default
    lowered = text.strip().casefold()
    if isinstance(default, bool):
        return True if lowered in _TRUE else False if lowered in _FALSE else text
    if isinstance(default, int):
        is_number = lowered.removeprefix("-").isdecimal() and len(lowered) <= _MAX_DIGITS
        return int(lowered) if is_number else text
    if default is None and not lowered:
        return None
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text.strip()
