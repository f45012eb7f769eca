"""Progress on stderr: a bar on a terminal, a line a minute in a log."""

import contextlib
import math
import sys
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

_SECONDS_A_LINE = 60.0
# Bytes of a file of numbers that takes seconds.
_LARGE = 1 << 20


@contextlib.contextmanager
def progress_bar(title: str, *, unit: str = "tok/s") -> Iterator[Progress]:
    """Yield a callback (done, total) that draws a bar while the block runs."""
    console = Terminal(stderr=True)
    with rich.progress.Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        _Rate(unit),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        printed, done_then = time.monotonic(), 0

        def update(done: int, total: int) -> None:
            nonlocal printed, done_then
            bar.update(task, completed=done, total=total)
            now = time.monotonic()
            if console.is_terminal or now - printed < _SECONDS_A_LINE:
                return
            # Since the last line: what came from a store before says nothing of now.
            rate = (done - done_then) / (now - printed)
            printed, done_then = now, done
            left = f"{(total - done) / rate / 60:.0f} min left" if rate else "waiting"
            console.print(f"{title}: {done / total:.0%}, {rate:,.0f} {unit}, {left}")

        yield update


@contextlib.contextmanager
def waiting_for(title: str) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what a block does; yields a callback for what it does next."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        yield lambda words: None
        return
    with console.status(Text(title)) as status:
        yield lambda words: status.update(Text(visible(words)))


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
