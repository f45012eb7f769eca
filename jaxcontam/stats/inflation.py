"""Points that a score gains by having been seen: gaps, and a curve of references.

Dimension key
    M  models, the one in question first, then R references
    N  published items, or items of a side
    P  items that cannot have been seen; where they are rewrites P = N, in pairs
    S  sides, one or two
    C  groups of all sides
    K  points of a curve, ascending
    D  resamples
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

LEVEL = 0.95
"""Level of every interval here; a one-sided test at its ends has half of the rest."""
POWER = 0.8
"""Chance of finding the smallest detectable gap."""
FEWEST = 5
"""References that a curve needs, as the authors' code does."""
N_RESAMPLES = 1000
# Points that stand closer are one.
_SAME = 1e-9
# Below it quantiles exceed every score and soon every float.
_LEAST_DF = 0.5
# A variance below it is what rounding leaves of scores that agree.
_NO_VARIANCE = 1e-20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GapEstimate:
    """A mean gap between published items and others.

    Attributes:
        estimate: Over published items less that over others, less the references'.
        p_value: One-sided; below 0.025 where `low` is above 0.
        rests_on: `models` where the gaps of references leave the interval wider.
        mde: Smallest gap that `low` would lie above 0 for with a chance of 0.8.
        outside: The score on other items lies beyond all references', not by chance.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    spread: float | None
    rests_on: Literal["items", "models"]
    mde: float
    outside: bool


def gap_estimate(
    published_MN: np.ndarray,
    other_MP: np.ndarray,
    *,
    paired: bool,
    groups: Sequence[np.ndarray] | None = None,
) -> GapEstimate:
    """Estimate by how much one model's scores on published items exceed the others'.

    Without references it is the model's own gap, which is inflation only if the other
    items are as hard as the published ones. With references it is a difference in
    differences: their mean gap is what the other items are harder by.

    The interval is for the population that items, or groups of them, were drawn from
    independently. It assumes that the model's gap differs from those of the references
    as these do from each other: relatives of each other and not of the model differ too
    little. With one reference, models are taken to have one gap; from two on the
    interval is the wider one of that of items and that of one more draw from a normal
    distribution of gaps, which is narrow from five references on.

    Two imagined items that point both ways keep the interval from closing where all
    items agree: for two sets and no reference Agresti and Caffo's, for pairs Agresti
    and Min's with two whole pairs in place of two halves, each with a t quantile in
    place of a normal one. Enumerated for right and wrong answers and no reference, at
    sizes from 2 to 40, it covers at least 92.9 % (pairs) and 92.5 % (two sets), and
    `low` lies above 0 for at most 3.6 % of models without a gap. For scores between
    right and wrong, which may be skewed, they stand twice as far (their squares), and
    each end is the outer one of the t interval's and of Hall's.

    Args:
        published_MN: Scores in [0, 1].
        other_MP: Likewise.
        paired: Item j of one is the rewrite of item j of the other.
        groups: Codes from 0 of items that are drawn together, such as those of one
            passage: (N,) of pairs, or (N,) and (P,), where equal codes are one group.

    Raises:
        ValueError: If a score is outside [0, 1] or not finite, a side has fewer than
            two items or groups, models differ, or pairs have no partner.

    Source:
        Agresti and Min 2005 (paired); Agresti and Caffo 2000 (unpaired), with
        Satterthwaite's degrees of freedom. Groups and skewness: `grouped_mean`.
    """
    from scipy import stats

    published_MN, other_MP = _checked(published_MN, other_MP, paired=paired)
    N, P = published_MN.shape[1], other_MP.shape[1]
    if groups is None:
        groups = [np.arange(N)] if paired else [np.arange(N), np.arange(N, N + P)]
    n_references = len(published_MN) - 1
    weights_M = np.full(1 + n_references, -1 / max(n_references, 1))
    weights_M[0] = 1.0
    is_graded = any(
        ((side > 0) & (side < 1)).any() for side in (published_MN, other_MP)
    )
    # What is averaged: differences of pairs, or each side by itself.
    sides = [published_MN - other_MP] if paired else [published_MN, other_MP]
    # Of a pair one each way, of a score one at each end; those of references are as
    # independent as their items.
    square = (2.0 if paired else 0.5) * (1 + sum(weights_M[1:] ** 2))
    found = grouped_mean(
        [weights_M @ side_MN for side_MN in sides],
        groups,
        middle=0.5 if not paired and not n_references else 0.0,
        square=square * (1 + is_graded),
    )
    below, above = found.reaches(skewed=is_graded)
    gaps_M = published_MN.mean(axis=1) - other_MP.mean(axis=1)
    down, up = below * found.se, above * found.se
    p_value = found.p_above(skewed=is_graded)
    more = float(stats.norm.ppf(POWER)) * found.se
    spread, rests_on = None, "items"
    if n_references > 1:
        spread = float(gaps_M[1:].std(ddof=1))
        between = spread * math.sqrt(1 + 1 / n_references)
        wide = float(stats.t.ppf((1 + LEVEL) / 2, n_references - 1)) * between
        up = max(up, wide)
        if wide > down:
            down, rests_on = wide, "models"
            p_value = float(stats.t.sf(found.mean / between, n_references - 1))
            more = float(stats.norm.ppf(POWER)) * between
    return GapEstimate(
        estimate=float(weights_M @ gaps_M),
        # No score gains or loses more than all.
        low=max(-1.0, found.mean - down),
        high=min(1.0, found.mean + up),
        p_value=p_value,
        spread=spread,
        rests_on=rests_on,
        mde=down + more,
        outside=n_references > 0 and _is_outside(other_MP, groups[-1]),
    )


def _is_outside(other_MP: np.ndarray, groups_P: np.ndarray) -> bool:
    """True if the first model lies beyond all others, and apart from the nearest."""
    apart_R = other_MP[0].mean() - other_MP[1:].mean(axis=1)
    if apart_R.min() <= 0 <= apart_R.max():
        return False
    nearest = 1 + int(np.argmin(np.abs(apart_R)))
    found = grouped_mean(
        [other_MP[0] - other_MP[nearest]], [groups_P], middle=0.0, square=2.0
    )
    reach, _ = found.reaches(skewed=False)
    return abs(found.mean) > reach * found.se


def _checked(
    published_MN: np.ndarray, other_MP: np.ndarray, *, paired: bool
) -> tuple[np.ndarray, np.ndarray]:
    published_MN = np.asarray(published_MN, np.float64)
    other_MP = np.asarray(other_MP, np.float64)
    if published_MN.ndim != 2 or other_MP.ndim != 2:
        raise ValueError(
            "scores must be tables of models and items, got shapes "
            f"{published_MN.shape} {other_MP.shape}"
        )
    (M, N), (others, P) = published_MN.shape, other_MP.shape
    if others != M or M < 1 or (paired and N != P):
        raise ValueError(
            f"both tables must hold the same models, and pairs, got {(M, N)} "
            f"{(others, P)}"
        )
    if min(N, P) < 2:
        raise ValueError(f"each side must have at least 2 items, got {N} and {P}")
    for side in (published_MN, other_MP):
        if not ((side >= 0) & (side <= 1)).all():
            raise ValueError("scores must be finite and in [0, 1]")
    return published_MN, other_MP


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConStatEstimate:
    """A score on published items less the one that a curve of references predicts.

    The one-sided p-value is at least 1 / (1 + resamples). `outside`: the score on other
    items lies beyond the references', where the curve is a straight line.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    outside: bool


def constat(
    published_MN: np.ndarray,
    other_MP: np.ndarray,
    *,
    paired: bool,
    chance: float | None,
    groups: Sequence[np.ndarray] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> ConStatEstimate:
    """Compare a model's accuracy with a curve through those of references.

    A smoothing spline, fitted to the references, maps accuracy on other items to
    accuracy on published ones; what the model has above it is the estimate. Other items
    may so be harder by more for weak models than for strong ones. Items (or groups) and
    references are bootstrapped. The p-value has no guarantee in finite samples.

    `paired` draws items j of both together. `chance` is the accuracy of guessing, a
    point of the curve with its binomial noise; None where it is not known. For groups
    see `gap_estimate`.

    Raises:
        ValueError: If there are fewer than five references, or all have one accuracy on
            the other items.

    Source:
        Dekoninck et al., "ConStat", arXiv:2405.16281, with these departures from the
        authors' code: a reference keeps its two accuracies together (theirs sorts both
        lists by themselves); pairs are drawn together; the interval and the p-value
        are the basic bootstrap's about the estimate itself, and p is never 0; the
        smoothness is chosen on a grid; beyond the references the curve goes on
        straight (theirs is drawn towards (0, 0) and (1, 1)).
    """
    M, N = published_MN.shape
    P = other_MP.shape[1]
    if M - 1 < FEWEST:
        raise ValueError(f"references must be at least {FEWEST}, got {M - 1}")
    rng = np.random.default_rng([seed, 17])
    x_M, y_M = other_MP.mean(axis=1), published_MN.mean(axis=1)
    guess = [] if chance is None else [(chance, chance)]
    own = _excess(x_M, y_M, np.arange(1, M), guess)
    codes_N, codes_P = (
        (groups[0], groups[-1]) if groups else (np.arange(N), np.arange(P))
    )
    published_MC, other_MC = _sums(published_MN, codes_N), _sums(other_MP, codes_P)
    if own is None:
        raise ValueError("references must have different scores on the other items")
    drawn: list[float] = []
    # Draws in which all references score alike have no curve.
    for _ in range(10 * n_resamples):
        if len(drawn) == n_resamples:
            break
        drawn_C = rng.integers(published_MC.shape[1], size=published_MC.shape[1])
        other_C = drawn_C
        if not paired:
            other_C = rng.integers(other_MC.shape[1], size=other_MC.shape[1])
        noisy = [
            [g + rng.normal(0, np.sqrt(g * (1 - g) / n)) for n in (P, N)]
            for g, _ in guess
        ]
        found = _excess(
            _mean_of(other_MC[:, other_C]),
            _mean_of(published_MC[:, drawn_C]),
            _references(M - 1, rng),
            noisy,
        )
        if found is not None:
            drawn.append(found)
    if not drawn:
        raise ValueError("references must have different scores on the other items")
    about_D = 2 * own - np.array(drawn)
    low, high = np.quantile(about_D, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConStatEstimate(
        estimate=own,
        low=float(low),
        high=float(high),
        p_value=(1 + int(np.count_nonzero(about_D <= 0))) / (1 + len(drawn)),
        outside=not x_M[1:].min() <= x_M[0] <= x_M[1:].max(),
    )


def _sums(scores_MN: np.ndarray, codes_N: np.ndarray) -> np.ndarray:
    """(1 + M, C): items of each group, and its sum of each model's scores."""
    _, codes_N = np.unique(codes_N, return_inverse=True)
    rows = [np.ones(len(codes_N)), *scores_MN]
    return np.stack([np.bincount(codes_N, row) for row in rows])


def _mean_of(sums_MC: np.ndarray) -> np.ndarray:
    size, *totals = sums_MC.sum(axis=1)
    return np.array(totals) / size


def smoothing_spline(
    x_K: np.ndarray, y_K: np.ndarray, penalty: float | None = None
) -> np.ndarray:
    """Natural cubic spline that trades distance to points against curvature.

    A penalty of None is chosen by generalised cross-validation. Gives the heights at
    the points, which ascend and are at least three.

    Source:
        Green and Silverman 1994, "Nonparametric Regression and Generalized Linear
        Models", sections 2.3 and 3.2.
    """
    K = len(x_K)
    step = np.diff(x_K)
    # Heights -> by how much the slope changes at each point inside.
    bends = np.diff(np.diff(np.eye(K), axis=0) / step[:, None], axis=0)
    beside = np.diag(step[1:-1] / 6, 1)
    within = np.diag((step[:-1] + step[1:]) / 3) + beside + beside.T
    values_K, vectors = np.linalg.eigh(bends.T @ np.linalg.solve(within, bends))
    # Straight lines cost nothing; what rounding leaves of that is no curvature.
    values_K[:2] = 0.0
    along_K = vectors.T @ y_K
    if penalty is None:
        # As far up as the authors' search goes.
        grid = np.geomspace(1e-8, K, 60)
        left_GK = grid[:, None] * values_K / (1 + grid[:, None] * values_K)
        error_G = ((left_GK * along_K) ** 2).sum(axis=1) / left_GK.sum(axis=1) ** 2
        penalty = float(grid[np.argmin(error_G)])
    return vectors @ (along_K / (1 + penalty * values_K))


def spline_at(x: float, x_K: np.ndarray, fitted_K: np.ndarray) -> float:
    """Height of a natural cubic spline, which goes on straight beyond its ends."""
    from scipy.interpolate import CubicSpline

    curve = CubicSpline(x_K, fitted_K, bc_type="natural")
    inside = min(max(x, x_K[0]), x_K[-1])
    return float(curve(inside) + curve(inside, 1) * (x - inside))


def _excess(
    x_M: np.ndarray,
    y_M: np.ndarray,
    references_R: np.ndarray,
    more: Sequence[Sequence[float]],
) -> float | None:
    """Height of the first model above the curve; None where there is no curve."""
    x_K, y_K = x_M[references_R], y_M[references_R]
    for at, height in more:
        x_K, y_K = np.append(x_K, at), np.append(y_K, height)
    order = np.argsort(x_K, kind="stable")
    x_K, y_K = x_K[order], y_K[order]
    starts = np.flatnonzero(np.diff(x_K, prepend=-np.inf) > _SAME)
    counts = np.diff(np.append(starts, len(x_K)))
    x_K, y_K = x_K[starts], np.add.reduceat(y_K, starts) / counts
    if len(x_K) < 3:
        return None
    predicted = spline_at(float(x_M[0]), x_K, smoothing_spline(x_K, y_K))
    return float(y_M[0] - min(max(predicted, 0.0), 1.0))


def _references(R: int, rng: np.random.Generator) -> np.ndarray:
    """References drawn again, five or more different ones; of five all."""
    while R > FEWEST:
        drawn = rng.integers(R, size=R)
        if len(np.unique(drawn)) >= FEWEST:
            return 1 + drawn
    return np.arange(1, R + 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMean:
    """A mean of grouped items, and how it varies with the groups that are drawn.

    Attributes:
        mean: With two imagined items a side; second side taken off the first.
        skewness: Third central moment of the mean in units of `se` cubed.
    """

    mean: float
    se: float
    skewness: float
    df: float

    def reaches(self, *, skewed: bool) -> tuple[float, float]:
        """Standard errors that the two-sided interval reaches below and above the mean.

        With `skewed` each end is the outer one of the t interval's and of Hall's.
        """
        from scipy import stats

        quantile = float(stats.t.ppf((1 + LEVEL) / 2, self.df))
        if not skewed:
            return quantile, quantile
        return (
            max(quantile, self._without_skewness_inverse(quantile)),
            max(quantile, -self._without_skewness_inverse(-quantile)),
        )

    def p_above(self, *, skewed: bool) -> float:
        """One-sided p-value of a mean of at most 0; see `reaches`."""
        from scipy import stats

        t = self.mean / self.se
        if skewed:
            # Hall's monotone cubic takes the first-order effect of skewness out.
            g = self.skewness
            t = min(t, t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6)
        return float(stats.t.sf(t, self.df))

    def _without_skewness_inverse(self, x: float) -> float:
        g = self.skewness
        if abs(g) < 1e-9:
            return x
        return 3 / g * float(np.cbrt(1 + g * (x - g / 6)) - 1)


def grouped_mean(
    sides: Sequence[np.ndarray],
    groups: Sequence[np.ndarray],
    *,
    middle: float,
    square: float,
) -> GroupedMean:
    """Mean of one side, or of the first less that of the second, from sums of groups.

    Groups are what is drawn: the variance is that of their sums around the mean (CR2,
    which divides by 1 less a group's share of the items), and never less than if each
    item were drawn by itself. Equal codes from 0 mean the same group on both sides.

    Two imagined items a side keep the error from 0 where all items agree. They weigh as
    much as if there were only as many items as, drawn one by one, would give that
    variance. `middle` is their mean, `square` the sum of their squared distances to it.

    Source:
        Bell and McCaffrey 2002 (CR2). Hall 1992, "On the removal of skewness by
        transformation". Degrees of freedom: the effective number of groups of Carter,
        Schnepel and Steigerwald 2017 for items that agree within groups, less one; of
        two sides Satterthwaite's, or the smaller where a group stands on both.
    """
    signs = (1, -1)[: len(sides)]
    C = 1 + max(int(codes.max()) for codes in groups)
    sizes_SC = np.stack([np.bincount(codes, minlength=C) for codes in groups])
    n_S = sizes_SC.sum(axis=1)
    if ((sizes_SC > 0).sum(axis=1) < 2).any():
        raise ValueError("each side must have at least 2 groups")
    means_S = np.array([side.mean() for side in sides])
    spreads_S = np.array([side.var() for side in sides])
    # By how much each group moves the mean.
    moves_SC = np.stack(
        [
            sign * np.bincount(codes, side - side.mean(), minlength=C)
            for sign, side, codes in zip(signs, sides, groups, strict=True)
        ]
    ) / (n_S[:, None] * np.sqrt(1 - sizes_SC / n_S[:, None]))
    by_items = float((spreads_S / (n_S - 1)).sum())
    by_groups = float((moves_SC.sum(axis=0) ** 2).sum())
    design = float(((sizes_SC**2).sum(axis=1) / n_S).max())
    if by_items > _NO_VARIANCE:
        design = max(1.0, by_groups / by_items)
    worth_S = 1 + (n_S - 1) / design
    more_S = worth_S + 2
    shifts_S = (means_S - middle) * worth_S / more_S
    around_S = spreads_S + (means_S - middle) ** 2
    variances_S = ((worth_S * around_S + square) / more_S - shifts_S**2) / more_S
    variance = float(variances_S.sum())
    third = float(((moves_SC * (worth_S / more_S)[:, None]).sum(axis=0) ** 3).sum())
    for sign, shift, more in zip(signs, shifts_S, more_S, strict=True):
        for imagined in (-math.sqrt(square / 2), math.sqrt(square / 2)):
            third += sign * float((imagined - shift) / more) ** 3
    sizes_SC = sizes_SC.astype(np.float64)
    df_S = (sizes_SC**2).sum(axis=1) ** 2 / (sizes_SC**4).sum(axis=1) - 1
    df = float(variance**2 / (variances_S**2 / df_S).sum())
    if len(sides) > 1 and (sizes_SC > 0).all(axis=0).any():
        df = float(df_S.min())
    return GroupedMean(
        mean=float(np.dot(signs, middle + shifts_S)),
        se=math.sqrt(variance),
        skewness=third / variance**1.5,
        df=max(df, _LEAST_DF),
    )
