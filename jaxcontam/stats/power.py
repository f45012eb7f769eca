"""Power of order tests before anything is scored: how much data finds how much effect.

Each published boundary gains `effect` nats, and what chance adds to one boundary has
standard deviation `sd` and no memory. Real scores have heavier tails, and strata of
unequal spread, so read the numbers as a plan, not as a promise.

A model that read a part of a file, or learned few of its neighbours by heart, gains
much at few boundaries: how many of them is up to chance, and what they gain widens the
null law, since random orders keep some of them.

Dimension key
    Q  numbers of carrying boundaries
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from jaxcontam.stats.adjacency import boundaries_matrix, double_centred, path_moments
from jaxcontam.stats.direction import direction_weights, run_length, runs_of
from jaxcontam.stats.pair_test import n_stratum_orders

# Equally likely values of the number of carriers; its law is smooth and so is the
# power, so that more of them change no second digit.
_N_QUANTILES = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StratumKind:
    """Strata of one size.

    Attributes:
        gain: Boundaries that the published order has over the mean order.
        noise: Variance of one order's score in units of sd^2.
        signal: Variance over all orders that an effect of 1 adds; 0 for drawn ones.
    """

    count: int
    gain: float
    noise: float
    size: int
    signal: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """Strata and orders, on which power depends besides effect and spread.

    Attributes:
        rule: `sum`: exact law of a sum over strata; `rank`: rank of one order among
            m; `t`: t-test over strata.
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
        # Noise: a random path of independent entries, given those entries.
        StratumKind(count=count, gain=(s - 1) ** 2 / s, noise=(s - 1) ** 2 / s, size=s)
        for s, count in stratum_sizes(n_examples, n_strata)
    )
    log10_floor = None if rule == "t" else _drawn_floor(kinds, n_orders)
    return PowerDesign(
        rule=rule, kinds=kinds, n_orders=n_orders, log10_floor=log10_floor
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
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Strata whose pairs are scored and whose orders all are columns: adjacency.

    `symmetry` is the correlation of [i, j] with [j, i] by chance.

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
        log10_floor -= count * math.log10(n_stratum_orders(np.zeros(s, np.int64)))
    return PowerDesign(
        rule="sum", kinds=tuple(kinds), n_orders=None, log10_floor=log10_floor
    )


def direction_design(
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Runs that stand forwards or backwards, from the pairs that tell the direction.

    Source:
        The statistic is linear in the pairs: its noise is the squared length of their
        weights, and each run has its share of a stratum's gain and noise.
    """
    kinds, n_runs_in_all = [], 0
    for s, count in stratum_sizes(n_examples, n_strata):
        runs_S = runs_of(s, run_length(n_examples))
        n_runs = int(np.count_nonzero(np.bincount(runs_S) > 1))
        weights_SS = direction_weights(runs_S)
        # The mean of two columns is halfway between them.
        gain = 2 * float(np.trace(weights_SS, 1))
        noise = 2 * ((1 - symmetry) * float((weights_SS**2).sum()))
        kinds.append(
            StratumKind(
                count=count * n_runs, gain=gain / n_runs, noise=noise / n_runs, size=s
            )
        )
        n_runs_in_all += count * n_runs
    log10_floor = -n_runs_in_all * math.log10(2)
    return PowerDesign(
        rule="sum", kinds=tuple(kinds), n_orders=1, log10_floor=log10_floor
    )


def stratum_sizes(n_examples: int, n_strata: int) -> list[tuple[int, int]]:
    """(size, count) of contiguous strata, sizes differing by at most 1, from 2 on."""
    small, n_large = divmod(n_examples, n_strata)
    sizes = [(small + 1, n_large), (small, n_strata - n_large)]
    return [(size, count) for size, count in sizes if count and size > 1]


def _drawn_floor(kinds: tuple[StratumKind, ...], n_orders: int) -> float:
    return -sum(kind.count for kind in kinds) * math.log10(n_orders + 1)


def standard_error(design: PowerDesign, sd: float) -> float:
    """Standard error of the effect, nats per boundary, that a report will show.

    For random orders (sd / sqrt(N)) sqrt(1 + 1/m) / (1 - 1/s). An effect of the level's
    quantile times as much is found with power 0.5.
    """
    variance = sum(kind.count * kind.noise for kind in design.kinds)
    extra = 1.0 if design.n_orders is None else 1 + 1 / design.n_orders
    return sd * math.sqrt(variance * extra) / design.boundaries


def sd_from(design: PowerDesign, effect_se: float) -> float:
    """The `sd` of one boundary behind a report's standard error."""
    return effect_se / standard_error(design, 1.0)


def power(
    design: PowerDesign,
    effect: float,
    sd: float,
    *,
    share: float = 1.0,
    level: float = 0.001,
) -> float:
    """Probability that the test's p-value is at most `level`.

    0 where the design's smallest p-value exceeds the level. For sums over strata the
    normal approximation, with the spread that the effect itself adds to the null law.
    With fewer than 15 strata it may be too low by .04, with strata of two or three
    examples off by .03 either way.

    Each published boundary gains `effect / share` with probability `share`, else
    nothing: the mean gain is `effect`. Given the number of carriers the moments of the
    score and of its null law follow from those of a binomial; the power is the mean
    over that number. For reversal, with a dozen carriers, it is too low by .05.

    `effect` and `sd` are in nats a boundary, `share` in (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    if not sd > 0:
        raise ValueError(f"sd must be positive, got {sd}")
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    # 1 / (m + 1) and the level may differ in the last bit.
    floor = design.log10_floor
    no_way = floor is not None and floor > math.log10(level) + 1e-12
    if no_way or not design.kinds:
        return 0.0
    rule = {"sum": _sum_power, "rank": _rank_power, "t": _t_power}[design.rule]
    if share == 1:
        return rule(design, 1.0, effect, sd, level)
    from scipy import stats

    n_boundaries = sum(kind.count * (kind.size - 1) for kind in design.kinds)
    chances_Q = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    carriers_Q = stats.binom.ppf(chances_Q, n_boundaries, share)
    found = {
        n: rule(design, n / n_boundaries, effect / share, sd, level)
        for n in np.unique(carriers_Q).tolist()
    }
    return float(np.mean([found[n] for n in carriers_Q.tolist()]))


def detectable_effect(
    design: PowerDesign, sd: float, *, level: float = 0.001, wanted: float = 0.8
) -> float | None:
    """Smallest effect found with the wanted power; None if none is."""
    if power(design, 1e6 * sd, sd, level=level) < wanted:
        return None
    low, high = 0.0, 1e6 * sd
    # More halvings than float64 resolves.
    for _ in range(80):
        middle = math.sqrt(max(low, 1e-9 * sd) * high)
        enough = power(design, middle, sd, level=level) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def smallest_enough(
    power_of: Callable[[int], float],
    wanted: float,
    *,
    smallest: int,
    largest: int = 10**8,
) -> int | None:
    """Smallest number of examples, or orders, at which the power is enough.

    Found by doubling and halving: where the rule for stratum sizes makes the power
    dip a little, one lower number may do as well.
    """
    high = smallest
    while power_of(high) < wanted:
        if high >= largest:
            return None
        high = min(2 * high, largest)
    low = max(smallest - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= wanted else (middle, high)
    return high


class Moments(NamedTuple):
    """Moments of one stratum or a sum of strata.

    `mean`, `variance` are of the published score; `law`, `law_variance` of the null
    law's variance, `covariance` of both; `third`, `fourth` its mean cumulants.
    """

    mean: float
    variance: float
    law: float
    law_variance: float
    covariance: float
    third: float
    fourth: float


def _kept(kind: StratumKind) -> float:
    """Chance that a random order keeps a boundary; a reversed one keeps none."""
    return max(0.0, 1 - kind.gain / (kind.size - 1))


def _sum_power(
    design: PowerDesign, share: float, gain: float, sd: float, level: float
) -> float:
    """Normal power of a sum against its conditional law, to second order.

    The published sum and the variance V of its law given the scores grow together:
    sum - c sqrt(V) is expanded around its mean.
    """
    from scipy.special import ndtr, ndtri

    if share == 0:
        return level
    total = np.zeros(len(Moments._fields))
    # Covariances of score, law and number of carriers over ways to place these.
    placed_33 = np.zeros((3, 3))
    for kind in design.kinds:
        moments, own_33 = (
            _all_orders(kind, share, gain, sd)
            if design.n_orders is None
            else _drawn(kind, share, gain, sd, design.n_orders + 1)
        )
        total += kind.count * np.array(moments)
        placed_33 += kind.count * own_33
    if placed_33[2, 2] > 0:
        # Their number is given: what goes with it does not vary.
        placed_33 -= np.outer(placed_33[2], placed_33[2]) / placed_33[2, 2]
    sums = Moments(*total.tolist())
    skew, excess = sums.third / sums.law**1.5, sums.fourth / sums.law**2
    z = -float(ndtri(level))
    # Cornish and Fisher: the quantile of a law that is nearly normal.
    quantile = (
        z
        + (z**2 - 1) * skew / 6
        + (z**3 - 3 * z) * excess / 24
        - (2 * z**3 - 5 * z) * skew**2 / 36
    )
    slope = quantile / (2 * math.sqrt(sums.law))
    spread = (
        sums.variance
        + placed_33[0, 0]
        + slope**2 * (sums.law_variance + placed_33[1, 1])
        - 2 * slope * (sums.covariance + placed_33[0, 1])
    )
    reach = sums.mean - quantile * math.sqrt(sums.law)
    return float(ndtr(reach / math.sqrt(spread)))


def _drawn(
    kind: StratumKind, share: float, gain: float, sd: float, n_columns: int
) -> tuple[Moments, np.ndarray]:
    """Means over the gains of M normal columns; (3, 3) covariances of `_sum_power`."""
    M, rest, noise = n_columns, 1 - 1 / n_columns, kind.noise * sd**2
    n_boundaries, kept = kind.size - 1, _kept(kind)
    raw = _binomial_moments(n_boundaries, share)
    # What a carrier adds to the published score over that of a random order.
    unit = gain * kind.gain / n_boundaries
    shift = [unit**j * raw[j] for j in range(5)]
    # A random order keeps other carriers than the next; the mean is in the shift.
    other = n_boundaries * gain**2 * (share - share**2) * kept * (1 - kept)
    centrality = shift[2] * rest / noise
    law = noise * (M - 1 + centrality) / M + other * rest**2
    law_variance = noise**2 * (2 * (M - 1) + 4 * centrality) / M**2
    fourth_moment = (
        shift[4] * (rest**4 + (M - 1) / M**4)
        + 6 * shift[2] * noise * rest * rest
        + 3 * M * (noise * rest) ** 2
    ) / M
    # The score goes with their number, the law with its square.
    powers = (1, 2, 1)
    placed_33 = np.array(
        [[raw[i + j] - raw[i] * raw[j] for j in powers] for i in powers]
    )
    scale_3 = np.array([unit * rest, unit**2 * rest / M, 1.0])
    placed_33 *= np.outer(scale_3, scale_3)
    law_placed = float(placed_33[1, 1])
    moments = Moments(
        mean=shift[1] * rest,
        variance=noise * rest + other * (M - 1) / M**2,
        law=law,
        law_variance=law_variance,
        covariance=2 * noise * shift[1] * rest / M,
        third=shift[3] * (rest**3 - (M - 1) / M**3) / M,
        fourth=fourth_moment - 3 * (law_variance + law_placed + law**2),
    )
    return moments, placed_33


def _all_orders(
    kind: StratumKind, share: float, gain: float, sd: float
) -> tuple[Moments, np.ndarray]:
    """Path sums over all orders of a pair matrix with some neighbours raised."""
    s, n_neighbours = kind.size, kind.size - 1
    mean_gain, spread = gain * share, gain**2 * (share - share**2)
    weights = np.diagonal(boundaries_matrix(s), 1)
    squares, scatter = _single_boundaries(s)
    length = mean_gain**2 * kind.gain + spread * squares
    # A random order keeps a boundary with chance 1 / s: its third cumulant.
    skew = (1 / s) * (1 - 1 / s) * (1 - 2 / s)
    moments = Moments(
        mean=mean_gain * kind.gain,
        variance=kind.noise * sd**2,
        law=kind.noise * sd**2 + mean_gain**2 * kind.signal + spread * scatter,
        law_variance=(2 * (s**2 - 3 * s + 1) * sd**4 + 4 * sd**2 * length)
        / n_neighbours**2,
        covariance=2 * sd**2 * mean_gain * kind.gain / n_neighbours,
        third=n_neighbours * gain**3 * (share - share**3) * skew,
        fourth=0.0,
    )
    of_count = gain * (share - share**2) * kind.gain
    n_carriers = n_neighbours * (share - share**2)
    of_score = spread * float(weights @ weights)
    return moments, np.array(
        [[of_score, 0.0, of_count], [0.0, 0.0, 0.0], [of_count, 0.0, n_carriers]]
    )


@functools.cache
def _single_boundaries(n: int) -> tuple[float, float]:
    """Gain and variance in all by gains of 1, each at one boundary alone."""
    squares = scatter = 0.0
    for i in range(n - 1):
        raised_SS = np.zeros((n, n))
        raised_SS[i, i + 1] = 1.0
        centred_SS = double_centred(raised_SS)
        squares += float(centred_SS[i, i + 1])
        scatter += path_moments(centred_SS)[1]
    return squares, scatter


def _binomial_moments(n: int, p: float) -> list[float]:
    """E[X^j] for j = 0..4 of X binomial."""
    falling = [1.0]
    for j in range(4):
        falling.append(falling[-1] * (n - j) * p)
    _, f1, f2, f3, f4 = falling
    return [1.0, f1, f2 + f1, f3 + 3 * f2 + f1, f4 + 6 * f3 + 7 * f2 + f1]


def _rank_power(
    design: PowerDesign, share: float, gain: float, sd: float, level: float
) -> float:
    """Probability that so few of m orders score as high as the published one."""
    from scipy import stats

    assert design.n_orders is not None
    (kind,) = design.kinds
    kept = _kept(kind)
    noise = kind.noise * sd**2
    other = (kind.size - 1) * gain**2 * (share - share**2) * kept * (1 - kept)
    allowed = math.floor(level * (design.n_orders + 1) + 1e-9) - 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(201)
    reach = (nodes * math.sqrt(noise) + gain * share * kind.gain) / math.sqrt(
        noise + other
    )
    found = stats.binom.cdf(allowed, design.n_orders, stats.norm.sf(reach))
    return float(np.clip(weights @ found / weights.sum(), 0.0, 1.0))


def _t_power(
    design: PowerDesign, share: float, gain: float, sd: float, level: float
) -> float:
    """Noncentral t over strata of equal size, which differ by their carriers."""
    from scipy import stats

    assert design.n_orders is not None
    K = design.n_strata
    if K < 2:
        return 0.0
    own = between = mean = 0.0
    for kind in design.kinds:
        n_boundaries, kept = kind.size - 1, _kept(kind)
        carriers = n_boundaries * gain**2 * (share - share**2)
        noise = kind.noise * sd**2
        other = carriers * kept * (1 - kept)
        own += kind.count * (noise + (noise + other) / design.n_orders) / K
        between += kind.count * carriers * (1 - kept) ** 2 / K
        mean += kind.count * gain * share * kind.gain / K
    quantile = float(stats.t.isf(level, K - 1)) * math.sqrt(1 + between / own)
    z = mean * math.sqrt(K / own)
    # Far out the noncentral law is not computed to any accuracy, nor is it needed.
    if z > quantile + 12:
        return 1.0
    return float(stats.nct.sf(quantile, K - 1, z))
