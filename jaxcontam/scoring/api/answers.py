"""Replies of servers: an answer, a fault that may pass, or an error.

Functions of status and bytes; the user's key is removed from the result.
"""

import dataclasses
import email.utils
import http
import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import httpx2

from jaxcontam.scoring.api.address import Answer, ApiError, Body, RefusedError, Server
from jaxcontam.scoring.api.budget import most_values


class Reply(NamedTuple):
    """Outcome of a request; headers by lower-case name."""

    status: int
    headers: Mapping[str, str]
    data: bytes


# Too many requests or an overload (529): the server wants fewer of them.
_BUSY = frozenset({429, 503, 529})
PASSING = frozenset({408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524}) | _BUSY
"""Faults of the server or of what stands before it (520 to 524) that pass."""
# Refuses this request alone: a content filter, a text that is too long.
_REFUSED = frozenset({400, 413, 422, 451})
# Called a 429 by servers, but no waiting helps.
_NO_MONEY = (
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
)
_MOST_WORDS = 200
# Local servers take any word for a key, such as these; they are no secret, and may
# stand in what a model writes.
_NO_SECRETS = frozenset(
    {"dummy", "empty", "key", "local", "lm-studio", "no-key", "none", "not-needed"}
    | {"not-required", "ollama", "sk-no-key-required", "test", "token"}
)
# A shorter one is most likely a word, or a part of one, wherever a model writes it.
_FEWEST_WRITTEN = 8
# A string of JSON, or one without an end; nothing in it is tried twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# Fewer characters of a key help nobody, and are a part of many words.
_SHORTEST_END = 6
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer yet; the same request may have one later.

    Attributes:
        kind: busy: the server wants fewer requests; late: no whole answer in time;
            broken: the connection; garbled: an answer of another form; unusable: one
            of the protocol that does not hold what was asked for.
        wait: Seconds that the server asks to wait, if it does.
    """

    kind: Literal["busy", "late", "broken", "garbled", "unusable"]
    words: str
    wait: float | None = None
    status: int | None = None


def read_reply(
    server: Server, body: Body, reply: Reply, *, now: float
) -> Answer | Failure:
    """Read a reply that arrived whole, `now` seconds since 1970.

    A refusal of this request alone is a RefusedError; one of the key or the name, or a
    redirection, which would take the key elsewhere, is an ApiError.
    """
    if not _is_as_asked(reply.data, most_values(body)):
        return Failure("garbled", "more values than were asked for")
    if reply.status != 200:
        return _without_answer(server, reply, reply.status, now)
    try:
        answer = _parsed(reply.data, server.api_key)
        if body.get("protocol") == SGLANG:
            answer = _as_completion(answer, body)
        if not isinstance(answer, dict):
            raise ValueError("not an answer of the protocol")
        if answer.get("error") and not answer.get("choices"):
            # Relays put another server's error into a 200.
            said, code = _said(reply, server.api_key)
            if isinstance(code, int) and 300 <= code < 600:
                return _without_answer(server, reply, code, now)
            return Failure("garbled", f"an error for an answer ({said})")
        if not server.is_openai:
            return answer
        if (choices := answer.get("choices")) == []:
            raise RefusedError(f"{server.model.url}: an answer without choices")
        if not isinstance(choices, list) or not all(
            isinstance(c, dict)
            and ("messages" not in body or isinstance(c.get("message"), dict))
            for c in choices
        ):
            raise ValueError("not an answer of the protocol")
        if len(choices) != 1:
            raise ValueError(f"{len(choices)} choices where 1 are asked for")
        if (index := choices[0].get("index")) not in (None, 0):
            raise ValueError(f"choices with the indices {[index]}")
        return answer
    except ValueError as e:
        # A key that is cut before it is looked for would be shown in part.
        words = without_key(reply.data.decode("utf-8", "replace"), server.api_key)
        return Failure("garbled", f"{e} ({words[:_MOST_WORDS]!r})")


def _is_as_asked(data: bytes, most: int) -> bool:
    """True if JSON has at most so many values, strings counted as one, unread."""

    def n_values(text: bytes) -> int:
        return 1 + sum(map(text.count, (b",", b"[", b"{")))

    return n_values(data) <= most or n_values(_STRING.sub(b"", data)) <= most


def _parsed(data: bytes, api_key: str | None) -> Any:
    """The JSON of an answer without the key; a ValueError if it is none."""
    try:
        answer = json.loads(data.decode())
        # json reads NaN and 1e999, which are no JSON and no journal keeps.
        json.dumps(answer, allow_nan=False)
        if not api_key or api_key.lower() in _NO_SECRETS:
            return answer
        if not isinstance(answer, dict) or "choices" not in answer:
            return _struck(answer, api_key)
        # In what the model wrote a short key is struck out after `Bearer` alone.
        is_long = len(api_key) >= _FEWEST_WRITTEN
        choices = _struck(
            answer["choices"], api_key if is_long else f"Bearer {api_key}"
        )
        return _struck(answer | {"choices": None}, api_key) | {"choices": choices}
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _struck(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace(secret, "***")
    if isinstance(value, list):
        return [_struck(one, secret) for one in value]
    if isinstance(value, dict):
        # Short keys may be parts of the protocol's own names.
        is_long = len(secret) >= _FEWEST_WRITTEN
        return {
            _struck(name, secret) if is_long else name: _struck(one, secret)
            for name, one in value.items()
        }
    return value


def _without_answer(server: Server, reply: Reply, status: int, now: float) -> Failure:
    """A fault of a status that may pass, or an error."""
    said, code = _said(reply, server.api_key)
    fault, hint = f"HTTP {status} ({said})", ""
    if status in PASSING and code not in _NO_MONEY:
        kind = "busy" if status in _BUSY else "broken"
        return Failure(kind, fault, _asked_wait(reply.headers, now), status)
    words = f"{server.model.url}: {fault}"
    if status in _REFUSED:
        raise RefusedError(words, status=status)
    if code in _NO_MONEY:
        hint = "run the same command again when the account is in credit: what is "
        hint += "answered is not asked again"
    elif status in (401, 403):
        hint = "give the server's key in the environment variable "
        hint += server.key_variable
    elif status == 404:
        hint = "check the name and the URL, which ends before /chat/completions, "
        hint += "such as https://host/v1"
    elif 300 <= status < 400:
        hint = "name the URL that it leads to"
    raise ApiError(words, hint=hint, status=status)


def _said(reply: Reply, api_key: str | None) -> tuple[str, object]:
    """The server's error message in one line, and its code."""
    code = None
    try:
        said = json.loads(reply.data)
        # transformers and FastAPI say `detail`, most others `error`.
        said = said["error"] if "error" in said else said["detail"]
        if isinstance(said, dict):
            code = said.get("code") or said.get("type")
            said = said["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        said = _REASONS.get(reply.status, "no reason given")
    words = " ".join(without_key(str(said), api_key).split())
    return words[:_MOST_WORDS], code


def _asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait, as a number or as a date."""
    asked = headers.get("retry-after")
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except ValueError:
        try:
            # A date in the year 1 has no timestamp on every system.
            seconds = email.utils.parsedate_to_datetime(asked).timestamp() - now
        except (ValueError, OverflowError, OSError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def read_failure(server: Server, error: Exception, *, has_answered: bool) -> Failure:
    """Classify a network error; an ApiError if trying again would not help."""
    if type(error) is TimeoutError:
        return Failure("late", f"no whole answer within {server.timeout_seconds:g} s")
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        if cause in causes:
            break
        causes.append(cause)
    first = causes[-1]
    words = str(first) or type(first).__name__
    if isinstance(first, OSError) and first.errno and first.errno > 0:
        # Without the number and Python's names.
        words = os.strerror(first.errno)
    words = without_key(" ".join(words.split()), server.api_key)
    for cause in causes:
        # A secure connection that ends in the middle is a broken one.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            reason = getattr(cause, "verify_message", "") or cause.reason or words
            raise ApiError(
                f"{server.model.url}: no secure connection ({reason})",
                hint="check the certificate of the server (SSL_CERT_FILE names "
                "authorities of your own), and whether it speaks https at all",
            ) from None
        is_unknown = isinstance(cause, socket.gaierror) and (
            cause.errno == socket.EAI_NONAME
        )
        if is_unknown and not has_answered:
            raise ApiError(
                f"{server.model.url}: no such host", hint="check the URL"
            ) from None
    if isinstance(error, httpx2.TimeoutException):
        words = "no connection in time"
    return Failure("broken", f"no answer ({words})")


def without_key(words: str, api_key: str | None) -> str:
    """Servers may repeat a wrong key in what they say, or its two ends."""
    key = api_key or ""
    for n in range(len(key), max(0, min(len(key), _SHORTEST_END) - 1), -1):
        words = words.replace(key[:n], "***").replace(key[-n:], "***")
    return words


SGLANG = "sglang"
"""Who is to understand a request, as its `protocol`, which is no part of it; all else
in it, and what is made of the answer, is as in OpenAI's completions."""


def sglang_request(body: Body) -> dict[str, Any]:
    """A request for `/generate`: SGLang's completions give no numbers of prompts."""
    prompt, is_echo = body["prompt"], bool(body.get("echo"))
    return {
        **({"text": prompt} if isinstance(prompt, str) else {"input_ids": prompt[0]}),
        "sampling_params": {
            "temperature": body["temperature"],
            "max_new_tokens": body["max_tokens"],
        },
        "return_logprob": True,
        # -1: of what is written alone.
        "logprob_start_len": 0 if is_echo else -1,
        "top_logprobs_num": 0 if is_echo else body["logprobs"],
        "return_text_in_logprobs": True,
    }


def _as_completion(answer: Any, body: Body) -> Answer:
    """An answer of SGLang's, whose tokens are [log-probability, id, text]."""
    part = "input" if body.get("echo") else "output"
    try:
        found = answer["meta_info"]
        shown = found[f"{part}_token_logprobs"]
        logprobs = {
            "tokens": [text for _, _, text in shown],
            "token_logprobs": [value for value, _, _ in shown],
            "top_logprobs": [
                {text: value for value, _, text in place or ()}
                for place in found.get("output_top_logprobs") or ()
            ],
        }
        choice = {"index": 0, "text": answer["text"], "logprobs": logprobs}
        counts = {n: found[n] for n in ("prompt_tokens", "completion_tokens")}
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        raise ValueError("no answer of SGLang's own protocol") from e
    return {"choices": [choice], "usage": counts}
