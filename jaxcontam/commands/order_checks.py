"""Pre-tests of the order of files, before a model is asked: run, and shown."""

import dataclasses
from collections.abc import Mapping, Sequence

from rich.console import Console

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.blocks import as_blocks, block_starts
from jaxcontam.data.repeats import without_repeats
from jaxcontam.hosts import is_first
from jaxcontam.methods import METHODS
from jaxcontam.report.remedies import advice, plain_name, remedy
from jaxcontam.results import DESIGNED, RELEASED, Pretest, UnscoredFile
from jaxcontam.stats.pretests import columns, directional, pretest_battery
from jaxcontam.terminal import Terminal
from jaxcontam.verdict import INVALID_DESIGN


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CheckedFiles:
    """Files whose order was looked at.

    Attributes:
        benchmarks: Those that are to be scored.
        pretests: Of each file, by name.
        n_repeats: Examples of each file that repeat an earlier one and were left out.
        unscored: Those that are not worth a pass.
    """

    benchmarks: tuple[Benchmark, ...]
    pretests: Mapping[str, tuple[Pretest, ...]]
    n_repeats: Mapping[str, int]
    unscored: tuple[UnscoredFile, ...]


def checked_files(
    benchmarks: Sequence[Benchmark],
    method: str,
    command: Sequence[str],
    *,
    seed: int,
    group_field: str | None = None,
    block_field: str | None = None,
    score_anyway: bool = False,
) -> CheckedFiles:
    """Leave out repeats, run the battery, print it, and say what is to be scored.

    Args:
        benchmarks: As read.
        method: The test that decides.
        command: The words of the run; remedies repeat it.
        seed: Seeds the permutations.
        group_field: As for `audit`, like `block_field`.
        block_field: Blocks keep what they hold, repeats too.
        score_anyway: Score files that fail, too.
    """
    kept = [
        one if block_field is not None else without_repeats(one) for one in benchmarks
    ]
    n_repeats = {
        one.name: len(one) - len(other)
        for one, other in zip(benchmarks, kept, strict=True)
    }
    checks = {
        one.name: order_checks(
            one, seed=seed, group_field=group_field, block_field=block_field
        )
        for one in kept
    }
    found = [
        _refused(one, checks[one.name], method, n_repeats[one.name]) for one in kept
    ]
    unscored = () if score_anyway else tuple(file for file in found if file is not None)
    if is_first():
        console = Terminal(stderr=True)
        print_checks(checks, console)
        print_unscored(unscored, command, console)
    left_out = {file.benchmark for file in unscored}
    return CheckedFiles(
        tuple(one for one in kept if one.name not in left_out),
        checks,
        n_repeats,
        unscored,
    )


def order_checks(
    benchmark: Benchmark,
    *,
    seed: int,
    group_field: str | None = None,
    block_field: str | None = None,
) -> tuple[Pretest, ...]:
    """The battery on a file as it is tested: in groups, or with blocks for examples."""
    if block_field is not None:
        benchmark = as_blocks(benchmark, block_starts(benchmark, block_field))
    groups = None if group_field is None else benchmark.groups(group_field)
    return pretest_battery(
        benchmark.texts, columns(benchmark.rows), seed=seed, groups=groups
    )


def _refused(
    benchmark: Benchmark, pretests: Sequence[Pretest], method: str, n_repeats: int
) -> UnscoredFile | None:
    """What is said of a file that fails the checks of its deciding test; else None."""
    null = getattr(METHODS[method], "null", "")
    if benchmark.order_provenance in ("seeded", RELEASED):
        null = DESIGNED
    bearing = directional(pretests) if null == "reversibility" else tuple(pretests)
    if null == DESIGNED or all(test.passed for test in bearing):
        return None
    return UnscoredFile(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        order_provenance=benchmark.order_provenance,
        n_examples=len(benchmark),
        n_repeats=n_repeats,
        method=method,
        null=null,
        pretests=bearing,
        verdict=INVALID_DESIGN,
    )


def print_checks(
    checks: Mapping[str, Sequence[Pretest]], console: Console, *, every: bool = False
) -> None:
    """Say of each file how many checks passed and which did not.

    Args:
        checks: Pre-tests of each benchmark.
        console: Where to print.
        every: Name those that passed, too.
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


def print_unscored(
    files: Sequence[UnscoredFile], command: Sequence[str], console: Console
) -> None:
    """Verdict and remedy of files that were not scored."""
    for file in files:
        row = dataclasses.asdict(file)
        failed = [plain_name(t.name) for t in file.pretests if not t.passed]
        words = advice(row, command)
        line = remedy(row, command)
        console.print(
            f"{file.benchmark}: {file.verdict}, not scored: {'; '.join(failed)}.\n"
            f"  remedy: {words}{'' if line is None else f': {line}'}\n"
            "  --score-anyway scores it, and the verdict stays.",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
