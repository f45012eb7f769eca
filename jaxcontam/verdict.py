"""Who decides: the primary test alone, corrected for the number of benchmarks.

Rules and words of the report. Nothing is ever called clean.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.results import DESIGNED, OrderResult, Screening
from jaxcontam.stats.multiple import (
    benjamini_yekutieli,
    calibrated_e,
    e_bh,
    holm,
)

CONTAMINATED = "contaminated"
SUSPECTED = "suspected"
INCONCLUSIVE = "inconclusive"
NO_EVIDENCE = "no evidence"
INVALID_DESIGN = "invalid design"

MIN_EFFECT = 0.5
"""Nats per boundary that a `no evidence` must have been able to find."""

CONTAMINATED_LEVEL, SUSPECTED_LEVEL = 0.001, 0.05
"""Levels for the adjusted p-value."""

# Orders that a model may never have seen, so silence says nothing.
_UNSEEN_ORDERS = ("tfds-hash", "unknown")


def decide(results: Sequence[OrderResult], *, min_effect: float) -> list[OrderResult]:
    """Fill in `p_adjusted` (Holm over benchmarks) and `verdict` of primary tests.

    Args:
        results: One primary test a benchmark; secondary ones pass unchanged.
        min_effect: See `MIN_EFFECT`.

    Returns:
        The results in their order, primary ones with `p_adjusted` and `verdict`.
    """
    primary = [i for i, result in enumerate(results) if result.primary]
    adjusted = holm(np.array([results[i].numbers.p_value for i in primary]))
    decided = list(results)
    for i, p_adjusted in zip(primary, adjusted.tolist(), strict=True):
        verdict = _verdict(results[i], p_adjusted, min_effect)
        decided[i] = dataclasses.replace(
            results[i], p_adjusted=p_adjusted, verdict=verdict
        )
    return decided


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


def _verdict(result: OrderResult, p_adjusted: float, min_effect: float) -> str:
    designed = result.null == DESIGNED
    if not designed and not all(test.passed for test in result.pretests):
        return INVALID_DESIGN
    if p_adjusted <= CONTAMINATED_LEVEL and result.validity != "heuristic":
        return CONTAMINATED
    if p_adjusted <= SUSPECTED_LEVEL:
        return SUSPECTED
    mde = result.numbers.mde
    if mde is None or mde > min_effect or result.order_provenance in _UNSEEN_ORDERS:
        return INCONCLUSIVE
    return NO_EVIDENCE
