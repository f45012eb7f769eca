"""Signals that interrupt a command, from before anything slow is imported."""

import signal
import sys
from types import FrameType


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, unless they are ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def signal_of(error: BaseException | None) -> int:
    """The signal behind a KeyboardInterrupt; Python's own does not say it."""
    number = next(iter(error.args), None) if error is not None else None
    return number if isinstance(number, int) else signal.SIGINT


def interrupted(error: KeyboardInterrupt, name: str = "jaxcontam") -> int:
    """Say that the command can be run again; returns the exit code, as of a shell."""
    print(f"\n{name}: interrupted; run the same command again", file=sys.stderr)
    return 128 + signal_of(error)
