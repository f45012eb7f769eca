"""The table on the terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxcontam.results import MembershipResult, OrderResult
from jaxcontam.terminal import visible

_VERDICT_STYLE = {
    "contaminated": "bold red",
    "suspected": "yellow",
    "invalid design": "magenta",
    "inconclusive": "dim",
}
# An approximate tail is not quoted deeper than this.
_ASYMPTOTIC_FLOOR = 1e-15
# Columns from which standard errors fit.
_WIDE = 100
# Longer names are folded where the terminal is narrow, to no less than this.
_NAME_WIDTH = 16


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
    longest = max(
        len("benchmark"), *(len(visible(result.benchmark)) for result in results)
    )
    name_width = min(longest, _NAME_WIDTH)
    unbound = console.options.update(max_width=1_000)
    for effect, errors in ((True, console.width >= _WIDE), (True, False), (False,) * 2):
        table = _table(results, quoted, effect=effect, errors=errors)
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
    results: Sequence[OrderResult | MembershipResult],
    quoted: tuple[str, Mapping[str, str]] | None,
    *,
    effect: bool,
    errors: bool,
) -> Table:
    by_name: dict[str, list[OrderResult | MembershipResult]] = {}
    for result in results:
        by_name.setdefault(result.benchmark, []).append(result)
    primaries = [r for r in results if isinstance(r, OrderResult) and r.primary]
    named = {r.benchmark for r in primaries}
    deciding = deciding_methods(results)
    beside = dict.fromkeys(
        r.method
        for r in results
        if not r.primary and r.benchmark in named and r.method not in deciding
    )
    planted = any(result.copies is not None for result in results)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("benchmark", overflow="fold")
    if planted:
        table.add_column("copies", justify="right", no_wrap=True)
    for method in deciding:
        table.add_column(f"p\n{method}", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    unit = primaries[0].effect_unit.replace("per example", "/")
    if effect:
        table.add_column(
            f"effect\n{unit if errors else unit.split(' /')[0]}",
            justify="right",
            no_wrap=True,
        )
    is_score = {r.method: isinstance(r, MembershipResult) for r in results}
    for method in beside:
        quantity = "AUC" if is_score[method] else "p"
        table.add_column(f"{quantity}\n{method}", justify="right", no_wrap=True)
    if quoted is not None:
        table.add_column(quoted[0], justify="right", no_wrap=True)
    for primary in primaries:
        of_method = {r.method: r for r in by_name[primary.benchmark]}
        of_method[primary.method] = primary
        cells: list[str | Text] = [Text(visible(primary.benchmark))]
        if planted:
            cells.append(str(primary.copies))
        verdict = primary.verdict or ""
        style = _VERDICT_STYLE.get(verdict, "")
        cells += [
            _deciding_cell(of_method.get(method), deciding) for method in deciding
        ]
        cells.append(Text(verdict, style=style))
        if effect:
            cells.append(effect_text(primary, with_error=errors))
        for method in beside:
            result = of_method.get(method)
            if isinstance(result, MembershipResult):
                cells.append(auc_text(result, with_error=errors))
            else:
                cells.append("" if result is None else p_text(result))
        if quoted is not None:
            cells.append(quoted[1].get(primary.benchmark, ""))
        table.add_row(*cells)
    return table


def deciding_methods(results: Sequence[OrderResult | MembershipResult]) -> list[str]:
    """Methods that decide for a benchmark, in the order in which they were run."""
    primary = {result.method for result in results if result.primary}
    return [m for m in dict.fromkeys(r.method for r in results) if m in primary]


def _deciding_cell(
    result: OrderResult | MembershipResult | None, deciding: Sequence[str]
) -> str:
    if not isinstance(result, OrderResult):
        return ""
    return "*" * (result.primary and len(deciding) > 1) + p_text(result)


def p_text(result: OrderResult) -> str:
    """A p-value as deep as its method supports; rounded up, never down."""
    return p_words(result.numbers.log10_p, result.validity)


def p_words(log10_p: float, validity: str) -> str:
    """`p_text` of a p-value's logarithm and of what its method vouches for."""
    if validity == "asymptotic" and log10_p < math.log10(_ASYMPTOTIC_FLOOR):
        return "< 1e-15"
    if log10_p >= -2:
        return f"{math.ceil(10.0**log10_p * 1000 - 1e-9) / 1000:.3f}"
    exponent = math.floor(log10_p)
    mantissa = math.ceil(10.0 ** (log10_p - exponent) * 10 - 1e-9) / 10
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.1f}e{exponent:d}"


def effect_text(result: OrderResult, *, with_error: bool) -> str:
    """Effect, with its standard error if there is one and it is wanted."""
    numbers = result.numbers
    if numbers.effect is None:
        return "-"
    if numbers.effect_se is None or not with_error:
        return f"{numbers.effect:.2f}"
    return f"{numbers.effect:.2f} ± {numbers.effect_se:.2f}"


def auc_text(result: MembershipResult, *, with_error: bool) -> str:
    """AUC, with its standard error if wanted."""
    return f"{result.auc:.2f}" + f" ± {result.auc_se:.2f}" * with_error
