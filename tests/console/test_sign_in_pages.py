"""Signing in to the console, and everything that tries to get around it."""

import time
from http.cookies import SimpleCookie

import pytest
from starlette.testclient import TestClient

from omniroute_litellm.api.auth import COOKIE
from omniroute_litellm.console.app import create_app
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import MAX_FAILURES, SESSION_S
from tests.console.conftest import ADMIN_KEY


def test_pages_lead_to_sign_in(visitor: TestClient) -> None:
    """Without a session every page leads to the form and remembers where to go."""
    response = visitor.get("/memories?q=tea")
    assert response.status_code == 303
    assert response.headers["location"] == "/login?next=%2Fmemories%3Fq%3Dtea"


def test_partial_requests_are_redirected_whole(visitor: TestClient) -> None:
    """An htmx request without a session moves the whole page, not a part of it."""
    response = visitor.get("/memories", headers={"HX-Request": "true"})
    assert response.status_code == 401
    assert response.headers["hx-redirect"] == "/login"


def test_partial_requests_remember_the_page(visitor: TestClient) -> None:
    """After signing in again one is back where the session ended."""
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/memories?q=tea"}
    response = visitor.get("/memories", headers=headers)
    assert response.headers["hx-redirect"] == "/login?next=%2Fmemories%3Fq%3Dtea"


def test_unknown_pages_tell_nothing_to_strangers(visitor: TestClient) -> None:
    """Whether an address exists is for those who are signed in, not for any cookie."""
    assert visitor.get("/no/such/page").status_code == 303
    forged = {"cookie": f"{COOKIE}=forged"}
    response = visitor.get("/no/such/page", headers=forged)
    assert response.status_code == 303
    assert response.headers["location"].startswith("/login?next=")


def test_the_admin_key_opens_the_console(visitor: TestClient) -> None:
    """The right key sets the cookie and leads to where the visitor wanted to go."""
    response = visitor.post("/login", data={"key": ADMIN_KEY, "next": "/memories?q=tea"})
    assert response.status_code == 303
    assert response.headers["location"] == "/memories?q=tea"
    morsel = SimpleCookie(response.headers["set-cookie"])[COOKIE]
    assert morsel["httponly"]
    assert morsel["samesite"] == "lax"
    assert morsel["path"] == "/"
    assert morsel["max-age"] == str(SESSION_S)
    assert not morsel["secure"]
    assert visitor.get("/memories").status_code == 200


def test_the_cookie_is_secure_on_https(runtime: Runtime) -> None:
    """On https the cookie never travels in the clear."""
    client = TestClient(create_app(runtime), base_url="https://memory.test", follow_redirects=False)
    response = client.post("/login", data={"key": ADMIN_KEY})
    assert SimpleCookie(response.headers["set-cookie"])[COOKIE]["secure"]


def test_every_sign_in_makes_a_new_cookie(visitor: TestClient) -> None:
    """A session value from before a sign-in is not kept."""
    first = visitor.post("/login", data={"key": ADMIN_KEY}).cookies[COOKIE]
    second = visitor.post("/login", data={"key": ADMIN_KEY}).cookies[COOKIE]
    assert first != second


@pytest.mark.parametrize(
    "target",
    ["https://evil.test/", "//evil.test/", "/\\evil.test", "javascript:alert(1)", "memories"],
)
def test_sign_in_never_leads_elsewhere(visitor: TestClient, target: str) -> None:
    """A foreign address as ``next`` leads to the front page."""
    response = visitor.post("/login", data={"key": ADMIN_KEY, "next": target})
    assert response.headers["location"] == "/"


@pytest.mark.parametrize("key", ["", "wrong", ADMIN_KEY + "x", "ключ"])
def test_a_wrong_key_is_refused(visitor: TestClient, key: str) -> None:
    """A wrong key shows the form again with one sentence, and sets no cookie."""
    response = visitor.post("/login", data={"key": key})
    assert response.status_code == 401
    assert "not valid here" in response.text
    assert "set-cookie" not in response.headers


def test_too_many_wrong_keys_are_throttled(visitor: TestClient) -> None:
    """After ten failures even the right key has to wait."""
    for _ in range(MAX_FAILURES):
        visitor.post("/login", data={"key": "wrong"})
    response = visitor.post("/login", data={"key": ADMIN_KEY})
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("cookie", ["", "x", "eyJyb2xlIjoiYWRtaW4ifQ.x.y", "ключ"])
def test_a_forged_cookie_opens_nothing(visitor: TestClient, cookie: str) -> None:
    """Only what this console signed counts."""
    headers = {"cookie": f"{COOKIE}={cookie}".encode()}
    response = visitor.get("/memories", headers=headers)  # type: ignore[arg-type] - raw bytes
    assert response.status_code == 303


def test_an_old_cookie_opens_nothing(admin: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session ends by itself, whatever the browser keeps."""
    cookie = admin.cookies[COOKIE]
    later = time.time() + SESSION_S + 60
    monkeypatch.setattr(time, "time", lambda: later)
    response = admin.get("/memories", headers={"cookie": f"{COOKIE}={cookie}"})
    assert response.status_code == 303
    assert response.headers["location"].startswith("/login")


def test_signing_out_ends_the_session(admin: TestClient) -> None:
    """After signing out the browser has no session."""
    assert admin.post("/logout").status_code == 303
    assert admin.get("/memories").status_code == 303


def test_a_one_time_link_works_once(visitor: TestClient, runtime: Runtime) -> None:
    """Looking at the link does not use it up; the button does."""
    token = runtime.sign_in.new_link_token()
    assert token in visitor.get(f"/login/link?token={token}").text
    assert visitor.post("/login/link", data={"token": token}).status_code == 303
    assert visitor.get("/memories").status_code == 200
    again = visitor.post("/login/link", data={"token": token})
    assert again.status_code == 401
    assert "used already" in again.text


def test_the_theme_is_remembered(admin: TestClient) -> None:
    """The theme button sets a cookie and comes back to the page."""
    response = admin.post("/theme", data={"theme": "dark", "back": "/memories?q=x"})
    assert response.headers["location"] == "/memories?q=x"
    assert 'data-theme="dark"' in admin.get("/memories").text
    admin.post("/theme", data={"theme": '"><script>', "back": "https://evil.test"})
    assert 'data-theme="dark"' in admin.get("/memories").text
