"""Send a request, with retries, until it is answered: pace, budget and deadline.

This needs an event loop, which can bound the time of a whole request; a socket's
timeout starts anew with each byte.
"""

import asyncio
import dataclasses
import functools
import json
import math
import random
import sys
import threading
import time
from collections.abc import Callable

import httpx2

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel, is_in_the_clear
from jaxcontam.scoring.api.answers import Answer, read_reply
from jaxcontam.scoring.api.budget import (
    Spending,
    Usage,
    most_bytes,
    most_usage,
    used_by,
)
from jaxcontam.scoring.api.policy import Failure, Policy, read_failure
from jaxcontam.scoring.api.protocols import PROTOCOLS
from jaxcontam.scoring.api.request import ApiError, Body
from jaxcontam.terminal import visible

_CONNECT_SECONDS = 10.0
# Between two looks at whether one more request may go out, or all are to stop.
_LOOK_SECONDS = 0.02
# A terminal that is silent for longer looks like one that hangs.
_TOLD_SECONDS = 10.0
# A server that writes long texts may take as long for each.
_SILENT_SECONDS = 60.0


class StoppedError(Exception):
    """The request was not sent: another one failed, or the user interrupted."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Sender:
    """A server as requests reach it.

    Fields up to `is_openai` are those of `ApiClient`; `n_sent` counts requests that
    went out, those that failed among them.
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
    api_key: str | None,
    concurrency: int,
    transport: httpx2.AsyncBaseTransport | None,
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
