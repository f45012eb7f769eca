"""Concurrent requests to an OpenAI-compatible server, none paid for twice.

Each answer is written to the journal before it is used, so a killed process loses only
requests in flight. The API key is sent in one header and appears nowhere else.
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import math
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import httpx2

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import (
    KEY_VARIABLE,
    ApiError,
    ApiModel,
    Body,
    RefusedError,
    is_in_the_clear,
    request_key,
)
from jaxcontam.scoring.api.answers import (
    PROTOCOLS,
    Answer,
    Failure,
    read_failure,
    read_reply,
)
from jaxcontam.scoring.api.budget import (
    Budget,
    Spending,
    Usage,
    most_bytes,
    most_usage,
    used_by,
)
from jaxcontam.scoring.api.retries import Policy
from jaxcontam.terminal import visible

_T = TypeVar("_T")
# Wait for answers in flight after Ctrl-C.
_LAST_SECONDS = 5.0
# Two threads may ask for the loop together; one asks again where the garbage collector
# closes a client meanwhile.
_STARTING = threading.RLock()
Check = Callable[[Body, Answer], object]


_CONNECT_SECONDS = 10.0
# Between two looks at whether one more request may go out, or all are to stop.
_LOOK_SECONDS = 0.02
# A terminal that is silent for longer looks like one that hangs.
_TOLD_SECONDS = 10.0
# A server that writes long texts may take as long for each.
_SILENT_SECONDS = 60.0


class StoppedError(Exception):
    """The request was not sent: another one failed, or the user interrupted."""


class ApiClient:
    """A model behind a server; a context manager.

    Attributes:
        fingerprints: (model, system_fingerprint) of all answers, kept ones too; "" for
            none.
    """

    def __init__(
        self,
        model: ApiModel,
        *,
        api_key: str | None,
        journal: Journal | None = None,
        concurrency: int = 8,
        budget: Spending | None = None,
        key_variable: str = KEY_VARIABLE,
        retry_refused: bool = False,
        timeout_seconds: float = 300.0,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        is_openai: bool = True,
    ):
        """Nothing is sent yet.

        The key is from `key_from_environment`, and `key_variable` its name for hints.
        Without a journal answers are kept in memory; a budget may be shared by several
        clients. `retry_refused` asks again what the server refused in an earlier run. A
        timeout is for one request, from its connection to the last byte of its answer,
        however slowly the bytes come. `sleep` and `transport` stand for waiting and for
        the network in tests. Unless `is_openai`, requests name no model, and answers
        hold no choices.
        """
        if concurrency < 1:
            raise InputError(f"--concurrency must be at least 1, got {concurrency}")
        if not timeout_seconds > 0:
            raise InputError(f"a timeout must be positive, got {timeout_seconds}")
        self.model = model
        self.fingerprints: set[tuple[str, str]] = set()
        self._kept = MemoryJournal() if journal is None else journal
        self._kept_now: set[str] = set()
        self._retry_refused = retry_refused
        self._concurrency = concurrency
        self._sender = Sender(
            model=model,
            api_key=api_key,
            concurrency=concurrency,
            spending=budget or Spending(Budget()),
            key_variable=key_variable,
            timeout_seconds=timeout_seconds,
            sleep=sleep,
            rng=rng or random.Random(),
            transport=transport,
            is_openai=is_openai,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        closing = _started(self._sender.close())
        # The garbage collector may close a client in the loop's own thread.
        if threading.current_thread() is not _loop()[1]:
            closing.result()

    @property
    def n_sent(self) -> int:
        """Requests that went out, those that failed among them."""
        return self._sender.n_sent

    def holds(self, path: str, body: Body, *, repeat: int = 0) -> bool:
        """True if `post` would send nothing."""
        return self._found(self.key(path, body, repeat=repeat)) is not None

    def key(self, path: str, body: Body, *, repeat: int = 0) -> str:
        """The journal's key of a request."""
        return request_key(self.model, path, body, repeat=repeat)

    def post(
        self,
        path: str,
        body: Body,
        *,
        repeat: int = 0,
        check: Check | None = None,
        is_kept: bool = True,
        tries: int | None = None,
    ) -> Answer:
        """The answer to one request, see `post_all`; a refusal is a RefusedError."""
        (answer,) = self.post_all(
            path, [body], repeats=[repeat], check=check, is_kept=is_kept, tries=tries
        )
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

        Equal requests are sent once, and none that the journal answers. A busy server,
        a fault that passes, a broken connection and an answer of another form are tried
        again; see `Policy`. A redirection is refused, because it would take the key to
        another server. If one request fails for good, or on Ctrl-C, no other one is
        begun; the answers on their way still reach the journal, after Ctrl-C if they
        come within seconds.

        The path follows the base of the protocol; the model's name is added to bodies.
        `progress` is called from this thread. `repeats` tell apart equal requests whose
        answers may differ, one a body. `check` looks at a request and its answer before
        that is kept: a ValueError says that it is not usable and must be asked for
        again, a RefusedError that it is none, such as one that a filter cut off, and is
        kept as a refusal. What `check` gives, unless None, stands for the answer, which
        may be too large to be held by the thousand. Unless `is_kept`, the journal is
        neither read nor written. `keeps_refusals` keeps there what a server refuses
        that has answered other requests. Without `tries` the fault decides.
        """
        keys = [
            self.key(path, body, repeat=repeat)
            for body, repeat in zip(bodies, repeats or [0] * len(bodies), strict=True)
        ]
        n_equal = Counter(keys)
        done: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        call = _Call(path, check, is_kept, keeps_refusals, tries)
        answering = _started(
            self._answer_all(call, dict(zip(keys, bodies, strict=True)), done.put)
        )
        answering.add_done_callback(lambda _: done.put(None))
        n_done = 0
        try:
            while (key := done.get()) is not None:
                n_done += n_equal[key]
                if progress is not None:
                    progress(n_done, len(keys))
        except BaseException:
            # Requests in flight may be paid for; a second Ctrl-C stops waiting.
            call.stop.set()
            try:
                with contextlib.suppress(Exception):
                    answering.result(_LAST_SECONDS)
            finally:
                answering.cancel()
            raise
        answers = answering.result()
        return [answers[key] for key in keys]

    async def _answer_all(
        self, call: "_Call", bodies: Mapping[str, Body], tell: Callable[[str], None]
    ) -> dict[str, Any]:
        """Answers by key; `tell` is told of each key."""
        found: dict[str, Any] = {}
        todo = iter(bodies.items())

        async def work() -> None:
            for key, body in todo:
                try:
                    found[key] = await self._answer(
                        call, body, key if call.is_kept else None
                    )
                except RefusedError as e:
                    found[key] = e
                except Exception:
                    call.stop.set()
                    raise
                tell(key)
                if call.stop.is_set():
                    return

        n_workers = min(self._concurrency, len(bodies))
        ends = await asyncio.gather(
            *(work() for _ in range(n_workers)), return_exceptions=True
        )
        failed = [end for end in ends if end is not None]
        if failed:
            # Prefer the failure that stopped the others.
            raise min(failed, key=lambda end: isinstance(end, StoppedError))
        return found

    async def _answer(self, call: "_Call", body: Body, key: str | None) -> Any:
        """The answer to a request; without a key the journal is left alone."""
        kept = None if key is None else self._found(key)
        if isinstance(kept, RefusedError):
            raise kept
        if kept is not None:
            # An answer that another check accepted may not pass this one.
            with contextlib.suppress(ValueError):
                return self._note(call, body, kept)
        held: list[Any] = []

        def keep(answer: Answer) -> None:
            try:
                held.append(self._note(call, body, answer))
            except RefusedError as e:
                self._keep(key, e)
                raise
            self._keep(key, answer)

        if key is not None:
            self._kept.claim()
        try:
            await self._sender.ask(
                call.path, body, keep=keep, stop=call.stop, tries=call.tries
            )
            return held[-1]
        except RefusedError as e:
            # A server that has answered nothing may reject the key or the settings.
            is_credible = call.keeps_refusals and self._sender.policy.has_answered
            if is_credible and key not in self._kept_now:
                self._keep(key, e)
            raise

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

    def _keep(self, key: str | None, outcome: Answer | RefusedError) -> None:
        """Keep an answer or a refusal, synced to disk if there is a journal."""
        if key is None:
            return
        if isinstance(outcome, RefusedError):
            self._kept.add(key, {"refused": str(outcome), "status": outcome.status})
        else:
            self._kept.add(key, {"answer": outcome})
        self._kept_now.add(key)

    def _note(self, call: "_Call", body: Body, answer: Answer) -> Any:
        """Part of an answer that is held; errors as of `check` of `post_all`."""
        held = None if call.check is None else call.check(body, answer)
        names = answer.get("model"), answer.get("system_fingerprint")
        model, fingerprint = (n if isinstance(n, str) else "" for n in names)
        self.fingerprints.add((model, fingerprint))
        return answer if held is None else held


class MemoryJournal(Journal):
    """A journal of a single call, of which nothing is written."""

    def __init__(self):
        self._kept: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def __getitem__(self, key: str) -> Any:
        return self._kept[key]

    def claim(self) -> None:
        """Nobody else has it."""

    def add(self, key: str, value: Any) -> None:
        """Keep a value."""
        self._kept[key] = value


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of `post_all` that its requests share."""

    path: str
    check: Check | None
    is_kept: bool
    keeps_refusals: bool
    tries: int | None
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


@functools.cache
def _loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Event loop and thread that all clients share."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="api", daemon=True)
    thread.start()
    return loop, thread


def _started(call: Coroutine[Any, Any, _T]) -> "Future[_T]":
    with _STARTING:
        return asyncio.run_coroutine_threadsafe(call, _loop()[0])


def snapshot_warning(client: ApiClient) -> str | None:
    """One line if the server's model changed while it was asked, in this run or before.

    Numbers of two models stand then in one result.
    """
    if len(client.fingerprints) < 2:
        return None
    names = sorted(" ".join(filter(None, pair)) or "-" for pair in client.fingerprints)
    return (
        "the server's answers come from more than one snapshot of the model "
        f"({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class Sender:
    """A server as requests reach it; fields up to `is_openai` are those of `ApiClient`.

    It needs an event loop, which can bound the time of a whole request; a socket's
    timeout starts anew with each byte.
    """

    model: ApiModel
    api_key: str | None = dataclasses.field(repr=False)
    concurrency: int
    spending: Spending
    key_variable: str
    timeout_seconds: float
    sleep: Callable[[float], None] | None
    rng: random.Random
    transport: httpx2.AsyncBaseTransport | None
    is_openai: bool = True
    n_sent: int = 0

    def __post_init__(self) -> None:
        self.policy = Policy(self.concurrency, self.rng)
        # Seconds that `sleep` skipped.
        self._skipped = 0.0
        self._told_until = -math.inf
        self._answered_at = -math.inf
        if self.api_key is not None and is_in_the_clear(self.model.url):
            _warn_of_clear_text(self.model.url, self.key_variable)
        self._http = _http_client(self.api_key, self.concurrency, self.transport)
        self._gate = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        path: str,
        body: Body,
        *,
        keep: Callable[[Answer], None],
        stop: threading.Event,
        tries: int | None = None,
    ) -> Answer:
        """Send until there is an answer.

        `keep` receives the answer as soon as it arrives; its ValueError asks for it
        again. Once `stop` is set, only requests in flight are completed, and others end
        in a StoppedError. Without `tries` the fault decides.
        """
        if self.is_openai:
            body = {"model": self.model.name, **body}
        most = most_usage(body, is_bounded=self.spending.budget.max_cost is not None)
        failures: list[Failure] = []
        while True:
            await self._enter(most, stop)
            sent, used = self._now(), most
            try:
                outcome = await self._reply(path, body)
                if isinstance(outcome, Failure):
                    used = most if outcome.status is None else Usage(1)
                else:
                    used = used_by(outcome, body) if self.is_openai else Usage(1)
                    self.policy.answered()
                    try:
                        keep(outcome)
                        return outcome
                    except ValueError as e:
                        outcome = Failure("unusable", str(e))
            except ApiError:
                used = Usage(1) if used is most else used
                raise
            finally:
                self.spending.settle(most, used)
                self.policy.leave()
            failures.append(outcome)
            wait = self.policy.failed(failures, sent=sent, now=self._now(), tries=tries)
            if wait is None:
                raise self.policy.error(self.model.url, failures)
            self._tell(wait, failures)
            if outcome.kind != "busy":
                await self._pause(wait, stop)

    async def _enter(self, most: Usage, stop: threading.Event) -> None:
        """Wait until one more request may be sent, and count it as in flight."""
        # A lock is a queue: one that was turned away goes to its end.
        async with self._gate:
            while True:
                _check(stop)
                if wait := self.policy.pause(self._now()):
                    await self._pause(wait, stop)
                elif self.policy.is_open and self.spending.hold(most):
                    break
                else:
                    await asyncio.sleep(_LOOK_SECONDS)
            self.policy.enter()
            self.n_sent += 1

    async def _reply(self, path: str, body: Body) -> Answer | Failure:
        """One try; errors as of `read_reply` and `read_failure`."""
        loop = asyncio.get_running_loop()
        url, sent = self.model.url + path, body
        if (own := PROTOCOLS.get(body.get("protocol", ""))) is not None:
            url, sent = own.url(self.model.url), own.request(body)
        waiting = loop.call_later(_SILENT_SECONDS, self._tell_silence)
        try:
            async with (
                asyncio.timeout(self.timeout_seconds),
                self._http.stream(
                    "POST", url, content=json.dumps(sent).encode()
                ) as response,
            ):
                data, most = bytearray(), most_bytes(body)
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > most:
                        return Failure(
                            "garbled", f"longer than the {most:,} bytes that it can be"
                        )
        except (TimeoutError, OSError, httpx2.HTTPError, httpx2.InvalidURL) as e:
            return read_failure(
                self.model.url,
                e,
                timeout=self.timeout_seconds,
                api_key=self.api_key,
                has_answered=self.policy.has_answered,
            )
        finally:
            waiting.cancel()
        self._answered_at = loop.time()
        return read_reply(
            self.model.url,
            body,
            status=response.status_code,
            headers={name.lower(): words for name, words in response.headers.items()},
            data=bytes(data),
            api_key=self.api_key,
            key_variable=self.key_variable,
            now=time.time(),
            is_openai=self.is_openai,
        )

    def _tell(self, wait: float, failures: list[Failure]) -> None:
        """Say on stderr what a long wait is for, once while it lasts."""
        now = self._now()
        if wait < _TOLD_SECONDS or now < self._told_until:
            return
        self._told_until = now + wait
        asked = failures[-1].wait or 0.0
        asks = f"; it asks for a wait of {asked:.3g} s" if asked > wait else ""
        self._say(
            f"{failures[-1].words}, {len(failures)} times{asks}; "
            f"the next try is in {wait:.0f} s"
        )

    def _tell_silence(self) -> None:
        """Say that a request waits, where no other one was answered meanwhile."""
        now = asyncio.get_running_loop().time()
        if now - self._answered_at >= _SILENT_SECONDS:
            # One line for all that wait.
            self._answered_at = now
            self._say(
                f"no whole answer for {_SILENT_SECONDS:.0f} s; it is given up after "
                f"{self.timeout_seconds:g} s"
            )

    def _say(self, words: str) -> None:
        print(visible(f"jaxcontam: {self.model.url}: {words}"), file=sys.stderr)

    def _now(self) -> float:
        return asyncio.get_running_loop().time() + self._skipped

    async def _pause(self, seconds: float, stop: threading.Event) -> None:
        """Sleep, or raise if the call is being stopped."""
        if self.sleep is not None:
            self.sleep(seconds)
            self._skipped += seconds
        until = self._now() + (seconds if self.sleep is None else 0.0)
        while (left := until - self._now()) > 0:
            _check(stop)
            await asyncio.sleep(min(left, _LOOK_SECONDS))
        await asyncio.sleep(0)


@functools.cache
def _warn_of_clear_text(url: str, key_variable: str) -> None:
    """Once a run, before the key is sent."""
    print(
        visible(
            f"jaxcontam: warning: {url}: the key in {key_variable} goes there "
            "unencrypted: name an https:// URL, or unset the variable"
        ),
        file=sys.stderr,
    )


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError


def _http_client(
    api_key: str | None, concurrency: int, transport: httpx2.AsyncBaseTransport | None
) -> httpx2.AsyncClient:
    headers = {"Content-Type": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    limits = httpx2.Limits(
        max_connections=concurrency, max_keepalive_connections=concurrency
    )
    try:
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=limits,
            follow_redirects=False,
            verify=True,
            transport=transport,
        )
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as e:
        # Bad proxy or certificate settings in the environment.
        raise InputError(
            f"no connection can be made ({type(e).__name__})",
            hint="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
        ) from None
