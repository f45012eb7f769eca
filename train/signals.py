"""Signals that end a run: kept until a step is done and a checkpoint can follow."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether somebody asked this process to end.

    Attributes:
        signal: SIGTERM or SIGINT once it came; None before.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: do not wait for the checkpoint
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Keep SIGTERM and Ctrl-C for the block, which looks at the request when it can.

    A second Ctrl-C interrupts at once. Outside of the main thread, which alone receives
    signals, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request._receive) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
