"""The mean of items that come in groups, or the difference of two such means.

Dimension key
    S  sides, one or two
    N  items of a side
    C  groups of all sides
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

# Below it quantiles exceed every score and soon every float.
_LEAST_DF = 0.5
# A variance below it is what rounding leaves of scores that agree.
_NO_VARIANCE = 1e-20


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

    def reaches(self, level: float, *, skewed: bool) -> tuple[float, float]:
        """Standard errors that the two-sided interval reaches below and above the mean.

        With `skewed` each end is the outer one of the t interval's and of the one that
        Hall's transformation corrects for skewness.
        """
        from scipy import stats

        quantile = float(stats.t.ppf((1 + level) / 2, self.df))
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
            t = min(t, self._without_skewness(t))
        return float(stats.t.sf(t, self.df))

    def _without_skewness(self, t: float) -> float:
        """Hall's monotone cubic, which takes the first-order effect of skewness out."""
        g = self.skewness
        return t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6

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
    which divides by 1 less a group's share of the items). It is never taken for less
    than if each item were drawn by itself, which it is where each is its own group. A
    group may stand on both sides; its sums are then taken together.

    Two imagined items a side keep the error from 0 where all items agree. They weigh as
    much as if there were only as many items as, drawn one by one, would give that
    variance: with groups whose items all agree, as many as groups. `middle` is the
    mean of the imagined items, `square` the sum of their squared distances to it. Equal
    codes from 0 mean the same group on both sides.

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
    if by_items > _NO_VARIANCE:
        design = max(1.0, by_groups / by_items)
    else:
        design = float(((sizes_SC**2).sum(axis=1) / n_S).max())
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
