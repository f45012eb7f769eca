"""Methods as tables and reports know them, those of other packages included."""

import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from jaxcontam.reports.terms import ProofWords

R = TypeVar("R", bound="MethodRow")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """A method for its readers: its name, its needs, its price, its sight.

    Attributes:
        name: As typed after `--tests` or `--scores`, and as it stands in reports.
        needs: What the model must expose, and the flags that it cannot do without.
    """

    name: str
    needs: str = "log-probabilities"
    cost: str
    finds: str
    source: str

    @property
    def example(self) -> str:
        """A command that asks for it; empty where none names it."""
        return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodWords:
    """Words for a method in a report; made from a row of METHODS.

    Attributes:
        source: Paper, and where the code departs from the authors'.
        null: What a test assumes; empty for scores.
        validity: What vouches for its p-value; empty for scores.
    """

    name: str
    finds: str
    source: str
    label: str = ""
    null: str = ""
    validity: str = ""
    proof: ProofWords | None = None


def words_of(row: Any, name: str = "") -> MethodWords:
    """Words of a row of a table of methods, under its own name or another."""
    departure = getattr(row, "departure", "")
    words = f"{row.source}; not as in the authors' code: {departure}"
    return MethodWords(
        name=name or row.name,
        finds=row.finds,
        source=words if departure else row.source,
        label=getattr(row, "label", "") or name or row.name,
        null=getattr(row, "null", ""),
        validity=getattr(row, "validity", ""),
        proof=getattr(row, "words", None),
    )


Words = Mapping[str, MethodWords]
"""Name of a method -> what a report says of it."""

ENTRY_POINTS = "jaxcontam.methods"
"""Group by which other packages name their tests and scores, wherever this file is."""


def joined_rows(here: Sequence[R], kind: type[R]) -> dict[str, R]:
    """Name -> row: those that are here, then those of other packages of this kind.

    A package names its tests and scores as entry points of `ENTRY_POINTS`; they come
    in the order of these names.

    Raises:
        ValueError: If an entry point is no method, or its name is taken.
    """
    rows = {row.name: row for row in here}
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    for point in sorted(points, key=lambda one: one.name):
        row = point.load()
        package = point.dist.name if point.dist else point.value
        where = f"{package}: {ENTRY_POINTS}:"
        if not isinstance(row, MethodRow):
            raise ValueError(
                f"{where} {point.value} must be a test or a score, got {row!r}"
            )
        if isinstance(row, kind):
            if row.name in rows:
                raise ValueError(f"{where} the name {row.name!r} is taken")
            rows[row.name] = row
    return rows
