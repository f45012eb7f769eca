"""What a command says of one clean file, and what may be said of many."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

LEVELS = (0.05, 0.01, 0.001)
"""Levels at which p-values are counted."""

_CONTAMINATED = ("contaminated", 0.001)
ACCUSING: Mapping[str, tuple[str, float]] = {
    "audit": _CONTAMINATED,
    "membership": ("members rank higher", 0.001),
    "replicate": _CONTAMINATED,
    "inflation": ("inflated", 0.036),
    "prove": _CONTAMINATED,
    "canary": _CONTAMINATED,
    "variants": _CONTAMINATED,
}
"""Command -> its word that accuses, and how often it may be said of a clean model.

`inflated`: at most 3.6 %, as `gap_estimate` has it for right and wrong answers.
"""

FAMILY = 0.01
"""Chance that any cell of the whole study fails, were all levels held."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A command with one of its tests, on one kind of file, of one clean model.

    Attributes:
        command: As it is typed.
        test: Its test, or what it is asked.
        kind: Of file.
        reader: What the model looks at; "" in sums over readers, as for kinds.
        holds: The file satisfies the null hypothesis of the test, and its p-value is
            said to be exact, so that its level is.
    """

    command: str
    test: str
    kind: str = ""
    reader: str = ""
    holds: bool = True

    @property
    def accusing(self) -> tuple[str, float]:
        """The word of the command that accuses, and its level."""
        return ACCUSING[self.command.split()[0]]

    @property
    def key(self) -> str:
        """Its name in records."""
        holds = "level" if self.holds else "words"
        return "|".join((self.command, self.test, self.kind, self.reader, holds))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is said of one file; `p` is None where nothing was tested."""

    cell: Cell
    p: float | None
    verdict: str | None


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A count against its level.

    Attributes:
        cell: Which files; its kind or reader is "" where it is a sum over them.
        what: `p<=0.05` and the like, or an accusing word.
        level: How often it may be.
        count: How often it was.
        n: Of so many files in all.
        chance: Exact binomial probability of so many or more at the level.
        fails: It is below `FAMILY` divided by the number of counts.
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
        for own_kind, own_reader in {
            (kind, reader),
            (kind, ""),
            ("", reader),
            ("", ""),
        }:
            cell = Cell(
                command=command,
                test=test,
                kind=own_kind,
                reader=own_reader,
                holds=holds == "level",
            )
            cells.setdefault(cell, Counter()).update(tally)
    found = []
    for cell, tally in cells.items():
        levels = {f"p<={x}": x for x in LEVELS} if cell.holds else {}
        for what, level in (*levels.items(), cell.accusing):
            # A file that was refused was not accused either.
            n = tally["n"] - tally["refused"] * (what in levels)
            found.append(
                Held(
                    cell=cell,
                    what=what,
                    level=level,
                    count=tally[what],
                    n=n,
                    chance=float(binom.sf(tally[what] - 1, n, level)),
                )
            )
    bound = FAMILY / max(1, len(found))
    return [dataclasses.replace(one, fails=one.chance < bound) for one in found]


def failures(found: Sequence[Held]) -> list[Held]:
    """Counts above their level, the surest first."""
    return sorted((one for one in found if one.fails), key=lambda one: one.chance)
