"""Progress on stderr: a bar on a terminal; in a log a line at once and every 10 s."""

import collections
import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import rich.progress
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import visible

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all, such as target tokens."""

Bar = Callable[[str], AbstractContextManager[Progress]]
"""Gives the progress of a title while a block runs."""

_SECONDS_A_LINE = 10.0
# What is over sooner, or refused, is not told.
_SECONDS_BEFORE_THE_FIRST = 0.5
# A rate is that of so many lines: a batch may take longer than one.
_LINES_A_RATE = 3
# Bytes of a file of numbers that takes seconds.
_LARGE = 1 << 20


@contextlib.contextmanager
def progress_bar(title: str, *, unit: str = "tok/s") -> Iterator[Progress]:
    """Yield a callback (done, total) that draws a bar while the block runs."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        with _log(title, console, unit) as log:
            yield log.update
        return
    with rich.progress.Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        _Rate(unit),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def waiting_for(title: str) -> Iterator[Callable[[str], None]]:
    """Say what a block does; yields a callback for what it does next."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        with _log(title, console) as log:
            yield log.rename
        return
    with console.status(Text(title)) as status:
        yield lambda words: status.update(Text(visible(words)))


class _Log:
    """Lines of a log about one block: its title, the time, and how far it is."""

    def __init__(self, title: str, unit: str):
        self.title, self._unit = title, unit
        self._done, self._total = 0, 0
        self._start = time.monotonic()
        self._points = collections.deque([(self._start, 0)], maxlen=_LINES_A_RATE)

    def update(self, done: int, total: int) -> None:
        """Note what is done."""
        self._done, self._total = done, total

    def rename(self, title: str) -> None:
        """Note what the block does now."""
        self.title = title

    def line(self) -> str:
        """What there is to say now."""
        now = time.monotonic()
        if not self._total:
            return f"{self.title}: {now - self._start:.0f} s"
        # Of the last lines: what came from a store before says nothing of now.
        then, done_then = self._points[0]
        self._points.append((now, self._done))
        rate = (self._done - done_then) / (now - then)
        left = "waiting"
        if rate:
            left = f"{(self._total - self._done) / rate / 60:.0f} min left"
        share = self._done / self._total
        return f"{self.title}: {share:.0%}, {rate:,.0f} {self._unit}, {left}"


@contextlib.contextmanager
def _log(title: str, console: Terminal, unit: str = "") -> Iterator[_Log]:
    """Say almost at once what begins, and every few seconds how far it is."""
    log, over = _Log(title, unit), threading.Event()

    def tell() -> None:
        # What nobody reads any more is of no use; the block meets it, too.
        with contextlib.suppress(OSError, ValueError):
            if over.wait(_SECONDS_BEFORE_THE_FIRST):
                return
            console.say(log.title)
            pause = _SECONDS_A_LINE - _SECONDS_BEFORE_THE_FIRST
            while not over.wait(pause):
                console.say(log.line())
                pause = _SECONDS_A_LINE

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield log
    finally:
        over.set()
        teller.join()


@contextlib.contextmanager
def log_of_large(path: Path, title: str) -> Iterator[Callable[[str], None]]:
    """Say what a block does with a file: on a terminal, and in a log if it is large."""
    console = Terminal(stderr=True)
    if console.is_terminal:
        with waiting_for(title) as say:
            yield say
    elif path.is_file() and path.stat().st_size > _LARGE:
        console.say(title)
        yield console.say
    else:
        yield lambda words: None


@contextlib.contextmanager
def default_bar(progress: Progress | None, title: str) -> Iterator[Progress]:
    """Yield a function's `progress`; by default a bar where someone looks.

    That is a terminal or a notebook. Elsewhere a function prints nothing.
    """
    if progress is not None:
        yield progress
    elif _in_notebook():
        yield from _text_bar(title)
    elif sys.stderr.isatty():
        with progress_bar(title) as bar:
            yield bar
    else:
        with silent(title) as nothing:
            yield nothing


@contextlib.contextmanager
def silent(title: str) -> Iterator[Progress]:
    """Tell nobody."""
    yield lambda done, total: None


def progress_after(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Tell `progress` of a part in terms of the whole.

    `total` may be an estimate: no more than it is ever told.
    """
    if progress is None:
        return None
    return lambda now, _: progress(min(done + now, total), total)


def progress_in(progress: Progress | None, total: int) -> Progress | None:
    """Tell `progress` of one unit as a share of `total` of another."""
    if progress is None:
        return None
    return lambda done, n: progress(math.floor(total * done / max(1, n)), total)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _text_bar(title: str) -> Iterator[Progress]:
    """A notebook's bar, as text: needs no widgets."""
    from tqdm import tqdm

    with tqdm(desc=title, unit=" tok", unit_scale=True) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


class _Rate(ProgressColumn):
    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: rich.progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}")
