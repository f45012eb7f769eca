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
    return tuple(
        ReferenceCurve(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in fields.items()
            }
        )
        for fields in json.loads(text)["curves"]
    )


def reference_curve(method: str) -> ReferenceCurve | None:
    """The curve of the largest models that a test was tried on; None without one."""
    curves = [curve for curve in reference_curves() if curve.method == method]
    return max(curves, key=lambda curve: curve.n_parameters, default=None)


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
    curve = reference_curve(method)
    if curve is None:
        return None
    copies = copies_for_effect(curve, effect)
    most, largest = max(zip(curve.copies, curve.median, strict=True))
    if copies is not None:
        words = f"at about {copies:.0f} {'copy' if round(copies) == 1 else 'copies'}"
    elif effect > largest:
        words = f"not even at {most} copies"
    else:
        words = f"already at {min(n for n in curve.copies if n)} copy"
    return (
        f"For scale: models of {curve.n_parameters / 1e6:.2g} M parameters into whose "
        f"training text sets were planted (an easy setting: {curve.canary_share:.0%} "
        f"of the text) showed an effect of {effect:.2g} nats per boundary {words}."
    )
