"""What every study leaves behind: numbers, tables, figures, and what it cost.

`OUT/NAME.json` holds the raw numbers, `OUT/NAME.md` the tables in Markdown with the
command that makes them again, `OUT/FIGURE.svg` each figure.
"""

import dataclasses
import json
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxcontam.report.document import data_digest, make_folder, replace_bytes
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.scoring.identity import cpu_name
from train.earlier import code_version

# More columns than a table has; the words of one decide how wide it is.
_ANY_WIDTH = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """A table of words.

    Attributes:
        title: Above it.
        header: One word a column; the first names the rows.
        rows: As many words each.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """When a study began, by three clocks."""

    started: str
    wall: float
    cpu: float

    @classmethod
    def start(cls) -> "Clock":
        """Now."""
        return cls(utc_now(), time.monotonic(), _cpu_seconds())

    def cost(self) -> dict[str, Any]:
        """Wall seconds, and CPU seconds of this process and those that it ended."""
        return {
            "started": self.started,
            "wall_seconds": round(time.monotonic() - self.wall, 1),
            "cpu_seconds": round(_cpu_seconds() - self.cpu, 1),
        }


def finish_study(
    name: str,
    flags: Sequence[str],
    *,
    clock: Clock,
    out: Path,
    numbers: Mapping[str, Any],
    grids: Sequence[Grid],
    figures: Mapping[str, str],
    console: Console,
    earlier_seconds: float = 0.0,
) -> dict[str, Any]:
    """Write a study's files, print its tables and its cost.

    Args:
        name: Of the study: `power` for `python -m eval.power`.
        flags: As typed; see `flags_of`.
        clock: From the study's start.
        out: Folder; made if it is missing.
        numbers: Raw numbers, as JSON takes them; no NaN.
        grids: Tables.
        figures: Name -> text of an SVG.
        console: Where tables are printed.
        earlier_seconds: CPU seconds of work that earlier starts finished and this one
            took over.

    Returns:
        What stands in the JSON file.

    Raises:
        ValueError: If a number is not finite.
    """
    document = {
        "study": name,
        "command": [f"eval.{name}", *flags],
        **clock.cost(),
        "earlier_cpu_seconds": round(earlier_seconds, 1),
        "cpu": cpu_name(),
        "code": code_version(),
        "versions": library_versions(),
        **numbers,
    }
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    make_folder(out)
    replace_bytes(out / f"{name}.json", text.encode())
    for figure, svg in figures.items():
        replace_bytes(out / f"{figure}.svg", svg.encode())
    tables = "\n\n".join([*map(markdown, grids), _cost_words(document)])
    replace_bytes(out / f"{name}.md", f"{tables}\n".encode())
    for grid in grids:
        print_grid(grid, console)
    written = [f"{name}.md", *(f"{figure}.svg" for figure in figures), f"{name}.json"]
    for line in (f"\n{_cost_words(document)}", f"{out}: {', '.join(written)}"):
        console.print(Text(line), soft_wrap=True)
    return document


def inputs_digest(*inputs: Any) -> str:
    """Digest of all that a record follows from: under another one it is made again.

    Args:
        *inputs: Values that JSON takes.
    """
    return data_digest(json.dumps(inputs, sort_keys=True).encode())


def print_grid(grid: Grid, console: Console) -> None:
    """A table without lines, numbers to the right, as wide as its words need.

    Words are printed as they are: brackets in a name or an error are no markup.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for number, name in enumerate(grid.header):
        justify = "left" if number == 0 else "right"
        table.add_column(Text(name), justify=justify, no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    # A number that a narrow terminal cuts short is a wrong one.
    anything = console.options.update(width=_ANY_WIDTH)
    table.width = console.measure(table, options=anything).maximum
    console.print(Text(f"\n{grid.title}"))
    console.print(table, highlight=False, crop=False)


def markdown(grid: Grid) -> str:
    """The same table in Markdown, its title as a paragraph before it."""
    lines = [grid.header, tuple("---" for _ in grid.header), *grid.rows]
    # A cell is one line, and a bar in it would end it.
    cells = ((word.replace("|", "\\|").replace("\n", " ") for word in r) for r in lines)
    return "\n".join([grid.title, "", *(f"| {' | '.join(row)} |" for row in cells)])


def _cost_words(document: Mapping[str, Any]) -> str:
    """What the study took, on what, and how to make it again."""
    earlier = document["earlier_cpu_seconds"]
    before = f" (and {earlier:,.0f} CPU s of earlier starts)" if earlier else ""
    return (
        f"`python -m {' '.join(document['command'])}`: "
        f"{document['wall_seconds']:,.0f} s, {document['cpu_seconds']:,.0f} CPU s"
        f"{before} on {document['cpu']}, {document['started'][:10]}, "
        f"code {(document['code'] or 'unknown')[:12]}"
    )


def _cpu_seconds() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(
            resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
    )
