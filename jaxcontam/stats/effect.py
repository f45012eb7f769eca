"""Effect of order in nats per boundary, its standard error, and what would be seen.

Dimension key
    K  strata
    M  columns, M = m + 1; may differ from row to row
"""

import statistics
from typing import NamedTuple

import numpy as np

from jaxcontam.stats.rows import Matrix, Rows, flat_rows

LEVEL = 0.001
"""Level of the minimum detectable effect, which is stated for power 0.8."""
# Normal quantiles of 1 - LEVEL, of 1 - LEVEL / 2, and of the power.
_Z_LEVEL, _Z_HALF_LEVEL, _Z_POWER = 3.090, 3.291, 0.842


class Effect(NamedTuple):
    """Effect size of an order test.

    Attributes:
        effect: Mean gain of the published order, nats per boundary; None if the
            counterfactual orders that were drawn keep every boundary.
        mde: (3.090 + 0.842) standard errors, and no less than the gain that ties
            hide; None where the floor exceeds 0.001 or nothing ever differs.
    """

    effect: float | None
    effect_se: float | None
    mde: float | None


def order_effect(
    loglik_KM: Matrix,
    boundaries_K: np.ndarray,
    *,
    p_floor: float | None,
    tolerance: float,
) -> Effect:
    """Gain of column 0 over the mean of the others, per boundary gained.

    The spread is that of the counterfactual columns within a stratum. A row with a
    single counterfactual takes the pooled one of the other rows; where every row has
    but one, only the spread of the gains between strata is left. A `p_floor` of None is
    that of a test without a floor.
    """
    rows = flat_rows(loglik_KM)
    others = rows.others()
    gains_K = rows.first - others.means()
    total = float(boundaries_K.sum())
    if total <= 0:
        return Effect(None, None, None)
    if (others.sizes > 1).any():
        se = float((_spreads(others) * (1 + 1 / others.sizes)).sum()) ** 0.5 / total
    elif len(gains_K) > 1:
        se = len(gains_K) ** 0.5 * float(gains_K.std(ddof=1)) / total
    else:
        se = None
    # Where the largest difference that sums could show is a tie, p is 1 whatever the
    # effect.
    differs = float(rows.ranges().sum()) > tolerance
    mde = mde_of(se, p_floor=p_floor, differs=differs)
    if mde is not None:
        mde = max(mde, tolerance / total)
    return Effect(float(gains_K.sum()) / total, se, mde)


def mde_of(
    effect_se: float | None,
    *,
    p_floor: float | None,
    differs: bool,
) -> float | None:
    """Smallest effect found with power 0.8 at level 0.001; None if none can be.

    A `p_floor` of None is that of a test without a floor. Nothing `differs` where all
    orders score alike.
    """
    if effect_se is None or not differs or (p_floor or 0.0) > LEVEL:
        return None
    return mde_factor(1) * effect_se


def mde_among(
    mde: float | None, *, p_floor: float | None, n_tests: int
) -> float | None:
    """`mde` of one of several tests that share the level; None if none can be found."""
    if mde is None or n_tests * (p_floor or 0.0) > LEVEL:
        return None
    return mde * mde_factor(n_tests) / mde_factor(1)


def mde_factor(n_looks: int) -> float:
    """Standard errors that an effect needs, the best of `n_looks` p-values counting."""
    level = {1: _Z_LEVEL, 2: _Z_HALF_LEVEL}.get(n_looks)
    if level is None:
        level = statistics.NormalDist().inv_cdf(1 - LEVEL / n_looks)
    return level + _Z_POWER


def _spreads(others: Rows) -> np.ndarray:
    """(K,) variances of the counterfactuals; the pooled one where there is only one."""
    degrees_K = others.sizes - 1
    variances_K = np.where(degrees_K > 0, others.variances(), 0.0)
    pooled = float((degrees_K * variances_K).sum() / degrees_K.sum())
    return np.where(degrees_K > 0, variances_K, pooled)
