"""Errors that this package raises on purpose."""


class OmniRouteError(Exception):
    """Base of every error this package raises on purpose."""


class ValidationError(OmniRouteError):
    """A value was refused; ``field`` names which one."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class NotFoundError(OmniRouteError):
    """No such object, or it belongs to somebody else (the two look alike)."""


class ConflictError(OmniRouteError):
    """The object changed meanwhile, or its slot is taken."""


class UnauthenticatedError(OmniRouteError):
    """No valid key or session came with the request."""


class ForbiddenError(OmniRouteError):
    """The caller is known and lacks the role."""


class BackendUnavailableError(OmniRouteError):
    """A tier cannot answer now; the caller may degrade. ``reason`` is a machine code."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ContractError(OmniRouteError):
    """A backend answered nonsense (wrong count, wrong dimension); never degrade silently."""


class ThrottledError(OmniRouteError):
    """Too many failed tries; ``retry_after_s`` says when the next one counts."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
