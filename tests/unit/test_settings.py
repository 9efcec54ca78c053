"""What an operator can set: ranges, defaults, pins, and what happens to nonsense."""

from typing import Final

import pytest

from omniroute_litellm.errors import ValidationError
from omniroute_litellm.settings import (
    FIELDS,
    Origin,
    Settings,
    apply_change,
    public_name,
    resolve,
    variable_of,
)
from omniroute_litellm.types import JsonValue

DEFAULTS: Final[dict[str, object]] = {
    "enabled": False,
    "max_tokens": 2_000,
    "retention_days": 30,
    "strategy": "hybrid",
    "skills_enabled": False,
    "extraction_enabled": True,
    "injection_enabled": True,
    "extract_from": "both",
    "owner_field": "api_key",
    "scope": "apiKey",
    "injection_placement": "auto",
    "profile_max_tokens": 400,
    "fusion": "score",
    "embedding_source": "auto",
    "embedding_provider_model": None,
    "static_enabled": True,
    "transformers_enabled": False,
    "rerank_enabled": False,
    "rerank_provider_model": None,
    "vector_store": "auto",
    "no_system_models": (),
    "strict_system_models": (),
    "history_days": 30,
    "trace_days": 7,
}
PINS: Final[dict[str, tuple[str, object]]] = {
    "enabled": ("TRUE", True),
    "max_tokens": ("0", 0),
    "retention_days": ("365", 365),
    "strategy": ("exact", "recent"),
    "skills_enabled": ("yes", True),
    "extraction_enabled": ("off", False),
    "injection_enabled": ("0", False),
    "extract_from": ("user", "user"),
    "owner_field": ("end_user", "end_user"),
    "scope": ("global", "global"),
    "injection_placement": ("leading", "leading"),
    "profile_max_tokens": (" 16000 ", 16_000),
    "fusion": ("rrf", "rrf"),
    "embedding_source": ("static", "static"),
    "embedding_provider_model": (" openai/x ", "openai/x"),
    "static_enabled": ("no", False),
    "transformers_enabled": ("on", True),
    "rerank_enabled": ("1", True),
    "rerank_provider_model": ("cohere/x", "cohere/x"),
    "vector_store": ("sqlite-vec", "sqlite-vec"),
    "no_system_models": ("a, b,,", ("a", "b")),
    "strict_system_models": ("", ()),
    "history_days": ("1", 1),
    "trace_days": ("90", 90),
}
RANGES: Final = [
    ("maxTokens", 0, 16_000),
    ("retentionDays", 1, 365),
    ("profileMaxTokens", 0, 16_000),
    ("historyDays", 1, 365),
    ("traceDays", 1, 90),
]
BAD_VALUES: Final[list[tuple[str, JsonValue]]] = [
    *((name, low - 1) for name, low, _ in RANGES),
    *((name, high + 1) for name, _, high in RANGES),
    ("enabled", "true"),
    ("enabled", 1),
    ("enabled", None),
    ("maxTokens", True),
    ("maxTokens", "100"),
    ("maxTokens", 1.5),
    ("strategy", "newest"),
    ("extractFrom", "system"),
    ("ownerField", "apiKey"),
    ("scope", "api_key"),
    ("fusion", "sum"),
    ("embeddingSource", "cloud"),
    ("embeddingProviderModel", ""),
    ("embeddingProviderModel", "x" * 201),
    ("rerankProviderModel", 1),
    ("vectorStore", "qdrant"),
    ("noSystemModels", "o1"),
    ("noSystemModels", [""]),
    ("noSystemModels", [1]),
    ("noSystemModels", ["x" * 201]),
    ("strictSystemModels", [*("x" for _ in range(201))]),
    ("strategy", {"a": []}),
]


def field_of(name: str) -> str:
    """Return the field of a public name."""
    return next(field for field in FIELDS if public_name(field) == name)


class TestDefaults:
    """What holds while nobody set anything."""

    @pytest.mark.parametrize("field", FIELDS)
    def test_default(self, field: str) -> None:
        """Each field has the default that the contract names."""
        assert getattr(resolve({}, {}).values, field) == DEFAULTS[field]

    def test_origin_is_default(self) -> None:
        """Nothing set comes from anywhere but the default."""
        assert set(resolve({}, {}).origins.values()) == {Origin.DEFAULT}

    def test_memory_is_off(self) -> None:
        """Injected tokens are billed: nobody gets them unasked."""
        assert not resolve({}, {}).is_active


class TestPins:
    """What the environment holds fast."""

    @pytest.mark.parametrize("field", FIELDS)
    def test_pin(self, field: str) -> None:
        """Each field has a variable that pins it."""
        text, value = PINS[field]
        assert getattr(resolve({}, {variable_of(field): text}).values, field) == value

    @pytest.mark.parametrize("field", FIELDS)
    def test_origin(self, field: str) -> None:
        """A pinned field, and only that one, comes from the environment."""
        origins = resolve({}, {variable_of(field): PINS[field][0]}).origins
        assert [name for name, o in origins.items() if o is Origin.ENVIRONMENT] == [field]

    def test_variable_name(self) -> None:
        """A variable is the prefix and the field in upper snake case."""
        assert variable_of("max_tokens") == "OMNIROUTE_MEMORY_MAX_TOKENS"

    def test_pin_beats_database(self) -> None:
        """The environment is stronger than what is stored."""
        found = resolve({"maxTokens": 5}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "7"})
        assert found.values.max_tokens == 7

    @pytest.mark.parametrize("text", ["true", "1", "yes", "on", " On "])
    def test_words_for_true(self, text: str) -> None:
        """Four words mean on, in any case."""
        assert resolve({}, {"OMNIROUTE_MEMORY_ENABLED": text}).is_active

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            ("enabled", ""),
            ("enabled", "maybe"),
            ("max_tokens", "many"),
            ("max_tokens", "16001"),
            ("max_tokens", "-1"),
            ("max_tokens", "1.0"),
            ("max_tokens", "--1"),
            ("retention_days", "0"),
            ("strategy", "newest"),
            ("owner_field", ""),
            ("no_system_models", "x" * 201),
        ],
    )
    def test_unreadable_pin_is_a_problem(self, field: str, text: str) -> None:
        """A text that does not fit is named by its variable, in one line."""
        problems = resolve({}, {variable_of(field): text}).problems
        assert [problem.partition(":")[0] for problem in problems] == [variable_of(field)]
        assert "\n" not in problems[0]

    def test_problem_keeps_memory_off(self) -> None:
        """While anything is unreadable memory is off, although it was turned on."""
        environ = {"OMNIROUTE_MEMORY_ENABLED": "true", "OMNIROUTE_MEMORY_MAX_TOKENS": "many"}
        found = resolve({}, environ)
        assert (found.values.enabled, found.is_active) == (True, False)

    def test_unreadable_pin_hides_the_database(self) -> None:
        """What is stored does not stand in for an unreadable pin."""
        found = resolve({"maxTokens": 5}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "many"})
        assert found.values.max_tokens == DEFAULTS["max_tokens"]

    def test_absurdly_long_number_is_a_problem(self) -> None:
        """A number of thousands of digits is refused like any other."""
        found = resolve({}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "9" * 5_000})
        assert len(found.problems) == 1


class TestStored:
    """What the database holds."""

    def test_stored_value_holds(self) -> None:
        """A stored value stands above the default."""
        found = resolve({"retentionDays": 90}, {})
        assert found.values.retention_days == 90
        assert found.origins["retention_days"] is Origin.DATABASE

    def test_stored_list_holds(self) -> None:
        """A list of JSON is a tuple of the field."""
        found = resolve({"noSystemModels": ["a", "b"]}, {})
        assert found.values.no_system_models == ("a", "b")

    def test_unknown_name_is_ignored(self) -> None:
        """What a later release stored is no problem."""
        found = resolve({"fromTheFuture": 1, "max_tokens": 1}, {})
        assert (found.values, found.problems) == (Settings(), ())

    @pytest.mark.parametrize(("name", "value"), BAD_VALUES)
    def test_bad_value_is_a_problem(self, name: str, value: JsonValue) -> None:
        """A stored value that does not fit is named and left out."""
        found = resolve({name: value}, {})
        assert [problem.partition(":")[0] for problem in found.problems] == [name]
        assert found.origins[field_of(name)] is Origin.DEFAULT


class TestChange:
    """Changing."""

    @pytest.mark.parametrize(("name", "low", "high"), RANGES)
    def test_ends_of_ranges_are_accepted(self, name: str, low: int, high: int) -> None:
        """Both ends of a range belong to it."""
        for value in (low, high):
            assert apply_change(resolve({}, {}), {name: value}) == {name: value}

    @pytest.mark.parametrize(("name", "value"), BAD_VALUES)
    def test_bad_value_is_refused(self, name: str, value: JsonValue) -> None:
        """A value out of range is refused by name, never clamped."""
        with pytest.raises(ValidationError) as caught:
            apply_change(resolve({}, {}), {name: value})
        assert caught.value.field == name

    @pytest.mark.parametrize("name", ["max_tokens", "nonsense", "", "maxtokens"])
    def test_unknown_name_is_refused(self, name: str) -> None:
        """A name that is no setting is refused, the one inside of Python too."""
        with pytest.raises(ValidationError) as caught:
            apply_change(resolve({}, {}), {name: 1})
        assert caught.value.field == name

    def test_pinned_field_refuses_another_value(self) -> None:
        """What the environment pins cannot be changed, and the message names the variable."""
        current = resolve({}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "7"})
        with pytest.raises(ValidationError, match="OMNIROUTE_MEMORY_MAX_TOKENS"):
            apply_change(current, {"maxTokens": 8})

    def test_pinned_field_accepts_its_value(self) -> None:
        """A form that sends every field back as it was goes through, and stores no pin."""
        current = resolve({}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "7"})
        assert apply_change(current, {"maxTokens": 7, "traceDays": 3}) == {"traceDays": 3}

    def test_pinned_field_accepts_its_other_name(self) -> None:
        """Both names of the strategy are the same value."""
        current = resolve({}, {"OMNIROUTE_MEMORY_STRATEGY": "recent"})
        assert apply_change(current, {"strategy": "exact"}) == {}

    def test_pinned_list_accepts_its_value(self) -> None:
        """A list of JSON equals the pinned tuple."""
        current = resolve({}, {"OMNIROUTE_MEMORY_NO_SYSTEM_MODELS": "a,b"})
        assert apply_change(current, {"noSystemModels": ["a", "b"]}) == {}

    def test_nothing_changes_nothing(self) -> None:
        """An empty change stores nothing."""
        assert apply_change(resolve({}, {}), {}) == {}
