"""Concurrent requests to an OpenAI-compatible server, none paid for twice.

Each answer is written to the journal before it is used, so a killed process loses only
requests in flight. The API key is sent in one header and appears nowhere else.
"""

import contextlib
import dataclasses
import functools
import json
import math
import queue
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self

import httpx2

from jaxcontam.data.journal import Journal, MemoryJournal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import (
    KEY_VARIABLE,
    Answer,
    ApiError,
    ApiModel,
    Body,
    RefusedError,
    Server,
    is_in_the_clear,
    request_key,
)
from jaxcontam.scoring.api.answers import (
    SGLANG,
    Failure,
    Reply,
    read_failure,
    read_reply,
    sglang_request,
)
from jaxcontam.scoring.api.budget import (
    CONCURRENCY,
    Budget,
    Spending,
    Usage,
    most_bytes,
    most_tokens,
    most_usage,
    used_by,
)
from jaxcontam.scoring.api.retries import Pace, last_error, seconds_to_wait
from jaxcontam.terminal_text import visible

_CONNECT_SECONDS = 10.0
Check = Callable[[Body, Answer], object]
# Wait for answers in flight after Ctrl-C.
_LAST_SECONDS = 5.0
# Between two looks at the clock, or at a budget that others use, too.
_LOOK_SECONDS = 0.02
# A terminal that is silent for longer looks like one that hangs.
_TOLD_SECONDS = 10.0
# A server that writes long texts may take as long for each.
_SILENT_SECONDS = 60.0


class StoppedError(Exception):
    """The request was not sent: another one failed, or the user interrupted."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of `post_all` that its requests share."""

    path: str
    check: Check | None
    is_kept: bool
    keeps_refusals: bool
    tries: int | None
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


class ApiClient:
    """A model behind a server; a context manager.

    Attributes:
        fingerprints: (model, system_fingerprint) of all answers, kept ones too; "" for
            none.
        n_sent: Requests that went out, those that failed among them.
    """

    def __init__(
        self,
        model: ApiModel,
        *,
        api_key: str | None,
        journal: Journal | None = None,
        concurrency: int = CONCURRENCY,
        budget: Spending | None = None,
        key_variable: str = KEY_VARIABLE,
        retry_refused: bool = False,
        timeout_seconds: float = 300.0,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
        transport: httpx2.BaseTransport | None = None,
        is_openai: bool = True,
    ):
        """Nothing is sent yet; without a journal answers are kept in memory.

        Clients may share a budget. `retry_refused` asks again what an earlier run was
        refused. `sleep` and `transport` stand in for waiting and the network.
        """
        if concurrency < 1:
            raise InputError(f"--concurrency must be at least 1, got {concurrency}")
        if not timeout_seconds > 0:
            raise InputError(f"a timeout must be positive, got {timeout_seconds}")
        self.model = model
        self.fingerprints: set[tuple[str, str]] = set()
        self.n_sent = 0
        self._kept = MemoryJournal() if journal is None else journal
        self._kept_now: set[str] = set()
        self._retry_refused = retry_refused
        self._concurrency = concurrency
        self._spending = Spending(Budget()) if budget is None else budget
        self._server = Server(
            model=model,
            api_key=api_key,
            key_variable=key_variable,
            timeout_seconds=timeout_seconds,
            is_openai=is_openai,
        )
        if api_key is not None and is_in_the_clear(model.url):
            _warn_of_clear_text(model.url, key_variable)
        self._connections = _Connections(self._server, transport)
        self._pace = Pace(concurrency)
        self._rng = rng or random.Random()
        self._sleep = sleep
        # Seconds that `sleep` skipped.
        self._skipped = 0.0
        # Requests wait for their turn in it, one that was turned away behind others.
        self._queue = threading.Lock()
        # As objects an answer takes many times its bytes: one is read at a time.
        self._reading = threading.Lock()
        self._telling = threading.Lock()
        self._told_until = self._told_of = self._heard_at = -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    def holds(self, path: str, body: Body, *, repeat: int = 0) -> bool:
        """True if `post` would send nothing."""
        return self._found(self.key(path, body, repeat=repeat)) is not None

    def key(self, path: str, body: Body, *, repeat: int = 0) -> str:
        """The journal's key of a request."""
        return request_key(self.model, path, body, repeat=repeat)

    def post(self, path: str, body: Body, *, repeat: int = 0, **how: Any) -> Answer:
        """The answer to one request, as `post_all`; a refusal is a RefusedError."""
        (answer,) = self.post_all(path, [body], repeats=[repeat], **how)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    def post_all(
        self,
        path: str,
        bodies: Sequence[Body],
        progress: Progress | None = None,
        *,
        repeats: Sequence[int] | None = None,
        check: Check | None = None,
        is_kept: bool = True,
        keeps_refusals: bool = False,
        tries: int | None = None,
    ) -> list[Any]:
        """Answers to many requests, in their order; a refusal stands for an answer.

        Equal requests are sent once, and none that the journal answers. If one fails
        for good, or on Ctrl-C, no other one is begun; answers on their way still reach
        the journal, after Ctrl-C if they come within seconds.

        Args:
            path: Follows the URL.
            bodies: The model's name is added to them.
            progress: Is called from this thread.
            repeats: Tell apart equal requests whose answers may differ, one a body.
            check: Looks at a request and its answer before that is kept. A ValueError:
                it is not usable, and asked for again; a RefusedError: it is kept as a
                refusal. What this gives, unless None, stands for the answer.
            is_kept: False: the journal is neither read nor written.
            keeps_refusals: Of a server that has answered other requests.
            tries: Of each request; by default the fault decides (`seconds_to_wait`).
        """
        keys = [
            self.key(path, body, repeat=repeat)
            for body, repeat in zip(bodies, repeats or [0] * len(bodies), strict=True)
        ]
        n_equal = Counter(keys)
        call = _Call(path, check, is_kept, keeps_refusals, tries)
        answers: dict[str, Any] = {}
        n_done, looked, limit = 0, -math.inf, self._server.timeout_seconds
        ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        key_of: dict[Future[Any], str] = {}
        pool = ThreadPoolExecutor(min(self._concurrency, len(n_equal)) or 1, "api")
        try:
            for key, body in dict(zip(keys, bodies, strict=True)).items():
                future = pool.submit(self._answer, call, key, body)
                key_of[future] = key
                future.add_done_callback(ended.put)
            while len(answers) < len(n_equal):
                if time.monotonic() >= looked + _LOOK_SECONDS:
                    self._look()
                    looked = time.monotonic()
                with contextlib.suppress(queue.Empty, StoppedError):
                    future = ended.get(timeout=_LOOK_SECONDS)
                    # Raises what ended the call: others stopped for it.
                    answers[key_of[future]] = future.result()
                    n_done += n_equal[key_of[future]]
                    if progress is not None:
                        progress(n_done, len(keys))
        except BaseException as e:
            # Requests in flight may be paid for; a second Ctrl-C stops waiting.
            call.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            sent = [future for future in key_of if not future.cancelled()]
            try:
                wait(sent, limit if isinstance(e, Exception) else _LAST_SECONDS)
            finally:
                self._connections.cut()
            raise
        pool.shutdown()
        return [answers[key] for key in keys]

    def _answer(self, call: _Call, key: str, body: Body) -> Any:
        """The kept part of the answer to a request, or its refusal."""
        try:
            if call.is_kept:
                found = self._found(key)
                if isinstance(found, RefusedError):
                    return found
                if found is not None:
                    # An answer that another check accepted may not pass this one.
                    with contextlib.suppress(ValueError):
                        return self._held(call, body, found)
                self._kept.claim()
            return self._ask(call, key, body)
        except RefusedError as e:
            # A server that has answered nothing may reject the key or the settings.
            is_credible = call.keeps_refusals and self._pace.has_answered
            if is_credible and key not in self._kept_now:
                self._keep(call, key, e)
            return e
        except BaseException:
            call.stop.set()
            raise

    def _ask(self, call: _Call, key: str, body: Body) -> Any:
        """Send a request until its answer is there and kept: all retries are here."""
        if self._server.is_openai:
            body = {"model": self.model.name, **body}
        has_limit = self._spending.budget.max_cost is not None
        assert most_tokens(body) is not None or not has_limit, "a budget needs a bound"
        most = most_usage(body)
        failures: list[Failure] = []
        while True:
            self._enter(most, call.stop)
            sent, used = self._now(), most
            try:
                outcome, used = self._try(call, key, body, most)
            except ApiError:
                used = Usage(1)
                raise
            finally:
                self._spending.settle(most, used)
                self._pace.leave()
            if not isinstance(outcome, Failure):
                return outcome
            failures.append(outcome)
            now, has_answered = self._now(), self._pace.has_answered
            wait = seconds_to_wait(failures, has_answered, self._rng, call.tries)
            if outcome.kind == "busy":
                self._pace.busy(sent=sent, now=now, wait=wait or 0.0)
            if wait is None:
                raise last_error(self.model.url, failures, has_answered)
            self._tell(wait, failures)
            if outcome.kind != "busy":
                self._pause(wait, call.stop)

    def _enter(self, most: Usage, stop: threading.Event) -> None:
        """Wait until one more request may be sent, and count it as in flight."""
        with self._queue:
            while True:
                if stop.is_set():
                    raise StoppedError
                if wait := self._pace.pause(self._now()):
                    self._pause(wait, stop)
                elif self._pace.is_open and self._spending.hold(most):
                    break
                else:
                    self._pace.wait(_LOOK_SECONDS)
            self._pace.enter()
            self.n_sent += 1

    def _try(self, call: _Call, key: str, body: Body, most: Usage) -> tuple[Any, Usage]:
        """The kept part of a stored answer, or a Failure; and its cost."""
        url, sent = self.model.url + call.path, body
        if body.get("protocol") == SGLANG:
            url = f"{self.model.url.removesuffix('/v1')}/generate"
            sent = sglang_request(body)
        n_bytes = most_bytes(body)
        try:
            reply = self._connections.post(url, json.dumps(sent).encode(), n_bytes)
        except _LongAnswerError:
            words = f"longer than the {n_bytes:,} bytes that it can be"
            return Failure("garbled", words), most
        except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as e:
            has_answered = self._pace.has_answered
            return read_failure(self._server, e, has_answered=has_answered), most
        self._heard_at = time.monotonic()
        with self._reading:
            answer = read_reply(self._server, body, reply, now=time.time())
            if isinstance(answer, Failure):
                return answer, most if answer.status is None else Usage(1)
            used = used_by(answer, body) if self._server.is_openai else Usage(1)
            self._pace.answered()
            try:
                held, kept = self._held(call, body, answer), answer
            except RefusedError as e:
                held = kept = e
            except ValueError as e:
                return Failure("unusable", str(e)), used
            self._keep(call, key, kept)
            return held, used

    def _held(self, call: _Call, body: Body, answer: Answer) -> Any:
        """The kept part of an answer; raises as `check` of `post_all` does."""
        held = None if call.check is None else call.check(body, answer)
        names = answer.get("model"), answer.get("system_fingerprint")
        model, fingerprint = (n if isinstance(n, str) else "" for n in names)
        self.fingerprints.add((model, fingerprint))
        return answer if held is None else held

    def _found(self, key: str) -> Answer | RefusedError | None:
        """Kept answer or refusal; None if the request must be sent."""
        if key not in self._kept or not isinstance(value := self._kept[key], dict):
            return None
        if isinstance(answer := value.get("answer"), dict):
            return answer
        is_asked_again = self._retry_refused and key not in self._kept_now
        if is_asked_again or not isinstance(words := value.get("refused"), str):
            return None
        return RefusedError(words, status=value.get("status"))

    def _keep(self, call: _Call, key: str, outcome: Answer | RefusedError) -> None:
        """Keep an answer or a refusal, synced to disk if there is a journal."""
        if not call.is_kept:
            return
        value: dict[str, Any] = {"answer": outcome}
        if isinstance(outcome, RefusedError):
            value = {"refused": str(outcome), "status": outcome.status}
        self._kept.add(key, value)
        self._kept_now.add(key)

    def _look(self) -> None:
        """Cut requests whose time is over, and tell of one that waits for long."""
        oldest, now = self._connections.cut_late(), time.monotonic()
        silent_since = max(oldest, self._heard_at)
        if oldest > self._told_of and now >= silent_since + _SILENT_SECONDS:
            # One line for all that wait.
            self._told_of = self._heard_at = now
            self._say(
                f"no whole answer for {_SILENT_SECONDS:.0f} s; giving up after "
                f"{self._server.timeout_seconds:g} s"
            )

    def _tell(self, wait: float, failures: list[Failure]) -> None:
        """Say on stderr what a long wait is for, once while it lasts."""
        with self._telling:
            now = self._now()
            if wait < _TOLD_SECONDS or now < self._told_until:
                return
            self._told_until = now + wait
        asked = failures[-1].wait or 0.0
        asks = f"; it requests a wait of {asked:.0f} s" if asked > wait else ""
        self._say(
            f"{failures[-1].words}, {len(failures)} times{asks}; "
            f"the next try is in {wait:.0f} s"
        )

    def _say(self, words: str) -> None:
        print(visible(f"jaxcontam: {self.model.url}: {words}"), file=sys.stderr)

    def _now(self) -> float:
        return time.monotonic() + self._skipped

    def _pause(self, seconds: float, stop: threading.Event) -> None:
        """Sleep, or raise once the call is to stop."""
        if self._sleep is None:
            stop.wait(seconds)
        else:
            self._sleep(seconds)
            with self._telling:
                self._skipped += seconds
        if stop.is_set():
            raise StoppedError


class _LongAnswerError(Exception):
    """An answer is longer than the request allows; the rest was not read."""


class _Connections:
    """Connections to one server, which another thread cuts when their time is over.

    A socket's timeout starts anew with each byte, and headers are read within one call
    of httpx2. So each request has a client with one connection, whose socket is known,
    and whoever waits for the answers looks at the clock (`time.monotonic`).
    """

    def __init__(self, server: Server, transport: httpx2.BaseTransport | None):
        """Nothing is sent yet."""
        self._seconds = server.timeout_seconds
        headers = {"Content-Type": "application/json"}
        if server.api_key is not None:
            headers["Authorization"] = f"Bearer {server.api_key}"
        connect = min(_CONNECT_SECONDS, self._seconds)
        try:
            self._settings: dict[str, Any] = {
                "headers": headers,
                # A thread that nobody looks after any more ends, too.
                "timeout": httpx2.Timeout(self._seconds, connect=connect),
                "follow_redirects": False,
                "verify": httpx2.create_ssl_context(),
                "transport": transport,
            }
            self._all = [_Connection(httpx2.Client(**self._settings))]
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as e:
            # Bad proxy or certificate settings in the environment.
            raise InputError(
                f"no connection can be made ({type(e).__name__})",
                hint="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
            ) from None
        self._idle = list(self._all)

    def post(self, url: str, content: bytes, most_bytes: int) -> Reply:
        """Read an answer whole; a TimeoutError if it is not there in time."""
        try:
            one = self._idle.pop()
        except IndexError:
            one = _Connection(httpx2.Client(**self._settings))
            self._all.append(one)
        try:
            return one.post(url, content, most_bytes, self._seconds)
        finally:
            self._idle.append(one)

    def cut_late(self) -> float:
        """Cut requests whose time is over; gives when the oldest began, or infinity."""
        now = time.monotonic()
        for one in self._all:
            one.cut(now - self._seconds)
        return min(one.began for one in self._all)

    def cut(self) -> None:
        """Cut all that are in use."""
        for one in self._all:
            one.cut()

    def close(self) -> None:
        """Close all; once more does no harm."""
        for one in self._all:
            one.http.close()


class _Connection:
    """A connection for one request at a time, which began then, or never: infinity."""

    def __init__(self, http: httpx2.Client):
        self.http = http
        self.began = math.inf
        self._socket: socket.socket | None = None
        self._is_cut = False
        # Held while a request begins, ends or is cut: no other one is cut in its place.
        self._lock = threading.Lock()

    def post(self, url: str, content: bytes, most_bytes: int, seconds: float) -> Reply:
        with self._lock:
            self._is_cut = False
            began = self.began = time.monotonic()
        data = bytearray()
        try:
            with self.http.stream(
                "POST", url, content=content, extensions={"trace": self._note_socket}
            ) as response:
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > most_bytes:
                        raise _LongAnswerError
        except (OSError, httpx2.HTTPError) as e:
            if time.monotonic() >= began + seconds:
                raise TimeoutError from e
            raise
        finally:
            with self._lock:
                self.began = math.inf
        if self._is_cut:
            # An answer without a length ends where its connection does.
            raise TimeoutError
        headers = {name.lower(): words for name, words in response.headers.items()}
        return Reply(response.status_code, headers, bytes(data))

    def cut(self, began_by: float = math.inf) -> None:
        """Cut the request that is on its way, if it began by then."""
        with self._lock:
            if self.began < math.inf and self.began <= began_by:
                self._is_cut = True
                self._shut()

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpx2 with what it does."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._is_cut:
                    self._shut()

    def _shut(self) -> None:
        """End all reading and writing; unlike a close, it wakes up who waits for it."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not the SSL socket's own, which changes what the other thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def snapshot_warning(client: ApiClient) -> str | None:
    """One line if answers of two models stand in one result, of earlier runs too."""
    if len(client.fingerprints) < 2:
        return None
    names = sorted(" ".join(filter(None, pair)) or "-" for pair in client.fingerprints)
    return (
        "the server's answers come from more than one snapshot of the model "
        f"({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
    )


@functools.cache
def _warn_of_clear_text(url: str, key_variable: str) -> None:
    """Once a run, before the key is sent."""
    print(
        visible(
            f"jaxcontam: warning: {url}: the key in {key_variable} is sent "
            "unencrypted; name an https:// URL, or unset the variable"
        ),
        file=sys.stderr,
    )
