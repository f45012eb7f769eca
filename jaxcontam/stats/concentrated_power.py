"""Power of order tests where a few boundaries carry all of the memory.

A model that read a part of a file, or learned few of its neighbours by heart, gains
much at few boundaries. The mean effect is the same and the power is not: the number of
boundaries that carry anything is up to chance, and what they gain widens the null law,
since random orders keep some of them.

Dimension key
    Q  numbers of carrying boundaries
"""

import math

import numpy as np

from jaxcontam.stats.adjacency import boundaries_matrix, double_centred, path_moments
from jaxcontam.stats.power import (
    Moments,
    PowerDesign,
    StratumKind,
    power,
    second_order_power,
)

# Equally likely values of the number of carriers; its law is smooth and so is the
# power, so that more of them change no second digit.
_N_QUANTILES = 64


def concentrated_power(
    design: PowerDesign,
    effect: float,
    sd: float,
    *,
    share: float = 0.1,
    level: float = 0.001,
) -> float:
    """Probability of p <= `level` where a share of the boundaries carries it all.

    Each published boundary gains `effect / share` with probability `share`, else
    nothing: the mean gain is `effect`. At a share of 1 it is `power`.

    Given the number of carriers the gains are as good as independent, and the moments
    of the score and of its null law follow from those of a binomial; the power is the
    mean over that number. The same approximations as in `power`; for reversal, with a
    dozen carriers, it is too low by .05.

    Args:
        design: Strata and orders.
        effect: Mean gain of a published boundary, nats.
        sd: Standard deviation of what chance adds to a boundary, nats.
        share: Share of boundaries that carry the effect, in (0, 1].
        level: Significance level of the test.

    Raises:
        ValueError: If share, sd or level are out of range.
    """
    from scipy import stats

    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    evenly = power(design, effect, sd, level=level)
    floor = design.log10_floor
    no_way = floor is not None and floor > math.log10(level) + 1e-12
    if share == 1 or no_way or not design.kinds:
        return evenly
    n_boundaries = sum(kind.count * (kind.size - 1) for kind in design.kinds)
    chances_Q = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    carriers_Q = stats.binom.ppf(chances_Q, n_boundaries, share)
    rule = {"sum": _sum_power, "rank": _rank_power, "t": _t_power}[design.rule]
    found = {
        n: rule(design, n / n_boundaries, effect / share, sd, level)
        for n in np.unique(carriers_Q).tolist()
    }
    return float(np.mean([found[n] for n in carriers_Q.tolist()]))


def _kept(kind: StratumKind) -> float:
    """Chance that a random order keeps a boundary; a reversed one keeps none."""
    return max(0.0, 1 - kind.gain / (kind.size - 1))


def _sum_power(
    design: PowerDesign, share: float, gain: float, sd: float, level: float
) -> float:
    """Power where this very share of the boundaries gains this much."""
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
    sums = Moments(*total)
    return second_order_power(
        sums._replace(
            variance=sums.variance + placed_33[0, 0],
            law_variance=sums.law_variance + placed_33[1, 1],
            covariance=sums.covariance + placed_33[0, 1],
        ),
        level,
    )


def _drawn(
    kind: StratumKind, share: float, gain: float, sd: float, n_columns: int
) -> tuple[Moments, np.ndarray]:
    """Normal scores of M columns, one raised by what its carriers gain.

    Returns:
        Moments given the gains, in the mean over these, and (3, 3) covariances of
        score, law and number of carriers over the gains.
    """
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
    alone = [_one_boundary(s, i) for i in range(n_neighbours)]
    squares = float(sum(matrix[i, i + 1] for i, matrix in enumerate(alone)))
    scatter = sum(path_moments(matrix)[1] for matrix in alone)
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
    placed_33 = np.zeros((3, 3))
    count_spread = share - share**2
    placed_33[0, 0] = spread * float(weights @ weights)
    placed_33[0, 2] = placed_33[2, 0] = gain * count_spread * kind.gain
    placed_33[2, 2] = n_neighbours * count_spread
    return moments, placed_33


def _one_boundary(n: int, i: int) -> np.ndarray:
    """What a gain of 1 at one published boundary adds to a centred pair matrix."""
    raised_SS = np.zeros((n, n))
    raised_SS[i, i + 1] = 1.0
    return double_centred(raised_SS)


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
