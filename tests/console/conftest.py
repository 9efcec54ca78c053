"""The console over a real store in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient

from omniroute_litellm.console.app import create_app
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from omniroute_litellm.types import (
    Memory,
    MemoryDraft,
    MemorySource,
    MemoryType,
    OwnerId,
)

ADMIN_KEY: Final = "sk-admin-test"
OWNER: Final = OwnerId("a3f9" * 16)


def remember(
    runtime: Runtime,
    content: str,
    *,
    key: str,
    owner: OwnerId = OWNER,
    kind: MemoryType = MemoryType.FACTUAL,
) -> Memory:
    """Store one memory."""
    draft = MemoryDraft(owner, kind, key, content, MemorySource.USER_MESSAGE)
    return runtime.store.upsert(draft, actor="test").memory


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """Hand out a runtime with nothing stored and nothing pinned."""
    made = Runtime(
        environ={"OMNIROUTE_DATA_DIR": str(tmp_path / "data")},
        authority=AdminKeyAuthority(ADMIN_KEY),
    )
    yield made
    made.database.close()


@pytest.fixture
def visitor(runtime: Runtime) -> TestClient:
    """Hand out a browser that is not signed in and follows no redirect."""
    return TestClient(create_app(runtime), follow_redirects=False)


@pytest.fixture
def admin(visitor: TestClient) -> TestClient:
    """Hand out a browser that is signed in."""
    response = visitor.post("/login", data={"key": ADMIN_KEY})
    assert response.status_code == 303
    return visitor
