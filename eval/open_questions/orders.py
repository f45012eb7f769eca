"""Whole orders: skew of shard differences, and context against length of examples.

Skew: the t-test of Oren et al. over shards is exact for normal differences only; left
skew makes it find too much. The difference is that of the published order and the mean
of m others. On a clean set every order may play the published one, which gives ten
times the data and, by drawing one a shard, the t-test's own size.

Context: sets of one number of tokens in 10, 20 or 40 tokens per example, models whose
rows are 64, 128 or 256 tokens long. A model may be audited in shorter strata than it
was trained on, so a model of 256 is also tested as if it read 64 or 128.

Dimension key
    K  shards
    M  orders of a shard, M = m + 1
    R  draws of which order of each shard plays the published one
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.intervals import mean_interval, plus_minus
from eval.open_questions.scores import Answer, Question, Row, SetScores, cells, where
from eval.study import Grid
from jaxcontam.methods import adjacency, stratified

LEVELS = (0.05, 0.01, 0.001)
N_ORDERS = 9
N_DRAWS = 4000
CONTEXTS = (64, 128, 256)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SkewRow(Row):
    """Skew of one set's differences.

    Attributes:
        n_shards: K.
        published: Skew of the K differences of the published order.
        in_turn: Skew of the differences, every order in turn the published one;
            None where the set was planted, so that one order is unlike the others.
        found: Share of `N_DRAWS` draws of a published order for each shard that the
            t-test finds at each of `LEVELS`; None likewise.
    """

    n_shards: int
    published: float
    in_turn: float | None
    found: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow(Row):
    """One test of one set.

    Attributes:
        test: `adjacency` or `stratified`.
        trained: Tokens of a training row.
        read: Tokens that the test let the model read at once.
        tokens: Mean ids of an example.
        stratum: Mean examples of a stratum.
        z: Effect over its standard error.
        log10_p: log10 p of the exact p-value.
    """

    test: str
    trained: int
    read: int
    tokens: float
    stratum: float
    z: float
    log10_p: float


def skew_of(scores: SetScores) -> list[SkewRow]:
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


def skew_answer(rows: Sequence[SkewRow]) -> Answer:
    """Skew by population and copies; the t-test's size on clean sets."""
    skews, sizes = [], []
    for (population, copies), found in cells(
        rows, lambda row: (row.population, row.copies)
    ).items():
        in_turn = [row.in_turn for row in found if row.in_turn is not None]
        n_shards = f"{np.mean([row.n_shards for row in found]):.0f}"
        skews.append(
            (
                *(population, str(copies), str(len(found)), n_shards),
                plus_minus(mean_interval([row.published for row in found])),
                plus_minus(mean_interval(in_turn)) if in_turn else "",
            )
        )
        shares = [row.found for row in found if row.found is not None]
        if shares:
            means = map(mean_interval, zip(*shares, strict=True))
            words = (plus_minus(mean, 4) for mean in means)
            sizes.append((population, str(len(shares)), n_shards, *words))
    return Answer(
        (
            Grid(
                f"Skew of shard differences at m = {N_ORDERS}: of the published order, "
                "and (clean sets) of every order in turn; 95 % intervals over sets",
                (
                    *("population", "copies", "sets", "shards"),
                    *("published", "every order in turn"),
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


def context_of(scores: SetScores) -> list[ContextRow]:
    """`stratified` at each context that the model has, `adjacency` once."""
    from jaxcontam.stats.pair_test import adjacency_test

    subject = scores.subject
    n = len(subject.benchmark)
    pairs = scores.pairs(adjacency.METHOD.size)
    numbers = adjacency_test(
        pairs.strata(),
        seed=subject.seed,
        content_digest=subject.benchmark.content_digest,
    )
    found = [("adjacency", subject.context, n / pairs.layout.n_strata, numbers)]
    for read in CONTEXTS:
        if read <= subject.context:
            orders = scores.orders(stratified.METHOD, None, context=read)
            found.append(("stratified", read, n / orders.n_strata, orders.numbers))
    return [
        ContextRow(
            **where(scores),
            test=test,
            trained=subject.context,
            read=read,
            tokens=subject.n_ids / n,
            stratum=stratum,
            z=one.effect / one.effect_se if one.effect and one.effect_se else 0.0,
            log10_p=one.log10_p,
        )
        for test, read, stratum, one in found
    ]


def context_answer(rows: Sequence[ContextRow]) -> Answer:
    """Mean z by test, context, length and copies."""
    copies = sorted({row.copies for row in rows})
    lines = []
    for (test, tokens, trained, read), found in cells(
        # Populations of one length differ a little in their mean, and their name ends
        # in the length that examples are cut to.
        rows,
        lambda row: (
            *(row.test, int(row.population.rpartition("x")[2])),
            *(row.trained, row.read),
        ),
    ).items():
        by_copies = cells(found, lambda row: row.copies)
        z = {
            n: plus_minus(mean_interval([row.z for row in group]), 1)
            for n, group in by_copies.items()
        }
        lines.append(
            (
                *(test, f"{tokens}", str(trained), str(read)),
                f"{np.mean([row.stratum for row in found]):.1f}",
                str(max(len(group) for group in by_copies.values())),
                *(z.get(n, "") for n in copies),
            )
        )
    title = (
        "z (effect over its standard error) at equal tokens; 95 % intervals over models"
    )
    header = (
        *("test", "tokens an example", "trained on", "read", "stratum", "models"),
        *(f"{n} copies" for n in copies),
    )
    return Answer((Grid(title, header, tuple(lines)),))


QUESTIONS = (
    Question("skew", SkewRow, skew_of, skew_answer),
    Question("context", ContextRow, context_of, context_answer),
)
