"""How often a test rejects random orders of a file, through its whole path."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.order_test import PlannedTest, TestMethod, plan_test, score_test
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.progress import Progress, progress_after
from jaxcontam.proof.result import Evidence
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import Validity
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.shares import ShareScored
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.proportions import (
    LEVELS,
    distance_from_uniform,
    randomised,
    rejection,
    relabelled_p_values,
)
from jaxcontam.stats.result import Rejection

# Streams 0 to 2 of a file's draws are those of the tests.
_STREAM = 3
# Fresh orders unless the user says otherwise: a test of two passes can afford more.
_N_FRESH_CHEAP, _N_FRESH = 100, 20
# Relabelled columns cost no model call.
_N_RELABELLED = 10_000


FRESH, RELABELLED = "fresh orders", "relabelled columns"
"""Where the p-values of a calibration come from."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FreshOrder:
    """A file in a random order, to be tested as if it had been published so.

    Attributes:
        seed: For the test. Each order has its own: against one set of drawn orders
            the p-values of many orders of a file would depend on each other.
    """

    benchmark: Benchmark
    encoded: Encoded
    seed: int
    uniform: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """How often one test rejects where nothing is to be found: a row of `calibrate`.

    It checks the path from the file to p, on one model and one file. It does not show
    that the published order of that file is exchangeable.

    Attributes:
        drawn: `fresh orders`: random orders of the file, each scored as if published;
            `relabelled columns`: one scored order, random columns as published.
        tokens_scored: Target tokens that went through the model, in all draws.
        cached_tokens: Target tokens whose scores were reused.
        ks_statistic: Largest distance of the p-values, ties broken at random, from the
            uniform law.
        ks_p_value: Its p-value.
    """

    benchmark: str
    fingerprint: str
    content_digest: str
    n_examples: int
    method: str
    validity: Validity
    drawn: str
    n_draws: int
    n_strata: int
    n_orders: int
    group_field: str | None
    tokens_scored: int
    cached_tokens: int
    rejections: tuple[Rejection, ...]
    ks_statistic: float
    ks_p_value: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DrawnPValues:
    """p-values of one row of results.

    Attributes:
        p_value: (R,) as reports would show them.
        p_randomised: (R,) with ties broken at random; None for relabelled columns.
    """

    p_value: np.ndarray
    p_randomised: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport(Report):
    """A report of how often tests reject where nothing is to be found."""

    results: tuple[CalibrationResult, ...]


def calibrate_test(
    benchmark: Benchmark,
    encoded: Encoded,
    method: TestMethod,
    scorer: SequenceScorer,
    *,
    prefix_id: int | None,
    context: int,
    seed: int,
    n_draws: int | None = None,
    n_orders: int | None = None,
    group_field: str | None = None,
    n_relabelled: int = _N_RELABELLED,
    begun: Callable[[PlannedTest, int], None] | None = None,
    progress: Progress | None = None,
) -> tuple[CalibrationResult, DrawnPValues]:
    """p-values of a test where nothing is to be found, and its row of the report.

    An exact test is run on fresh orders from end to end, `n_draws` of them (None
    chooses by cost); columns of an approximate one are relabelled `n_relabelled` times.
    The order of the file does not matter. The seed seeds the fresh orders and, through
    them, each test. `begun` is told the first planned test and the number of fresh
    orders before anything is scored. ShareScored comes after the whole share.
    """
    is_exact = method.validity == "exact"
    groups = None if group_field is None else benchmark.groups(group_field)
    n_fresh = 1
    if is_exact:
        is_cheap = method.default_orders == 1 or (
            method.scores_pairs and not method.whole
        )
        n_fresh = n_draws or (_N_FRESH_CHEAP if is_cheap else _N_FRESH)
    n_scored = n_cached = n_targets = 0
    found: list[tuple[float, float]] = []
    first, relabelled_R, over = None, np.empty(0), None
    for draw in range(n_fresh):
        fresh = fresh_order(benchmark, encoded, seed=seed, draw=draw, groups=groups)
        planned = plan_test(
            fresh.benchmark,
            fresh.encoded,
            method,
            prefix_id=prefix_id,
            context=context,
            seed=fresh.seed,
            n_orders=n_orders,
            group_field=group_field,
        )
        if first is None:
            first = planned
            # Cuts and equal sequences differ a little from order to order.
            n_targets = n_fresh * first.n_targets
            if begun is not None:
                begun(first, n_fresh)
        try:
            scored = score_test(
                planned,
                scorer,
                progress_after(progress, n_scored + n_cached, n_targets),
            )
        except ShareScored as e:
            over = e
            continue
        n_scored += planned.n_targets - scored.n_cached
        n_cached += scored.n_cached
        if is_exact:
            found.append(p_values(planned, scored.evidence, uniform=fresh.uniform))
        else:
            relabelled_R = relabelled(planned, scored.evidence, n_draws=n_relabelled)
    if over is not None:
        raise over
    assert first is not None
    drawn = DrawnPValues(relabelled_R)
    if is_exact:
        shown, compared = zip(*found, strict=True)
        drawn = DrawnPValues(np.array(shown), np.array(compared))
    result = CalibrationResult(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        n_examples=len(benchmark),
        method=method.name,
        validity=method.validity,
        drawn=FRESH if is_exact else RELABELLED,
        n_strata=first.layout.n_strata,
        n_orders=first.layout.n_orders,
        group_field=group_field,
        tokens_scored=n_scored,
        cached_tokens=n_cached,
        **counts_of(drawn),
    )
    return result, drawn


def counts_of(drawn: DrawnPValues) -> dict[str, Any]:
    """Fields of a `CalibrationResult` that follow from its p-values."""
    compared_R = drawn.p_value if drawn.p_randomised is None else drawn.p_randomised
    rejections = tuple(rejection(drawn.p_value, level) for level in LEVELS)
    statistic, p_value = distance_from_uniform(compared_R)
    return {
        "n_draws": len(drawn.p_value),
        "rejections": rejections,
        "ks_statistic": statistic,
        "ks_p_value": p_value,
    }


def fresh_order(
    benchmark: Benchmark,
    encoded: Encoded,
    *,
    seed: int,
    draw: int,
    groups: list[object] | None = None,
) -> FreshOrder:
    """The `draw`-th random order of a file."""
    rng = row_generator(seed, benchmark.content_digest, _STREAM, draw)
    order = np.arange(len(benchmark))
    places: dict[object, list[int]] = {}
    for i, value in enumerate(groups or [None] * len(benchmark)):
        places.setdefault(value, []).append(i)
    for own in places.values():
        order[own] = rng.permutation(own)
    return FreshOrder(
        benchmark=Benchmark(
            benchmark.name,
            tuple(benchmark.texts[i] for i in order),
            tuple(benchmark.rows[i] for i in order),
            "seeded",
        ),
        encoded=Encoded(
            tuple(encoded.ids[i] for i in order),
            encoded.separator,
            encoded.n_cut_ids[order],
        ),
        seed=int(rng.integers(2**31)),
        uniform=float(rng.random()),
    )


def p_values(
    planned: PlannedTest, evidence: Evidence, *, uniform: float
) -> tuple[float, float]:
    """The p-value that a report would show, and its randomised version."""
    method = planned.method
    p_value = _p_value(method, planned, evidence)
    if evidence.scores is not None:
        opposite = dataclasses.replace(evidence, scores=-evidence.scores)
    else:
        assert evidence.pairs is not None
        opposite = dataclasses.replace(evidence, pairs=-evidence.pairs)
    return p_value, randomised(p_value, _p_value(method, planned, opposite), uniform)


def relabelled(planned: PlannedTest, evidence: Evidence, *, n_draws: int) -> np.ndarray:
    """(n_draws,) p-values of an approximate test with random columns as published."""
    method = planned.method
    assert isinstance(method, OrderMethod) and evidence.scores is not None
    boundaries_K = np.ones(len(evidence.scores))
    return relabelled_p_values(
        evidence.scores,
        lambda loglik_KM: method.analyse(loglik_KM, boundaries_K, 0).p_value,
        n_draws=n_draws,
        seed=planned.seed,
    )


def _p_value(method: TestRow, planned: PlannedTest, evidence: Evidence) -> float:
    # Where in the file the evidence lies enters no p-value, and takes time.
    return planned.numbers(evidence, dataclasses.replace(method, locates=False)).p_value
