"""Standings as tables and a figure."""

from collections.abc import Mapping, Sequence

from eval.curves import Curve, curves_svg
from eval.leaderboard.detector import Entry
from eval.leaderboard.standings import (
    COMPARED,
    FPR,
    LEVELS,
    Difference,
    Share,
    Standing,
)
from eval.study import Grid

# Curves that a reader can tell apart.
_MOST_CURVES = 6


def grids(
    found: Sequence[Standing], entries: Mapping[str, Entry], *, about: str
) -> list[Grid]:
    """The table, AUC and share found by copies, and what p-values reject.

    Args:
        found: The best first.
        entries: By name.
        about: Models, sets and budget, in words.
    """
    planted = list(found[0].auc_by_copies) if found else []
    tables = [
        Grid(
            f"{about}. AUC between planted and clean sets over all models with its "
            f"95 % interval, clustered by model; `minus {COMPARED}` is the difference "
            f"from that of `{COMPARED}`, chosen beforehand, on the same sets: an "
            "interval that holds 0, or none, has not shown that the two differ, and "
            "one in twenty misses by chance. Entries side by side are not compared",
            ("entry", "family", "gives", "needs", "passes", "AUC", f"minus {COMPARED}"),
            tuple(
                (
                    one.entry,
                    entries[one.entry].family,
                    entries[one.entry].gives,
                    needs_words(entries[one.entry]),
                    f"{one.passes:.1f}",
                    _share(one.auc),
                    "" if one.difference is None else _difference(one.difference),
                )
                for one in found
            ),
        ),
        Grid(
            "The same AUC by copies",
            ("entry", *map(str, planted)),
            tuple(
                (one.entry, *map(_share, one.auc_by_copies.values())) for one in found
            ),
        ),
    ]
    thresholds = [one for one in found if one.found_by_copies is not None]
    if thresholds:
        tables.append(
            Grid(
                f"Share of planted sets above the score that {FPR:.0%} of the clean "
                "sets exceed, by copies; the interval counts that few clean sets "
                "set the threshold, and takes sets as independent",
                ("entry", *map(str, planted)),
                tuple(
                    (one.entry, *map(_share, (one.found_by_copies or {}).values()))
                    for one in thresholds
                ),
            )
        )
    tests = [one for one in found if one.power]
    for level in LEVELS if tests else ():
        copies = list(tests[0].power[level])
        tables.append(
            Grid(
                f"Share of sets with p at most {level:g}, by copies; 0 copies are "
                "false alarms; Wilson's 95 % interval, which takes sets as independent "
                "(not clustered, though two clean sets are of each model)",
                ("entry", *map(str, copies)),
                tuple(
                    (one.entry, *map(_share, one.power[level].values()))
                    for one in tests
                ),
            )
        )
    return tables


def entry_grid(entries: Sequence[Entry]) -> Grid:
    """What each entry does, and where it is from."""
    return Grid(
        "What the entries do",
        ("entry", "what it does", "source"),
        tuple((one.name, one.about, one.source) for one in entries),
    )


def auc_svg(found: Sequence[Standing], entries: Mapping[str, Entry]) -> str:
    """AUC against copies: the best entry of each family, then the best that are left.

    Args:
        found: The best first.
        entries: By name.
    """
    leaders = {
        family: next(one for one in found if entries[one.entry].family == family)
        for family in dict.fromkeys(entries[one.entry].family for one in found)
    }
    drawn = [*leaders.values()]
    drawn += [one for one in found if one not in drawn][: _MOST_CURVES - len(drawn)]
    copies = list(found[0].auc_by_copies)
    return curves_svg(
        [
            Curve(
                label=f"{one.entry} ({entries[one.entry].family})",
                x=copies,
                y=[share.value for share in one.auc_by_copies.values()],
                low=[share.low for share in one.auc_by_copies.values()],
                high=[share.high for share in one.auc_by_copies.values()],
                dashed=entries[one.entry].family == "blind",
            )
            for one in drawn
        ],
        x_label="copies in the training data",
        y_label="AUC, planted against clean sets",
        log_x=True,
        x_ticks=copies,
        level=0.5,
    )


def needs_words(entry: Entry) -> str:
    """What it needs beside the texts; log-probabilities go without saying."""
    words = [need for need in entry.needs if need != "log-probabilities"]
    if not entry.needs or "log-probabilities" not in entry.needs:
        words.insert(0, "no model")
    return ", ".join(words)


def _share(share: Share) -> str:
    return f"{_short(share.value)} [{_short(share.low)}, {_short(share.high)}]"


def _difference(found: Difference) -> str:
    if found.low is None:
        return f"{found.value:+.2f}"
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _short(value: float) -> str:
    """Two digits without the zero in front."""
    return f"{value:.2f}".removeprefix("0")
