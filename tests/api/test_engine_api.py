"""The engine over REST: status, reindex, preview."""

from typing import Any

import pytest

from omniroute_litellm.runtime import Runtime
from tests.api.conftest import ANN, BOB, Client, owner_of

FACTS = ("I drink green tea", "We chose Postgres for billing", "My puppy sleeps in the kitchen")


def store(client: Client, *contents: str) -> None:
    """Store memories of the client's owner."""
    for content in contents:
        assert client.post("/memory", json={"content": content}).status_code == 201


def settle(runtime: Runtime) -> None:
    """Let the worker finish."""
    runtime.settings.refresh()
    while runtime.engine.indexer.step():
        pass
    runtime.engine.semantic.refresh()


def status(admin: Client) -> dict[str, Any]:
    """Return the state of the engine."""
    response = admin.get("/memory/engine-status")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def preview(client: Client, query: str, **more: Any) -> dict[str, Any]:
    """Try a question."""
    response = client.post("/memory/retrieve-preview", json={"query": query, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_status_follows_the_work(runtime: Runtime, admin: Client, ann: Client) -> None:
    """From nothing over waiting to covered, as it is found and not as it should be."""
    store(ann, *FACTS)
    before = status(admin)
    assert before["keyword"] == {"available": True, "backend": "fts5", "reason": None}
    assert before["embedding"]["source"] == "static"
    assert before["vectorStore"]["reason"] == "index_building"
    assert before["vectorStore"]["coverage"] == {"total": 3, "indexed": 0, "failed": 0}
    settle(runtime)
    after = status(admin)["vectorStore"]
    assert (after["available"], after["reason"], after["rowCount"]) == (True, None, 3)
    assert after["coverage"] == {"total": 3, "indexed": 3, "failed": 0}
    assert (after["signature"], after["needsReindex"]) == ("static:static256:256", 0)
    report = admin.get("/memory/health").json()
    assert report["coverage"]["indexed"] == 3
    assert report["tiers"][1] == {"name": "vector", "available": True, "reason": None}


def test_reindex_runs_once_and_can_be_cancelled(
    runtime: Runtime, admin: Client, ann: Client
) -> None:
    """202, then 409 while it runs; cancel leaves what answers; an empty body is an order."""
    assert admin.post("/memory/reindex").json() == {"started": False, "pending": 0, "jobId": ""}
    store(ann, *FACTS)
    settle(runtime)
    started = admin.post("/memory/reindex", json={"force": True})
    assert (started.status_code, started.json()["pending"]) == (202, 3)
    assert admin.post("/memory/reindex", json={"force": True}).status_code == 409
    building = status(admin)["vectorStore"]["building"]
    assert (building["id"], building["total"], building["done"]) == (started.json()["jobId"], 3, 0)
    assert admin.delete("/memory/reindex").status_code == 200
    assert admin.delete("/memory/reindex").status_code == 404
    assert status(admin)["vectorStore"]["coverage"]["indexed"] == 3
    again = admin.post("/memory/reindex", json={})
    assert (again.status_code, again.json()["pending"]) == (202, 0)


def test_reindex_without_a_model_says_why(admin: Client, ann: Client) -> None:
    """What cannot be done is a 503 with the reason in words."""
    store(ann, *FACTS)
    change = {"embeddingSource": "remote"}
    assert admin.put("/settings/memory", json=change).status_code == 200
    refused = admin.post("/memory/reindex", json={"force": True})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "backend_unavailable")
    embedding = status(admin)["embedding"]
    assert (embedding["available"], embedding["reason"]) == (False, "model_unnamed")
    assert "embeddingProviderModel" in embedding["hint"]


def test_preview_is_what_a_request_would_carry(runtime: Runtime, ann: Client) -> None:
    """Scores of each tier, tokens, what answered; nothing of it counts as use."""
    store(ann, *FACTS)
    settle(runtime)
    found = preview(ann, "Where does the dog sleep?", strategy="semantic")
    first = found["memories"][0]
    assert first["content"] == FACTS[2]
    assert first["injected"]
    assert first["vecScore"] == pytest.approx(first["score"])
    assert found["resolution"] == {
        "embeddingSource": "static",
        "embeddingModel": "static256",
        "vectorStore": "sqlite-vec",
        "strategyUsed": "semantic",
        "rerankApplied": False,
        "fallbackReason": None,
    }
    injected = [entry for entry in found["memories"] if entry["injected"]]
    assert found["totalTokensUsed"] == sum(entry["tokens"] for entry in injected)
    assert ann.get("/memory").json()["data"][0]["accessCount"] == 0
    assert ann.get("/memory").json()["stats"]["cacheStats"]["misses"] == 1


def test_preview_names_what_was_dropped(runtime: Runtime, ann: Client) -> None:
    """Kept memories come first, then dropped ones; the limit cuts the list alone."""
    store(ann, *FACTS)
    settle(runtime)
    found = preview(ann, "green tea", strategy="semantic", maxTokens=6, limit=2)
    assert [entry["injected"] for entry in found["memories"]] == [True, False]
    assert found["memories"][1]["droppedReason"] == "over_budget"
    assert (found["budgetMaxTokens"], found["trace"]["considered"]) == (6, 3)


def test_preview_of_words_says_why(ann: Client) -> None:
    """While there is no index the words answer, and the resolution names the reason."""
    store(ann, *FACTS)
    found = preview(ann, "green tea", strategy="semantic")
    assert found["resolution"]["fallbackReason"] == "index_building"
    assert found["resolution"]["embeddingSource"] is None
    assert found["memories"][0]["ftsScore"] > 0


def test_previews_stay_with_their_owner(admin: Client, ann: Client) -> None:
    """A key tries its own memories; an admin names whose."""
    store(ann, *FACTS)
    foreign = {"query": "tea", "apiKeyId": owner_of(BOB)}
    assert ann.post("/memory/retrieve-preview", json=foreign).status_code == 403
    assert admin.post("/memory/retrieve-preview", json={"query": "tea"}).status_code == 422
    named = preview(admin, "tea", apiKeyId=owner_of(ANN), strategy="exact")
    assert (len(named["memories"]), named["resolution"]["strategyUsed"]) == (3, "recent")
    assert ann.get("/memory/engine-status").status_code == 403
    assert ann.post("/memory/reindex").status_code == 403
    assert ann.delete("/memory/reindex").status_code == 403


def test_a_session_scope_needs_a_session(admin: Client, ann: Client) -> None:
    """Without one there is nothing to search in."""
    assert admin.put("/settings/memory", json={"scope": "session"}).status_code == 200
    refused = ann.post("/memory/retrieve-preview", json={"query": "tea"})
    assert refused.json()["error"]["details"][0]["field"] == "sessionId"
    assert preview(ann, "tea", sessionId="one")["memories"] == []
