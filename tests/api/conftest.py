"""The REST API over a real store, with an admin and two virtual keys."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient

from omniroute_litellm.api.app import create_api
from omniroute_litellm.errors import UnauthenticatedError
from omniroute_litellm.identity import Identity
from omniroute_litellm.runtime import Runtime

ADMIN: Final = "sk-admin"
ANN: Final = "sk-ann"
BOB: Final = "sk-bob"
NOBODY: Final = "sk-nobody"


def owner_of(key: str) -> str:
    """Return the owner that a virtual key's memories belong to."""
    return hashlib.sha256(key.encode()).hexdigest()


class FourKeys:
    """An authority that knows an admin, two virtual keys, and one that belongs to nobody."""

    async def identify(self, key: str) -> Identity:
        """Return who a key belongs to."""
        if key == ADMIN:
            return Identity(key="litellm_proxy_master_key", is_admin=True)
        if key in {ANN, BOB}:
            return Identity(key=owner_of(key))
        if key == NOBODY:
            return Identity()
        message = "the key is not valid here"
        raise UnauthenticatedError(message)

    def secret(self) -> str | None:
        """Return no secret: cookies depend on the database's seed."""
        return None


class Client(TestClient):
    """A client that signs every request with one key."""

    def __init__(self, runtime: Runtime, key: str) -> None:
        super().__init__(create_api(runtime), headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """Hand out a runtime with nothing stored."""
    environ = {"OMNIROUTE_DATA_DIR": str(tmp_path / "data")}
    made = Runtime(environ=environ, authority=FourKeys())
    yield made
    made.database.close()


@pytest.fixture
def admin(runtime: Runtime) -> Client:
    """Hand out the admin's client."""
    return Client(runtime, ADMIN)


@pytest.fixture
def ann(runtime: Runtime) -> Client:
    """Hand out a virtual key's client."""
    return Client(runtime, ANN)


@pytest.fixture
def bob(runtime: Runtime) -> Client:
    """Hand out another virtual key's client."""
    return Client(runtime, BOB)
