"""A console on which what a file or a model says is shown, and never obeyed."""

import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from jaxcontam.terminal_text import visible


class Terminal(Console):
    """A console that shows what it prints: no markup, nothing that is obeyed."""

    def __init__(self, *, highlight: bool = False, **options: Any):
        """Takes the options of a `Console`; a benchmark may be called `[red]`."""
        super().__init__(markup=False, highlight=highlight, **options)

    def say(self, *lines: str) -> None:
        """Print each line whole: what is copied from a terminal has no breaks in it."""
        for line in lines:
            self.print(line, soft_wrap=True)

    def tell(self, line: str, *, indent: int = 0) -> None:
        """Print a line: broken between words on a terminal, whole in a file or pipe."""
        if self.is_terminal and self.width > indent:
            options: Any = dict(break_long_words=False, break_on_hyphens=False)
            options["subsequent_indent"] = " " * indent
            line = textwrap.fill(line, self.width, **options)
        self.say(line)

    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends in peace where rich would exit with 1."""
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a word or a cell; made visible before its width is measured."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a `Console`; what came as `Text` is made visible here."""
        for segment in super().render(renderable, options):
            # Control segments are of the console's own making, such as a bar's.
            if segment.control is None:
                segment = segment._replace(text=visible(segment.text))
            yield segment
