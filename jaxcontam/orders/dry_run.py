"""`--dry-run`: what an audit would score, what that costs, and what it could find."""

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from jaxcontam.amounts import amount, counted, duration_words
from jaxcontam.errors import InputError
from jaxcontam.orders.methods import DIRECTION
from jaxcontam.orders.order_test import PlannedTest
from jaxcontam.orders.planning import floor_text
from jaxcontam.orders.power_designs import scored_design
from jaxcontam.orders.run import ReadyAudit
from jaxcontam.progress import waiting_for
from jaxcontam.proof.outcome import bare_table
from jaxcontam.scoring.api.budget import ApiEstimate, Budget, sending_words
from jaxcontam.scoring.cost import ScoringCost, scoring_seconds
from jaxcontam.scoring.opened import about_reference, check_other
from jaxcontam.scoring.remote import CountedPrompts, RemoteScorer
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.power import detectable_effect
from jaxcontam.stats.result import LEVEL
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text

SD_OF_ORDERS = (0.47, 19.0)
"""Nats that chance adds to one boundary of a whole order, standard deviation, from the
quietest to the loudest of ten sets that a model of 5.8 million parameters never saw:
`python -m eval.canaries` (0.47 to 9.0, examples of 48 tokens), and then `jaxcontam
audit DIR/model DIR/sets/*-held.jsonl --tests adjacency,stratified --limit 48` (7.1 to
18.9, 64 to 127 tokens). Sets of `python -m eval.quickstart` lie between."""
SD_OF_PAIRS = (2.2, 7.9)
"""The same for centred pairs, by the second of these commands."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestEstimate:
    """Cost of one test.

    Attributes:
        n_sequences: Distinct sequences, or pairs; 0 for direction beside a test whose
            pairs tell it.
        n_cached: How many of them the store holds, or will hold after the tests
            before this one.
        store_kb: What the store grows by, in 1,000 bytes.
        log10_p_floor: log10 of the smallest p-value of the design; None if it has none.
        mde_low: Smallest effect, nats a boundary, that it finds with power 0.8 at level
            0.001 divided by the number of benchmarks, were chance as quiet as on the
            quietest reference set; None where the floor of p is too high, or the test
            cannot be planned.
    """

    benchmark: str
    method: str
    n_sequences: int
    n_targets: int
    n_cached: int
    store_kb: float
    log10_p_floor: float | None
    mde_low: float | None
    mde_high: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cost of an audit, or of its reference model.

    Attributes:
        model: Its name.
        minutes: Scoring time at the speed of a timed batch of zeros; loading,
            compiling and the analysis come on top. None where none was timed.
        compiled_in: Folder where the compiler may have left the programs that were
            timed; None if it keeps none.
        requests: What a server would be sent; None for a local model.
        unit: Unit of `n_targets`: characters where a server gets text.
        reference: The same of the reference model, if there is one.
    """

    model: str
    tests: tuple[TestEstimate, ...]
    minutes: float | None
    price: float | None = None
    compiled_in: str | None = None
    requests: ApiEstimate | None = None
    unit: str = "tokens"
    reference: "Estimate | None" = None


def dry_run(
    target: ReadyAudit,
    reference: ReadyAudit | None,
    *,
    names: Sequence[str],
    timed: bool,
    price_per_hour: float | None,
    budget: Budget,
    as_json: bool,
) -> dict[str, Any]:
    """Print what planned tests would cost; returns the same as a dictionary.

    `timed` compiles and times a batch of each kind, and scores none of theirs. `names`
    are all tests that were asked for: direction may be read from the pairs of another
    one. The reference is counted at the same prices.
    """
    estimated = functools.partial(
        _estimated,
        names=names,
        timed=timed,
        price_per_hour=price_per_hour,
        budget=budget,
    )
    if reference is not None:
        check_other(reference.model, target.model)
    with waiting_for("compiling and timing a batch" if timed else "counting tokens"):
        found = estimated(target)
        if reference is not None:
            with about_reference():
                other = estimated(reference)
            found = dataclasses.replace(found, reference=other)
    document = dataclasses.asdict(found)
    if as_json:
        print(json_text(document))
    else:
        _print(found, Terminal())
    return document


def _estimated(
    ready: ReadyAudit,
    *,
    names: Sequence[str],
    timed: bool,
    price_per_hour: float | None,
    budget: Budget,
) -> Estimate:
    scorer = ready.scorer
    if not isinstance(scorer, Scorer | RemoteScorer):
        raise InputError("--dry-run: the cost of this kind of model is not known")
    tests, positions = _estimated_tests(ready.tests, scorer, names)
    estimate = functools.partial(Estimate, model=ready.model.info.name, tests=tests)
    if isinstance(scorer, RemoteScorer):
        assert isinstance(scorer.prompts, CountedPrompts)
        requests = scorer.prompts.estimate(budget)
        unit = "tokens" if scorer.prompts.ids else "characters"
        return estimate(minutes=None, requests=requests, unit=unit)
    if not timed:
        return estimate(minutes=None)
    # Imports JAX, which a model of one's own has done before.
    from jaxcontam.scoring.identity import compiled_in

    seconds = scoring_seconds(scorer, positions)
    price = None if price_per_hour is None else price_per_hour * seconds / 3600
    return estimate(minutes=seconds / 60, price=price, compiled_in=compiled_in())


def _estimated_tests(
    planned: Sequence[PlannedTest], scorer: Scorer | RemoteScorer, names: Sequence[str]
) -> tuple[tuple[TestEstimate, ...], collections.Counter[tuple[int, ...]]]:
    """Cost of each test, and what all read: shapes of batches -> positions."""
    tests: list[TestEstimate] = []
    positions: collections.Counter[tuple[int, ...]] = collections.Counter()
    promised: set[bytes] = set()
    level = LEVEL / len({test.benchmark.name for test in planned})
    n_of_pairs = sum(test.method.scores_pairs for test in planned)
    for test in planned:
        is_alone = n_of_pairs == 1 and test.method.scores_pairs
        cost = test.layout.cost(scorer, None if is_alone else promised)
        positions += cost.positions
        rows = [_estimate(test, level, test.layout.n_scored, cost)]
        if DIRECTION.name in names and test.method.whole:
            # Direction is read from the same pairs.
            method = DIRECTION
            layout = dataclasses.replace(test.layout, statistic=method.statistic)
            read = dataclasses.replace(test, method=method, layout=layout)
            is_after = test.method.name in names[: names.index(method.name)]
            rows.insert(is_after, _estimate(read, level))
        tests += rows
    return tuple(tests), positions


def _estimate(
    test: PlannedTest, level: float, n_scored: int = 0, cost: ScoringCost | None = None
) -> TestEstimate:
    mde_low, mde_high = _mde_range(test, level)
    # The published order is best in every stratum, and nothing ties with it.
    is_exact = test.method.validity == "exact"
    return TestEstimate(
        benchmark=test.benchmark.name,
        method=test.method.name,
        n_sequences=n_scored,
        n_targets=cost.n_targets if cost else 0,
        n_cached=cost.n_cached if cost else 0,
        store_kb=cost.store_bytes / 1000 if cost else 0.0,
        log10_p_floor=test.layout.log10_floor if is_exact else None,
        mde_low=mde_low,
        mde_high=mde_high,
    )


def _print(found: Estimate, console: Terminal) -> None:
    stored = ["stored"] * any(test.n_cached for test in found.tests)
    header = ("benchmark", "test", found.unit, *stored, "p floor", "MDE")
    rows = (
        [
            test.benchmark,
            test.method,
            f"{test.n_targets:,}",
            *[f"{test.n_cached:,}" for _ in stored],
            floor_text(test.log10_p_floor),
            "-"
            if test.mde_low is None or test.mde_high is None
            else f"{amount(test.mde_low)} to {amount(test.mde_high)}",
        ]
        for test in found.tests
    )
    console.print(bare_table(header, rows, words=(0, 1), gap=2))
    if read := [test for test in found.tests if not test.n_sequences]:
        console.print(
            f"\n{read[0].method} reads the same scores and costs nothing more."
        )
    if found.requests is not None:
        console.print(
            f"\n{found.unit.capitalize()} are those that get a score; a prompt also "
            "holds what is before them."
        )
    n = len({test.benchmark for test in found.tests})
    at = f"p <= {LEVEL / n:.2g}" + (f" (0.001 / {n} files)" if n > 1 else "")
    if any(test.mde_low is not None for test in found.tests):
        console.print(
            "\nMDE: smallest gain in nats, equal at each boundary, that is found with "
            f"power 0.8 at {at}, if the noise at a boundary is that of a model of 5.8 "
            f"million parameters ({SD_OF_ORDERS[0]:g} to {SD_OF_ORDERS[1]:g} "
            f"nats in whole orders, {SD_OF_PAIRS[0]:g} to {SD_OF_PAIRS[1]:g} in "
            "pairs). This model may differ: the report gives its own value."
        )
    if any(test.mde_low is None for test in found.tests):
        console.print(
            "\nMDE -: not known before scoring. It is computed for orders of examples "
            f"without groups, if the design can reach {at}."
        )
    console.print(f"\n{_cost_words(found)}")
    if found.reference is not None:
        is_here = found.requests is None
        name = found.reference.model
        words = _cost_words(found.reference, beside_local=is_here)
        console.print(f"\nThe reference, {name}: {words}")
    here = [one for one in (found, found.reference) if one and one.requests is None]
    if not here:
        return
    timed = here[0].minutes is not None
    words = "No example was scored" + "; only a batch of zeros was timed" * timed
    words += ". No report and no store was written."
    if not timed:
        words += " --time also times a batch, to say how long scoring takes."
    elif here[0].compiled_in is not None:
        words += f" Compiled programs are kept in {here[0].compiled_in}."
    console.print(f"\n{words}")


def _cost_words(found: Estimate, *, beside_local: bool = False) -> str:
    """Requests, or tokens and time, with the price."""
    if found.requests is not None:
        return sending_words(found.requests, beside_local=beside_local)
    left = sum(test.n_targets - test.n_cached for test in found.tests)
    if not left:
        return "The store holds every score."
    words = f"{counted(left, 'token')} to score"
    if found.minutes is not None:
        time = duration_words(60 * found.minutes)
        words += f": {time} at the speed of one batch now"
    words += "." if found.price is None else f", at a price of {amount(found.price)}."
    if added := sum(test.store_kb for test in found.tests):
        words += f" The store grows by {added / 1000:,.1f} MB."
    return words


def _mde_range(test: PlannedTest, level: float) -> tuple[float | None, float | None]:
    if not test.is_of_file or test.group_field is not None:
        return None, None
    layout, n = test.layout, len(test.benchmark)
    n_strata = layout.design.n_strata + layout.design.n_dropped
    design = scored_design(test.method.name, n, n_strata, layout.n_orders)
    if design is None:
        return None, None
    spreads = SD_OF_PAIRS if test.method.scores_pairs else SD_OF_ORDERS
    low, high = (detectable_effect(design, sd, level=level) for sd in spreads)
    return low, high
