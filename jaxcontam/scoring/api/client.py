"""Concurrent requests to an OpenAI-compatible server, none paid for twice.

Each answer is written to the journal before it is used, so a killed process loses only
requests in flight. The API key is sent in one header and appears nowhere else.
"""

import asyncio
import contextlib
import dataclasses
import functools
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import httpx2

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import KEY_VARIABLE, ApiModel
from jaxcontam.scoring.api.answers import Answer
from jaxcontam.scoring.api.budget import Budget, Spending
from jaxcontam.scoring.api.request import Body, RefusedError, request_key
from jaxcontam.scoring.api.sender import Sender, StoppedError

_T = TypeVar("_T")

# Wait for answers in flight after Ctrl-C.
_LAST_SECONDS = 5.0
# Two threads may ask for the loop together; one asks again where the garbage collector
# closes a client meanwhile.
_STARTING = threading.RLock()

Check = Callable[[Body, Answer], object]


class ApiClient:
    """A model behind a server; a context manager.

    Attributes:
        fingerprints: What the server called the model in its answers, those of the
            journal among them: (model, system_fingerprint), "" where it says nothing.
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
        self._kept: Journal | _Memory = _Memory() if journal is None else journal
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


class _Memory(dict[str, Any]):
    """In-memory stand-in for a journal."""

    add = dict.__setitem__

    def claim(self) -> None:
        """Nobody else has it."""


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
