"""What planted models showed: how many copies an effect of a given size stands for.

The curve is data, made by `python -m eval.reference_curve` from small models of whose
training text half or more was planted. It gives `no evidence` a scale; it is no
estimate of how often another model saw a file.
"""

import dataclasses
import functools
import importlib.resources
import json
import math

from jaxcontam.results import OrderResult
from jaxcontam.results.read import read_result

CURVE_NAME = "reference_curve.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCurve:
    """Effect of one test on planted models of one size, by duplication count.

    Attributes:
        population: Name of the models in `eval.power`.
        method: A row of METHODS.
        n_models: Models.
        n_parameters: Of each.
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
    text = (
        importlib.resources.files("jaxcontam.report")
        .joinpath(CURVE_NAME)
        .read_text(encoding="utf-8")
    )
    curves = json.loads(text)["curves"]
    return tuple(read_result(ReferenceCurve, fields, "curve") for fields in curves)


def quoted_curves(method: str) -> list[ReferenceCurve]:
    """One curve for each model size that a test was tried on, smallest size first.

    Of several populations of a size that with the most models is quoted.
    """
    quoted: dict[int, ReferenceCurve] = {}
    for curve in reference_curves():
        if curve.method != method:
            continue
        other = quoted.setdefault(curve.n_parameters, curve)
        if curve.n_models > other.n_models:
            quoted[curve.n_parameters] = curve
    return [quoted[n_parameters] for n_parameters in sorted(quoted)]


def copies_for_effect(curve: ReferenceCurve, effect: float) -> float | None:
    """Copies at which half of the planted models showed at least this effect.

    Between two duplication counts the logarithm of the count is taken as linear in the
    effect.

    Args:
        curve: Where to look.
        effect: Nats per example boundary.

    Returns:
        At least 1; None if the effect is below the median at the smallest count, or
        above it at every count.
    """
    planted = [
        (n, effect_n)
        for n, effect_n in zip(curve.copies, curve.median, strict=True)
        if n > 0
    ]
    if effect < planted[0][1]:
        return None
    below, seen = planted[0]
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


def reference_sentence(method: str, effect: float) -> str | None:
    """The effect in copies, in words; None for a test without a curve.

    Args:
        method: A row of METHODS.
        effect: Nats per example boundary, such as the smallest that would be found.
    """
    curves = quoted_curves(method)
    if not curves:
        return None
    least = min(curve.canary_share for curve in curves)
    first, *others = (
        (
            f"of {curve.n_parameters / 1e6:.2g} M parameters",
            _copies_words(curve, effect),
        )
        for curve in curves
    )
    showed = "".join(f"; those {size} {words}" for size, words in others)
    return (
        f"For scale: planted models {first[0]} showed an effect of {effect:.2g} nats "
        f"per boundary {first[1]}{showed}. They were small, and {least:.0%} or more of "
        "their training text was planted: an easy setting, which says little of large "
        "models."
    )


def scale_sentence(test: OrderResult, method: str) -> str | None:
    """Beside silence: how many copies of planted models would have been seen.

    Args:
        test: A test that decides.
        method: The test on whose curves its detectable effect is read off.
    """
    mde, first_tokens = test.numbers.mde, test.numbers.first_tokens
    # The curves are of effects over all tokens.
    if test.verdict not in ("no evidence", "inconclusive") or mde is None:
        return None
    return None if first_tokens not in (None, -1) else reference_sentence(method, mde)


def _copies_words(curve: ReferenceCurve, effect: float) -> str:
    copies = copies_for_effect(curve, effect)
    most = curve.copies[-1]
    if copies is not None:
        return f"at about {copies:.0f} {'copy' if round(copies) == 1 else 'copies'}"
    if effect > max(curve.median):
        return f"at more than {most} copies, if at all"
    return f"at {min(n for n in curve.copies if n)} copy or less"
