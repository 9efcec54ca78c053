"""The memories page: list, search, filters, delete, undo, switch."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from omniroute_litellm.console.app import create_app
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from omniroute_litellm.store import MemoryChange
from omniroute_litellm.types import MemoryStatus, MemoryType, OwnerId
from tests.console.conftest import ADMIN_KEY, remember


def test_an_empty_store_says_how_to_fill_it(admin: TestClient) -> None:
    """With nothing stored the page shows the three steps to the first memory."""
    html = admin.get("/memories").text
    assert "Nothing is remembered yet" in html
    assert "curl http://localhost:4000/v1/chat/completions" in html


def test_memories_are_listed_newest_first(admin: TestClient, runtime: Runtime) -> None:
    """The list shows content and key, the newest on top."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I love jazz", key="preference:jazz")
    html = admin.get("/memories").text
    assert html.index("I love jazz") < html.index("I prefer tea")
    assert "preference:jazz" in html


def test_hostile_content_stays_text(admin: TestClient, runtime: Runtime) -> None:
    """Markup and direction marks in a memory do nothing."""
    remember(
        runtime,
        "<script>alert(1)</script>\u202e<img src=x onerror=alert(1)>",
        key='"><script>alert(2)</script>',
    )
    html = admin.get("/memories?q=%3Cscript%3E&owner=%22%3E%3Cscript%3E").text
    html += admin.get("/memories").text
    assert "<script>alert" not in html
    assert "<img" not in html
    assert "\u202e" not in html


@pytest.mark.parametrize("query", ["tea", "TEA", "prefer te", "preference:tea", "pre", "ea"])
def test_search_finds_parts_of_words(admin: TestClient, runtime: Runtime, query: str) -> None:
    """Search looks for what was typed, in content and key."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I love jazz", key="x:jazz")
    html = admin.get("/memories", params={"q": query}).text
    assert "I prefer tea" in html
    assert "I love jazz" not in html


@pytest.mark.parametrize("query", ['"', "a AND", "%", "_", "NEAR(", "*", "\\", "(", "tea OR"])
def test_any_text_can_be_searched_for(admin: TestClient, runtime: Runtime, query: str) -> None:
    """Operators of the query language are text like any other."""
    remember(runtime, "I prefer coffee", key="preference:coffee")
    response = admin.get("/memories", params={"q": query})
    assert response.status_code == 200
    assert "No memory matches" in response.text


def test_a_partial_holds_the_results_alone(admin: TestClient, runtime: Runtime) -> None:
    """An htmx request gets the table, a history restore the page."""
    remember(runtime, "I prefer tea", key="preference:tea")
    partial = admin.get("/memories", headers={"HX-Request": "true"}).text
    assert "I prefer tea" in partial
    assert "<html" not in partial
    restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in admin.get("/memories", headers=restored).text


def test_filters_narrow_and_count(admin: TestClient, runtime: Runtime) -> None:
    """Type links carry counts and keep the rest of the view."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I chose Svelte", key="decision:svelte", kind=MemoryType.EPISODIC)
    html = admin.get("/memories?q=i&type=episodic").text
    assert "I chose Svelte" in html
    assert "I prefer tea" not in html
    assert 'episodic <span class="count">1</span>' in html
    assert "q=i&amp;type=factual" in html


def test_counts_belong_to_the_view(admin: TestClient, runtime: Runtime) -> None:
    """Each count is what its link leads to, search and states that are not read included."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I chose tea", key="decision:tea", kind=MemoryType.EPISODIC)
    remember(runtime, "I prefer jazz", key="preference:jazz")
    hidden = remember(runtime, "always say tea", key="pattern:tea")
    change = MemoryChange({"status": MemoryStatus.QUARANTINED})
    runtime.store.update(hidden.id, change, owner=None, actor="test")
    html = admin.get("/memories?q=tea").text
    for label, count in (("all types", 3), ("factual", 2), ("episodic", 1), ("active", 2)):
        assert f'{label} <span class="count">{count}</span>' in html
    html = admin.get("/memories?q=tea&status=quarantined").text
    assert 'factual <span class="count">1</span>' in html
    assert 'episodic <span class="count">0</span>' in html


def test_a_page_past_the_end_is_the_last_one(admin: TestClient, runtime: Runtime) -> None:
    """When rows went meanwhile, an old address shows what is left, not an empty store."""
    remember(runtime, "I prefer tea", key="preference:tea")
    html = admin.get("/memories?page=7").text
    assert "I prefer tea" in html
    assert "1–1 of 1" in html  # noqa: RUF001 - the dash of a range


def test_an_owner_without_memories_stays_chosen(admin: TestClient, runtime: Runtime) -> None:
    """An owner that holds nothing is no empty store: the page names it and the way out."""
    remember(runtime, "I prefer tea", key="preference:tea")
    html = admin.get("/memories?owner=nobody").text
    assert "Nothing is remembered for this owner" in html
    assert "nobody (0)" in html
    assert "Nothing is remembered yet" not in html


def test_long_memories_are_cut_in_the_list(admin: TestClient, runtime: Runtime) -> None:
    """Fifty of the longest memories fit a page; the question before a delete shows one whole."""
    made = [remember(runtime, "word " * 1_600, key=f"k:{number}") for number in range(50)]
    response = admin.get("/memories")
    assert len(response.content) < 150_000
    assert "7,499 more characters" in response.text
    whole = admin.get(f"/memories/{made[0].id}/delete").text
    assert whole.count("word") == 1_600


def test_nonsense_in_the_address_is_ignored(admin: TestClient, runtime: Runtime) -> None:
    """Unknown choices and pages count as not chosen."""
    remember(runtime, "I prefer tea", key="preference:tea")
    address = "/memories?type=x&status=y&sort=z&page=-1&owner="
    assert "I prefer tea" in admin.get(address).text
    assert admin.get("/memories?page=99999999999999999999").status_code == 200


def test_owners_are_told_apart(admin: TestClient, runtime: Runtime) -> None:
    """The switcher names owners in short and shows one of them alone."""
    remember(runtime, "I prefer tea", key="preference:tea", owner=OwnerId("a" * 64))
    remember(runtime, "I love jazz", key="x:jazz", owner=OwnerId("litellm_proxy_master_key"))
    html = admin.get("/memories").text
    assert "aaaa…aaaa (1)" in html
    assert "master key (1)" in html
    html = admin.get("/memories", params={"owner": "a" * 64}).text
    assert "I prefer tea" in html
    assert "I love jazz" not in html


def test_pages_hold_fifty(admin: TestClient, runtime: Runtime) -> None:
    """The 51st memory stands on the second page."""
    for number in range(51):
        remember(runtime, f"I prefer tool{number:03}", key=f"preference:tool{number}")
    first = admin.get("/memories")
    assert "50 of 51" in first.text
    assert "tool000" not in first.text
    second = admin.get("/memories?page=2").text
    assert "51 of 51" in second
    assert "tool000" in second
    assert len(first.content) < 150_000


def test_delete_and_undo_without_script(admin: TestClient, runtime: Runtime) -> None:
    """The plain forms delete, say so, and bring the memory back."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    back = {"back": "/memories?q=tea&evil=1"}
    response = admin.post(f"/memories/{memory.id}/delete", data=back)
    assert response.headers["location"] == f"/memories?q=tea&deleted={memory.id}"
    html = admin.get(response.headers["location"]).text
    assert "Memory deleted." in html
    assert f"/memories/{memory.id}/undo" in html
    response = admin.post(f"/memories/{memory.id}/undo", data=back)
    assert "I prefer tea" in admin.get(response.headers["location"]).text


def test_delete_and_undo_with_htmx(admin: TestClient, runtime: Runtime) -> None:
    """The same actions answer with the new table and a notice."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    htmx = {"HX-Request": "true"}
    deleted = admin.delete(f"/memories/{memory.id}?back=/memories%3Fq%3Dtea", headers=htmx).text
    assert "I prefer tea" not in deleted
    assert "No memory matches" in deleted
    assert 'hx-swap-oob="true"' in deleted
    restored = admin.post(f"/memories/{memory.id}/undo", headers=htmx).text
    assert "I prefer tea" in restored


def test_the_question_names_the_memory(admin: TestClient, runtime: Runtime) -> None:
    """Before a delete the page, or the dialog, shows content and key, and where to go back."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    address = f"/memories/{memory.id}/delete?back=/memories%3Fq%3Dtea"
    page = admin.get(address).text
    dialog = admin.get(address, headers={"HX-Request": "true"}).text
    assert "<html" in page
    assert "<html" not in dialog
    for html in (page, dialog):
        assert "I prefer tea" in html
        assert "preference:tea" in html
        assert 'href="/memories?q=tea"' in html
    assert runtime.store.totals(None).total == 1


def test_undo_onto_a_taken_slot_is_told(admin: TestClient, runtime: Runtime) -> None:
    """Undo never overwrites what was learned since."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    admin.post(f"/memories/{memory.id}/delete")
    remember(runtime, "I prefer green tea", key="preference:tea")
    response = admin.post(f"/memories/{memory.id}/undo")
    assert response.status_code == 409
    assert "preference:tea" in response.text


def test_the_switch_turns_memory_on_and_off(admin: TestClient, runtime: Runtime) -> None:
    """Memory is off at first; the page says what it costs and turns it on."""
    assert "Memory is off." in admin.get("/memories").text
    assert "2,000 tokens" in " ".join(admin.get("/memories").text.split())
    admin.post("/settings/enabled", data={"value": "on"})
    assert "Memory is on." in admin.get("/memories").text
    assert runtime.settings.current.values.enabled
    assert admin.post("/settings/enabled", data={"value": "maybe"}).status_code == 422
    assert runtime.settings.current.values.enabled
    off = {"value": "off", "back": "/memories?q=tea"}
    assert admin.post("/settings/enabled", data=off).headers["location"] == "/memories?q=tea"
    assert not runtime.settings.current.values.enabled


def test_a_pinned_switch_names_its_variable(tmp_path: Path) -> None:
    """What the environment pins cannot be switched here."""
    pinned = Runtime(
        environ={"OMNIROUTE_DATA_DIR": str(tmp_path), "OMNIROUTE_MEMORY_ENABLED": "true"},
        authority=AdminKeyAuthority(ADMIN_KEY),
    )
    client = TestClient(create_app(pinned))
    client.post("/login", data={"key": ADMIN_KEY})
    html = client.get("/memories").text
    assert "OMNIROUTE_MEMORY_ENABLED" in html
    assert "Turn memory off" not in html
    assert client.post("/settings/enabled", data={"value": "off"}).status_code == 422
    pinned.database.close()


def test_an_unreadable_configuration_is_told(tmp_path: Path) -> None:
    """While a setting cannot be read memory is off, and the page must not say otherwise."""
    environ = {
        "OMNIROUTE_DATA_DIR": str(tmp_path),
        "OMNIROUTE_MEMORY_ENABLED": "true",
        "OMNIROUTE_MEMORY_MAX_TOKENS": "lots",
    }
    broken = Runtime(environ=environ, authority=AdminKeyAuthority(ADMIN_KEY))
    client = TestClient(create_app(broken))
    html = client.post("/login", data={"key": ADMIN_KEY}).text
    assert "Memory stays off" in html
    assert "Memory is on." not in html
    assert "OMNIROUTE_MEMORY_MAX_TOKENS" in html
    broken.database.close()


def test_a_fault_shows_in_the_bar(admin: TestClient, runtime: Runtime) -> None:
    """The health dot has words, and the reason as its title."""
    assert "healthy" in admin.get("/memories").text
    runtime.health.failed("memory.capture", ValueError("no room"))
    html = admin.get("/memories").text
    assert "failing: memory.capture: no room" in html
    assert 'id="health"' in admin.get("/memories", headers={"HX-Request": "true"}).text


def test_results_are_announced(admin: TestClient, runtime: Runtime) -> None:
    """One status line outside of the list says what the list now holds."""
    remember(runtime, "I prefer tea", key="preference:tea")
    assert '<p id="status" class="visually-hidden" role="status">' in admin.get("/memories").text
    partial = admin.get("/memories?q=tea", headers={"HX-Request": "true"}).text
    assert '<p id="status" hx-swap-oob="innerHTML">1 memory found</p>' in partial
