"""Trials to standings: how well each entry ranks sets, and whether its level holds.

Dimension key
    P  planted sets
    Q  clean sets
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eval.intervals import Share, is_rejected
from eval.leaderboard.detector import Entry
from eval.leaderboard.trials import Trial
from eval.study import Grid, grouped
from jaxcontam.stats.bootstrap import tpr_interval
from jaxcontam.stats.roc import auc_delong, auc_interval, paired_delong, tpr_at_fpr

COMPARED = "adjacency"
"""The entry that all others are compared with.

Chosen beforehand: the best of thirty on these very models would look better than it is.
"""

LEVELS = (0.05, 0.001)
"""Levels of p-values."""

FPR = 0.05
"""Share of clean sets that may lie above the threshold of a score."""

# Smaller standard errors are 0.
_NO_SPREAD = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One entry on all models.

    Attributes:
        auc: Planted sets of all duplication counts against clean ones; the table is
            sorted by it. Intervals of AUC are clustered by model.
        difference: AUC of this entry minus that of `COMPARED`, on the same sets; the
            interval is for this entry alone, whatever the number of entries. None of
            `COMPARED` itself, and where it is not ranked; without an interval where no
            model differs from another, as where both entries rank all sets perfectly.
        found_by_copies: Share of them above the threshold that `FPR` of the clean sets
            exceed; None where there are too few of these.
        power: Level -> share of p-values at or below it, by copies; 0 copies is the
            false-alarm rate. Empty for scores. Intervals take sets as independent,
            though two clean ones are of each model.
        passes, seconds: Means over sets.
    """

    entry: str
    auc: Share
    difference: Share | None
    auc_by_copies: dict[int, Share]
    found_by_copies: dict[int, Share] | None
    power: dict[float, dict[int, Share]]
    passes: float
    seconds: float
    n_models: int


def standings(entries: Sequence[Entry], trials: Sequence[Trial]) -> list[Standing]:
    """Every entry that kept to its budget on all sets, the best AUC first.

    Trials are of the same sets, of at least two models, each with a clean and a planted
    one.
    """
    by_entry = grouped(sorted(trials, key=lambda one: one.seed), lambda one: one.entry)
    tables = {
        entry.name: by_entry[entry.name]
        for entry in entries
        if entry.name in by_entry
        and all(one.score is not None for one in by_entry[entry.name])
    }
    aucs = {name: _auc(own) for name, own in tables.items()}
    ranked = sorted(tables, key=lambda name: (-aucs[name].value, name))
    return [
        _standing(name, tables[name], aucs[name], tables.get(COMPARED))
        for name in ranked
    ]


def refusals(trials: Sequence[Trial]) -> dict[str, str]:
    """Entries that asked for more than the budget, and what they asked for first."""
    found: dict[str, str] = {}
    for trial in trials:
        if trial.refused is not None:
            found.setdefault(trial.entry, trial.refused)
    return found


def _standing(
    name: str, own: Sequence[Trial], auc: Share, compared: Sequence[Trial] | None
) -> Standing:
    clean = _scores(own, 0)
    copies = sorted({trial.copies for trial in own})
    planted = [n for n in copies if n]
    found = None
    if FPR * len(clean) >= 1:
        found = {n: _found(_scores(own, n), clean) for n in planted}
    levels = LEVELS if own[0].p_value is not None else ()
    return Standing(
        entry=name,
        auc=auc,
        difference=(
            None if compared is None or own is compared else _difference(own, compared)
        ),
        auc_by_copies={
            n: _auc([trial for trial in own if trial.copies in (0, n)]) for n in planted
        },
        found_by_copies=found,
        power={level: {n: _power(own, n, level) for n in copies} for level in levels},
        passes=float(np.mean([trial.passes for trial in own])),
        seconds=float(np.mean([trial.seconds for trial in own])),
        n_models=len({trial.seed for trial in own}),
    )


def _scores(trials: Sequence[Trial], copies: int) -> np.ndarray:
    return np.array([t.score for t in trials if t.copies == copies], np.float64)


def _sides(
    trials: Sequence[Trial],
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Scores of planted and of clean sets, and the model of each."""
    groups = [[t for t in trials if bool(t.copies) == side] for side in (True, False)]
    scores_P, scores_Q = (np.array([t.score for t in g], np.float64) for g in groups)
    models_P, models_Q = (np.array([t.seed for t in g]) for g in groups)
    return (scores_P, scores_Q), (models_P, models_Q)


def _auc(trials: Sequence[Trial]) -> Share:
    """AUC of planted against clean sets, clustered by model."""
    scores, models = _sides(trials)
    auc, se = auc_delong(*scores, clusters=models)
    low, high = auc_interval(auc, se, n=len(np.unique(models[0])))
    return Share(value=auc, low=low, high=high)


def _difference(own: Sequence[Trial], compared: Sequence[Trial]) -> Share:
    """AUC of the first entry minus that of the second, clustered by model."""
    scores, models = _sides(own)
    others, _ = _sides(compared)
    found = paired_delong(*scores, *others, clusters=models)
    ends = (None, None) if found.se < _NO_SPREAD else (found.low, found.high)
    return Share(value=found.difference, low=ends[0], high=ends[1])


def _found(scores_P: np.ndarray, clean_Q: np.ndarray) -> Share:
    share, _ = tpr_at_fpr(scores_P, clean_Q, FPR)
    low, high = tpr_interval(scores_P, clean_Q, FPR)
    return Share(value=share, low=low, high=high)


def _power(trials: Sequence[Trial], copies: int, level: float) -> Share:
    found = [t.p_value for t in trials if t.copies == copies and t.p_value is not None]
    return Share.counted(int(is_rejected(np.log10(found), level).sum()), len(found))


def grids(
    found: Sequence[Standing], entries: Mapping[str, Entry], *, about: str
) -> list[Grid]:
    """The table, AUC and share found by copies, and what p-values reject.

    `found` has the best first; `about` says models, sets and budget in words.
    """
    tables = [
        Grid.of(
            f"{about}. AUC between planted and clean sets over all models with its "
            f"95 % interval, clustered by model; `minus {COMPARED}` is the difference "
            f"from that of `{COMPARED}`, chosen beforehand, on the same sets: an "
            "interval that holds 0, or none, has not shown that the two differ, and "
            "one in twenty misses by chance. Entries side by side are not compared",
            found,
            {
                "entry": "{r.entry}",
                "family": lambda one: entries[one.entry].family,
                "gives": lambda one: entries[one.entry].gives,
                "needs": lambda one: needs_words(entries[one.entry]),
                "passes": "{r.passes:.1f}",
                "AUC": lambda one: one.auc.words(),
                f"minus {COMPARED}": lambda one: (
                    one.difference.words("+.2f") if one.difference else ""
                ),
            },
        ),
    ]

    def by_copies(title: str, rows: Mapping[str, Mapping[int, Share]]) -> None:
        """A line an entry, a column a duplication count."""
        words = {
            (name, f"{copies}"): share.words()
            for name, shares in rows.items()
            for copies, share in shares.items()
        }
        if words:
            tables.append(Grid.crossed(title, "entry", words))

    by_copies("The same AUC by copies", {one.entry: one.auc_by_copies for one in found})
    by_copies(
        f"Share of planted sets above the score that {FPR:.0%} of the clean sets "
        "exceed, by copies; the interval counts that few clean sets set the threshold, "
        "and takes sets as independent",
        {one.entry: one.found_by_copies or {} for one in found},
    )
    for level in LEVELS:
        by_copies(
            f"Share of sets with p at most {level:g}, by copies; 0 copies are "
            "false alarms; Wilson's 95 % interval, which takes sets as independent "
            "(not clustered, though two clean sets are of each model)",
            {one.entry: one.power[level] for one in found if one.power},
        )
    return tables


def entry_grid(entries: Sequence[Entry]) -> Grid:
    """Description and source of each entry."""
    columns = {"entry": "{r.name}", "what it does": "{r.about}", "source": "{r.source}"}
    return Grid.of("What the entries do", entries, columns)


def needs_words(entry: Entry) -> str:
    """Needs beyond the texts and their log-probabilities."""
    words = [need for need in entry.needs if need != "log-probabilities"]
    if not entry.needs or "log-probabilities" not in entry.needs:
        words.insert(0, "no model")
    return ", ".join(words)
