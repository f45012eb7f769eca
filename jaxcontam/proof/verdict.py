"""The verdict: that of the primary test, corrected for the number of benchmarks.

Rules and words of the report. Nothing is ever called clean. An accusation needs a null
that the file can satisfy: where nobody knows that the order was drawn at random, only a
test under reversibility can say `contaminated`, for like stands beside like in most
files, and any model that copies from its context prefers that. Even then the order may
mean something to a reader, as that of options may, so a reference model that reads it
must be silent.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.proof.result import (
    DESIGNED,
    KNOWN_ORDERS,
    OrderResult,
    ReferenceResult,
    Screening,
)
from jaxcontam.reports.terms import (
    ALIKE_LEVEL,
    CONTAMINATED_LEVEL,
    DIFFERENCE_LEVEL,
    OF_OPTIONS,
    QUIET,
    REFERENCE_LEVEL,
    REFERENCE_READS,
    SHARE_LEVEL,
    SUSPECTED_LEVEL,
    Reason,
    Verdict,
    base_null,
)
from jaxcontam.stats.multiple import benjamini_yekutieli, calibrated_e, e_bh, holm
from jaxcontam.stats.result import OrderNumbers, mde_among

# Null hypotheses about the order of a file, or of the options of its items.
_OF_ORDERS = ("exchangeability", "reversibility", *OF_OPTIONS)


def decide(results: Sequence[OrderResult], *, min_effect: float) -> list[OrderResult]:
    """Fill in what primary tests decide, each one among all of them.

    Primary ones, one a benchmark, get `p_adjusted`, `mde_adjusted`, `verdict` and
    `reasons`; others pass unchanged.
    """
    primary = [i for i, result in enumerate(results) if result.primary]
    adjusted = holm(np.array([results[i].numbers.p_value for i in primary]))
    decided, n = list(results), len(primary)
    for i, p_adjusted in zip(primary, adjusted.tolist(), strict=True):
        own, numbers = results[i], results[i].numbers
        beside = [r for r in results if r.benchmark == own.benchmark and not r.primary]
        mde = mde_among(numbers.mde, p_floor=numbers.p_floor, n_tests=n)
        result = dataclasses.replace(own, p_adjusted=p_adjusted, mde_adjusted=mde)
        verdict, reasons = _decided(
            result, p_adjusted, beside, n=n, min_effect=min_effect
        )
        decided[i] = dataclasses.replace(result, verdict=verdict, reasons=reasons)
    return decided


def screen(results: Sequence[OrderResult]) -> tuple[Screening, ...]:
    """Levels at which each of several benchmarks is worth a closer look; or nothing."""
    primary = [result for result in results if result.primary]
    if len(primary) < 2:
        return ()
    numbers = [one.numbers for one in primary]
    e_values = [
        calibrated_e(one.log10_p) if one.e_value is None else one.e_value
        for one in numbers
    ]
    by = benjamini_yekutieli(np.array([one.p_value for one in numbers])).tolist()
    by_e = e_bh(np.array(e_values)).tolist()
    return tuple(
        Screening(benchmark=one.benchmark, by=p, e_bh=e)
        for one, p, e in zip(primary, by, by_e, strict=True)
    )


def _decided(
    result: OrderResult,
    p_adjusted: float,
    beside: Sequence[OrderResult],
    *,
    n: int,
    min_effect: float,
) -> tuple[Verdict, tuple[Reason, ...]]:
    designed, reference = result.null == DESIGNED, result.reference
    prefers = reference is not None and reference.p_value <= REFERENCE_LEVEL
    if not designed and (result.refusals or prefers):
        return "invalid design", ()
    # Written so that what is not a number is alike.
    judge = _judging(result, beside).reference
    is_alike = judge is not None and not judge.difference_p <= ALIKE_LEVEL
    is_alike &= result.order_provenance not in KNOWN_ORDERS and not designed
    if p_adjusted <= CONTAMINATED_LEVEL:
        found = _obstacles(result, beside, n)
        if not found:
            return "contaminated", ()
        by_reference = any(reason.startswith("reference") for reason in found)
        return "inconclusive" if is_alike and by_reference else "suspected", found
    if any(_attracts(other, result, n) for other in beside) and not is_alike:
        return "suspected", ("attraction",)
    if p_adjusted <= SUSPECTED_LEVEL:
        if is_alike:
            return "inconclusive", ("reference too close",)
        return "suspected", ("weak",)
    mde = result.mde_adjusted
    # Silence on an order that the model may never have seen says nothing.
    if mde is None or mde > min_effect or result.order_provenance == "unknown":
        return "inconclusive", ()
    return "no evidence", ()


def _obstacles(
    result: OrderResult, beside: Sequence[OrderResult], n: int
) -> tuple[Reason, ...]:
    """Other sources than memory of a small p-value; nothing where it proves.

    Checks of a file see rules that its order follows, not what happens once: a cause
    before its effect, events by their dates, a list that the world knows. Those of
    options see no scale in words. A reference model that reads the file does.
    """
    found: list[Reason] = [] if result.validity == "exact" else ["approximate"]
    null = base_null(result.null)
    if null not in _OF_ORDERS or result.order_provenance in KNOWN_ORDERS:
        return tuple(found)
    directed = _judging(result, beside)
    if null == "exchangeability":
        if directed is result:
            return (*found, "alone")
        # Two tests of one file were looked at.
        if 2 * n * directed.numbers.p_value > CONTAMINATED_LEVEL:
            return (*found, "attraction")
    if directed.reference is None:
        return (*found, "no reference")
    level = difference_level(directed) / n
    return (*found, *_unsettled(directed.reference, directed.numbers, level))


def _judging(result: OrderResult, beside: Sequence[OrderResult]) -> OrderResult:
    """The test whose reference judges: one of direction where orders must be random."""
    if base_null(result.null) != "exchangeability":
        return result
    exact = [other for other in beside if other.validity == "exact"]
    others = [one for one in exact if base_null(one.null) == "reversibility"]
    return min(others, key=lambda other: other.reference is None, default=result)


def difference_level(test: OrderResult) -> float:
    """Level at which the model's gain is more than that of the test's reference."""
    assert test.reference is not None
    own, other = test.numbers.effect_se or 0.0, test.reference.effect_se or 0.0
    # Written so that what is not a number is not quiet.
    is_quiet = test.reference.scale * other <= QUIET * own
    if base_null(test.null) in OF_OPTIONS or not is_quiet:
        return CONTAMINATED_LEVEL
    return DIFFERENCE_LEVEL


def _unsettled(
    reference: ReferenceResult, numbers: OrderNumbers, level: float
) -> list[Reason]:
    """Points that a reference leaves open; none where it is silent and the model not.

    That its own p-value is large shows no silence: a noisy test is never small. So a
    test of its own asks whether it gains less than half of what the model gains. That
    is asked where the model's p-value is small alone, so among such files more than
    `SHARE_LEVEL` of the references that gain just half pass. One that prefers the
    reverse shows that the file is not as good backwards, which the null supposes. The
    difference is tested at `level`: see `difference_level`.
    """
    found: list[Reason] = []
    effect, se = reference.effect or 0.0, reference.effect_se or 0.0
    if not se > REFERENCE_READS * (numbers.effect_se or 0.0):
        found.append("reference ignores context")
    if reference.p_value <= REFERENCE_LEVEL:
        found.append("reference prefers it")
    elif reference.p_value >= 1 - REFERENCE_LEVEL and effect < 0:
        found.append("reference prefers the reverse")
    # Written so that what is not a number settles nothing.
    elif not reference.half_p <= SHARE_LEVEL:
        found.append("reference may share it")
    if not reference.difference_p <= level:
        found.append("reference too close")
    return found


def _attracts(other: OrderResult, result: OrderResult, n: int) -> bool:
    """True if a test beside says what would be proof were the order random."""
    return (
        base_null(result.null) == "reversibility"
        and base_null(other.null) == "exchangeability"
        and other.validity == "exact"
        and not other.refusals
        and n * other.numbers.p_value <= CONTAMINATED_LEVEL
    )
