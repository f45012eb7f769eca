"""Rows of `report.json` that tests and checks compute, and the effect of an order test.

Effects are in nats per boundary.

Dimension key
    K  strata
    M  columns, M = m + 1; may differ from row to row
"""

import dataclasses
import statistics
from typing import NamedTuple

import numpy as np

from jaxcontam.stats.rows import Matrix, flat_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Pretest:
    """A check of the null's own assumption, made on the file without a model.

    Attributes:
        name: Such as `length_autocorrelation`.
        p_value: From seeded permutations of the file; one-sided for what may be
            scattered but not gathered, such as duplicates, else two-sided.
        passed: False when Holm's correction over the battery rejects at 0.01.
        directional: It bears on the reversed order too.
        note: Words for the reader even if it passed; or None.
        applicable: False where no order of this file changes the statistic: it
            certifies nothing, `p_value` is 1, and Holm leaves it out.
    """

    name: str
    statistic: float
    p_value: float
    passed: bool
    directional: bool = False
    remedy: str = ""
    note: str | None = None
    applicable: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The run of neighbouring strata whose published order scores best.

    Attributes:
        first_example: Counted from 1, like the last.
        p_value: That the best run of a model that never saw the file is as good.
    """

    first_example: int
    last_example: int
    statistic: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Gain of an example from its published neighbour.

    Attributes:
        backward: Nats gained after the one published behind it, as natural order gives.
    """

    forward: float
    forward_se: float
    backward: float
    backward_se: float
    excess: float
    excess_se: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderNumbers:
    """Numbers of a test on a (K, m + 1) matrix, column 0 the published version.

    Attributes:
        statistic: The test's own; large is evidence of contamination.
        p_value: One-sided; for exact tests a rigorous upper bound, not below 1e-300.
        log10_p: log10 of the same p-value, with no such limit.
        p_lower: Rigorous lower bound on the p-value whose ties count against detection,
            P(T* >= T - tolerance), of which `p_value` is the upper bound; None if there
            is none. It bounds no p-value without ties, P(T* >= T), which may be
            smaller: the tolerance is relative to the log-likelihoods, not to their
            spread within a stratum, since that is how far rounding reaches.
        p_monte_carlo: Cross-check by re-drawing columns; None if there is none.
        p_floor: Smallest p-value that the design can give; None if it has no floor.
        e_value: Soft-rank e-value; None where the method has none.
        effect: Nats per example boundary (or score units); None if the drawn orders
            keep every boundary.
        effect_se: None when one stratum and one order leave nothing to estimate it by.
        mde: Smallest effect found with power 0.8 at level 0.001; None if no effect
            can be: `p_floor` exceeds 0.001, or every order scores the same.
        scores: `centred`, `studentised` or `double-centred`; `smaller p` of two tests.
        symmetry: Chance correlation of [i, j] with [j, i], in pair tests.
        lag_profile: Mean centred entry [i, i + h] in standard deviations, for h =
            -5..-1 and 1..5, where a pair test scored all pairs.
        exposure: log2(candidates) - log2(rank) of one secret among others, in bits.
        local: Place of the evidence in the file; None where nothing was looked for.
        log10_p_all_orders: log10 of the p-value that direction's sum would have, had
            the order been drawn at random, where all pairs were scored.
    """

    statistic: float
    p_value: float
    log10_p: float
    p_lower: float | None = None
    p_monte_carlo: float | None = None
    p_floor: float | None = None
    e_value: float | None = None
    effect: float | None
    effect_se: float | None
    mde: float | None
    scores: str
    symmetry: float | None = None
    lag_profile: tuple[float | None, ...] | None = None
    exposure: float | None = None
    local: Local | None = None
    neighbours: Neighbours | None = None
    log10_p_all_orders: float | None = None

    @property
    def all_alike(self) -> bool:
        """True if every order scores the same, up to rounding."""
        # Else a low floor and a known spread give `mde`, which is of level 0.001.
        is_low = (self.p_floor or 0.0) <= 0.001
        return self.mde is None and self.effect_se is not None and is_low


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Share of p-values at or below a level.

    Attributes:
        low: Lower end of the 95 % Clopper-Pearson interval of the share.
    """

    level: float
    n_rejected: int
    rate: float
    low: float
    high: float


LEVEL = 0.001
"""Level of the minimum detectable effect, which is stated for power 0.8."""
# Normal quantiles of 1 - LEVEL, of 1 - LEVEL / 2, and of the power.
_Z_LEVEL, _Z_HALF_LEVEL, _Z_POWER = 3.090, 3.291, 0.842


class Effect(NamedTuple):
    """Effect size of an order test; see `OrderNumbers`.

    `mde` is (3.090 + 0.842) standard errors, and no less than the gain that ties hide.
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
    but one, only the spread of the gains between strata is left.
    """
    rows = flat_rows(loglik_KM)
    others = rows.others()
    gains_K = rows.first - others.means()
    total = float(boundaries_K.sum())
    if total <= 0:
        return Effect(None, None, None)
    if (others.sizes > 1).any():
        degrees_K = others.sizes - 1
        variances_K = np.where(degrees_K > 0, others.variances(), 0.0)
        pooled = float((degrees_K * variances_K).sum() / degrees_K.sum())
        variances_K = np.where(degrees_K > 0, variances_K, pooled)
        se = float((variances_K * (1 + 1 / others.sizes)).sum()) ** 0.5 / total
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
    effect_se: float | None, *, p_floor: float | None, differs: bool
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
