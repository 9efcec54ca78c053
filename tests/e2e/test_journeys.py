"""What an operator does in the console, by role and label."""

import pytest
from playwright.sync_api import Browser, Page, expect

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.types import OwnerId
from tests.console.conftest import remember
from tests.e2e.conftest import sign_in


def test_turn_memory_on_from_the_first_page(page: Page, runtime: Runtime) -> None:
    """A new operator signs in, reads what to do, and turns memory on."""
    expect(page.get_by_role("heading", name="Nothing is remembered yet")).to_be_visible()
    page.get_by_role("button", name="Turn memory on").click()
    expect(page.get_by_role("region", name="Memory").get_by_text("Memory is on.")).to_be_visible()
    assert runtime.settings.current.values.enabled


def test_search_as_you_type_keeps_its_place(page: Page, runtime: Runtime) -> None:
    """Results follow the typing, the address follows the results, Reload and Back keep them."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I love jazz", key="preference:jazz")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("jazz")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Search memories")).to_be_focused()
    page.wait_for_url("**q=jazz**")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Search memories")).to_have_value("jazz")
    page.get_by_role("link", name="all types").click()
    page.get_by_role("link", name="episodic").click()
    expect(page.get_by_role("heading", name="No memory matches")).to_be_visible()
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_delete_and_undo(page: Page, runtime: Runtime) -> None:
    """Delete asks first, names the memory, and offers to take it back."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()
    opener = page.get_by_role("link", name="Delete preference:tea")
    opener.click()
    dialog = page.get_by_role("dialog", name="Delete this memory?")
    expect(dialog.get_by_text("I prefer tea")).to_be_visible()
    dialog.get_by_role("link", name="Keep it").click()
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    opener.click()
    page.get_by_role("button", name="Delete memory").click()
    expect(page.locator("#notice")).to_contain_text("Memory deleted.")
    expect(page.get_by_role("status")).to_have_text("Memory deleted.")
    expect(dialog).to_be_hidden()
    expect(page.locator("tbody tr")).to_have_count(0)
    assert runtime.store.totals(None).total == 0
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#notice")).to_contain_text("Memory restored.")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert runtime.store.totals(None).total == 1


def test_focus_stays_in_the_list(page: Page, runtime: Runtime) -> None:
    """After a delete by keyboard the next memory has the focus, not the top of the page."""
    for name in ("tea", "jazz", "chess"):
        remember(runtime, f"I prefer {name}", key=f"preference:{name}")
    page.reload()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("#")
    page.get_by_role("button", name="Delete memory").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name="Delete preference:tea")).to_be_focused()


def test_a_row_that_is_gone_is_told(page: Page, runtime: Runtime) -> None:
    """What somebody else deleted meanwhile gives a message beside the list, not over it."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()
    runtime.store.delete(memory.id, owner=None, actor="test")
    page.get_by_role("link", name="Delete preference:tea").click()
    expect(page.get_by_role("alert")).to_contain_text("No memory has this id.")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Search memories").fill("tea")
    expect(page.locator("tbody tr")).to_have_count(0)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_store_that_fails_leaves_the_list(
    page: Page, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault during a search shows a message with an id; list and address stay as they were."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()

    def fail(query: object) -> None:
        message = "the disk is gone"
        raise BackendUnavailableError(message, reason="io_error")

    monkeypatch.setattr(runtime.store, "page", fail)
    page.get_by_label("Search memories").fill("tea")
    expect(page.get_by_role("alert")).to_contain_text("The disk is gone.")
    expect(page.get_by_role("alert")).to_contain_text("Request id")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")
    assert "q=tea" not in page.url


@pytest.mark.parametrize("answer", ["gateway", "nothing"])
def test_what_is_not_the_console_is_never_shown(
    page: Page, runtime: Runtime, remarks: list[str], answer: str
) -> None:
    """An error page of a gateway, or no answer at all, gives a message and a way to try again."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()
    page.route(
        "**/memories?*",
        lambda route: (
            route.fulfill(status=502, body="<h1>Bad gateway</h1>")
            if answer == "gateway"
            else route.abort()
        ),
    )
    page.get_by_label("Search memories").fill("x")
    expect(page.get_by_role("alert").get_by_role("link", name="Try again")).to_be_visible()
    expect(page.get_by_text("Bad gateway")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(1)
    # Browser and htmx note a failed request by themselves.
    noted = ("Failed to load resource", "htmx: htmx:error: Failed to fetch")
    remarks[:] = [text for text in remarks if not text.startswith(noted)]


def test_the_owner_switcher_keeps_its_place(page: Page, runtime: Runtime) -> None:
    """Choosing an owner narrows the list at once, and Back widens it again."""
    remember(runtime, "I prefer tea", key="preference:tea", owner=OwnerId("team:tea"))
    remember(runtime, "I love jazz", key="preference:jazz", owner=OwnerId("team:jazz"))
    page.reload()
    page.get_by_label("Owner").select_option("team:jazz")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.wait_for_url("**owner=team%3Ajazz**")
    page.reload()
    expect(page.get_by_label("Owner")).to_have_value("team:jazz")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_label("Owner")).to_have_value("")


def test_the_notice_leaves_by_itself(page: Page, runtime: Runtime) -> None:
    """Undo is offered for ten seconds."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.clock.install()
    page.reload()
    page.get_by_role("link", name="Delete preference:tea").click()
    page.get_by_role("button", name="Delete memory").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.mouse.move(0, 0)
    page.clock.fast_forward(9_000)
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.clock.fast_forward(2_000)
    expect(page.get_by_role("button", name="Undo")).to_be_hidden()


def test_the_snippet_can_be_copied(page: Page) -> None:
    """One button puts the first request into the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "curl http" in page.evaluate("navigator.clipboard.readText()")


def test_the_theme_key_changes_the_colours(page: Page) -> None:
    """``t`` goes from the system's theme to dark and on to light."""
    for colour in ("rgb(18, 19, 22)", "rgb(251, 251, 249)"):
        # The colour shows before the script of the new page listens.
        with page.expect_navigation():
            page.keyboard.press("t")
        expect(page.locator("body")).to_have_css("background-color", colour)


def test_keyboard_reaches_the_actions(page: Page, runtime: Runtime) -> None:
    """``j`` moves to a memory, ``#`` opens its dialog, ``?`` the help."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="Delete preference:tea")).to_be_focused()
    page.keyboard.press("#")
    dialog = page.get_by_role("dialog", name="Delete this memory?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_visible()
    page.get_by_label("Keyboard shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_hidden()


def test_an_ended_session_leads_to_sign_in(page: Page) -> None:
    """A search after the session ended moves the whole page to the form."""
    page.context.clear_cookies()
    page.get_by_label("Search memories").fill("x")
    page.wait_for_url("**/login?next=**memories**")


def test_hostile_memories_do_nothing(page: Page, runtime: Runtime) -> None:
    """Markup in a memory is shown as text, and nothing of it runs or loads."""
    hostile = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
    remember(runtime, hostile, key="preference:x", owner=OwnerId("<b>owner</b>"))
    page.reload()
    expect(page.locator("td.content")).to_have_text(hostile)
    assert page.title() == "Memories · omniroute memory"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_every_screen(
    browser: Browser, console: str, runtime: Runtime, scheme: str, width: int
) -> None:
    """Nothing scrolls sideways, wide or narrow, and the colours follow the system."""
    memory = remember(runtime, "I prefer " + "averylongword" * 20, key="preference:" + "k" * 60)
    remarks: list[str] = []
    context = browser.new_context(
        base_url=console,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 844},
    )
    page = sign_in(context, remarks)
    question = f"/memories/{memory.id}/delete"
    for address in ("/memories", "/memories?q=none", question, "/nothing/here", "/login"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(18, 19, 22)" if scheme == "dark" else "rgb(251, 251, 249)")
    context.close()
    assert remarks == []


def test_everything_works_without_script(browser: Browser, console: str, runtime: Runtime) -> None:
    """With script off: sign in, search, delete, undo, switch."""
    remember(runtime, "I prefer tea", key="preference:tea")
    remember(runtime, "I love jazz", key="preference:jazz")
    remarks: list[str] = []
    context = browser.new_context(base_url=console, java_script_enabled=False)
    page = sign_in(context, remarks)
    page.get_by_label("Search memories").fill("jazz")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Delete preference:jazz").click()
    expect(page.get_by_role("heading", name="Delete this memory?")).to_be_visible()
    page.get_by_role("link", name="Keep it").click()
    page.get_by_role("link", name="Delete preference:jazz").click()
    page.get_by_role("button", name="Delete memory").click()
    expect(page.get_by_text("Memory deleted.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Memory restored.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Turn memory on").click()
    expect(page.get_by_text("Memory is on.")).to_be_visible()
    context.close()
    assert remarks == []
