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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import httpx2

from jaxcontam.scoring.api.address import ApiError, RefusedError, Server
from jaxcontam.scoring.api.budget import most_values

Answer = dict[str, Any]
"""A JSON object of the protocol with one choice."""
Fields = Mapping[str, Any]


class Reply(NamedTuple):
    """What came of a request; headers by lower-case name."""

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
    server: Server, body: Fields, reply: Reply, *, now: float
) -> Answer | Failure:
    """Read a reply that arrived whole, `now` seconds since 1970.

    Of servers of another protocol any object is an answer, unless it is an error. A
    refusal of this request alone is a RefusedError; one of the key or the name, or a
    redirection, is an ApiError.
    """
    if not _is_as_asked(reply.data, most_values(body)):
        return Failure("garbled", "more values than were asked for")
    if reply.status != 200:
        return _without_answer(server, reply, reply.status, now)
    try:
        answer = _parsed(reply.data, server.api_key)
        if (own := PROTOCOLS.get(body.get("protocol", ""))) is not None:
            answer = own.completion(answer, body)
        if not isinstance(answer, dict):
            raise ValueError("not an answer of the protocol")
        if answer.get("error") and not answer.get("choices"):
            # Relays put another server's error into a 200.
            said, code = _said(reply, server.api_key)
            if isinstance(code, int) and 300 <= code < 600:
                return _without_answer(server, reply, code, now)
            return Failure("garbled", f"an error for an answer ({said})")
        return _with_choice(server, answer, body) if server.is_openai else answer
    except ValueError as e:
        # A key that is cut before it is looked for would be shown in part.
        words = without_key(reply.data.decode("utf-8", "replace"), server.api_key)
        return Failure("garbled", f"{e} ({words[:_MOST_WORDS]!r})")


def _parsed(data: bytes, api_key: str | None) -> Any:
    """The JSON of an answer without the key; a ValueError if it is none."""
    try:
        answer = json.loads(data.decode())
        # json reads NaN and 1e999, which are no JSON and no journal keeps.
        json.dumps(answer, allow_nan=False)
        return _without_key(answer, api_key)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _is_as_asked(data: bytes, most: int) -> bool:
    """True if JSON has at most so many values, strings counted as one, unread."""

    def n_values(text: bytes) -> int:
        return 1 + sum(map(text.count, (b",", b"[", b"{")))

    return n_values(data) <= most or n_values(_STRING.sub(b"", data)) <= most


def _without_key(answer: Any, api_key: str | None) -> Any:
    """Remove the key; in what the model wrote a short one after `Bearer` alone."""
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
        hint = (
            f"give the server's key in the environment variable {server.key_variable}"
        )
    elif status == 404:
        hint = "check the name and the URL, which ends before /chat/completions, "
        hint += "such as https://host/v1"
    elif 300 <= status < 400:
        hint = "name the URL that it leads to"
    raise ApiError(words, hint=hint, status=status)


def _with_choice(server: Server, answer: Answer, body: Fields) -> Answer | Failure:
    """The answer, if it has the one choice that every request asks for."""
    choices = answer.get("choices")
    if choices == []:
        raise RefusedError(f"{server.model.url}: an answer without choices")
    is_chat = "messages" in body
    if not isinstance(choices, list) or not all(
        isinstance(c, dict) and (not is_chat or isinstance(c.get("message"), dict))
        for c in choices
    ):
        raise ValueError("not an answer of the protocol")
    if len(choices) != 1:
        return Failure("garbled", f"{len(choices)} choices where 1 are asked for")
    if (index := choices[0].get("index")) not in (None, 0):
        return Failure("garbled", f"choices with the indices {[index]}")
    return answer


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


_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


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


def read_failure(server: Server, error: Exception, *, has_answered: bool) -> Failure:
    """Classify a network error; an ApiError if trying again would not help."""
    if type(error) is TimeoutError:
        return Failure("late", f"no whole answer within {server.timeout_seconds:g} s")
    url, causes = server.model.url, _causes(error)
    words = without_key(" ".join(_words(causes[-1]).split()), server.api_key)
    for cause in causes:
        # A secure connection that ends in the middle is a broken one.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            reason = getattr(cause, "verify_message", "") or cause.reason or words
            raise ApiError(
                f"{url}: no secure connection ({reason})",
                hint="check the certificate of the server (SSL_CERT_FILE names "
                "authorities of your own), and whether it speaks https at all",
            ) from None
        is_unknown = isinstance(cause, socket.gaierror) and (
            cause.errno == socket.EAI_NONAME
        )
        if is_unknown and not has_answered:
            raise ApiError(f"{url}: no such host", hint="check the URL") from None
    if isinstance(error, httpx2.TimeoutException):
        return Failure("broken", "no answer (no connection in time)")
    return Failure("broken", f"no answer ({words})")


def _words(error: BaseException) -> str:
    """An error's message without errno and Python names, where possible."""
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what it comes from, the first cause last."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None:
        if cause in found:
            break
        found.append(cause)
    return found


def without_key(words: str, api_key: str | None) -> str:
    """Servers may repeat a wrong key in what they say, or its two ends."""
    key = api_key or ""
    lengths = range(len(key), min(len(key), _SHORTEST_END) - 1, -1) if key else ()
    for n in lengths:
        words = words.replace(key[:n], "***").replace(key[-n:], "***")
    return words


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """A server's own protocol, where its completions give no prompt's numbers.

    A request names it as its `protocol`; all else in it, and what is made of the
    answer, is as in OpenAI's completions, so that nothing else has to know of these.
    All are at `/generate`, beside `/v1`. `request` makes theirs of ours; `choice` makes
    of their answer, and our request, a completion's choice and the tokens of prompt and
    answer.
    """

    words: str
    takes_ids: bool
    request: Callable[[Fields], dict[str, Any]]
    choice: Callable[[Fields, Fields], tuple[dict[str, Any], tuple[int | None, int]]]

    def url(self, base: str) -> str:
        """Where requests go."""
        return f"{base.removesuffix('/v1')}/generate"

    def completion(self, answer: Fields, request: Fields) -> dict[str, Any]:
        """The server's answer to our request, as one of completions."""
        try:
            choice, (n_prompt, n_written) = self.choice(answer, request)
        except (LookupError, TypeError, AttributeError) as e:
            raise ValueError(f"no answer of {self.words}") from e
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_written}
        return {"choices": [choice], "usage": usage}


def _sglang_request(request: Fields) -> dict[str, Any]:
    prompt, is_echo = request["prompt"], bool(request.get("echo"))
    return {
        **({"text": prompt} if isinstance(prompt, str) else {"input_ids": prompt[0]}),
        "sampling_params": {
            "temperature": request["temperature"],
            "max_new_tokens": request["max_tokens"],
        },
        "return_logprob": True,
        # -1: of what is written alone.
        "logprob_start_len": 0 if is_echo else -1,
        "top_logprobs_num": 0 if is_echo else request["logprobs"],
        "return_text_in_logprobs": True,
    }


def _sglang_choice(
    answer: Fields, request: Fields
) -> tuple[dict[str, Any], tuple[int | None, int]]:
    """Each token is [log-probability, id, text]."""
    found = answer["meta_info"]
    part = "input" if request.get("echo") else "output"
    shown = [(text, value) for value, _, text in found[f"{part}_token_logprobs"]]
    likeliest = [
        {text: value for value, _, text in place or ()}
        for place in found.get("output_top_logprobs") or ()
    ]
    counts = found["prompt_tokens"], found["completion_tokens"]
    return _choice(answer["text"], shown, likeliest), counts


def _tgi_request(request: Fields) -> dict[str, Any]:
    # Greedy unless a temperature is sent, which must not be 0.
    parameters = {"max_new_tokens": request["max_tokens"], "details": True}
    if request.get("echo"):
        parameters["decoder_input_details"] = True
    else:
        parameters["top_n_tokens"] = request["logprobs"]
    return {"inputs": request["prompt"], "parameters": parameters}


def _tgi_choice(
    answer: Fields, request: Fields
) -> tuple[dict[str, Any], tuple[int | None, int]]:
    """Each token has id, text and logprob."""

    def pair(token: Fields) -> tuple[str, Any]:
        return token["text"].replace("▁", " "), token["logprob"]

    details, is_echo = answer["details"], bool(request.get("echo"))
    shown = [pair(token) for token in details["prefill" if is_echo else "tokens"]]
    likeliest = [dict(map(pair, place)) for place in details.get("top_tokens") or ()]
    counts = len(shown) if is_echo else None, details["generated_tokens"]
    return _choice(answer["generated_text"], shown, likeliest), counts


def _choice(
    text: str, shown: Sequence[tuple[str | None, Any]], likeliest: list[dict[str, Any]]
) -> dict[str, Any]:
    logprobs = {
        "tokens": [token for token, _ in shown],
        "token_logprobs": [value for _, value in shown],
        "top_logprobs": likeliest,
    }
    return {"index": 0, "text": text, "logprobs": logprobs}


PROTOCOLS: Mapping[str, Protocol] = {
    "sglang": Protocol("SGLang's own protocol", True, _sglang_request, _sglang_choice),
    "tgi": Protocol(
        "TGI's own protocol (needs --enable-prefill-logprobs)",
        False,
        _tgi_request,
        _tgi_choice,
    ),
}
