"""What planted models showed: how many copies an effect of a given size stands for.

The curve is data, made by `python -m eval.reference_curve` from small models of whose
training text half or more was planted. It gives silence a scale; it is no estimate of
how often another model saw a file.
"""

import dataclasses
import functools
import importlib.resources
import json
import math
from collections.abc import Sequence

from jaxcontam.report.order_words import proof_words
from jaxcontam.results import OrderResult
from jaxcontam.results.read import read_result
from jaxcontam.results.terms import Words

CURVE_NAME = "reference_curve.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCurve:
    """Effect of one test on planted models of one size, by duplication count.

    Attributes:
        population: Name of the models in `eval.power`.
        n_tokens: Tokens that each was trained on.
        canary_share: Share of these that was planted.
        n_examples: Of each planted set.
        copies: Duplication counts, ascending; 0 is a control.
        median: Effect over models at each count, nats per example boundary.
        low: 10 % quantile over models.
        high: 90 % quantile over models.
    """

    population: str
    method: str
    n_models: int
    n_parameters: int
    n_tokens: int
    canary_share: float
    n_examples: int
    copies: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@functools.cache
def reference_curves() -> tuple[ReferenceCurve, ...]:
    """The curves that this version of the package holds."""
    path = importlib.resources.files("jaxcontam.report").joinpath(CURVE_NAME)
    curves = json.loads(path.read_text(encoding="utf-8"))["curves"]
    return tuple(read_result(ReferenceCurve, fields, "curve") for fields in curves)


def quoted_curves(method: str) -> list[ReferenceCurve]:
    """One curve for each model size that a test was tried on, smallest size first.

    Where a size has several populations, the one with the most models is quoted.
    """
    quoted: dict[int, ReferenceCurve] = {}
    for curve in reference_curves():
        if curve.method == method:
            other = quoted.setdefault(curve.n_parameters, curve)
            if curve.n_models > other.n_models:
                quoted[curve.n_parameters] = curve
    return [quoted[n_parameters] for n_parameters in sorted(quoted)]


def copies_for_effect(curve: ReferenceCurve, effect: float) -> float | None:
    """Copies at which half of the planted models showed at least this effect.

    Between two duplication counts the logarithm of the count is taken as linear in the
    effect, in nats per example boundary. At least 1; None if the effect is below the
    median at the smallest count, or above it at every count.
    """
    pairs = zip(curve.copies, curve.median, strict=True)
    planted = [(n, median) for n, median in pairs if n > 0]
    below, seen = planted[0]
    if effect < seen:
        return None
    for copies, median in planted:
        if median >= effect:
            if median == seen:
                return float(copies)
            share = (effect - seen) / (median - seen)
            return below * math.exp(share * math.log(copies / below))
        # A dip of the median is chance: the curve stays where it was.
        if median > seen:
            below, seen = copies, median
    return None


def scale_sentence(tests: Sequence[OrderResult], words: Words) -> str | None:
    """Beside silence, once a report: what the weakest silent test would have found.

    None where no test that decides is silent, or none has a curve.
    """
    silent = [
        (test.numbers.mde, curves)
        for test in tests
        if test.verdict in ("no evidence", "inconclusive")
        and test.numbers.mde is not None
        # The curves are of effects over all tokens.
        and test.numbers.first_tokens in (None, -1)
        and (
            curves := quoted_curves(
                proof_words(words, test.method).scale or test.method
            )
        )
    ]
    if not silent:
        return None
    effect, curves = max(silent, key=lambda one: one[0])
    showed = "; ".join(
        f"{curve.n_parameters / 1e6:.2g} M parameters, {_copies_words(curve, effect)}"
        for curve in curves
    )
    least = min(curve.canary_share for curve in curves)
    return (
        f"For scale: models trained with planted sets showed an effect of {effect:.2g} "
        f"nats per boundary at: {showed}. They were small, and {least:.0%} or more of "
        "their text was planted. A model that learned little shows little, so this "
        "clears nothing."
    )


def _copies_words(curve: ReferenceCurve, effect: float) -> str:
    copies = copies_for_effect(curve, effect)
    if copies is not None:
        return f"about {copies:.0f} {'copy' if round(copies) == 1 else 'copies'}"
    if effect > max(curve.median):
        return f"more than {curve.copies[-1]} copies, if at all"
    return f"{min(n for n in curve.copies if n)} copy or less"
