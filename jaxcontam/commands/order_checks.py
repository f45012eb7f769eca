"""What the checks of files' order say, printed."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from jaxcontam.report.plain_names import plain_name
from jaxcontam.results import Pretest


def print_checks(
    checks: Mapping[str, Sequence[Pretest]], console: Console, *, every: bool = False
) -> None:
    """Say of each file how many checks passed and which did not.

    Args:
        checks: Pre-tests of each benchmark.
        console: Where to print.
        every: Also name those that passed.
    """
    for name, pretests in checks.items():
        counted = [test for test in pretests if test.applicable]
        failed = [test for test in counted if not test.passed]
        shown = counted if every else failed
        # Who reads a log wants to know what is wrong.
        if not shown and not console.is_terminal:
            continue
        console.print(
            f"{name}: {len(counted) - len(failed)} of {len(counted)} checks of its "
            f"order passed{':' if shown else ''}",
            highlight=False,
            markup=False,
        )
        for test in shown:
            console.print(
                f"  {'passed' if test.passed else 'failed'}  p = {test.p_value:<8.2g}"
                f"{plain_name(test.name)}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
