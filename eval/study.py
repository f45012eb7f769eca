"""The skeleton of a study: command line, records to resume from, files it leaves.

`OUT/NAME.json` holds the raw numbers, `OUT/NAME.md` the tables in Markdown with the
command that makes them again, `OUT/FIGURE.svg` each figure.
"""

import contextlib
import dataclasses
import json
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxcontam.cli.main import EXIT_PARTIAL, run_module
from jaxcontam.errors import InputError
from jaxcontam.processes import keep_freed_memory
from jaxcontam.reports.flags import check_positive, check_seed, flags_of
from jaxcontam.reports.report import library_versions, utc_now
from jaxcontam.reports.report_files import data_digest, make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name
from train.run_folder import code_version

_Row = TypeVar("_Row")
_Key = TypeVar("_Key", bound=Hashable)

Column = str | Callable[[Any], str]
"""A format string of the row `r`, such as `{r.copies}`, or a function of the row."""

# Wider than any table; the words of a column decide its width.
_ANY_WIDTH = 1_000_000


def run_study(
    name: str,
    command: type,
    *,
    trains: bool = False,
    compiles: bool = False,
    code_of: Callable[[Any], object] | None = None,
) -> int:
    """Run `python -m eval.NAME`; returns the exit code.

    `command` is a dataclass of flags with a method `run`, whose result gives the code.
    A study that `trains` small models in this process keeps freed memory, one that
    `compiles` keeps programs for the next process.
    """
    if trains:
        keep_freed_memory()
    if compiles:
        from jaxcontam.scoring.identity import keep_compiled

        keep_compiled()
    return run_module(command, f"eval.{name}", code_of or exit_code)


def exit_code(outcome: Any) -> object:
    """3 where numbers tell of what failed; else what it is, any but an int being 0."""
    has_failed = isinstance(outcome, dict) and outcome.get("failed")
    return EXIT_PARTIAL if has_failed else outcome


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StudyFlags:
    """Flags of a study that draws at random."""

    seed: int = 0
    """Seeds all that is random: the first of the seeds where there are several."""
    tiny: bool = False
    """A pulse run of seconds to minutes, whose numbers mean nothing."""

    positive: ClassVar[tuple[str, ...]] = ()
    """Names of flags that must be at least 1."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, *self.positive)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResumedFlags(StudyFlags):
    """Flags of a study of which finished parts stay."""

    any_code: bool = False
    """Take finished models and parts that other code, or another CPU, made; manifests
    say which."""


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """A table of words under a title; the first word of the header names the rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Any], columns: Mapping[str, Column]
    ) -> "Grid":
        """A table with a line a row; `columns` says how a cell is made of a row."""
        lines = tuple(
            tuple(
                column.format(r=row) if isinstance(column, str) else column(row)
                for column in columns.values()
            )
            for row in rows
        )
        return cls(title, tuple(columns), lines)

    @classmethod
    def crossed(
        cls, title: str, corner: str, words: Mapping[tuple[str, str], str]
    ) -> "Grid":
        """A table of (line, column) -> cell, in the order in which they come."""
        across = dict.fromkeys(column for _, column in words)
        rows = (
            (line, *(words.get((line, column), "") for column in across))
            for line in dict.fromkeys(line for line, _ in words)
        )
        return cls(title, (corner, *across), tuple(rows))


def grouped(
    rows: Iterable[_Row], key: Callable[[_Row], _Key]
) -> dict[_Key, list[_Row]]:
    """Rows by a key, in order of arrival."""
    found: dict[_Key, list[_Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def say(words: str) -> None:
    """Tell on stderr, at once, how far the study is."""
    print(words, file=sys.stderr, flush=True)


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
    flags: Any,
    *,
    clock: Clock,
    numbers: Mapping[str, Any],
    grids: Sequence[Grid],
    out: Path | None = None,
    figures: Mapping[str, str] | None = None,
    console: Console | None = None,
    earlier_seconds: float = 0.0,
    file: str | None = None,
) -> dict[str, Any]:
    """Write a study's files, print its tables and its cost; returns what JSON holds.

    Files go to `out` (default: that of the flags) under the study's name or `file`.
    `figures` are SVG by name, `earlier_seconds` CPU seconds that earlier runs left.

    Raises:
        ValueError: If a number is not finite.
    """
    figures, console, file = figures or {}, console or Console(), file or name
    folder: Path = out or flags.out
    document = {
        "study": name,
        "command": [f"eval.{name}", *flags_of(flags)],
        **clock.cost(),
        "earlier_cpu_seconds": round(earlier_seconds, 1),
        "cpu": cpu_name(),
        "code": code_version(),
        "versions": library_versions(),
        **numbers,
    }
    write_json(folder / f"{file}.json", document)
    for figure, svg in figures.items():
        replace_bytes(folder / f"{figure}.svg", svg.encode())
    tables = "\n\n".join([*map(markdown, grids), _cost_words(document)])
    replace_bytes(folder / f"{file}.md", f"{tables}\n".encode())
    for grid in grids:
        print_grid(grid, console)
    written = [f"{file}.md", *(f"{figure}.svg" for figure in figures), f"{file}.json"]
    for line in (f"\n{_cost_words(document)}", f"{folder}: {', '.join(written)}"):
        console.print(Text(line), soft_wrap=True)
    return document


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file whole or not at all; its folder is made.

    Raises:
        ValueError: If a number is not finite.
    """
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    make_folder(path.parent)
    replace_bytes(path, text.encode())


@contextlib.contextmanager
def told(what: str, failed: dict[str, list[str]]) -> Iterator[None]:
    """Tell once why a part cannot be had, and add it to `failed`; the others go on."""
    try:
        yield
    except InputError as e:
        if str(e) not in failed:
            say(f"{e}\n  hint: {e.hint}" if e.hint else str(e))
        failed.setdefault(str(e), []).append(what)


class Records:
    """Finished parts of a study, one JSON file each, from which a killed run resumes.

    `earlier_seconds` adds up the CPU seconds of the records that `read` found.
    """

    def __init__(
        self, folder: Path, *, any_code: bool = False, code: str | None = None
    ):
        """Keep records of this code, by default the git commit, or of any."""
        self.folder, self.any_code = folder, any_code
        self.code = code or code_version()
        self.earlier_seconds = 0.0

    def read(self, name: str, *inputs: Any) -> dict[str, Any] | None:
        """Fields of a finished record; None if there is none for these inputs.

        They are everything but code and CPU that determines it, as JSON values.
        """
        # Without git, an old record may be another code's.
        if self.code is None and not self.any_code:
            return None
        by = "any_code_key" if self.any_code else "key"
        fields = read_fields(self.folder / f"{name}.json")
        if fields is None or fields.get(by) != self._keys(*inputs)[by]:
            return None
        self.earlier_seconds += fields.get("cpu_seconds", 0.0)
        return {key: fields[key] for key in fields if key not in _KEYS}

    def write(self, name: str, fields: Mapping[str, Any], *inputs: Any) -> None:
        """Write a record whole or not at all; arguments as for `read`."""
        text = json.dumps({**fields, **self._keys(*inputs)}) + "\n"
        path = self.folder / f"{name}.json"
        make_folder(path.parent)
        replace_bytes(path, text.encode())

    def _keys(self, *inputs: Any) -> dict[str, str]:
        """Digests of the inputs with what made them, this code and CPU, and without."""
        made_by = {"key": (self.code, cpu_name()), "any_code_key": ()}
        return {
            key: data_digest(json.dumps((*inputs, *by), sort_keys=True).encode())
            for key, by in made_by.items()
        }


_KEYS = ("key", "any_code_key")


def data_file(module: str, name: str = "") -> dict[str, Any]:
    """The TOML file beside a module, of its name if no other is given."""
    path = Path(module)
    path = path.with_name(f"{name}.toml") if name else path.with_suffix(".toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_fields(path: Path) -> dict[str, Any] | None:
    """The object of a JSON file; None if it is missing or holds something else."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


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
    """Cost of the study, its hardware, and the command that repeats it."""
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
