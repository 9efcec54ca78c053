"""What stands around every answer: policy, origin, size, errors."""

import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from omniroute_litellm.console.app import create_app
from omniroute_litellm.console.headers import POLICY
from omniroute_litellm.console.security import MAX_BODY_BYTES
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from tests.console.conftest import ADMIN_KEY, remember

BEARER = {"Authorization": f"Bearer {ADMIN_KEY}"}


@pytest.mark.parametrize("path", ["/login", "/memories", "/api/memory", "/static/app.css", "/x"])
def test_every_answer_carries_the_policy(visitor: TestClient, path: str) -> None:
    """Pages, API, static files and errors forbid everything that is not their own."""
    headers = visitor.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_html_is_never_cached(admin: TestClient) -> None:
    """What memories say must not stay in a cache; assets may, but are asked for again."""
    assert admin.get("/memories").headers["cache-control"] == "no-store"
    assert "HX-Request" in admin.get("/memories").headers["vary"]
    assert admin.get("/static/app.css").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://testserver"}, True),
        ({"Origin": "https://testserver"}, False),
        ({"Origin": "http://evil.test"}, False),
        ({"Origin": "null"}, False),
        ({}, True),
    ],
)
def test_foreign_sites_cannot_act(
    admin: TestClient, runtime: Runtime, headers: dict[str, str], is_allowed: bool
) -> None:
    """An unsafe request passes only from the console itself."""
    memory = remember(runtime, "I prefer tea", key="preference:tea")
    response = admin.post(f"/memories/{memory.id}/delete", headers=headers)
    assert response.status_code == (303 if is_allowed else 403)
    assert runtime.store.totals(None).total == (0 if is_allowed else 1)


def test_cookie_and_bearer_together_count_as_a_browser(admin: TestClient, runtime: Runtime) -> None:
    """A page that adds a header does not get around the origin check."""
    remember(runtime, "I prefer tea", key="preference:tea")
    headers = {**BEARER, "Origin": "http://evil.test"}
    response = admin.put("/api/settings/memory", json={"enabled": True}, headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "foreign_origin"


def test_a_program_needs_no_origin(visitor: TestClient) -> None:
    """A key without a cookie may call from anywhere."""
    headers = {**BEARER, "Origin": "http://elsewhere.test"}
    response = visitor.put("/api/settings/memory", json={"enabled": True}, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/api/memory", "/login"])
def test_large_bodies_are_refused(visitor: TestClient, path: str) -> None:
    """One byte over a mebibyte is too much, also without a declared length."""

    def chunks() -> object:
        yield b"x" * MAX_BODY_BYTES
        yield b"x"

    response = visitor.post(path, content=chunks(), headers=BEARER)  # type: ignore[arg-type]
    assert response.status_code == 413
    if path == "/login":
        assert "Too large" in response.text
        assert response.headers["content-type"].startswith("text/html")
    else:
        body = response.json()
        assert body["error"]["code"] == "too_large"
        assert body["error"]["details"] == []
        assert body["requestId"]


def test_a_body_of_the_limit_passes(visitor: TestClient) -> None:
    """Exactly one mebibyte is not too much: it is the form that finds nothing in it."""
    response = visitor.post("/login", content=b"x" * MAX_BODY_BYTES)
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "heading"),
    [
        ("GET", "/no/such/page", 404, "Not found"),
        ("GET", "/memories/unknown/delete", 404, "Not found"),
        ("POST", "/memories/unknown/delete", 404, "Not found"),
        ("POST", "/memories/%00%ff/delete", 404, "Not found"),
        ("DELETE", "/memories/unknown", 404, "Not found"),
        ("POST", "/memories/unknown/undo", 404, "Not found"),
        ("GET", "/logout", 405, "Not possible here"),
        ("POST", "/settings/enabled", 422, "Not understood"),
    ],
)
def test_errors_are_pages(
    admin: TestClient, method: str, path: str, status: int, heading: str
) -> None:
    """An error says what happened and what to try, with navigation and an id."""
    response = admin.request(method, path)
    assert response.status_code == status
    assert f"<h1>{heading}</h1>" in response.text
    assert re.search(r"Request id <code>[0-9a-f]{32}</code>", response.text)
    assert "Sign out" in response.text


def test_a_refused_request_gets_a_page(admin: TestClient) -> None:
    """A foreign request that the guard stops is told so in HTML."""
    response = admin.post("/logout", headers={"Origin": "http://evil.test"})
    assert response.status_code == 403
    assert "<h1>Not allowed</h1>" in response.text
    assert "The request came from another site." in response.text


def test_an_unforeseen_error_shows_no_inside(
    runtime: Runtime, admin: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours is a page with an id and all guards, without a word of the error."""

    def fail(owner: object) -> None:
        message = "the inside"
        raise RuntimeError(message)

    monkeypatch.setattr(runtime.store, "totals", fail)
    client = TestClient(admin.app, raise_server_exceptions=False, cookies=admin.cookies)
    response = client.get("/memories")
    assert response.status_code == 500
    assert "Request id" in response.text
    assert "the inside" not in response.text
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["cache-control"] == "no-store"


def test_an_error_inside_of_a_page_stays_beside_the_list(admin: TestClient) -> None:
    """A request of the script gets the message alone, aimed away from the results."""
    response = admin.delete("/memories/unknown", headers={"HX-Request": "true"})
    assert response.status_code == 404
    assert response.headers["hx-retarget"] == "#alert"
    assert response.headers["hx-push-url"] == "false"
    assert 'role="alert"' in response.text
    assert "<html" not in response.text


def test_an_unreadable_form_is_an_error_page(admin: TestClient) -> None:
    """A body that is no form of its declared kind is refused, not a defect."""
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    response = admin.post("/settings/enabled", content=b"no form", headers=headers)
    assert response.status_code in {400, 422}
    assert "Request id" in response.text


def test_a_broken_store_is_a_page(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With an unusable data directory one can sign in and read what is wrong."""
    blocker = tmp_path_factory.mktemp("x") / "file"
    blocker.write_text("")
    broken = Runtime(
        environ={"OMNIROUTE_DATA_DIR": str(blocker / "data")},
        authority=AdminKeyAuthority(ADMIN_KEY),
    )
    client = TestClient(create_app(broken), follow_redirects=False)
    assert client.post("/login", data={"key": ADMIN_KEY}).status_code == 303
    response = client.get("/memories")
    assert response.status_code == 503
    assert "Cannot make the data directory" in response.text
    assert "healthy" not in response.text
    partial = client.get("/memories", headers={"HX-Request": "true"})
    assert partial.status_code == 503
    assert "Request id" in partial.text
    assert client.get("/api/memory").status_code == 503
    assert client.get("/api/memory").json()["error"]["code"] == "backend_unavailable"


@pytest.mark.parametrize("prefix", ["/omniroute", "/llm/omniroute"])
def test_links_follow_the_mount(runtime: Runtime, prefix: str) -> None:
    """Below a mount, or a mount below a server root, every link and redirect stays inside."""
    app = Starlette(routes=[Mount(prefix, app=create_app(runtime))])
    client = TestClient(app, follow_redirects=False)
    response = client.get(f"{prefix}/memories")
    assert response.headers["location"].startswith(f"{prefix}/login?next=")
    signed_in = client.post(f"{prefix}/login", data={"key": ADMIN_KEY})
    assert signed_in.headers["location"] == f"{prefix}/"
    assert f"Path={prefix}" in signed_in.headers["set-cookie"]
    html = client.get(f"{prefix}/memories").text
    addresses = [part.split('"')[0] for part in html.split('href="')[1:]]
    assert all(address.startswith((prefix, "#")) for address in addresses)
    assert client.get(f"{prefix}/static/app.css").status_code == 200
    assert client.get(f"{prefix}/api/memory").status_code == 200
    above = prefix.removesuffix("/omniroute")
    assert f"curl http://testserver{above}/v1/chat/completions" in html
