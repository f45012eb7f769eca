"""Pair matrices: their symmetry, how far lags reach, which tokens carry the memory.

Symmetry: does i after j say what j after i says? rho is the correlation of [i, j] with
[j, i] after double centring. Near 1, chance likeness cancels between an order and its
reverse, and two passes would do: a test of directions has z over that of all orders of
1 / sqrt(2 (1 - rho)). Near 0 it has 0.71.

Lags: entry h of a profile is the mean centred pair entry [i, i + h] in standard
deviations of all entries. Centring a spike at +1 alone leaves negative entries
elsewhere, so a second profile subtracts what such a spike of the same effect leaves.

Places: pair matrices are made of the first k tokens of each example, and of its k-th
token alone; places are counted after the tokens that all examples share. The effect is
in nats per boundary, z is the effect over its sd among all orders.

Dimension key
    Q  choices of tokens
    K  strata
    S  examples of the largest stratum
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from eval.curves import Curve, curves_svg
from eval.intervals import Share, mean_interval, plus_minus, ratio_interval
from eval.open_questions.scores import Answer, Question, Row, SetScores, cells, where
from eval.study import Grid
from jaxcontam.methods import adjacency
from jaxcontam.scoring.pair_plan import ALL_TOKENS
from jaxcontam.stats.adjacency import (
    LAGS,
    boundaries_matrix,
    lag_profile,
    path_moments,
    symmetry,
)
from jaxcontam.stats.pair_normal import adjacency_normal_test
from jaxcontam.stats.pair_statistic import PairStrata

# An sd of so few nats is what centring leaves of a matrix that equals its transpose.
_ROUNDING = 1e-9
N_PLACES = 24
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Places and numbers of first tokens that tables show."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SymmetryRow(Row):
    """Symmetry of one set's pair matrices.

    Attributes:
        tokens: Mean ids of an example.
        rho: Correlation of [i, j] with [j, i].
        z_all: Path statistic over its sd among all orders.
        z_directions: The same of the matrix less its transpose.
    """

    tokens: float
    rho: float
    z_all: float
    z_directions: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LagRow(Row):
    """Lag profile of one set.

    Attributes:
        profile: For each of `LAGS`, sd of the entries.
        beyond: The same of what a spike at +1 of the same effect does not explain.
    """

    profile: tuple[float, ...]
    beyond: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow(Row):
    """Effects of one set by place; a number for each of the first `N_PLACES` tokens.

    Attributes:
        alone_effect: Effect of each token alone, nats per boundary.
        alone_z: Likewise, over its sd.
        first_effect: Effect of the first 1, 2, ... tokens together.
        first_z: Likewise.
        reached: Share of examples that have so many tokens.
        all_effect: Effect of all tokens.
        all_z: Likewise.
    """

    alone_effect: tuple[float, ...]
    alone_z: tuple[float, ...]
    first_effect: tuple[float, ...]
    first_z: tuple[float, ...]
    reached: tuple[float, ...]
    all_effect: float
    all_z: float


def symmetry_of(scores: SetScores) -> list[SymmetryRow]:
    """One row; nothing where all pairs score alike."""
    centred = scores.pairs(adjacency.METHOD.size).strata().centred(0)
    rho = symmetry(centred)
    if rho is None:
        return []
    return [
        SymmetryRow(
            **where(scores),
            tokens=scores.subject.n_ids / len(scores.subject.benchmark),
            rho=rho,
            z_all=path_z(centred),
            z_directions=path_z([pairs_SS - pairs_SS.T for pairs_SS in centred]),
        )
    ]


def path_z(matrices: Sequence[np.ndarray]) -> float:
    """Sum over published neighbours, less its mean over all orders, over its sd.

    0 where all orders score alike.
    """
    moments = [path_moments(pairs_SS) for pairs_SS in matrices]
    sd = math.sqrt(sum(variance for _, variance in moments))
    total = sum(float(np.trace(pairs_SS, 1)) for pairs_SS in matrices)
    gain = total - sum(mean for mean, _ in moments)
    return gain / sd if sd > _ROUNDING else 0.0


def symmetry_answer(rows: Sequence[SymmetryRow]) -> Answer:
    """Symmetry by population and copies, and what it promises of directions."""
    lines = []
    for (population, copies), found in cells(
        rows, lambda row: (row.population, row.copies)
    ).items():
        rho = mean_interval([row.rho for row in found])
        z_all = [row.z_all for row in found]
        z_directions = [row.z_directions for row in found]
        promised = 1 / math.sqrt(2 * (1 - rho[0])) if rho[0] < 1 else math.inf
        lines.append(
            (
                population,
                str(copies),
                str(len(found)),
                str(len({row.seed for row in found})),
                f"{np.mean([row.tokens for row in found]):.0f}",
                plus_minus(rho, 3),
                f"{min(r.rho for r in found):.2f} to {max(r.rho for r in found):.2f}",
                plus_minus(mean_interval(z_all)),
                plus_minus(mean_interval(z_directions)),
                plus_minus(ratio_interval(z_directions, z_all)),
                f"{promised:.2f}",
            )
        )
    title = (
        "Symmetry rho of double-centred pair matrices (strata of 8); z of all "
        "orders, z of directions alone, their ratio and 1 / sqrt(2 (1 - rho)); "
        "95 % intervals over sets; sets of one model share its weights, so "
        "that of fewer models than sets they say nothing of other models"
    )
    header = (
        *("population", "copies", "sets", "models", "tokens", "rho", "range"),
        *("z all", "z directions", "ratio", "by rho"),
    )
    return Answer((Grid(title, header, tuple(lines)),))


def lags_of(scores: SetScores) -> list[LagRow]:
    """One row; nothing where all pairs score alike or strata are short."""
    centred = scores.pairs(adjacency.METHOD.size).strata().centred(0)
    spikes = [boundaries_matrix(len(pairs_SS)) for pairs_SS in centred]
    gained = sum(float(spike.trace(1)) for spike in spikes)
    effect = sum(float(pairs_SS.trace(1)) for pairs_SS in centred) / gained
    squares = sum(float((pairs_SS**2).sum()) for pairs_SS in centred)
    spike_squares = sum(float((spike**2).sum()) for spike in spikes)
    # `lag_profile` divides by the sd of what it is given; both are put in the sd of
    # the pairs.
    scale = effect * (spike_squares / squares) ** 0.5 if squares > 0 else 0.0
    values, beyond = [], []
    for own, spike in zip(lag_profile(centred), lag_profile(spikes), strict=True):
        if own is None or spike is None:
            return []
        values.append(own)
        beyond.append(own - scale * spike)
    return [LagRow(**where(scores), profile=tuple(values), beyond=tuple(beyond))]


def lags_answer(rows: Sequence[LagRow]) -> Answer:
    """Mean profiles by population and copies, and a figure a population."""
    grids, figures = [], {}
    header = ("copies", "sets", *(f"{lag:+d}" for lag in LAGS))
    for population, found in cells(rows, lambda row: row.population).items():
        by_copies = cells(found, lambda row: row.copies)
        for field, title in (
            (
                "profile",
                "mean pair entry at each lag, sd of entries; 95 % intervals over sets",
            ),
            ("beyond", "the same beyond a spike at +1 alone"),
        ):
            lines = tuple(
                (str(copies), str(len(group)), *map(plus_minus, _means(group, field)))
                for copies, group in by_copies.items()
            )
            grids.append(Grid(f"{population}: {title}", header, lines))
        figures[f"lags-{population}"] = curves_svg(
            [
                _curve(copies, LAGS, _means(group, "profile"))
                for copies, group in by_copies.items()
            ],
            x_label="place after the example",
            y_label="mean pair entry, sd",
            x_ticks=LAGS,
            level=0.0,
        )
    return Answer(tuple(grids), figures)


def places_of(scores: SetScores) -> list[PlaceRow]:
    """One row."""
    pairs = scores.pairs(adjacency.METHOD.size)
    strata = pairs.strata(*range(N_PLACES + 1), ALL_TOKENS)
    upto_QKSS = strata.pairs[:-1]
    alone = [_effect(strata, own) for own in np.diff(upto_QKSS, axis=0)]
    first = [_effect(strata, own) for own in upto_QKSS[1:]]
    whole = _effect(strata, strata.pairs[-1])
    lengths = scores.subject.encoded.lengths - pairs.layout.plan.n_shared
    return [
        PlaceRow(
            **where(scores),
            alone_effect=tuple(effect for effect, _ in alone),
            alone_z=tuple(z for _, z in alone),
            first_effect=tuple(effect for effect, _ in first),
            first_z=tuple(z for _, z in first),
            reached=tuple(float((lengths >= k + 1).mean()) for k in range(N_PLACES)),
            all_effect=whole[0],
            all_z=whole[1],
        )
    ]


def _effect(strata: PairStrata, pairs_KSS: np.ndarray) -> tuple[float, float]:
    """Effect and z of one choice of tokens, by closed-form moments."""
    one = dataclasses.replace(
        strata, pairs=pairs_KSS[None], first_tokens=np.array([ALL_TOKENS])
    )
    numbers = adjacency_normal_test(one, seed=0, content_digest="")
    return numbers.effect or 0.0, numbers.statistic


def places_answer(rows: Sequence[PlaceRow]) -> Answer:
    """Effect and z by place, a figure a population."""
    grids, figures = [], {}
    header = ("copies", "sets", *map(str, SHOWN))
    for population, found in cells(rows, lambda row: row.population).items():
        curves, alone_lines, first_lines = [], [], []
        for copies, group in cells(found, lambda row: row.copies).items():
            alone, first = _means(group, "alone_effect"), _means(group, "first_z")
            head = (str(copies), str(len(group)))
            alone_lines.append((*head, *(plus_minus(alone[k - 1], 3) for k in SHOWN)))
            whole = mean_interval([row.all_z for row in group])
            shown = [*(first[k - 1] for k in SHOWN), whole]
            first_lines.append((*head, *map(plus_minus, shown)))
            curves.append(_curve(copies, range(1, N_PLACES + 1), alone))
        reached = tuple(
            f"{np.mean([row.reached[k - 1] for row in found]):.0%}" for k in SHOWN
        )
        grids += [
            Grid(
                f"{population}: effect of the k-th token alone, nats a boundary; 95 % "
                "intervals over sets",
                header,
                (*alone_lines, ("have it", "", *reached)),
            ),
            Grid(
                f"{population}: z of the first k tokens together",
                (*header, "all"),
                tuple(first_lines),
            ),
        ]
        figures[f"places-{population}"] = curves_svg(
            curves,
            x_label="token of the example",
            y_label="effect of this token alone,\nnats a boundary",
            level=0.0,
        )
    return Answer(tuple(grids), figures)


def _means(rows: Sequence[Row], field: str) -> list[tuple[float, float, float]]:
    """Mean over sets, with its interval, of each number of a field."""
    values = [getattr(row, field) for row in rows]
    return [mean_interval(column) for column in zip(*values, strict=True)]


def _curve(
    copies: int, x: Sequence[int], means: Sequence[tuple[float, float, float]]
) -> Curve:
    shares = [Share(value=mean, low=low, high=high) for mean, low, high in means]
    return Curve.of_shares(f"{copies} copies", dict(zip(x, shares, strict=True)))


QUESTIONS = (
    Question("symmetry", SymmetryRow, symmetry_of, symmetry_answer),
    Question("lags", LagRow, lags_of, lags_answer),
    Question("places", PlaceRow, places_of, places_answer),
)
