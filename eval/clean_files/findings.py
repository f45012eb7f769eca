"""Findings of a command on one clean file, and their rates over many."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from jaxcontam.errors import InputError

LEVELS = (0.05, 0.01, 0.001)
"""Levels at which p-values are counted."""

ACCUSING: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("audit", "replicate"), ("contaminated", 0.001)),
    "membership": ("members rank higher", 0.001),
    # At most 3.6 %, as `gap_estimate` has it for right and wrong answers.
    "inflation": ("inflated", 0.036),
}
"""Command -> its word that accuses, and how often it may be said of a clean model."""

FAMILY = 0.01
"""Chance that any cell of the whole study fails, were all levels held."""


class Cell(NamedTuple):
    """A command with one of its tests, on one kind of file, of one clean model.

    Attributes:
        kind: Of file; "" in sums over kinds.
        reader: What the model looks at; "" in sums over readers.
        holds: The file satisfies the null hypothesis of the test, and its p-value is
            said to be exact, so that its level is.
    """

    command: str
    test: str
    kind: str = ""
    reader: str = ""
    holds: bool = True

    @property
    def key(self) -> str:
        """Its name in records."""
        return "|".join((*self[:4], "level" if self.holds else "words"))


class Finding(NamedTuple):
    """Finding on one file; `p` is None where nothing was tested."""

    cell: Cell
    p: float | None
    verdict: str | None


def asked(cell: Cell, ask: Callable[[], tuple[float | None, str | None]]) -> Finding:
    """The p-value and the verdict that `ask` gives; none where the file is refused."""
    try:
        return Finding(cell, *ask())
    except InputError:
        return Finding(cell, None, None)


def drawn_cell(
    command: str, seed: int, kinds: Any, readers: Any
) -> tuple[Random, Any, str]:
    """A file's random state, kind and reader: each pair of these equally often."""
    kinds, readers = tuple(kinds), tuple(readers)
    reader = readers[seed // len(kinds) % len(readers)]
    return Random(f"{command} {seed}"), kinds[seed % len(kinds)], reader


Tally = Counter[str]
"""`n`, `refused`, `p<=0.05` and the like, and verdicts, of one cell."""


def tallied(findings: Iterable[Finding]) -> dict[str, Tally]:
    """Counts of each cell, by its key."""
    found: dict[str, Tally] = {}
    for one in findings:
        tally = found.setdefault(one.cell.key, Counter())
        tally["n"] += 1
        if one.p is None:
            tally["refused"] += 1
        else:
            # A ratio of whole numbers may be a rounding above its level.
            tally.update(f"p<={x}" for x in LEVELS if one.p <= x * (1 + 1e-12))
        if one.verdict is not None:
            tally[one.verdict] += 1
    return found


def added(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, Tally]:
    """Counts of the same cells together."""
    found: dict[str, Tally] = {}
    for part in parts:
        for key, tally in part.items():
            found.setdefault(key, Counter()).update(tally)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """A count of `p<=0.05` and the like, or of an accusing word, against its level.

    It fails where the exact binomial probability of so many or more is below `FAMILY`
    divided by the number of counts.
    """

    cell: Cell
    what: str
    level: float
    count: int
    n: int
    chance: float
    fails: bool = False


def judged(tallies: Mapping[str, Mapping[str, int]]) -> list[Held]:
    """Every count of every cell, and of sums over readers, kinds and both.

    P-values count where a file satisfies the null, accusing words everywhere.
    """
    from scipy.stats import binom

    cells: dict[Cell, Tally] = {}
    for key, tally in tallies.items():
        command, test, kind, reader, holds = key.split("|")
        for sums in {(kind, reader), (kind, ""), ("", reader), ("", "")}:
            cell = Cell(command, test, *sums, holds == "level")
            cells.setdefault(cell, Counter()).update(tally)
    found = []
    for cell, tally in cells.items():
        levels = {f"p<={x}": x for x in LEVELS} if cell.holds else {}
        for what, level in (*levels.items(), ACCUSING[cell.command.split()[0]]):
            # A file that was refused was not accused either.
            n = tally["n"] - tally["refused"] * (what in levels)
            chance = float(binom.sf(tally[what] - 1, n, level))
            found.append(Held(cell, what, level, tally[what], n, chance))
    bound = FAMILY / max(1, len(found))
    return [dataclasses.replace(one, fails=one.chance < bound) for one in found]


def failures(found: Sequence[Held]) -> list[Held]:
    """Counts above their level, the surest first."""
    return sorted((one for one in found if one.fails), key=lambda one: one.chance)


def silent(done: int, total: int) -> None:
    """No bar."""
