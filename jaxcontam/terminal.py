r"""What files and models hold, on a terminal or in a spreadsheet: shown, never obeyed.

A benchmark, a file's name or a server's answer may hold characters that move the
cursor, rename the window or turn the reading direction. They are printed as Python
spells them, such as `\x1b`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# C0 except tab and line feed, DEL, C1, bidirectional controls (Unicode's Bidi_Control)
# and unpaired surrogates, which cannot be encoded.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


# A spreadsheet takes a cell that begins so for a formula, and runs it; one that reads
# semicolons or tabs for commas begins a cell after each. What begins with the mark
# itself gets another one, so that taking one away undoes it.
_FORMULA = re.compile(r"\A(?=[=+\-@\t\r\n'])|(?<=[;\t\r\n])(?=[=+\-@'])")
_MARK = "'"


def cell_text(text: str) -> str:
    """Text of a CSV cell: an apostrophe before what would be taken for a formula."""
    return _FORMULA.sub(_MARK, text)


def visible(text: str) -> str:
    """The text with characters that a terminal obeys spelled out."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def json_text(value: Any) -> str:
    r"""JSON that a terminal shows: the same value, with such characters as `\u009b`."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Terminal(Console):
    """A console that shows what it prints: no markup, nothing that is obeyed."""

    def __init__(self, *, highlight: bool = False, **options: Any):
        """Takes the options of a `Console`; a benchmark may be called `[red]`."""
        super().__init__(markup=False, highlight=highlight, **options)

    def say(self, *lines: str) -> None:
        """Print each line whole: what is copied from a terminal has no breaks in it."""
        for line in lines:
            self.print(line, soft_wrap=True)

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
