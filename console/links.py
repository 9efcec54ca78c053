"""Addresses inside the console, wherever it is mounted."""

from urllib.parse import quote, urlencode

from starlette.requests import Request


class Links:
    """Builds every link from the mount's root, so that none is ever written out."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    @classmethod
    def of(cls, request: Request) -> "Links":
        """Return the links for the mount that a request came through."""
        return cls(str(request.scope.get("root_path", "")))

    def __call__(self, *segments: str, **query: str | int | None) -> str:
        """Return a link; empty query values are left out."""
        path = "/".join(quote(segment, safe="") for segment in segments)
        given = {name: str(value) for name, value in query.items() if value not in {None, ""}}
        return f"{self._root}/{path}" + (f"?{urlencode(given)}" if given else "")

    def local(self, target: str) -> str:
        """Return a target below the mount, or the front page for anything else."""
        is_local = target.startswith(f"{self._root}/") and not target.startswith("//")
        return target if is_local and "\\" not in target and target.isprintable() else self()
