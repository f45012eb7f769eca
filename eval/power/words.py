"""The tables of the power study in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.power.table import LEVELS, Comparison, Dup50, PowerRow
from eval.study import Grid

Row = tuple[str, ...]


def power_grids(
    table: Sequence[PowerRow],
    dup50: Sequence[Dup50],
    target: Sequence[Comparison],
    populations: Sequence[Mapping[str, Any]],
) -> list[Grid]:
    """A table a population and level, the copies of half power, the comparison."""
    grids = []
    for about in populations:
        rows = [row for row in table if row.design == about["name"]]
        for level in LEVELS:
            own = [row for row in rows if row.level == level]
            grids.append(_power_grid(own, level, about))
    if dup50:
        grids.append(_dup50_grid(dup50))
    if target:
        grids.append(_target_grid(target))
    return grids


def _power_grid(
    rows: Sequence[PowerRow], level: float, about: Mapping[str, Any]
) -> Grid:
    """Tests by duplication counts; what else a set is told by is part of the test."""
    copies = list(dict.fromkeys(row.copies for row in rows))
    cells: dict[str, dict[int, PowerRow]] = {}
    several = len({row.n_examples for row in rows}) > 1
    told = any(row.setting for row in rows)
    for row in rows:
        if row.setting or not told:
            cells.setdefault(_name(row, several), {})[row.copies] = row
    # A control has no setting of its own: it stands in the row of each.
    for row in rows:
        for found in cells.values():
            first = next(iter(found.values()))
            if (first.test, first.n_examples) == (row.test, row.n_examples):
                found.setdefault(row.copies, row)
    return Grid(
        f"{about['name']}: {len(about['seeds']):,} models of {about['n_parameters']:,} "
        f"parameters, {about['n_tokens']:,} tokens, {about['canary_share']:.0%} "
        f"planted, sets of {about['n_examples']}. Share of sets with p at most "
        f"{level:g} (95 % interval), by copies",
        ("test", "passes", *(f"{n}" for n in copies)),
        tuple(
            (
                name,
                f"{next(iter(found.values())).passes:.1f}",
                *(_cell(found.get(n)) for n in copies),
            )
            for name, found in cells.items()
        ),
    )


def _name(row: PowerRow, several: bool) -> str:
    words = [row.test]
    if several:
        words.append(f"{row.n_examples} examples")
    if row.setting:
        words.append(row.setting)
    return ", ".join(words)


def _dup50_grid(dup50: Sequence[Dup50]) -> Grid:
    """Copies of half power, a column a level."""
    cells: dict[tuple[str, str], dict[float, Dup50]] = {}
    for row in dup50:
        cells.setdefault((row.design, row.test), {})[row.level] = row
    return Grid(
        "Copies at which half of the sets are found (95 % interval over models, where "
        "there are 40 or more)",
        ("population, test", *(f"p at most {level:g}" for level in LEVELS)),
        tuple(
            (f"{design}: {test}", *(_copies(found[level]) for level in LEVELS))
            for (design, test), found in cells.items()
        ),
    )


def _copies(row: Dup50) -> str:
    def words(value: float | None) -> str:
        return f"> {row.most}" if value is None else f"{value:.1f}"

    if not row.has_interval:
        return words(row.copies)
    return f"{words(row.copies)} ({words(row.low)} to {words(row.high)})"


def _target_grid(target: Sequence[Comparison]) -> Grid:
    return Grid(
        "Sets on which p is not above the other test's, both cut from below",
        ("test", "other", "copies", "sets", "of", "both at the cut", "cut"),
        tuple(
            (
                one.test,
                one.other,
                f"{one.copies}",
                f"{one.n_held}",
                f"{one.n_models}",
                f"{one.n_both_cut}",
                f"{one.cut:g}",
            )
            for one in target
        ),
    )


def _cell(row: PowerRow | None) -> str:
    """Share, interval; two digits without the zero in front, three where it is rare."""
    if row is None:
        return ""
    digits = 3 if row.power < 0.1 and row.n_models >= 200 else 2
    share, low, high = (
        f"{value:.{digits}f}".removeprefix("0")
        for value in (row.power, row.low, row.high)
    )
    return f"{share} ({low}-{high})"
