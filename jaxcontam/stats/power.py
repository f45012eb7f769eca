"""Power of order tests before anything is scored: how much data finds how much effect.

The model behind it: each published boundary gains `effect` nats, and what chance adds
to one boundary has standard deviation `sd` and no memory. Real scores have heavier
tails and strata of unequal spread, so read the numbers as a plan, not as a promise.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from jaxcontam.stats.adjacency import boundaries_matrix, path_moments

_LARGEST_SEARCH = 10**8
# Halvings of an interval: more than float64 resolves.
_N_HALVINGS = 80


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StratumKind:
    """Strata of one size.

    Attributes:
        count: How many there are.
        gain: Boundaries that the published order has over the mean order.
        noise: Variance of one order's score in units of sd^2.
        size: Examples.
        signal: Variance over all orders that an effect of 1 itself adds; 0 where the
            orders are drawn, for there it follows from `gain`.
    """

    count: int
    gain: float
    noise: float
    size: int
    signal: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """What the power of a test depends on, besides effect and spread.

    Attributes:
        rule: `sum`: exact law of a sum over strata; `rank`: rank of one order among
            m; `t`: t-test over strata.
        kinds: The strata.
        n_orders: m; None where all orders are columns.
        log10_floor: log10 of the smallest p-value; None if there is no floor.
    """

    rule: Literal["sum", "rank", "t"]
    kinds: tuple[StratumKind, ...]
    n_orders: int | None
    log10_floor: float | None

    @property
    def n_strata(self) -> int:
        """K."""
        return sum(kind.count for kind in self.kinds)

    @property
    def boundaries(self) -> float:
        """Boundaries gained in all: the effect's divisor."""
        return sum(kind.count * kind.gain for kind in self.kinds)


def drawn_design(
    n_examples: int,
    n_strata: int,
    n_orders: int,
    *,
    rule: Literal["sum", "rank", "t"] = "sum",
) -> PowerDesign:
    """Strata with m random orders each: stratified, permutation or sharded_t."""
    kinds = tuple(
        StratumKind(
            count=count,
            gain=(s - 1) ** 2 / s,
            # A random path of independent entries, given those entries.
            noise=(s - 1) ** 2 / s,
            size=s,
        )
        for s, count in stratum_sizes(n_examples, n_strata)
    )
    return PowerDesign(
        rule=rule,
        kinds=kinds,
        n_orders=n_orders,
        log10_floor=None if rule == "t" else _drawn_floor(kinds, n_orders),
    )


def reversal_design(
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Strata in two orders; `symmetry` is the correlation of [i, j] with [j, i]."""
    kinds = tuple(
        StratumKind(count=count, gain=s - 1, noise=(s - 1) * (1 - symmetry), size=s)
        for s, count in stratum_sizes(n_examples, n_strata)
    )
    return PowerDesign(
        rule="sum", kinds=kinds, n_orders=1, log10_floor=_drawn_floor(kinds, 1)
    )


def pair_design(
    n_examples: int,
    n_strata: int,
    *,
    symmetry: float = 0.0,
    log10_orders: Callable[[int], float],
) -> PowerDesign:
    """Strata whose pairs are scored and whose orders all are columns: adjacency.

    Args:
        n_examples: N, at least 4 a stratum.
        n_strata: K.
        symmetry: Correlation of [i, j] with [j, i] by chance.
        log10_orders: Stratum size -> log10 of its columns.

    Source:
        Double centring projects a matrix onto s^2 - 3s + 1 dimensions, and the path
        statistic is the product with the projected neighbours: their squared length
        is both its gain and, for independent entries, its variance.
    """
    kinds, log10_floor = [], 0.0
    for s, count in stratum_sizes(n_examples, n_strata):
        kept = boundaries_matrix(s)
        gain = float(np.trace(kept, 1))
        kinds.append(
            StratumKind(
                count=count,
                gain=gain,
                noise=gain + symmetry * float(np.trace(kept, -1)),
                size=s,
                signal=path_moments(kept)[1],
            )
        )
        log10_floor -= count * log10_orders(s)
    return PowerDesign(
        rule="sum", kinds=tuple(kinds), n_orders=None, log10_floor=log10_floor
    )


def stratum_sizes(n_examples: int, n_strata: int) -> list[tuple[int, int]]:
    """(size, count) of contiguous strata, sizes differing by at most 1, from 2 on."""
    small, n_large = divmod(n_examples, n_strata)
    sizes = [(small + 1, n_large), (small, n_strata - n_large)]
    return [(size, count) for size, count in sizes if count and size > 1]


def _drawn_floor(kinds: tuple[StratumKind, ...], n_orders: int) -> float:
    return -sum(kind.count for kind in kinds) * math.log10(n_orders + 1)


def z_score(design: PowerDesign, effect: float, sd: float) -> float:
    """Expected effect in standard errors; 0.5 power is at the level's quantile.

    For random orders (effect / sd) sqrt(N) (1 - 1/s) / sqrt(1 + 1/m).
    """
    return effect / standard_error(design, sd)


def standard_error(design: PowerDesign, sd: float) -> float:
    """Standard error of the effect, nats per boundary, that a report will show."""
    variance = sum(kind.count * kind.noise for kind in design.kinds)
    extra = 1.0 if design.n_orders is None else 1 + 1 / design.n_orders
    return sd * math.sqrt(variance * extra) / design.boundaries


def sd_from(design: PowerDesign, effect_se: float) -> float:
    """The `sd` of one boundary behind a report's standard error."""
    return effect_se / standard_error(design, 1.0)


def power(
    design: PowerDesign, effect: float, sd: float, *, level: float = 0.001
) -> float:
    """Probability that the test's p-value is at most `level`.

    0 where the design's smallest p-value exceeds the level. For sums over strata the
    normal approximation, with the spread that the effect itself adds to the null law:
    with one order a stratum (reversal) that costs much of what z alone would promise.
    With fewer than 15 strata it may be too low by .04, with strata of two or three
    examples off by .03 either way.

    Args:
        design: Strata and orders.
        effect: Gain of each published boundary, nats.
        sd: Standard deviation of what chance adds to a boundary, nats.
        level: Significance level of the test.

    Raises:
        ValueError: If sd or level are out of range.
    """
    if not sd > 0:
        raise ValueError(f"sd must be positive, got {sd}")
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    # 1 / (m + 1) and the level may differ in the last bit.
    floor = design.log10_floor
    if floor is not None and floor > math.log10(level) + 1e-12:
        return 0.0
    if not design.kinds:
        return 0.0
    if design.rule == "rank":
        return _rank_power(design, effect, sd, level)
    if design.rule == "t":
        return _t_power(design, effect, sd, level)
    return _sum_power(design, effect, sd, level)


def detectable_effect(
    design: PowerDesign, sd: float, *, level: float = 0.001, wanted: float = 0.8
) -> float | None:
    """Smallest effect found with the wanted power; None if none is."""
    if power(design, 1e6 * sd, sd, level=level) < wanted:
        return None
    low, high = 0.0, 1e6 * sd
    for _ in range(_N_HALVINGS):
        middle = math.sqrt(max(low, 1e-9 * sd) * high)
        if power(design, middle, sd, level=level) < wanted:
            low = middle
        else:
            high = middle
    return high


def smallest_enough(
    power_of: Callable[[int], float],
    wanted: float,
    *,
    smallest: int,
    largest: int = _LARGEST_SEARCH,
) -> int | None:
    """Smallest number of examples, or orders, at which the power is enough.

    Found by doubling and halving: where the rule for stratum sizes makes the power
    dip a little, one lower number may do as well.

    Args:
        power_of: Number -> power.
        wanted: Power.
        smallest: First number to try.
        largest: Give up here and return None.
    """
    high = smallest
    while power_of(high) < wanted:
        if high >= largest:
            return None
        high = min(2 * high, largest)
    low = max(smallest - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def _sum_power(design: PowerDesign, effect: float, sd: float, level: float) -> float:
    moments = [
        _all_orders_moments(kind, effect, sd)
        if design.n_orders is None
        else _drawn_moments(effect * kind.gain, kind.noise * sd**2, design.n_orders + 1)
        for kind in design.kinds
    ]
    counts_K = np.array([kind.count for kind in design.kinds])
    return second_order_power(Moments(*(counts_K @ np.array(moments))), level)


class Moments(NamedTuple):
    """Moments of one stratum or a sum of strata: published score and null law.

    `mean`, `variance` are of the published score; `law` and `law_variance` those of
    the law's variance, `covariance` that of both; `third`, `fourth` the law's mean
    cumulants.
    """

    mean: float
    variance: float
    law: float
    law_variance: float
    covariance: float
    third: float
    fourth: float


def second_order_power(total: Moments, level: float) -> float:
    """Normal power of a sum against its conditional law, to second order.

    T is the published sum, V the variance of its law given the scores. Both grow with
    the effect and with chance together, so T - c sqrt(V) is expanded around its mean.
    """
    from scipy import stats

    skew, excess = total.third / total.law**1.5, total.fourth / total.law**2
    z = float(stats.norm.isf(level))
    # Cornish and Fisher: the quantile of a law that is nearly normal.
    quantile = (
        z
        + (z**2 - 1) * skew / 6
        + (z**3 - 3 * z) * excess / 24
        - (2 * z**3 - 5 * z) * skew**2 / 36
    )
    slope = quantile / (2 * math.sqrt(total.law))
    spread = (
        total.variance + slope**2 * total.law_variance - 2 * slope * total.covariance
    )
    reach = total.mean - quantile * math.sqrt(total.law)
    return float(stats.norm.cdf(reach / math.sqrt(spread)))


def _drawn_moments(shift: float, noise: float, n_columns: int) -> Moments:
    """M centred normal scores of variance `noise`, one of them raised by `shift`."""
    M = n_columns
    rest = 1 - 1 / M
    centrality = shift**2 * rest / noise
    law = noise * (M - 1 + centrality) / M
    law_variance = noise**2 * (2 * (M - 1) + 4 * centrality) / M**2
    cubes = rest**3 - (M - 1) / M**3
    fourths = rest**4 + (M - 1) / M**4
    fourth_moment = (
        shift**4 * fourths
        + 6 * shift**2 * noise * rest * rest
        + 3 * M * (noise * rest) ** 2
    ) / M
    return Moments(
        mean=shift * rest,
        variance=noise * rest,
        law=law,
        law_variance=law_variance,
        covariance=2 * noise * shift * rest / M,
        third=shift**3 * cubes / M,
        fourth=fourth_moment - 3 * (law_variance + law**2),
    )


def _all_orders_moments(kind: StratumKind, effect: float, sd: float) -> Moments:
    """Path sums over all orders of a pair matrix with raised neighbours."""
    n_dimensions, n_neighbours = kind.size**2 - 3 * kind.size + 1, kind.size - 1
    return Moments(
        mean=effect * kind.gain,
        variance=kind.noise * sd**2,
        law=kind.noise * sd**2 + effect**2 * kind.signal,
        law_variance=(2 * n_dimensions * sd**4 + 4 * (sd * effect) ** 2 * kind.gain)
        / n_neighbours**2,
        covariance=2 * sd**2 * effect * kind.gain / n_neighbours,
        third=0.0,
        fourth=0.0,
    )


def _rank_power(design: PowerDesign, effect: float, sd: float, level: float) -> float:
    """Probability that so few of m orders score as high as the published one."""
    from scipy import stats

    assert design.n_orders is not None
    (kind,) = design.kinds
    shift = effect * kind.gain / (sd * math.sqrt(kind.noise))
    allowed = math.floor(level * (design.n_orders + 1) + 1e-9) - 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(201)
    found = stats.binom.cdf(allowed, design.n_orders, stats.norm.sf(nodes + shift))
    return float(np.clip(weights @ found / weights.sum(), 0.0, 1.0))


def _t_power(design: PowerDesign, effect: float, sd: float, level: float) -> float:
    """Noncentral t over strata of equal size."""
    from scipy import stats

    degrees = design.n_strata - 1
    if degrees < 1:
        return 0.0
    z = z_score(design, effect, sd)
    quantile = float(stats.t.isf(level, degrees))
    # Far out the noncentral law is not computed to any accuracy, nor is it needed.
    if z > quantile + 12:
        return 1.0
    return float(stats.nct.sf(quantile, degrees, z))
