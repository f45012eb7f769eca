"""Tail probability of a sum of very many independent discrete uniforms.

A grid that rounds every row adds up what it rounded: with 10^5 rows that is more than
the sum's own spread. With so many rows the sum is close to normal, and Berry and Esseen
say how close: the bracket is as rigorous as that of `lattice_tail`. Rows are tilted
first, by exp(theta * difference), so that a tail far out is the middle of another law.

Dimension key
    K  strata
    N  values of all rows together
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr

from jaxcontam.stats.lattice import LatticeTail
from jaxcontam.stats.rows import Rows

SEVERAL = 2**12
"""Rows beyond which the normal law may be nearer to a sum than a grid is."""
MANY = 2**16
"""Rows beyond which no grid is laid, unless a few of them make up the sum."""

# Constant of the Berry-Esseen inequality for summands of different laws.
_ESSEEN = 0.56
# Further from normal than this, a few rows make up the sum.
_MOST_DISTANCE = 0.05
# Values that are looked at together.
_CHUNK = 2**20
_TILT_STEPS = 60
_LN10 = math.log(10)
# Of a sum of all rows, as a share of its terms: numpy adds two by two, chunks in turn.
_ROUNDING = 256 * float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tilted:
    """The sum of all rows, each weighed by exp(theta * difference).

    `log_mass` is the log of the product of the rows' mean weights, `third` the sum of
    their third absolute central moments; `log_rounding` and `rounding` bound the errors
    of `log_mass` and `mean` by rounding.
    """

    log_mass: float
    mean: float
    variance: float
    third: float
    log_rounding: float
    rounding: float

    @property
    def distance(self) -> float:
        """Bound of how far the distribution function is from the normal one."""
        if self.variance <= 0:
            return 1.0
        sd = self.variance**0.5
        moved = self.rounding / sd
        return min(1.0, 1.0001 * _ESSEEN * self.third / sd**3 + moved)


def normal_tail(differences: Rows, tolerance: float) -> LatticeTail | None:
    """Bracket the probability that the sum of one random column a row is >= 0.

    Differences are those to column 0; sums down to `-tolerance` count as ties, against
    detection. None where a few rows make up the sum, which is then not normal.

    Source:
        Shevtsova, "An improvement of convergence rate estimates in the Lyapunov
        theorem" (2010): 0.56 for summands of different laws. The tilt is that of
        Cramer and Esscher; the error doubles under it, by partial integration.
    """
    top = float(np.abs(differences.flat).max())
    if top * len(differences.sizes) <= tolerance:
        return LatticeTail(0.0, 0.0)
    # In units of the largest difference no power overflows.
    slack = tolerance / top
    if _tilted(differences, top, 0.0).distance > _MOST_DISTANCE:
        return None
    theta, law = _best_tilt(differences, top, slack)
    sd, ahead = law.variance**0.5, law.mean + slack
    log_scale, error = law.log_mass + theta * slack, law.distance
    if sd == 0.0:
        log_share = 0.0
    else:
        log_share = (theta * sd) ** 2 / 2 - theta * ahead
        log_share += float(log_ndtr(ahead / sd - theta * sd))
    rounding = law.log_rounding + _ROUNDING * ((theta * sd) ** 2 + theta * abs(ahead))
    error *= 1 + (theta > 0)
    log_upper = min(0.0, float(np.logaddexp(log_share, math.log(error))))
    log_lower = -math.inf
    if math.log(error) < log_share:
        log_lower = log_share + math.log1p(-math.exp(math.log(error) - log_share))
    return LatticeTail(
        log10_upper=min(0.0, (log_scale + log_upper + rounding) / _LN10),
        log10_lower=min(0.0, (log_scale + log_lower - rounding) / _LN10),
    )


def _best_tilt(differences: Rows, top: float, slack: float) -> tuple[float, _Tilted]:
    """About the theta >= 0 whose tilted mean is `-slack`: Newton, kept inside."""
    theta, low, high = 0.0, 0.0, math.inf
    law = _tilted(differences, top, theta)
    for _ in range(_TILT_STEPS):
        gap = law.mean + slack
        # A hundredth of a standard deviation off costs nothing.
        is_near = abs(gap) <= 0.01 * law.variance**0.5
        if is_near or law.variance == 0 or (theta == 0 and gap >= 0):
            break
        low, high = (low, theta) if gap >= 0 else (theta, high)
        step = theta - gap / law.variance
        if not low < step < high:
            step = (low + high) / 2 if high < math.inf else 2 * low + 1
        theta = step
        law = _tilted(differences, top, theta)
    return theta, law


def _tilted(differences: Rows, top: float, theta: float) -> _Tilted:
    log_mass = mean = variance = third = magnitude = shift = 0.0
    for part in _chunks(differences):
        values_N, starts_K = part.flat / top, part.starts
        exponents_N = theta * values_N
        largest_K = np.maximum.reduceat(exponents_N, starts_K)
        weights_N = np.exp(exponents_N - part.spread(largest_K))
        totals_K = np.add.reduceat(weights_N, starts_K)
        weights_N /= part.spread(totals_K)
        means_K = np.add.reduceat(weights_N * values_N, starts_K)
        away_N = np.abs(values_N - part.spread(means_K))
        weights_N *= away_N * away_N
        log_mass += float((np.log(totals_K / part.sizes) + largest_K).sum())
        mean += float(means_K.sum())
        variance += float(weights_N.sum())
        third += float((weights_N * away_N).sum())
        # Sums of weights are off by an eps a column, and by that of the exponents.
        magnitude += float(
            (np.log(part.sizes) + largest_K + part.sizes / 256 + 1).sum()
        )
        shift += float(np.abs(means_K).sum())
    return _Tilted(
        *(log_mass, mean, variance, third),
        log_rounding=_ROUNDING * magnitude,
        rounding=_ROUNDING * shift,
    )


def _chunks(rows: Rows) -> Iterator[Rows]:
    """Whole rows of about `_CHUNK` values together."""
    ends_K = np.cumsum(rows.sizes)
    first = 0
    while first < len(ends_K):
        begin = int(ends_K[first - 1]) if first else 0
        last = int(np.searchsorted(ends_K, begin + _CHUNK, side="right"))
        last = max(last, first + 1)
        end = int(ends_K[last - 1])
        yield Rows(rows.flat[begin:end], rows.sizes[first:last])
        first = last
