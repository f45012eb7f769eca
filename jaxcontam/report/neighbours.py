"""Attraction beside direction: what an example gains after each of its neighbours.

Natural order puts like beside like, which attracts both ways. Memory of a file adds to
the published direction alone. Both are shown, so that nobody takes one for the other.
"""

import math
from typing import Literal, NamedTuple

from jaxcontam.report.decision import AuditedFile
from jaxcontam.results import Neighbours, OrderResult
from jaxcontam.results.terms import Verdict

Kind = Literal["memory", "both", "alike", "unclear", "against", "unlike", "nothing"]

WIDTH = 1.959964
"""Standard errors on each side of a 95 % interval."""

# p-value from which memory is more than a manner of speaking.
_PROVEN = math.log10(0.001)
_CONCLUSIONS: dict[Kind, str] = {
    "both": "it gains both ways, as like beside like does, and more forwards, as "
    "memory does",
    "alike": "it gains as much in both directions: like stands beside like, which any "
    "model that copies prefers",
    "unclear": "too little to tell memory, which gains forwards alone, from likeness, "
    "which gains both ways",
    "against": "memory does the opposite; the file itself may point backwards",
    "unlike": "unlike stands beside unlike, as in turns of a dialogue; memory does not "
    "look so",
    "nothing": "no more than chance gives; neither memory nor likeness of neighbours "
    "shows",
}


class Gain(NamedTuple):
    """What an example gains beside a neighbour, in nats, with its 95 % interval."""

    mean: float
    low: float
    high: float


def gains_of(found: Neighbours) -> dict[str, Gain]:
    """`forward`, `backward` and `excess`, as in `Neighbours`."""
    names = ("forward", "backward", "excess")
    return {n: _gain(getattr(found, n), getattr(found, f"{n}_se")) for n in names}


def pair_test(file: AuditedFile) -> OrderResult | None:
    """The test whose gains are shown: the deciding one, or a pair test beside it."""
    # All pairs are better than some.
    beside = sorted(file.tests, key=lambda one: one.numbers.lag_profile is None)
    tests = (file.test, *beside)
    return next((one for one in tests if one.numbers.neighbours is not None), None)


def kind_of(found: Neighbours) -> Kind:
    """What gains look like."""
    _, backward, excess = gains_of(found).values()
    if excess.low > 0:
        return "both" if backward.low > 0 else "memory"
    if excess.high < 0:
        return "against"
    total = _sum_of(found)
    if total.high < 0:
        return "unlike"
    if backward.low > 0:
        return "alike"
    return "unclear" if total.low > 0 else "nothing"


def attraction_sentence(test: OrderResult, verdict: Verdict | None) -> str | None:
    """Both gains of a pair test and what they mean; None where there are none.

    Only a file's verdict `contaminated` makes it memory.
    """
    found = test.numbers.neighbours
    if found is None:
        return None
    forward, backward, _ = gains_of(found).values()
    digits = _digits(found)
    return (
        "After the example published before it an example gains "
        f"{_number(forward.mean, digits)} nats ({_range(forward, digits)}), after the "
        f"one behind it {_number(backward.mean, digits)} ({_range(backward, digits)}): "
        f"{_conclusion(test, kind_of(found), verdict)}."
    )


def _conclusion(test: OrderResult, kind: Kind, verdict: Verdict | None) -> str:
    if kind != "memory":
        conclusion = _CONCLUSIONS[kind]
        if kind == "both" and verdict == "contaminated":
            conclusion += ": the order was remembered, too"
        if kind == "both" and verdict == "invalid design":
            conclusion += " and a file that points forward itself"
        if kind == "alike" and test.order_provenance == "declared":
            conclusion += "; a shuffled file hardly shows that, so ask again"
        return conclusion
    if verdict == "contaminated":
        return "the order was remembered, not just alike"
    if verdict == "invalid design":
        return "memory does that, and so does a file that points forward itself"
    if test.numbers.log10_p > _PROVEN:
        return "that is how memory looks, but chance alone may look so"
    return "memory looks so, and so does an order that a reader foretells"


def _gain(mean: float, se: float) -> Gain:
    return Gain(mean, mean - WIDTH * se, mean + WIDTH * se)


def _sum_of(found: Neighbours) -> Gain:
    """Forward and backward together: Var(f + b) = 2 Var f + 2 Var b - Var(f - b)."""
    variance = 2 * found.forward_se**2 + 2 * found.backward_se**2 - found.excess_se**2
    total = found.forward + found.backward
    return _gain(total, math.sqrt(max(0.0, variance)))


def _digits(found: Neighbours) -> int:
    """Decimals that the standard errors leave a meaning."""
    se = max(found.forward_se, found.backward_se)
    return 1 if se <= 0 else min(4, max(0, -math.floor(math.log10(se))))


def _number(value: float, digits: int) -> str:
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _range(gain: Gain, digits: int) -> str:
    return f"{_number(gain.low, digits)} to {_number(gain.high, digits)}"
