"""Settings and health over REST."""

from pathlib import Path
from typing import Any

import pytest

from omniroute_litellm.runtime import Runtime
from omniroute_litellm.settings import FIELDS, public_name
from tests.api.conftest import ADMIN, Client, FourKeys


def test_settings_start_at_their_defaults(admin: Client) -> None:
    """Every field is there, under its public name; memory is off."""
    values = admin.get("/settings/memory").json()
    assert set(values) == {public_name(field) for field in FIELDS}
    assert values["enabled"] is False
    assert values["maxTokens"] == 2000


def test_a_change_is_partial(admin: Client) -> None:
    """A PUT changes what it names and returns the whole."""
    values = admin.put("/settings/memory", json={"enabled": True, "strategy": "recent"}).json()
    assert values["enabled"] is True
    assert values["strategy"] == "recent"
    assert values["retentionDays"] == 30
    assert admin.get("/settings/memory").json() == values


def test_explain_tells_where_values_come_from(tmp_path: Path) -> None:
    """Each field comes with source and pin."""
    environ = {"OMNIROUTE_DATA_DIR": str(tmp_path), "OMNIROUTE_MEMORY_MAX_TOKENS": "500"}
    runtime = Runtime(environ=environ, authority=FourKeys())
    admin = Client(runtime, ADMIN)
    admin.put("/settings/memory", json={"enabled": True})
    told = admin.get("/settings/memory", params={"explain": "true"}).json()
    assert told["maxTokens"] == {"value": 500, "source": "environment", "pinned": True}
    assert told["enabled"] == {"value": True, "source": "database", "pinned": False}
    assert told["scope"] == {"value": "apiKey", "source": "default", "pinned": False}
    refused = admin.put("/settings/memory", json={"maxTokens": 600})
    assert refused.status_code == 422
    assert "OMNIROUTE_MEMORY_MAX_TOKENS" in refused.json()["error"]["message"]
    assert admin.put("/settings/memory", json={"maxTokens": 500}).status_code == 200
    runtime.database.close()


@pytest.mark.parametrize(
    "change",
    [
        {"maxTokens": -1},
        {"maxTokens": 16_001},
        {"maxTokens": "100"},
        {"maxTokens": True},
        {"maxTokens": 1.5},
        {"retentionDays": 0},
        {"retentionDays": 366},
        {"strategy": "guess"},
        {"enabled": "true"},
        {"enabled": None},
        {"noSystemModels": "glm"},
        {"noSystemModels": [1]},
        {"noSystemModels": ["x" * 300]},
        {"unknown": 1},
    ],
)
def test_bad_values_change_nothing(admin: Client, change: dict[str, Any]) -> None:
    """A refused value names its field, and the good ones beside it are not stored either."""
    before = admin.get("/settings/memory").json()
    response = admin.put("/settings/memory", json={"traceDays": 3, **change})
    assert response.status_code == 422
    assert response.json()["error"]["details"][0]["field"] == next(iter(change))
    assert admin.get("/settings/memory").json() == before


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b"{"])
def test_settings_need_an_object(admin: Client, body: bytes) -> None:
    """Anything but an object is refused."""
    headers = {"Content-Type": "application/json"}
    response = admin.put("/settings/memory", content=body, headers=headers)
    assert response.status_code in {400, 422}


def test_lists_are_stored(admin: Client) -> None:
    """A list of models comes back as it was sent."""
    values = admin.put("/settings/memory", json={"noSystemModels": ["my-model"]}).json()
    assert values["noSystemModels"] == ["my-model"]


def test_health_proves_the_store(admin: Client, runtime: Runtime) -> None:
    """The report comes from a real round trip, which leaves nothing behind."""
    report = admin.get("/memory/health").json()
    assert report["working"] is True
    assert report["error"] is None
    assert report["latencyMs"] > 0
    assert report["tiers"][0] == {"name": "keyword", "available": True, "reason": None}
    assert report["outbox"] == {"waiting": 0, "setAside": 0, "backlog": 0}
    assert report["faults"] == []
    assert runtime.store.totals(None).total == 0
    assert runtime.store.owners() == []


def test_health_of_a_broken_store_is_an_answer(tmp_path: Path) -> None:
    """With the store away the report says so instead of failing."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    broken = Runtime(environ={"OMNIROUTE_DATA_DIR": str(blocker / "data")}, authority=FourKeys())
    admin = Client(broken, ADMIN)
    response = admin.get("/memory/health")
    assert response.status_code == 200
    report = response.json()
    assert report["working"] is False
    assert "cannot make the data directory" in report["error"]
    assert report["tiers"][0]["reason"] == "database_unwritable"
    assert report["outbox"] is None
    assert admin.get("/memory").status_code == 503
    assert admin.put("/settings/memory", json={"enabled": True}).status_code == 503
