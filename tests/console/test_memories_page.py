"""The memories page: list, search, filters, delete, undo, switch."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from omniroute_litellm.console.app import create_app
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from omniroute_litellm.types import MemoryType, OwnerId
from tests.console.conftest import ADMIN_KEY, remember


def test_an_empty_store_says_how_to_fill_it(admin: TestClient) -> None:
    """With nothing stored the page shows the three steps to the first memory."""
    html = admin.get("/memories").text
    assert "Nothing is remembered yet" in html
    assert "curl http://testserver/v1/chat/completions" in html


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
    deleted = admin.post(f"/memories/{memory.id}/delete", headers=htmx).text
    assert "I prefer tea" not in deleted
    assert 'hx-swap-oob="true"' in deleted
    restored = admin.post(f"/memories/{memory.id}/undo", headers=htmx).text
    assert "I prefer tea" in restored


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
    admin.post("/settings/enabled", data={"value": "off"})
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


def test_a_fault_shows_in_the_bar(admin: TestClient, runtime: Runtime) -> None:
    """The health dot has words, and the reason as its title."""
    assert "healthy" in admin.get("/memories").text
    runtime.health.failed("memory.capture", ValueError("no room"))
    html = admin.get("/memories").text
    assert "failing" in html
    assert "memory.capture: no room" in html
