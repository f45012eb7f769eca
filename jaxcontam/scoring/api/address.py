"""Addresses, keys and requests of served models, and how requests fail.

The key comes from the environment variable API_KEY. It is sent only to the server that
the user named, and is never written or printed.
"""

import dataclasses
import ipaddress
import json
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.data.journal import journal_key
from jaxcontam.errors import InputError

KEY_VARIABLE = "API_KEY"
JUDGE_KEY_VARIABLE = "JUDGE_API_KEY"
REFERENCE_KEY_VARIABLE = "REFERENCE_API_KEY"
"""Keys of a judge and a reference, where model and they have different servers."""

PREFIX = "api:"
"""Prefix that marks a served model."""

_HINT = "such as api:https://host/v1#name"


@dataclasses.dataclass(frozen=True, slots=True)
class ApiModel:
    """A model behind a server; `url` is its protocol's base, such as https://host/v1."""

    url: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server as a client asks it.

    Attributes:
        key_variable: Where the key comes from, for hints.
        timeout_seconds: For a request, from its connection to the last byte of its
            answer, however slowly the bytes come.
        is_openai: False: requests name no model, and answers hold no choices.
    """

    model: ApiModel
    api_key: str | None = dataclasses.field(default=None, repr=False)
    key_variable: str = KEY_VARIABLE
    timeout_seconds: float = 300.0
    is_openai: bool = True


def parse_api(words: str, *, flag: str) -> ApiModel:
    """Read `api:URL#NAME`, which the user typed for a flag.

    A password or a query is refused: it would stand in the report.
    """
    url, _, name = words.removeprefix(PREFIX).partition("#")
    if not words.startswith(PREFIX) or not name:
        raise InputError(
            f"{flag} must be api:URL#NAME, got {_shown(words)!r}", hint=_HINT
        )
    if "," in url:
        raise InputError(
            f"{flag}: one URL, got {_shown(url)!r}",
            hint="put a load balancer before several servers",
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            f"{flag}: a URL has only ASCII characters and no spaces: {_shown(url)!r}",
            hint="percent-encode other characters, such as %20 for a space",
        )
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        # As sockets do it: a host such as `.example` has no such form.
        host.encode("idna")
    except ValueError:
        raise InputError(f"{flag}: not a URL: {_shown(url)!r}", hint=_HINT) from None
    if "@" in parts.netloc or parts.query:
        raise InputError(
            f"{flag}: the URL must hold no password and no query",
            hint=f"put the key into the environment variable {KEY_VARIABLE}",
        )
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{flag}: not a URL: {_shown(url)!r}", hint=_HINT)
    return ApiModel(url.rstrip("/").removesuffix("/chat/completions"), name)


def is_in_the_clear(url: str) -> bool:
    """True if others between here and the server could read what is sent."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not is_here


def _shown(words: str) -> str:
    """The typed words with possible passwords and keys masked."""
    _, at, rest = words.rpartition("@")
    return ("***@" if at else "") + re.sub(r"(?s)\?.*", "?***", rest)


def key_beside(
    url: str, own: str = KEY_VARIABLE, beside: Sequence[Any] = ()
) -> tuple[str | None, str]:
    """Key of a server and its variable: `own` alone beside a model on another one.

    No server may see the key of another.
    """
    is_elsewhere = any(
        parse_api(word, flag="MODEL").url != url
        for word in beside
        if isinstance(word, str) and word.startswith(PREFIX)
    )
    api_key = key_from_environment(own)
    if api_key is None and not is_elsewhere:
        api_key = key_from_environment()
    return api_key, own if is_elsewhere else KEY_VARIABLE


def key_from_environment(variable: str = KEY_VARIABLE) -> str | None:
    """The key, or None where the server needs none; no error shows it."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(f"{variable}: must be printable ASCII")
    return key or None


class ApiError(InputError):
    """A request without an answer; `status` is that of HTTP, or None."""

    def __init__(self, message: str, *, hint: str = "", status: int | None = None):
        super().__init__(message, hint=hint)
        self.status = status


class RefusedError(ApiError):
    """The server answers, but not this request; it may answer others."""


Body = Mapping[str, Any]
"""JSON of a request, without the model's name."""
Answer = dict[str, Any]
"""JSON of an answer; in the protocol, with one choice."""


def request_key(model: ApiModel, path: str, body: Body, *, repeat: int = 0) -> str:
    """Digest of what decides an answer: no key of the user's and no number of tries."""
    words = json.dumps(body, sort_keys=True, allow_nan=False)
    parts = [repeat] if repeat else []
    return journal_key("api", model.url, model.name, path, words, *parts)
