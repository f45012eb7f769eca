"""Read a server's reply: an answer, a transient fault, a refusal or a fatal error.

Pure functions of status and bytes. The user's key is removed from the result.
"""

import email.utils
import http
import json
import re
from collections.abc import Mapping
from typing import Any

from jaxcontam.scoring.api.address import KEY_VARIABLE
from jaxcontam.scoring.api.budget import most_values
from jaxcontam.scoring.api.policy import Failure, without_key
from jaxcontam.scoring.api.protocols import PROTOCOLS
from jaxcontam.scoring.api.request import ApiError, RefusedError

Answer = dict[str, Any]
"""A JSON object of the protocol with one choice."""

# Too many requests or an overload (529): the server wants fewer of them.
_BUSY = frozenset({429, 503, 529})
PASSING = frozenset({408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524}) | _BUSY
"""Faults of the server or of what stands before it (520 to 524) that pass."""

# Refuses this request alone: a content filter, a text that is too long.
_REFUSED = frozenset({400, 413, 422, 451})
# Called a 429 by servers, but no waiting helps.
_NO_MONEY = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
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


def read_reply(
    url: str,
    body: Mapping[str, Any],
    *,
    status: int,
    headers: Mapping[str, str],
    data: bytes,
    api_key: str | None,
    key_variable: str = KEY_VARIABLE,
    now: float,
    is_openai: bool = True,
) -> Answer | Failure:
    """Read a reply that arrived whole; headers by lower-case name, now since 1970.

    Of servers of another protocol any object is an answer, unless it is an error. A
    refusal of this request alone is a RefusedError; one of the key or the name, or a
    redirection, is an ApiError.
    """
    if not _is_as_asked(data, most_values(body)):
        return Failure("garbled", "more values than were asked for")
    if status != 200:
        said, code = _said(data, status, api_key)
        wait = _asked_wait(headers, now)
        return _without_answer(url, status, said, code, wait, key_variable)
    try:
        answer = json.loads(data.decode())
        # json reads NaN and 1e999, which are no JSON and no journal keeps.
        json.dumps(answer, allow_nan=False)
        answer = _without_key(answer, api_key)
    except (ValueError, RecursionError):
        return Failure("garbled", f"not JSON ({_shown(data, api_key)})")
    if (own := PROTOCOLS.get(body.get("protocol", ""))) is not None:
        try:
            answer = own.completion(answer, body)
        except ValueError as e:
            return Failure("garbled", f"{e} ({_shown(data, api_key)})")
    if not isinstance(answer, dict):
        return Failure(
            "garbled", f"not an answer of the protocol ({_shown(data, api_key)})"
        )
    if answer.get("error") and not answer.get("choices"):
        # Relays put another server's error into a 200.
        said, code = _said(data, status, api_key)
        if isinstance(code, int) and 300 <= code < 600:
            wait = _asked_wait(headers, now)
            return _without_answer(url, code, said, None, wait, key_variable)
        return Failure("garbled", f"an error for an answer ({said})")
    if not is_openai:
        return answer
    return _with_choice(url, answer, body, _shown(data, api_key))


def _is_as_asked(data: bytes, most: int) -> bool:
    """True if JSON has at most so many values, strings counted as one, unread."""

    def n_values(text: bytes) -> int:
        return 1 + sum(map(text.count, (b",", b"[", b"{")))

    return n_values(data) <= most or n_values(_STRING.sub(b"", data)) <= most


def _without_key(answer: Any, api_key: str | None) -> Any:
    """Remove the key from an answer.

    A short key may be an ordinary word: in text that the model wrote it is removed only
    after `Bearer`, as in the request header.
    """
    if not api_key or api_key.lower() in _NO_SECRETS:
        return answer

    def struck(value: Any, secret: str) -> Any:
        if isinstance(value, str):
            return value.replace(secret, "***")
        if isinstance(value, list):
            return [struck(one, secret) for one in value]
        if isinstance(value, dict):
            # Short keys may be parts of the protocol's own names.
            is_long = len(secret) >= _FEWEST_WRITTEN
            return {
                struck(name, secret) if is_long else name: struck(one, secret)
                for name, one in value.items()
            }
        return value

    if not isinstance(answer, dict) or "choices" not in answer:
        return struck(answer, api_key)
    in_choices = api_key if len(api_key) >= _FEWEST_WRITTEN else f"Bearer {api_key}"
    choices = struck(answer["choices"], in_choices)
    return struck(answer | {"choices": None}, api_key) | {"choices": choices}


def _without_answer(
    url: str,
    status: int,
    said: str,
    code: object,
    wait: float | None,
    key_variable: str,
) -> Failure:
    fault = f"HTTP {status} ({said})"
    if status in _REFUSED:
        raise RefusedError(f"{url}: {fault}", status=status)
    if code in _NO_MONEY:
        raise ApiError(
            f"{url}: {fault}",
            hint="run the same command again when the account is in credit: "
            "what is answered is not asked again",
            status=status,
        )
    if status not in PASSING:
        raise ApiError(
            f"{url}: {fault}", hint=_hint(status, key_variable), status=status
        )
    return Failure("busy" if status in _BUSY else "broken", fault, wait, status)


def _with_choice(
    url: str, answer: Answer, body: Mapping[str, Any], shown: str
) -> Answer | Failure:
    """The answer, if it has the one choice that every request asks for."""
    choices = answer.get("choices")
    if choices == []:
        raise RefusedError(f"{url}: an answer without choices")
    is_chat = "messages" in body
    if not isinstance(choices, list) or not all(
        isinstance(c, dict) and (not is_chat or isinstance(c.get("message"), dict))
        for c in choices
    ):
        return Failure("garbled", f"not an answer of the protocol ({shown})")
    if len(choices) != 1:
        return Failure("garbled", f"{len(choices)} choices where 1 are asked for")
    if (index := choices[0].get("index")) not in (None, 0):
        return Failure("garbled", f"choices with the indices {[index]}")
    return answer


def _said(data: bytes, status: int, api_key: str | None) -> tuple[str, object]:
    """The server's error message in one line, and its code."""
    code = None
    try:
        said = json.loads(data)
        # transformers and FastAPI say `detail`, most others `error`.
        said = said["error"] if "error" in said else said["detail"]
        if isinstance(said, dict):
            code = said.get("code") or said.get("type")
            said = said["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        said = _REASONS.get(status, "no reason given")
    words = " ".join(without_key(str(said), api_key).split())
    return words[:_MOST_WORDS], code


_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


def _shown(data: bytes, api_key: str | None) -> str:
    # A key that is cut before it is looked for would be shown in part.
    words = without_key(data.decode("utf-8", "replace"), api_key)
    return repr(words[:_MOST_WORDS])


def _asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait, as a number or as a date."""
    asked = headers.get("retry-after")
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except ValueError:
        try:
            then = email.utils.parsedate_to_datetime(asked)
            # A date in the year 1 has no timestamp on every system.
            seconds = then.timestamp() - now
        except (ValueError, OverflowError, OSError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _hint(status: int, key_variable: str) -> str:
    if status in (401, 403):
        return f"give the server's key in the environment variable {key_variable}"
    if status == 404:
        return (
            "check the name and the URL, which ends before /chat/completions, "
            "such as https://host/v1"
        )
    if 300 <= status < 400:
        return "name the URL that it leads to"
    return ""
