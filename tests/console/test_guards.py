"""What stands around every answer: policy, origin, size, errors."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from omniroute_litellm.console.app import create_app
from omniroute_litellm.console.security import MAX_BODY_BYTES, POLICY
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
    """What memories say must not stay in a cache; style sheets may."""
    assert admin.get("/memories").headers["cache-control"] == "no-store"
    assert "HX-Request" in admin.get("/memories").headers["vary"]
    assert "cache-control" not in admin.get("/static/app.css").headers


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


def test_errors_are_pages(admin: TestClient) -> None:
    """A missing page says so, with navigation and an id, and shows no inside."""
    response = admin.get("/no/such/page")
    assert response.status_code == 404
    assert "Not found" in response.text
    assert "Request id" in response.text
    assert admin.post("/memories/unknown/delete").status_code == 404
    assert admin.get("/logout").status_code == 405


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
    assert "cannot make the data directory" in response.text
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
