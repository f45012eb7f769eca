"""The table on the terminal."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from jaxcontam.results import MembershipResult, OrderResult

_VERDICT_STYLE = {
    "contaminated": "bold red",
    "suspected": "yellow",
    "invalid design": "magenta",
    "inconclusive": "dim",
}
# An approximate tail is not quoted deeper than this.
_ASYMPTOTIC_FLOOR = 1e-15


def print_results(
    results: Sequence[OrderResult | MembershipResult], console: Console
) -> None:
    """One line a benchmark: the primary test, then what stands beside it."""
    names = list(dict.fromkeys(result.benchmark for result in results))
    rows = {name: [r for r in results if r.benchmark == name] for name in names}
    planted = any(result.copies is not None for result in results)
    secondary = list(
        dict.fromkeys(
            r.method for r in results if isinstance(r, OrderResult) and not r.primary
        )
    )
    scores = list(
        dict.fromkeys(r.method for r in results if isinstance(r, MembershipResult))
    )
    primary = next(r for r in results if isinstance(r, OrderResult) and r.primary)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("benchmark", overflow="fold")
    if planted:
        table.add_column("copies", justify="right")
    table.add_column(f"p {primary.method}", justify="right")
    table.add_column("verdict")
    table.add_column("effect ± se\nnats/boundary", justify="right")
    for method in secondary:
        table.add_column(f"p {method}", justify="right", style="dim")
    for method in scores:
        table.add_column(f"AUC {method}", justify="right")
    for name in names:
        of_method = {r.method: r for r in rows[name]}
        main = next(r for r in rows[name] if isinstance(r, OrderResult) and r.primary)
        cells = [name]
        if planted:
            cells.append(f"{main.copies}{' shuffled' if main.copies_shuffled else ''}")
        verdict = main.verdict or ""
        style = _VERDICT_STYLE.get(verdict, "")
        cells += [
            p_text(main),
            f"[{style}]{verdict}[/]" if style else verdict,
            effect_text(main),
        ]
        cells += [
            p_text(of_method[method]) if method in of_method else ""
            for method in secondary
        ]
        cells += [
            auc_text(of_method[method]) if method in of_method else ""
            for method in scores
        ]
        table.add_row(*cells)
    console.print(table)


def p_text(result: OrderResult | MembershipResult) -> str:
    """A p-value as far as its method supports it; exact ones round up."""
    if not isinstance(result, OrderResult):
        return ""
    log10_p = result.numbers.log10_p
    if result.validity == "asymptotic" and log10_p < math.log10(_ASYMPTOTIC_FLOOR):
        return "< 1e-15"
    if log10_p >= -2:
        return f"{math.ceil(10.0**log10_p * 1000) / 1000:.3f}"
    exponent = math.floor(log10_p)
    mantissa = math.ceil(10.0 ** (log10_p - exponent) * 10) / 10
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.1f}e{exponent:d}"


def effect_text(result: OrderResult) -> str:
    """Effect with its standard error."""
    numbers = result.numbers
    if numbers.effect_se is None:
        return f"{numbers.effect:.3f}"
    return f"{numbers.effect:.3f} ± {numbers.effect_se:.3f}"


def auc_text(result: OrderResult | MembershipResult) -> str:
    """AUC with its standard error."""
    if not isinstance(result, MembershipResult):
        return ""
    return f"{result.auc:.2f} ± {result.auc_se:.2f}"
