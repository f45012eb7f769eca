"""Skew of shard differences: is the t-test of Oren et al. safe on real models?

The t-test over shards is exact for normal differences only; left skew makes it find
too much. The difference is that of the published order and the mean of m others. On a
clean set every order may play the published one, which gives ten times the data and,
by drawing one a shard, the t-test's own size.

Dimension key
    K  shards
    M  orders of a shard, M = m + 1
    R  draws of which order of each shard plays the published one
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.open_questions.rows import (
    Answer,
    Question,
    Row,
    cells,
    mean_interval,
    where,
    words,
)
from eval.open_questions.scores import SetScores
from eval.study import Grid
from jaxcontam.methods import stratified

LEVELS = (0.05, 0.01, 0.001)
N_ORDERS = 9
N_DRAWS = 4000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SkewRow(Row):
    """Skew of one set's differences.

    Attributes:
        n_shards: K.
        published: Skew of the K differences of the published order.
        in_turn: Skew of the differences, every order in turn the published one;
            None where the set was planted, so that one order is unlike the others.
        found: Of `N_DRAWS` draws of a published order for each shard, the share that
            the t-test finds at each of `LEVELS`; None likewise.
    """

    n_shards: int
    published: float
    in_turn: float | None
    found: tuple[float, ...] | None


def measure(scores: SetScores) -> list[SkewRow]:
    """One row; nothing where no order scores unlike the others."""
    scores_KM = scores.order_scores(stratified.METHOD, N_ORDERS)
    differences_KM = order_differences(scores_KM)
    if not differences_KM.std() > 0 or not differences_KM[:, 0].std() > 0:
        return []
    clean = scores.subject.copies == 0
    return [
        SkewRow(
            **where(scores),
            n_shards=len(scores_KM),
            published=skewness(differences_KM[:, 0]),
            in_turn=skewness(differences_KM.ravel()) if clean else None,
            found=t_sizes(differences_KM, scores.subject.seed) if clean else None,
        )
    ]


def order_differences(scores_KM: np.ndarray) -> np.ndarray:
    """(K, M): each order's score less the mean of its shard's other orders."""
    _, M = scores_KM.shape
    return (scores_KM - scores_KM.mean(axis=1, keepdims=True)) * (M / (M - 1))


def skewness(values: np.ndarray) -> float:
    """Third central moment over the sd cubed; 0 where nothing differs."""
    away = values - values.mean()
    sd = float(np.sqrt((away**2).mean()))
    return float((away**3).mean()) / sd**3 if sd > 0 else 0.0


def t_sizes(differences_KM: np.ndarray, seed: int) -> tuple[float, ...]:
    """Shares of draws whose one-sided t-test over shards is at or below each level."""
    from scipy import stats

    K, M = differences_KM.shape
    rng = np.random.default_rng([seed, 23])
    drawn_RK = rng.integers(M, size=(N_DRAWS, K))
    d_RK = differences_KM[np.arange(K)[None, :], drawn_RK]
    sd_R = d_RK.std(axis=1, ddof=1)
    t_R = d_RK.mean(axis=1) / np.where(sd_R > 0, sd_R, np.inf) * K**0.5
    p_R = stats.t.sf(t_R, K - 1)
    return tuple(float((p_R <= level).mean()) for level in LEVELS)


def answer(rows: Sequence[SkewRow]) -> Answer:
    """Skew by population and copies; the t-test's size on clean sets."""
    skews, sizes = [], []
    for (population, copies), found in cells(
        rows, lambda row: (row.population, row.copies)
    ).items():
        in_turn = [row.in_turn for row in found if row.in_turn is not None]
        skews.append(
            (
                population,
                str(copies),
                str(len(found)),
                f"{np.mean([row.n_shards for row in found]):.0f}",
                words(mean_interval([row.published for row in found])),
                words(mean_interval(in_turn)) if in_turn else "",
            )
        )
        shares = [row.found for row in found if row.found is not None]
        if shares:
            sizes.append(
                (
                    population,
                    str(len(shares)),
                    skews[-1][3],
                    *(
                        words(mean_interval([one[i] for one in shares]), 4)
                        for i in range(len(LEVELS))
                    ),
                )
            )
    return Answer(
        (
            Grid(
                f"Skew of shard differences at m = {N_ORDERS}: of the published order, "
                "and (clean sets) of every order in turn; 95 % intervals over sets",
                (
                    "population",
                    "copies",
                    "sets",
                    "shards",
                    "published",
                    "every order in turn",
                ),
                tuple(skews),
            ),
            Grid(
                f"Size of the t-test over shards on clean sets: {N_DRAWS:,} draws of a "
                "published order a set, mean share found; 95 % intervals over sets",
                ("population", "sets", "shards", *(f"at {x:g}" for x in LEVELS)),
                tuple(sizes),
            ),
        )
    )


QUESTION = Question("skew", SkewRow, measure, answer)
