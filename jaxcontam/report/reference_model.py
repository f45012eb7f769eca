"""The same test of a model that cannot have seen the file, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.sentences import effect_words, p_words

Row = Mapping[str, Any]

SIDE_BY_SIDE_HEADER = ("model", "p", "effect ± se")
_ALIKE_LEVEL = 0.05


def side_by_side(row: Row, model: str) -> list[list[str]]:
    """The model, its reference and the difference; empty without a reference.

    Args:
        row: An order test.
        model: Name of the model that was audited.
    """
    reference = row.get("reference")
    if reference is None:
        return []
    shown = [
        (model, row),
        (f"{reference['name']} (reference)", {**row, **reference}),
        ("difference", _difference(row)),
    ]
    return [[name, _p(one), effect_words(one)] for name, one in shown]


def reference_sentence(row: Row) -> str | None:
    """Whether the reference explains what the model shows; None without one."""
    reference = row.get("reference")
    if reference is None:
        return None
    other, difference = {**row, **reference}, _difference(row)
    said = (
        f"The same test of {reference['name']}, which cannot have seen the file: "
        f"{p_words(other)}, effect {effect_words(other)}; "
        f"difference {effect_words(difference)}, {p_words(difference)}"
    )
    if reference["difference_p"] <= _ALIKE_LEVEL:
        return f"{said}: the model prefers the order more than the reference does."
    return f"{said}: what the model prefers more than the reference may be chance."


def reference_row(row: Row, results: Sequence[Row]) -> Row:
    """The row that holds the reference of a benchmark: its own, if it has one."""
    same = [other for other in results if other.get("benchmark") == row["benchmark"]]
    found = (r for r in (row, *same) if isinstance(r.get("reference"), Mapping))
    return next(found, row)


def _difference(row: Row) -> dict[str, Any]:
    reference = row["reference"]
    return {
        **row,
        "log10_p": reference["difference_log10_p"],
        "effect": reference["difference"],
        "effect_se": reference["difference_se"],
    }


def _p(row: Row) -> str:
    return p_words(row).removeprefix("p ").removeprefix("= ").replace("<=", "≤")
