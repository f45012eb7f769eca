"""Errors of requests to a server."""

from jaxcontam.errors import InputError


class ApiError(InputError):
    """A request that the server does not answer.

    Attributes:
        status: The HTTP status that it answers with; None where there is none.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None):
        super().__init__(message, hint=hint)
        self.status = status


class RefusedError(ApiError):
    """The server answers, but not this request; it may answer others."""
