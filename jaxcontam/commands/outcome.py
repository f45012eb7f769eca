"""What an audit prints: the table, notes of each benchmark, remedies."""

from pathlib import Path

from rich.console import Console

from jaxcontam.methods import options
from jaxcontam.report.document import result_row
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.remedies import advice, plain_name, remedy
from jaxcontam.report.table import print_results
from jaxcontam.results import OrderResult
from jaxcontam.verdict import INVALID_DESIGN, NO_EVIDENCE


def print_outcome(
    results: list[OrderResult], command: tuple[str, ...], page: Path, console: Console
) -> None:
    """Print decided results, notes of primary ones, and what to do about them.

    Args:
        results: Of one run.
        command: The words that made them; remedies repeat it.
        page: Where report.html stands.
        console: Where to print.
    """
    print_results(results, console)
    for result in results:
        if not result.primary:
            continue
        for warning in result.warnings:
            console.print(
                f"{result.benchmark}: {warning}", highlight=False, markup=False
            )
        row = result_row(result)
        if result.verdict == NO_EVIDENCE and (scale := scale_sentence(row)):
            console.print(f"{result.benchmark}: {scale}", highlight=False, markup=False)
        if result.verdict == INVALID_DESIGN:
            failed = [plain_name(t.name) for t in result.pretests if not t.passed]
            line = f"  remedy: {advice(row, command)}"
            if (words := remedy(row, command)) is not None:
                line += f": {words}"
            what = "its options'" if result.method == options.METHOD.name else "the"
            console.print(
                f"{result.benchmark}: {what} order is not random before any model sees "
                f"it ({'; '.join(failed)}).\n{line}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)
