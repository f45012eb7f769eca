"""Attraction beside direction: what an example gains after each of its neighbours.

Natural order puts like beside like, which attracts both ways. Memory of a file adds to
the published direction alone. Both are shown, so that nobody takes one for the other.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Row = Mapping[str, Any]
Kind = Literal["memory", "both", "alike", "unclear", "against", "unlike", "nothing"]

# Standard errors on each side of a 95 % interval.
_WIDTH = 1.959964
# p-value from which memory is more than a manner of speaking.
_PROVEN = math.log10(0.001)
_CONCLUSIONS: dict[Kind, str] = {
    "both": "it gains both ways, as like beside like does, and more forwards, as "
    "memory does",
    "alike": "it gains as much in both directions: like stands beside like, which any "
    "model that copies prefers",
    "unclear": "too little to tell memory, which gains forwards alone, from likeness, "
    "which gains both ways",
    "against": "memory cannot do that; the file itself points backwards",
    "unlike": "unlike stands beside unlike, as in turns of a dialogue, and memory has "
    "no part in it",
    "nothing": "no more than chance gives; neither memory nor likeness of neighbours "
    "shows",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What an example gains beside a neighbour, in nats.

    Attributes:
        name: `forward`, `backward` or `excess`, as in `Neighbours`.
        mean: The estimate.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    name: str
    mean: float
    low: float
    high: float


def gains_of(row: Row) -> tuple[Gain, Gain, Gain] | None:
    """Forward, backward and excess of a row; None where no pairs were scored."""
    found = row.get("neighbours")
    if found is None:
        return None
    forward, backward, excess = (
        Gain(
            name=name,
            mean=found[name],
            low=found[name] - _WIDTH * found[f"{name}_se"],
            high=found[name] + _WIDTH * found[f"{name}_se"],
        )
        for name in ("forward", "backward", "excess")
    )
    return forward, backward, excess


def pair_row(row: Row, results: Sequence[Row]) -> Row | None:
    """Whose gains stand beside a test: its own, or those of a pair test of the file.

    Args:
        row: A primary row.
        results: All rows of its report.
    """
    same = [other for other in results if other.get("benchmark") == row["benchmark"]]
    # All pairs are better than some.
    same.sort(key=lambda other: other.get("lag_profile") is None)
    return next((r for r in (row, *same) if r.get("neighbours") is not None), None)


def kind_of(row: Row) -> Kind | None:
    """What the gains of a row look like; None where there are none."""
    gains = gains_of(row)
    if gains is None:
        return None
    _, backward, excess = gains
    if excess.low > 0:
        return "both" if backward.low > 0 else "memory"
    if excess.high < 0:
        return "against"
    low, high = _sum_of(row["neighbours"])
    if high < 0:
        return "unlike"
    if backward.low > 0:
        return "alike"
    return "unclear" if low > 0 else "nothing"


def attraction_sentence(row: Row, verdict: str | None) -> str | None:
    """Both gains of a pair test and what they mean; None where there are none.

    Args:
        row: Of the pair test.
        verdict: Of the benchmark: only `contaminated` makes it memory.
    """
    gains, kind = gains_of(row), kind_of(row)
    if gains is None or kind is None:
        return None
    forward, backward, _ = gains
    digits = _digits(row["neighbours"])
    if kind != "memory":
        conclusion = _CONCLUSIONS[kind]
        if kind == "both" and verdict == "contaminated":
            conclusion += ": the order was remembered, too"
        if kind == "both" and verdict == "invalid design":
            conclusion += " and a file that points forward itself"
        if kind == "alike" and row["order_provenance"] == "declared":
            conclusion += "; a shuffled file hardly shows that, so ask again"
    elif verdict == "contaminated":
        conclusion = "the order was remembered, not just alike"
    elif verdict == "invalid design":
        conclusion = "memory does that, and so does a file that points forward itself"
    elif row["log10_p"] > _PROVEN:
        conclusion = "that is how memory looks, but chance alone may look so"
    else:
        conclusion = "that is how memory looks, and no likeness of neighbours"
    return (
        "After the example published before it an example gains "
        f"{_number(forward.mean, digits)} nats ({_range(forward, digits)}), after the "
        f"one behind it {_number(backward.mean, digits)} ({_range(backward, digits)}): "
        f"{conclusion}."
    )


def attraction_rows(row: Row) -> list[list[str]]:
    """A table of the gains: beside whom, nats, interval, and what gives them."""
    gains = gains_of(row)
    if gains is None:
        return []
    digits = _digits(row["neighbours"])
    words = (
        ("after the one before it (forwards)", "likeness and memory"),
        ("after the one behind it (backwards)", "likeness alone"),
        ("forwards less backwards", "memory, or a file that points forward"),
    )
    return [
        [place, _number(gain.mean, digits), _range(gain, digits), source]
        for gain, (place, source) in zip(gains, words, strict=True)
    ]


def interval_columns(row: Row) -> dict[str, float]:
    """Ends of the 95 % intervals under the names of `results.csv`."""
    return {
        f"{gain.name}_{end}": getattr(gain, end)
        for gain in gains_of(row) or ()
        for end in ("low", "high")
    }


def _sum_of(found: Mapping[str, float]) -> tuple[float, float]:
    """95 % interval of forward and backward together.

    Var(f + b) = 2 Var f + 2 Var b - Var(f - b).
    """
    variance = 2 * found["forward_se"] ** 2 + 2 * found["backward_se"] ** 2
    se = math.sqrt(max(0.0, variance - found["excess_se"] ** 2))
    total = found["forward"] + found["backward"]
    return total - _WIDTH * se, total + _WIDTH * se


def _digits(found: Mapping[str, float]) -> int:
    """Decimals that the standard errors leave a meaning."""
    se = max(found["forward_se"], found["backward_se"])
    return 1 if se <= 0 else min(4, max(0, -math.floor(math.log10(se))))


def _number(value: float, digits: int) -> str:
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _range(gain: Gain, digits: int) -> str:
    return f"{_number(gain.low, digits)} to {_number(gain.high, digits)}"
