"""Progress on stderr: a bar on a terminal, a line a minute in a log."""

import contextlib
import time
from collections.abc import Iterator

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from jaxcontam.scoring.scorer import Progress as Callback
from jaxcontam.terminal import Terminal

_SECONDS_A_LINE = 60.0


@contextlib.contextmanager
def progress_bar(title: str, *, unit: str = "tok/s") -> Iterator[Callback]:
    """Yield a callback (done, total) that draws a bar while the block runs."""
    console = Terminal(stderr=True)
    with Progress(
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
            # Of the last minute: what came from a store before says nothing of now.
            rate = (done - done_then) / (now - printed)
            printed, done_then = now, done
            left = f"{(total - done) / rate / 60:.0f} min left" if rate else "waiting"
            console.print(
                f"{title}: {done / total:.0%}, {rate:,.0f} {unit}, {left}",
                highlight=False,
            )

        yield update


class _Rate(ProgressColumn):
    """Units a second."""

    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}")
