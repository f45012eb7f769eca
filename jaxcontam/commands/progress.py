"""Progress on stderr: share done, rate, time left; silent when nobody watches."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
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


@contextlib.contextmanager
def progress_bar(title: str, *, unit: str = "tok/s") -> Iterator[Callback]:
    """Yield a callback (done, total) that draws a bar while the block runs."""
    console = Console(stderr=True)
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
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Rate(ProgressColumn):
    """Units a second."""

    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}")
