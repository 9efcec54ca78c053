"""Memories over REST."""

from typing import Any, Final

import pytest

from omniroute_litellm.runtime import Runtime
from tests.api.conftest import ANN, BOB, Client, owner_of

TEA: Final = {"content": "I prefer tea", "key": "preference:tea"}
SHAPE: Final = {
    "id",
    "apiKeyId",
    "sessionId",
    "type",
    "key",
    "content",
    "metadata",
    "createdAt",
    "updatedAt",
    "expiresAt",
    "status",
    "source",
    "pinned",
    "lastSeenAt",
    "accessCount",
    "lastAccessedAt",
    "needsReindex",
    "tokens",
}


def add(client: Client, **body: Any) -> dict[str, Any]:
    """Store a memory and return it."""
    response = client.post("/memory", json={**TEA, **body})
    assert response.status_code in {200, 201}, response.text
    memory: dict[str, Any] = response.json()["memory"]
    return memory


def code(response: Any) -> str:
    """Return the machine code of an error answer, which has to be in the envelope."""
    body = response.json()
    assert set(body) == {"error", "requestId"}
    assert set(body["error"]) == {"code", "message", "details"}
    return str(body["error"]["code"])


def test_a_new_memory_is_created(ann: Client) -> None:
    """A new slot answers 201 with the whole memory."""
    response = ann.post("/memory", json=TEA)
    assert response.status_code == 201
    body = response.json()
    assert body["success"] is True
    assert body["created"] is True
    assert set(body["memory"]) == SHAPE
    assert body["memory"]["apiKeyId"] == owner_of(ANN)
    assert body["memory"]["source"] == "manual"
    assert ann.get(f"/memory/{body['id']}").json() == {"memory": body["memory"]}


def test_a_taken_slot_is_updated(ann: Client) -> None:
    """The same key again answers 200 and keeps the id."""
    first = add(ann)
    response = ann.post("/memory", json={**TEA, "content": "I prefer green tea"})
    assert response.status_code == 200
    assert response.json()["created"] is False
    assert response.json()["id"] == first["id"]


def test_a_missing_key_is_derived(ann: Client) -> None:
    """Without a key the slot is named after type and content."""
    body = {"content": "I prefer tea!", "type": "semantic"}
    assert ann.post("/memory", json=body).json()["memory"]["key"] == "semantic:i_prefer_tea"


def test_an_admin_names_the_owner(admin: Client) -> None:
    """An admin has no memories of its own by accident."""
    response = admin.post("/memory", json=TEA)
    assert response.status_code == 422
    assert response.json()["error"]["details"][0]["field"] == "apiKeyId"
    assert add(admin, apiKeyId="global")["apiKeyId"] == "global"


def test_a_virtual_key_reaches_its_own_alone(ann: Client, bob: Client, admin: Client) -> None:
    """Foreign ids look like unknown ones; naming a foreign owner is refused."""
    memory = add(ann)
    foreign = [
        bob.get(f"/memory/{memory['id']}"),
        bob.put(f"/memory/{memory['id']}", json={"pinned": True}),
        bob.delete(f"/memory/{memory['id']}"),
        bob.post(f"/memory/{memory['id']}/undo"),
        bob.get(f"/memory/{memory['id']}/history"),
    ]
    unknown = [
        bob.get("/memory/unknown"),
        bob.put("/memory/unknown", json={"pinned": True}),
        bob.delete("/memory/unknown"),
        bob.post("/memory/unknown/undo"),
        bob.get("/memory/unknown/history"),
    ]
    for one, other in zip(foreign, unknown, strict=True):
        assert one.status_code == other.status_code == 404
        assert one.json()["error"] == other.json()["error"]
    assert bob.get("/memory").json()["total"] == 0
    assert bob.get("/memory", params={"apiKeyId": owner_of(ANN)}).status_code == 403
    assert bob.post("/memory", json={**TEA, "apiKeyId": owner_of(ANN)}).status_code == 403
    assert admin.get(f"/memory/{memory['id']}").status_code == 200
    assert admin.get("/memory", params={"apiKeyId": owner_of(ANN)}).json()["total"] == 1


@pytest.mark.parametrize("path", ["/memory/health", "/settings/memory"])
def test_management_needs_an_admin(ann: Client, path: str) -> None:
    """A virtual key is refused on what is not its own."""
    response = ann.get(path)
    assert response.status_code == 403
    assert code(response) == "forbidden"


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer ", "Bearer wrong", "Basic c2s6YWRtaW4=", "sk-admin"]
)
def test_strangers_get_nothing(runtime: Runtime, header: str | None) -> None:
    """Without a valid bearer key everything answers 401."""
    client = Client(runtime, "x")
    client.headers.pop("Authorization")
    if header is not None:
        client.headers["Authorization"] = header
    for path in ("/memory", "/memory/x", "/memory/health", "/settings/memory"):
        response = client.get(path)
        assert response.status_code == 401
        assert code(response) == "unauthenticated"


def test_a_key_of_nobody_is_refused(runtime: Runtime) -> None:
    """A valid key without an owner reaches nothing."""
    assert Client(runtime, "sk-nobody").get("/memory").status_code == 403


def test_lists_filter_sort_and_page(admin: Client, ann: Client, bob: Client) -> None:
    """Every filter narrows; offset wins over page."""
    add(ann, key="a", content="alpha one", type="episodic", sessionId="s1", pinned=True)
    add(ann, key="b", content="beta two")
    add(bob, key="c", content="gamma three")

    def keys(**parameters: Any) -> list[str]:
        response = admin.get("/memory", params=parameters)
        assert response.status_code == 200, response.text
        return [memory["key"] for memory in response.json()["data"]]

    assert keys() == ["c", "b", "a"]
    assert keys(sort="key") == ["a", "b", "c"]
    assert keys(type="episodic") == ["a"]
    assert keys(sessionId="s1") == ["a"]
    assert keys(pinned=True) == ["a"]
    assert keys(q="two") == ["b"]
    assert keys(status="archived") == []
    assert keys(source="manual", apiKeyId=owner_of(BOB)) == ["c"]
    assert keys(limit=1, page=2) == ["b"]
    page = admin.get("/memory", params={"limit": 1, "page": 1, "offset": 2}).json()
    assert [memory["key"] for memory in page["data"]] == ["a"]
    assert (page["page"], page["limit"], page["totalPages"], page["total"]) == (3, 1, 3, 3)
    stats = page["stats"]
    assert stats["total"] == 3
    assert stats["byType"] == {"factual": 2, "episodic": 1, "procedural": 0, "semantic": 0}
    assert stats["hitRate"] == 0
    assert stats["cacheStats"] == {"hits": 0, "misses": 0, "size": 0}


@pytest.mark.parametrize(
    "parameters",
    [
        {"page": 0},
        {"page": "x"},
        {"page": 10**30},
        {"limit": 0},
        {"limit": 201},
        {"offset": -1},
        {"offset": 10**30},
        {"type": "wrong"},
        {"status": "wrong"},
        {"sort": "wrong"},
        {"pinned": "perhaps"},
        {"q": "x" * 501},
    ],
)
def test_bad_list_parameters_are_named(admin: Client, parameters: dict[str, Any]) -> None:
    """What does not fit answers 422 and names the parameter."""
    response = admin.get("/memory", params=parameters)
    assert response.status_code == 422
    assert response.json()["error"]["details"][0]["field"] == next(iter(parameters))


def test_edits_change_what_they_name(ann: Client) -> None:
    """A field that is left out stays; ``expiresAt: null`` makes permanent."""
    memory = add(ann, metadata={"a": 1}, expiresAt="2100-01-01T00:00:00Z")
    body = {"content": "I prefer coffee", "pinned": True, "expiresAt": None}
    response = ann.put(f"/memory/{memory['id']}", json=body)
    assert response.status_code == 200
    changed = response.json()["memory"]
    assert changed["content"] == "I prefer coffee"
    assert changed["pinned"] is True
    assert changed["expiresAt"] is None
    assert changed["metadata"] == {"a": 1}
    assert changed["key"] == memory["key"]
    assert changed["updatedAt"] > memory["updatedAt"]


def test_a_stale_edit_is_a_conflict(ann: Client) -> None:
    """Whoever edits what changed meanwhile is told, and nothing is lost."""
    memory = add(ann)
    url = f"/memory/{memory['id']}"
    assert ann.put(url, json={"pinned": True, "updatedAt": memory["updatedAt"]}).status_code == 200
    stale = ann.put(url, json={"content": "lost", "updatedAt": memory["updatedAt"]})
    assert stale.status_code == 409
    assert code(stale) == "conflict"
    assert ann.get(url).json()["memory"]["content"] == "I prefer tea"


def test_an_occupied_key_is_a_conflict(ann: Client) -> None:
    """Two active memories never share a slot."""
    add(ann)
    other = add(ann, key="preference:coffee")
    response = ann.put(f"/memory/{other['id']}", json={"key": "preference:tea"})
    assert response.status_code == 409


@pytest.mark.parametrize("field", ["type", "key", "content", "metadata", "pinned", "status"])
def test_null_is_no_value(ann: Client, field: str) -> None:
    """Only the expiry may be null."""
    memory = add(ann)
    response = ann.put(f"/memory/{memory['id']}", json={field: None})
    assert response.status_code == 422
    assert response.json()["error"]["details"][0]["field"] == field


def test_delete_undo_and_history(ann: Client) -> None:
    """A deleted memory comes back whole, once; the history says what was before."""
    memory = add(ann)
    url = f"/memory/{memory['id']}"
    ann.put(url, json={"content": "I prefer coffee"})
    (entry,) = ann.get(f"{url}/history").json()["data"]
    assert entry["before"]["content"] == "I prefer tea"
    assert entry["actor"].startswith("key:")
    assert "pk" not in entry["before"]
    assert ann.delete(url).json() == {"success": True}
    assert ann.get(url).status_code == 404
    assert ann.delete(url).status_code == 404
    restored = ann.post(f"{url}/undo")
    assert restored.json()["memory"]["content"] == "I prefer coffee"
    assert ann.post(f"{url}/undo").json()["memory"]["content"] == "I prefer tea"
    assert ann.post(f"{url}/undo").status_code == 404


def test_undo_onto_a_taken_slot_is_a_conflict(ann: Client) -> None:
    """Undo does not overwrite what holds the slot now."""
    memory = add(ann)
    ann.delete(f"/memory/{memory['id']}")
    add(ann, content="I prefer green tea")
    assert ann.post(f"/memory/{memory['id']}/undo").status_code == 409


def test_broken_json_is_malformed(ann: Client) -> None:
    """A body that is no JSON answers 400."""
    for body in (b"{", b"\xff\xfe", b'{"content": "x"', b""):
        response = ann.post("/memory", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in {400, 422}, body
        code(response)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": "  \u0000 "},
        {"content": "x" * 8_001},
        {"content": 7},
        {"content": "x", "type": "wrong"},
        {"content": "x", "key": ""},
        {"content": "x", "key": "k" * 201},
        {"content": "x", "metadata": []},
        {"content": "x", "metadata": {"a": "b" * 20_000}},
        {"content": "x", "expiresAt": "yesterday"},
        {"content": "x", "expiresAt": "0001-01-01T00:00:00+14:00"},
        {"content": "x", "expiresAt": "9999-12-31T23:59:59-14:00"},
        {"content": "x", "pinned": "yes please"},
        {"content": "x", "unknown": 1},
    ],
)
def test_bad_memories_are_refused(ann: Client, body: dict[str, Any]) -> None:
    """What does not fit answers 422, names the field, and stores nothing."""
    response = ann.post("/memory", json=body)
    assert response.status_code == 422, response.text
    assert code(response) == "invalid_value"
    assert ann.get("/memory").json()["total"] == 0


@pytest.mark.parametrize(
    "raw",
    [
        '{"content": "x", "metadata": {"a": NaN}}',
        '{"content": "x", "metadata": {"a": 1e999}}',
        '{"content": "x", "metadata": {"a": 123456789012345678901234567890}}',
        '{"content": "x", "metadata": {"a": "\\ud800"}}',
        '{"content": "\\ud800 hello \\u0000"}',
        '{"content": "x", "metadata": ' + '{"a":' * 3_000 + "1" + "}" * 3_000 + "}",
        '{"content": "x", "key": "\\ud800k"}',
        '{"content": "x", "sessionId": "\\ud800s"}',
    ],
)
def test_hostile_bodies_never_break_the_server(ann: Client, raw: str) -> None:
    """Numbers without end, half characters and deep nesting are values or errors, not faults."""
    response = ann.post("/memory", content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code in {201, 400, 422}, response.text
    assert ann.get("/memory").status_code == 200


@pytest.mark.parametrize(
    "memory_id", ["%00", "%F0%9F%98%80", "' OR 1=1 --", "../settings", "a" * 500]
)
def test_hostile_ids_are_unknown(ann: Client, memory_id: str) -> None:
    """Any text as an id is an id that nobody has."""
    assert ann.get(f"/memory/{memory_id}").status_code in {401, 403, 404}
