"""What an operator does in the console, by role and label."""

import pytest
from playwright.sync_api import Browser, Page, expect

from omniroute_litellm.runtime import Runtime
from omniroute_litellm.types import OwnerId
from tests.console.conftest import remember
from tests.e2e.conftest import sign_in


def test_turn_memory_on_from_the_first_page(page: Page, runtime: Runtime) -> None:
    """A new operator signs in, reads what to do, and turns memory on."""
    expect(page.get_by_role("heading", name="Nothing is remembered yet")).to_be_visible()
    page.get_by_role("button", name="Turn memory on").click()
    expect(page.get_by_text("Memory is on.")).to_be_visible()
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
    page.get_by_role("button", name="Delete preference:tea").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("I prefer tea")).to_be_visible()
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Delete preference:tea").click()
    page.get_by_role("button", name="Delete memory").click()
    expect(page.get_by_text("Memory deleted.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(0)
    assert runtime.store.totals(None).total == 0
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Memory restored.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert runtime.store.totals(None).total == 1


def test_keyboard_reaches_the_actions(page: Page, runtime: Runtime) -> None:
    """``j`` moves to a memory, ``#`` opens its dialog, ``?`` the help."""
    remember(runtime, "I prefer tea", key="preference:tea")
    page.reload()
    page.keyboard.press("j")
    expect(page.get_by_role("button", name="Delete preference:tea")).to_be_focused()
    page.keyboard.press("#")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_visible()


def test_an_ended_session_leads_to_sign_in(page: Page) -> None:
    """A search after the session ended moves the whole page to the form."""
    page.context.clear_cookies()
    page.get_by_label("Search memories").fill("x")
    page.wait_for_url("**/login**")


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
    remember(runtime, "I prefer " + "averylongword" * 20, key="preference:" + "k" * 60)
    remarks: list[str] = []
    context = browser.new_context(
        base_url=console,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 844},
    )
    page = sign_in(context, remarks)
    for address in ("/memories", "/memories?q=none", "/nothing/here", "/login"):
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
    page.get_by_role("button", name="Delete preference:jazz").click()
    page.get_by_role("button", name="Delete memory").click()
    expect(page.get_by_text("Memory deleted.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Memory restored.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Turn memory on").click()
    expect(page.get_by_text("Memory is on.")).to_be_visible()
    context.close()
    assert remarks == []
