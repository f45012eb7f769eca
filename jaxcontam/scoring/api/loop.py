"""An event loop in a thread of its own, for callers that know nothing of loops."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines, and ends them on Ctrl-C; works inside notebooks as well."""

    def __init__(self):
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a loop that nobody closes does not hold up the end.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether a call can be waited for."""
        is_here = threading.current_thread() is self._thread
        return not self._loop.is_closed() and not is_here

    def start(self, call: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Begin a call; its result comes later."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """The result of a call."""
        future = self.start(call)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self.cancel_all()
            raise

    def cancel_all(self) -> None:
        """End all calls and what they began."""
        self.start(_cancel_others()).result()

    def close(self) -> None:
        """End all calls, and the thread; a second time does nothing."""
        if self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:
            # The garbage collector may close a client from here: nobody can wait.
            self._loop.stop()
            return
        self.cancel_all()
        # In its own thread: the garbage collector may close a client from the thread
        # of another loop, which runs no second one.
        self.start(self._loop.shutdown_asyncgens()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    here = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not here]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
