"""Settings: ranges, pins, and the same values in every process."""

from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omniroute_litellm.errors import BackendUnavailableError, ValidationError
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.settings import (
    FIELDS,
    Origin,
    Settings,
    apply_change,
    public_name,
    resolve,
    variable_of,
)
from omniroute_litellm.sqlite import Database
from tests.fakes import FakeClock

OTHER_TEXTS: Final[dict[str, tuple[str, Any]]] = {
    "enabled": ("TRUE", True),
    "max_tokens": ("500", 500),
    "retention_days": ("7", 7),
    "strategy": ("recent", "recent"),
    "skills_enabled": ("1", True),
    "extraction_enabled": ("off", False),
    "injection_enabled": ("no", False),
    "extract_from": ("user", "user"),
    "owner_field": ("team", "team"),
    "scope": ("session", "session"),
    "injection_placement": ("tail", "tail"),
    "profile_max_tokens": ("0", 0),
    "fusion": ("rrf", "rrf"),
    "embedding_source": ("remote", "remote"),
    "embedding_provider_model": ("openai/x", "openai/x"),
    "static_enabled": ("0", False),
    "transformers_enabled": ("yes", True),
    "rerank_enabled": ("TRUE", True),
    "rerank_provider_model": ("cohere/x", "cohere/x"),
    "vector_store": ("sqlite-vec", "sqlite-vec"),
    "no_system_models": ("a, b,,", ("a", "b")),
    "strict_system_models": ("vllm", ("vllm",)),
    "history_days": ("1", 1),
    "trace_days": ("90", 90),
}


def live(database: Database, **environ: str) -> LiveSettings:
    """Return the settings as one process sees them."""
    return LiveSettings(database, environ=environ, clock=FakeClock())


def test_defaults_are_safe() -> None:
    """With nothing said memory is off and every origin is the default."""
    resolved = resolve({}, {})
    assert resolved.values == Settings()
    assert not resolved.is_active
    assert set(resolved.origins.values()) == {Origin.DEFAULT}


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_can_be_pinned(field: str) -> None:
    """Each field reads its variable, which wins over the database."""
    text, value = OTHER_TEXTS[field]
    stored = Settings().model_dump(mode="json", by_alias=True)
    resolved = resolve(stored, {variable_of(field): text})
    assert getattr(resolved.values, field) == value
    assert resolved.origins[field] is Origin.ENVIRONMENT
    assert resolved.problems == ()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("enabled", "perhaps"),
        ("max_tokens", "many"),
        ("max_tokens", "-1"),
        ("max_tokens", "16001"),
        ("max_tokens", ""),
        ("strategy", "guess"),
        ("no_system_models", "x" * 201),
    ],
)
def test_an_unreadable_pin_keeps_memory_off(field: str, text: str) -> None:
    """A half-read configuration decides nothing: the variable is named, memory stays off."""
    environ = {"OMNIROUTE_MEMORY_ENABLED": "true", variable_of(field): text}
    resolved = resolve({}, environ)
    assert not resolved.is_active
    (problem,) = resolved.problems
    assert problem.startswith(variable_of(field))
    assert "\n" not in problem


@given(field=st.sampled_from(sorted(FIELDS)), text=st.text(st.characters(codec="utf-8")))
@example(field="max_tokens", text="9" * 5_000)
@example(field="max_tokens", text="\u0665\u0660\u0660")
@example(field="max_tokens", text="--5")
def test_any_text_pins_or_is_named(field: str, text: str) -> None:
    """A variable is read in full or named as a problem, and never stops the start."""
    resolved = resolve({}, {variable_of(field): text})
    is_pinned = resolved.origins[field] is Origin.ENVIRONMENT
    assert is_pinned == (not resolved.problems)


def test_unknown_stored_names_are_ignored() -> None:
    """A database of a newer release does not turn memory off."""
    assert resolve({"enabled": True, "fromTheFuture": 1}, {}).is_active


def test_an_unreadable_stored_value_is_a_problem() -> None:
    """A stored value that does not fit its field is named."""
    resolved = resolve({"enabled": True, "maxTokens": "lots"}, {})
    assert not resolved.is_active
    assert resolved.problems[0].startswith("maxTokens")
    assert resolved.values.max_tokens == 2_000


@pytest.mark.parametrize(
    "change", [{"unknown": 1}, {"maxTokens": 16_001}, {"max_tokens": 5}, {"enabled": 1}]
)
def test_bad_changes_are_refused(change: dict[str, Any]) -> None:
    """Unknown names and values out of range raise with the field's name."""
    with pytest.raises(ValidationError) as caught:
        apply_change(resolve({}, {}), change)
    assert caught.value.field == next(iter(change))


def test_a_pin_accepts_its_own_value_alone() -> None:
    """Sending the whole object back works; changing a pinned field does not."""
    current = resolve({}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "500"})
    assert apply_change(current, {"maxTokens": 500, "enabled": True}) == {"enabled": True}
    with pytest.raises(ValidationError, match="OMNIROUTE_MEMORY_MAX_TOKENS"):
        apply_change(current, {"maxTokens": 501})


def test_a_change_reaches_the_other_process(database: Database) -> None:
    """Two processes on one file agree after the next look."""
    one, other = live(database), live(database)
    assert not other.is_known
    other.refresh()
    assert other.is_known
    one.change({"enabled": True, "noSystemModels": ["x"]})
    assert one.current.is_active
    assert not other.current.is_active
    assert other.refresh().is_active
    assert other.current.values.no_system_models == ("x",)
    assert other.current.origins["enabled"] is Origin.DATABASE


def test_a_refused_change_stores_nothing(database: Database) -> None:
    """Good fields beside a bad one are not stored."""
    settings = live(database)
    with pytest.raises(ValidationError):
        settings.change({"enabled": True, "maxTokens": -1})
    assert not settings.refresh().values.enabled


def test_a_lost_database_keeps_the_last_values(tmp_path: Path) -> None:
    """When the file cannot be read the values of the last look stay in force."""
    database = Database(tmp_path / "omniroute.db")
    settings = live(database)
    settings.change({"enabled": True})
    database.close()
    with pytest.raises(BackendUnavailableError):
        settings.refresh()
    assert settings.current.is_active


def test_exact_is_another_name_of_recent(database: Database) -> None:
    """OmniRoute's word for the strategy is accepted wherever it is set."""
    assert resolve({}, {"OMNIROUTE_MEMORY_STRATEGY": "exact"}).values.strategy == "recent"
    assert live(database).change({"strategy": "exact"}).values.strategy == "recent"


def test_public_names_are_camel_case() -> None:
    """Names outside are OmniRoute's."""
    assert public_name("max_tokens") == "maxTokens"
    assert variable_of("max_tokens") == "OMNIROUTE_MEMORY_MAX_TOKENS"
