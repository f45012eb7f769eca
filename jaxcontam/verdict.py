"""Who decides: the primary test, corrected for the number of benchmarks.

Rules and words of the report. Nothing is ever called clean. An accusation needs a null
that the file can satisfy: where nobody knows that the order was drawn at random, only a
test under reversibility can say `contaminated`, for like stands beside like in most
files, and any model that copies from its context prefers that. Even then the order may
mean something to a reader, so a reference model must read it, too, and be silent.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.results import (
    DESIGNED,
    KNOWN_ORDERS,
    OrderResult,
    Pretest,
    Screening,
    refusals,
)
from jaxcontam.results.terms import Verdict, base_null
from jaxcontam.stats.multiple import (
    benjamini_yekutieli,
    calibrated_e,
    e_bh,
    holm,
)
from jaxcontam.stats.pretests import directional
from jaxcontam.stats.pretests.gate import gate

CONTAMINATED: Verdict = "contaminated"
SUSPECTED: Verdict = "suspected"
INCONCLUSIVE: Verdict = "inconclusive"
NO_EVIDENCE: Verdict = "no evidence"
INVALID_DESIGN: Verdict = "invalid design"

MIN_EFFECT = 0.5
"""Nats per boundary that a `no evidence` must have been able to find."""

CONTAMINATED_LEVEL, SUSPECTED_LEVEL = 0.001, 0.05
"""Levels for the adjusted p-value."""

GATE_LEVEL = 0.05
"""Level of the pre-tests before `contaminated`; a p-value's own validity asks less."""
REFERENCE_LEVEL = 0.01
"""At this p-value of a reference model the file points forward by itself; at this one
of the difference the model prefers the order more than the reference does."""

# Null hypotheses about the order of a file.
_OF_ORDERS = ("exchangeability", "reversibility")
# Orders that a model may never have seen, so silence says nothing.
_UNSEEN_ORDERS = ("tfds-hash", "unknown")


def decide(results: Sequence[OrderResult], *, min_effect: float) -> list[OrderResult]:
    """Fill in `p_adjusted` (Holm over benchmarks) and `verdict` of primary tests.

    Args:
        results: One primary test a benchmark, and others beside it; those pass
            unchanged.
        min_effect: See `MIN_EFFECT`.

    Returns:
        The results in their order, primary ones with `p_adjusted` and `verdict`.
    """
    primary = [i for i, result in enumerate(results) if result.primary]
    adjusted = holm(np.array([results[i].numbers.p_value for i in primary]))
    decided = list(results)
    for i, p_adjusted in zip(primary, adjusted.tolist(), strict=True):
        beside = [
            other
            for other in results
            if other.benchmark == results[i].benchmark and not other.primary
        ]
        verdict = _verdict(
            results[i], p_adjusted, beside, n=len(primary), min_effect=min_effect
        )
        decided[i] = dataclasses.replace(
            results[i], p_adjusted=p_adjusted, verdict=verdict
        )
    return decided


def near_misses(result: OrderResult) -> tuple[Pretest, ...]:
    """Checks that bear on a test and reject at the level before `contaminated`."""
    of_direction = base_null(result.null) == "reversibility"
    bearing = directional(result.pretests) if of_direction else result.pretests
    return refusals(result.null, gate(bearing, GATE_LEVEL))


def screen(results: Sequence[OrderResult]) -> tuple[Screening, ...]:
    """Levels at which each of several benchmarks is worth a closer look.

    Args:
        results: One primary test a benchmark; secondary ones do not count.

    Returns:
        One a benchmark in their order; nothing where there is one benchmark.
    """
    primary = [result for result in results if result.primary]
    if len(primary) < 2:
        return ()
    by = benjamini_yekutieli(np.array([one.numbers.p_value for one in primary]))
    e_values = [
        calibrated_e(one.numbers.log10_p)
        if one.numbers.e_value is None
        else one.numbers.e_value
        for one in primary
    ]
    return tuple(
        Screening(benchmark=one.benchmark, by=by_one, e_bh=e_bh_one)
        for one, by_one, e_bh_one in zip(
            primary, by.tolist(), e_bh(np.array(e_values)).tolist(), strict=True
        )
    )


def _verdict(
    result: OrderResult,
    p_adjusted: float,
    beside: Sequence[OrderResult],
    *,
    n: int,
    min_effect: float,
) -> Verdict:
    """Verdict of a primary test; `n` is how many benchmarks there are."""
    designed, reference = result.null == DESIGNED, result.reference
    if not designed and result.refusals:
        return INVALID_DESIGN
    if not designed and reference and reference.p_value <= REFERENCE_LEVEL:
        return INVALID_DESIGN
    if p_adjusted <= CONTAMINATED_LEVEL and _proves(result, beside, n):
        return CONTAMINATED
    if p_adjusted <= SUSPECTED_LEVEL or any(_attracts(o, result, n) for o in beside):
        return SUSPECTED
    mde = result.numbers.mde
    if mde is None or mde > min_effect or result.order_provenance in _UNSEEN_ORDERS:
        return INCONCLUSIVE
    return NO_EVIDENCE


def _proves(result: OrderResult, beside: Sequence[OrderResult], n: int) -> bool:
    """Whether a small p-value of this test can only come from memory."""
    null = base_null(result.null)
    if result.validity != "exact":
        return False
    if null not in _OF_ORDERS or result.order_provenance in KNOWN_ORDERS:
        return True
    if null == "reversibility":
        return _is_vouched_for(result)
    # Two tests of one file were looked at.
    return any(
        base_null(other.null) == "reversibility"
        and other.validity == "exact"
        and not near_misses(other)
        and 2 * n * other.numbers.p_value <= CONTAMINATED_LEVEL
        and (_is_vouched_for(result) or _is_vouched_for(other))
        for other in beside
    )


def _is_vouched_for(result: OrderResult) -> bool:
    """Whether a model that reads, too, shows that the order says nothing to a reader.

    Checks of a file see rules that its order follows, not what happens once: a cause
    before its effect, events by their dates, a list that the world knows.
    """
    reference = result.reference
    return (
        reference is not None
        and reference.p_value > GATE_LEVEL
        and reference.difference_p <= REFERENCE_LEVEL
        and not near_misses(result)
    )


def _attracts(other: OrderResult, result: OrderResult, n: int) -> bool:
    """Whether a test beside says what would be proof were the order random."""
    return (
        base_null(result.null) == "reversibility"
        and base_null(other.null) == "exchangeability"
        and other.validity == "exact"
        and not near_misses(other)
        and n * other.numbers.p_value <= CONTAMINATED_LEVEL
    )
