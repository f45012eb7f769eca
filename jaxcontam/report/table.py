"""Tables on the terminal: any that a page shows, and that of order tests."""

import dataclasses
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxcontam.report import section
from jaxcontam.report.numbers import effect_words, p_text
from jaxcontam.results import MembershipResult, OrderResult
from jaxcontam.terminal import visible

_VERDICT_STYLE = {
    "contaminated": "bold red",
    "suspected": "yellow",
    "invalid design": "magenta",
    "inconclusive": "dim",
}
# Columns from which standard errors fit.
_WIDE = 100
# Longer names are folded where the terminal is narrow, to no less than this.
_NAME_WIDTH = 16


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ResultTable:
    """Which result stands where, in a table of a row a file and a column a method.

    Attributes:
        primaries: The deciding test of each file.
        deciding: Methods that decide for a file, in the order in which they were run.
        beside: Methods that decide for none.
        has_copies: Sets were planted.
        by_place: (file, method) -> result.
    """

    primaries: list[OrderResult]
    deciding: list[str]
    beside: list[str]
    has_copies: bool
    by_place: dict[tuple[str, str], OrderResult | MembershipResult]

    def at(
        self, primary: OrderResult, method: str
    ) -> OrderResult | MembershipResult | None:
        """The result of a method on the file of a deciding test."""
        return self.by_place.get((primary.benchmark, method))

    def star(self, primary: OrderResult, method: str) -> str:
        """Marks the test that decides, if not the same one decides everywhere."""
        return "*" * (len(self.deciding) > 1 and primary.method == method)

    def quantity(self, method: str) -> str:
        """What a column holds: p-values, or AUCs."""
        is_score = any(
            isinstance(result, MembershipResult)
            for (_, name), result in self.by_place.items()
            if name == method
        )
        return "AUC" if is_score else "p"


def result_table(results: Sequence[OrderResult | MembershipResult]) -> ResultTable:
    """The places of results; those of files without a deciding test have none."""
    primaries = [r for r in results if isinstance(r, OrderResult) and r.primary]
    names = {primary.benchmark for primary in primaries}
    by_place = {(r.benchmark, r.method): r for r in results if r.benchmark in names}
    by_place |= {(primary.benchmark, primary.method): primary for primary in primaries}
    methods = list(dict.fromkeys(method for _, method in by_place))
    decide = {primary.method for primary in primaries}
    return ResultTable(
        primaries=primaries,
        deciding=[method for method in methods if method in decide],
        beside=[method for method in methods if method not in decide],
        has_copies=any(result.copies is not None for result in results),
        by_place=by_place,
    )


def print_table(
    table: section.Table, console: Console, *, most: int | None = None
) -> None:
    """Print a table of words as a page shows it.

    Args:
        table: What to print.
        console: Where.
        most: Rows to print; all unless given.
    """
    shown = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for i, name in enumerate(table.header):
        is_word = i == 0 or table.is_text or i in table.words
        shown.add_column(name, justify="left" if is_word else "right", overflow="fold")
    for cells in table.rows[:most]:
        shown.add_row(*(Text(visible(str(cell))) for cell in cells))
    console.print(shown)


def print_results(
    results: Sequence[OrderResult | MembershipResult],
    console: Console,
    *,
    quoted: tuple[str, Mapping[str, str]] | None = None,
) -> None:
    """One line a benchmark: the primary test, then what stands beside it.

    Where not the same test decides everywhere, each that does has a column, and a star
    stands before the p-value that decides.

    Where the terminal is narrow, standard errors are left out, then the effect; what
    is still too wide is printed so, since a number cut short is a wrong one.

    Args:
        results: Of one run.
        console: Where to print.
        quoted: A last column of figures from elsewhere: its header, and the text of
            each benchmark that has one.
    """
    places = result_table(results)
    longest = max(
        len("benchmark"), *(len(visible(result.benchmark)) for result in results)
    )
    name_width = min(longest, _NAME_WIDTH)
    unbound = console.options.update(max_width=1_000)
    for effect, errors in ((True, console.width >= _WIDE), (True, False), (False,) * 2):
        table = _table(places, quoted, effect=effect, errors=errors)
        table.columns[0].width = name_width
        needed = Measurement.get(console, unbound, table).maximum
        if needed <= console.width:
            break
    else:
        table.width = needed
    spare = max(0, console.width - needed)
    table.columns[0].width = min(longest, name_width + spare)
    console.print(table, crop=False)


def _table(
    places: ResultTable,
    quoted: tuple[str, Mapping[str, str]] | None,
    *,
    effect: bool,
    errors: bool,
) -> Table:
    unit = places.primaries[0].effect_unit.replace("per example", "/")
    columns = ["copies"] * places.has_copies
    columns += [f"p\n{method}" for method in places.deciding] + ["verdict"]
    if effect:
        columns.append(f"effect\n{unit if errors else unit.split(' /')[0]}")
    columns += [f"{places.quantity(method)}\n{method}" for method in places.beside]
    columns += [] if quoted is None else [quoted[0]]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("benchmark", overflow="fold")
    for name in columns:
        justify = "left" if name == "verdict" else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    for primary in places.primaries:
        verdict, numbers = primary.verdict or "", primary.numbers
        cells: list[str | Text] = [Text(visible(primary.benchmark))]
        cells += [str(primary.copies)] * places.has_copies
        cells += [
            places.star(primary, method) + _cell(places.at(primary, method))
            for method in places.deciding
        ]
        cells.append(Text(verdict, style=_VERDICT_STYLE.get(verdict, "")))
        if effect:
            se = numbers.effect_se if errors else None
            cells.append(effect_words(numbers.effect, se))
        cells += [
            _cell(places.at(primary, method), errors=errors) for method in places.beside
        ]
        cells += [] if quoted is None else [quoted[1].get(primary.benchmark, "")]
        table.add_row(*cells)
    return table


def _cell(
    result: OrderResult | MembershipResult | None, *, errors: bool = False
) -> str:
    if result is None:
        return ""
    if isinstance(result, MembershipResult):
        return effect_words(result.auc, result.auc_se if errors else None)
    return p_text(result.numbers.log10_p, result.validity)
