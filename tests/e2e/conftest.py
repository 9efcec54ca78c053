"""The console in a real browser: Debian's chromium, driven by Playwright."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from omniroute_litellm.standalone import standalone_app
from tests.console.conftest import ADMIN_KEY
from tests.polling import wait_for

HERE: Final = Path(__file__).parent
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# What the browser itself remarks on without anything being wrong.
EXPECTED: Final = (
    "Failed to load resource: the server responded with a status of 4",
    "Failed to load resource: the server responded with a status of 503",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that none runs by accident without the marker."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the browser; a missing one is a failure, not a skip."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    assert executable, "expected chromium on PATH: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Hand out a runtime with nothing stored."""
    return Runtime(
        environ={"OMNIROUTE_DATA_DIR": str(tmp_path / "data")},
        authority=AdminKeyAuthority(ADMIN_KEY),
    )


@pytest.fixture
def console(runtime: Runtime) -> Iterator[str]:
    """Serve the console on a free port and return its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(standalone_app(runtime), log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    wait_for(lambda: server.started, timeout_s=20, what="the console's start")
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def remarks() -> list[str]:
    """Collect what the browser remarks on: errors, warnings, violations of the policy."""
    return []


@pytest.fixture
def page(browser: Browser, console: str, remarks: list[str]) -> Iterator[Page]:
    """Hand out a page of a signed-in admin; anything that the browser remarks on fails the test."""
    context = browser.new_context(base_url=console, viewport={"width": 1280, "height": 800})
    yield sign_in(context, remarks)
    context.close()
    assert remarks == []


def sign_in(context: BrowserContext, remarks: list[str]) -> Page:
    """Open the console in a context, listening to it, and sign in."""
    page = context.new_page()

    def note(text: str) -> None:
        if not text.startswith(EXPECTED):
            remarks.append(text)

    page.on("console", lambda message: note(message.text))
    page.on("pageerror", lambda error: note(str(error)))
    page.goto("/")
    page.get_by_label("LiteLLM admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/memories")
    return page
