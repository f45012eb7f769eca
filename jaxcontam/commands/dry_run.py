"""`--dry-run`: what an audit would score, how long that takes, how small p can get."""

import collections
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from jaxcontam.methods.method import SequentialMethod
from jaxcontam.methods.options import PlannedOptions
from jaxcontam.methods.order_test import PlannedTest
from jaxcontam.scoring.cost import batch_seconds, n_positions
from jaxcontam.scoring.scorer import Scorer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestEstimate:
    """What one test would cost.

    Attributes:
        benchmark: Name of the file.
        method: Name of the test.
        n_sequences: Distinct sequences, or pairs.
        n_targets: Target tokens.
        n_cached: Of these, how many the store holds, or will hold after the tests
            before this one.
        store_kb: What the store grows by, in 1,000 bytes.
        log10_p_floor: log10 of the smallest p-value of the design; None if it has none.
        may_stop: Whether it may score less, since it looks at what it has.
    """

    benchmark: str
    method: str
    n_sequences: int
    n_targets: int
    n_cached: int
    store_kb: float
    log10_p_floor: float | None
    may_stop: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an audit would cost.

    Attributes:
        tests: One a test.
        minutes: Scoring time at the speed of a timed batch of zeros; loading,
            compiling and the analysis come on top.
    """

    tests: tuple[TestEstimate, ...]
    minutes: float


def estimate_tests(
    planned: Sequence[PlannedTest | PlannedOptions], scorer: Scorer
) -> Estimate:
    """Cost of planned tests; times a batch of each kind, and scores none of theirs."""
    tests = []
    positions: collections.Counter[tuple[int, ...]] = collections.Counter()
    promised: set[bytes] = set()
    for test in planned:
        cost = test.layout.cost(scorer, promised)
        positions += cost.positions
        tests.append(
            TestEstimate(
                benchmark=test.benchmark.name,
                method=test.method.name,
                n_sequences=test.layout.n_scored,
                n_targets=cost.n_targets,
                n_cached=cost.n_cached,
                store_kb=cost.store_bytes / 1000,
                log10_p_floor=_log10_p_floor(test),
                may_stop=isinstance(test.method, SequentialMethod),
            )
        )
    seconds = sum(
        _seconds(scorer, {s: n for s, n in positions.items() if len(s) == rank})
        for rank in {len(shape) for shape in positions}
    )
    return Estimate(tests=tuple(tests), minutes=seconds / 60)


def _seconds(scorer: Scorer, positions: Mapping[tuple[int, ...], int]) -> float:
    """Time of batches of one kind, at the speed of their commonest shape."""
    shape = max(positions, key=lambda shape: positions[shape])
    n_batches = sum(positions.values()) / n_positions(shape)
    return n_batches * batch_seconds(scorer, shape)


def print_estimate(found: Estimate, console: Console, *, as_json: bool) -> None:
    """As a table, or on standard output as JSON."""
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False))
        return
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("benchmark", overflow="fold")
    table.add_column("test", overflow="fold")
    for name in ("sequences", "tokens", "in store", "store grows", "p floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for test in found.tests:
        table.add_row(
            test.benchmark,
            test.method,
            f"{test.n_sequences:,}",
            f"{test.n_targets:,}",
            f"{test.n_cached:,}",
            f"{test.store_kb:,.1f} KB",
            _floor_text(test.log10_p_floor),
        )
    console.print(table)
    if early := [test.method for test in found.tests if test.may_stop]:
        console.print(
            f"\nThat is the most for {', '.join(dict.fromkeys(early))}: it may stop "
            "long before.",
            highlight=False,
        )
    if left := sum(test.n_targets - test.n_cached for test in found.tests):
        words = (
            f"{left:,} tokens to score: about {_minutes_text(found.minutes)} at the "
            "speed of one batch now."
        )
    else:
        words = "The store holds every score."
    console.print(f"\n{words} Nothing was scored or written.", highlight=False)


def _log10_p_floor(test: PlannedTest | PlannedOptions) -> float | None:
    """The published order is best in every stratum, and nothing ties with it."""
    if test.method.validity != "exact":
        return None
    return test.layout.log10_floor


def _floor_text(log10_p: float | None) -> str:
    if log10_p is None:
        return "-"
    return f"{10**log10_p:.3g}" if log10_p > -3 else f"1e{math.ceil(log10_p)}"


def _minutes_text(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
