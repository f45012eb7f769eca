"""Requests to a server: their journal keys, and how they fail."""

import json
from collections.abc import Mapping
from typing import Any

from jaxcontam.data.journal import journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel


class ApiError(InputError):
    """A request without an answer; `status` is that of HTTP, or None."""

    def __init__(self, message: str, *, hint: str = "", status: int | None = None):
        super().__init__(message, hint=hint)
        self.status = status


class RefusedError(ApiError):
    """The server answers, but not this request; it may answer others."""


Body = Mapping[str, Any]
"""JSON of a request, without the model's name; `protocol` is who is to understand it
(`PROTOCOLS`), and no part of it."""


def request_key(model: ApiModel, path: str, body: Body, *, repeat: int = 0) -> str:
    """Digest of what decides an answer: no key of the user's and no number of tries."""
    words = json.dumps(body, sort_keys=True, allow_nan=False)
    parts = [repeat] if repeat else []
    return journal_key("api", model.url, model.name, path, words, *parts)
