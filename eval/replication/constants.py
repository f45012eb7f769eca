"""The local judge's constants, chosen on what people call copies, and its mistakes.

A partition's instances were asked of several models, so all of its completions are one
fold: each is judged by constants that were chosen on the other partitions.

Dimension key
    R  completions that people judged
    T  thresholds of `near_score`
    U  thresholds of BLEURT-20
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from eval.study import Grid
from jaxcontam.replication.control import FALSE_NEAR, fewest_near
from jaxcontam.replication.judges import (
    NEAR,
    NEAR_BLEURT,
    consensus,
    follows_from_first,
    is_copy,
    judge_local,
)
from jaxcontam.replication.recorded import Recorded

_NEAR_T = np.arange(50, 101) / 100
# Recorded scores have two decimals, so that a threshold stands between two of them.
_BLEURT_U = np.arange(695, 900, 10) / 1000
_SAMPLE = 50


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Labelled:
    """Completions of several models with people's judgement, and the local judge's.

    Attributes:
        models: (R,) of which model each is.
        places: (R,) the partition of its instance, as `xsum/test`.
        copies: (R,) bool; people call it a copy.
        counts: (R,) bool; `replicate` counts it: its second piece does not follow from
            its first.
        by_words: (T, R) bool; the judge calls it a copy, without BLEURT.
        eligible: (R,) bool; it would, if the score were high enough.
        bleurt: (R,) scores of BLEURT-20, nan where there is none.
    """

    models: np.ndarray
    places: np.ndarray
    copies: np.ndarray
    counts: np.ndarray
    by_words: np.ndarray
    eligible: np.ndarray
    bleurt: np.ndarray

    def with_bleurt(self, t: int, u: int) -> np.ndarray:
        """(R,) bool; copies by the thresholds of these indices."""
        return self.by_words[t] | (self.eligible & (self.bleurt >= _BLEURT_U[u]))


def labelled(recorded: Sequence[Recorded]) -> Labelled:
    """What people judged of recorded partitions, named MODEL/SET/SPLIT."""
    parts: dict[str, list[np.ndarray]] = {}
    for one in recorded:
        labels = consensus(one.people) if one.people else (None,) * len(one.guided)
        kept = np.array([label is not None for label in labels])
        *model, dataset, split = ("", *one.name.split("/"))[-3:]

        def judged(near: float, one: Recorded = one) -> np.ndarray:
            found = judge_local(one.instances, one.guided, near=near)
            return np.array([is_copy(label) for label in found.labels])

        n = len(kept)
        own = {
            "models": np.full(n, "".join(model), object),
            "places": np.full(n, f"{dataset}/{split}", object),
            "copies": np.array([is_copy(label) for label in labels]),
            "counts": ~np.array([follows_from_first(i) for i in one.instances]),
            "by_words": np.stack([judged(near) for near in _NEAR_T]),
            "eligible": judged(0.0),
            "bleurt": one.scores.get("bleurt", (np.full(n, np.nan),))[0],
        }
        for name, value in own.items():
            parts.setdefault(name, []).append(value[..., kept])
    return Labelled(**{name: np.concatenate(p, axis=-1) for name, p in parts.items()})


def chosen(rows: Labelled, used_R: np.ndarray) -> tuple[int, int]:
    """Indices of the thresholds of fewest mistakes in the rows used that count.

    Mistakes by words alone and with BLEURT are added. Of several thresholds that are
    as good, the middle of the longest run.
    """
    used_R = used_R & rows.counts
    wrong_TU = np.array(
        [
            [
                (rows.by_words[t] != rows.copies)[used_R].sum()
                + (rows.with_bleurt(t, u) != rows.copies)[used_R].sum()
                for u in range(len(_BLEURT_U))
            ]
            for t in range(len(_NEAR_T))
        ]
    )
    best_TU = wrong_TU == wrong_TU.min()
    t = _middle(best_TU.any(axis=1))
    return t, _middle(best_TU[t])


def _middle(is_best: np.ndarray) -> int:
    """Index in the middle of the longest run."""
    found = np.flatnonzero(is_best)
    runs = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    longest = max(runs, key=len)
    return int(longest[len(longest) // 2])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """Judgements that are not people's.

    False ones are of `n_clean` rows that people call no copy, `n_false_counted` of
    those of them that `replicate` counts; `false_high` is the upper end of the exact
    95 % interval of their share.
    """

    judge: str
    model: str
    n_clean: int
    n_false: int
    n_false_counted: int
    false_high: float
    n_copies: int
    n_missed: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Choice:
    """Constants chosen on all rows, those of each fold, and the judge's mistakes."""

    near: float
    near_bleurt: float
    folds: tuple[tuple[float, float], ...]
    mistakes: tuple[Mistakes, ...]


def choice(rows: Labelled) -> Choice:
    """Choose constants on all partitions, and judge each by those of the others."""
    folds = []
    words_R, both_R = (np.zeros(len(rows.copies), bool) for _ in range(2))
    for place in dict.fromkeys(rows.places):
        is_out_R = rows.places == place
        t, u = chosen(rows, ~is_out_R)
        folds.append((float(_NEAR_T[t]), float(_BLEURT_U[u])))
        words_R[is_out_R] = rows.by_words[t][is_out_R]
        both_R[is_out_R] = rows.with_bleurt(t, u)[is_out_R]
    t, u = chosen(rows, np.ones(len(rows.copies), bool))
    judges = {
        "words alone, chosen on all": rows.by_words[t],
        "words alone, on others": words_R,
        "with BLEURT, chosen on all": rows.with_bleurt(t, u),
        "with BLEURT, on others": both_R,
    }
    return Choice(
        near=float(_NEAR_T[t]),
        near_bleurt=float(_BLEURT_U[u]),
        folds=tuple(folds),
        mistakes=tuple(
            one for name, found_R in judges.items() for one in _of(rows, name, found_R)
        ),
    )


def _of(rows: Labelled, judge: str, found_R: np.ndarray) -> Iterator[Mistakes]:
    """Mistakes of each model's completions."""
    from scipy.stats import binomtest

    for model in dict.fromkeys(rows.models):
        own_R = rows.models == model
        clean_R, false_R = own_R & ~rows.copies, own_R & ~rows.copies & found_R
        n_clean, n_false = int(clean_R.sum()), int(false_R.sum())
        high = 1.0
        if n_clean:
            high = binomtest(n_false, n_clean).proportion_ci(method="exact").high
        yield Mistakes(
            judge=judge,
            model=model,
            n_clean=n_clean,
            n_false=n_false,
            n_false_counted=int((false_R & rows.counts).sum()),
            false_high=float(high),
            n_copies=int((own_R & rows.copies).sum()),
            n_missed=int((own_R & rows.copies & ~found_R).sum()),
        )


def constant_grids(found: Choice) -> list[Grid]:
    """Tables of constants, of mistakes, and of what mistakes do to the paper's rule."""
    near, bleurt = zip(*found.folds, strict=True)
    constants = (
        ("near_score", found.near, NEAR, near),
        ("BLEURT-20", found.near_bleurt, NEAR_BLEURT, bleurt),
    )
    worst = max(
        (one for one in found.mistakes if one.judge.endswith("on others")),
        key=lambda one: one.false_high,
    )
    return [
        Grid.of(
            "Constants of the local judge of fewest mistakes, by words alone and with "
            "BLEURT together; chosen without each partition in turn, and on all",
            constants,
            {
                "threshold": "{r[0]}",
                "on all": "{r[1]:g}",
                "the library's": "{r[2]:g}",
                "without a partition": lambda row: _counts(row[3]),
            },
        ),
        Grid.of(
            "Mistakes of the local judge beside people: each completion by constants "
            "chosen on all, or on other partitions",
            found.mistakes,
            {
                "judge": "{r.judge}",
                "model": "{r.model}",
                "false": "{r.n_false} of {r.n_clean}",
                "at most (95 %)": "{r.false_high:.1%}",
                "false, that replicate counts": "{r.n_false_counted}",
                "copies missed": "{r.n_missed} of {r.n_copies}",
            },
        ),
        Grid.of(
            "Share of partitions without a copy in which mistakes alone reach a number "
            f"of near-exact ones; the library's rule needs {fewest_near(_SAMPLE)} of "
            f"{_SAMPLE}, by a share of {FALSE_NEAR:g}",
            [
                (FALSE_NEAR, "of the library"),
                (worst.false_high, f"the worst above, {worst.model or 'all'}"),
            ],
            {
                "false at most": "{r[0]:.3g}, {r[1]}",
                "2 of 10": _reached(2, 10),
                **{
                    f"{k} of {_SAMPLE}": _reached(k, _SAMPLE)
                    for k in (2, 5, fewest_near(_SAMPLE))
                },
            },
        ),
    ]


def _counts(values: Sequence[float]) -> str:
    """Each value and how often it was chosen, the most frequent first."""
    found = Counter(values).most_common()
    return ", ".join(f"{value:g} ({n} x)" for value, n in found)


def _reached(k: int, n: int) -> Callable[[tuple[float, str]], str]:
    from scipy.stats import binom

    return lambda row: f"{binom.sf(k - 1, n, row[0]):.3f}"
