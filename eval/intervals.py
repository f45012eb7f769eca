"""Shares and means with 95 % intervals, and the words of tables for them."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from jaxcontam.stats.shares import wilson_interval

ROUNDING = 1e-12
"""Slack of log10 p: a p-value equal to the level must not be lost."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share, an AUC or a mean with its 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def counted(cls, successes: int, trials: int) -> "Share":
        """A counted share with Wilson's interval."""
        low, high = wilson_interval(successes, trials)
        return cls(value=successes / trials, low=low, high=high)

    def words(self, form: str = ".2f", *, between: str = " to ") -> str:
        """`0.31 (0.25 to 0.37)`."""
        value, low, high = (format(x, form) for x in (self.value, self.low, self.high))
        return f"{value} ({low}{between}{high})"


def n_rejected(log10_ps: Iterable[float], level: float) -> int:
    """p-values at or below a level, counted from their logarithms."""
    return sum(log10_p <= math.log10(level) + ROUNDING for log10_p in log10_ps)


def share_rejected(log10_ps: Sequence[float], level: float) -> Share:
    """Share of p-values at or below a level, with Wilson's interval."""
    return Share.counted(n_rejected(log10_ps, level), len(log10_ps))


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval by Student's t; a single value has width 0.

    Args:
        values: One per model (or per set of the only model).
    """
    from scipy.special import stdtrit

    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return mean, mean, mean
    half = float(stdtrit(n - 1, 0.975)) * float(np.std(values, ddof=1)) / n**0.5
    return mean, mean - half, mean + half


def ratio_interval(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float, float, float] | None:
    """Ratio of two means over the same models with its 95 % interval; None near 0 / 0.

    The interval is a linear approximation, which fails where the denominator may be 0:
    none is given unless that is three standard errors away.
    """
    from scipy.special import stdtrit

    top, bottom = np.asarray(above, np.float64), np.asarray(below, np.float64)
    n, mean = len(bottom), float(bottom.mean())
    if n < 2 or abs(mean) < 3 * float(bottom.std(ddof=1)) / n**0.5 or mean == 0:
        return None
    ratio = float(top.mean()) / mean
    se = float((top - ratio * bottom).std(ddof=1)) / n**0.5 / abs(mean)
    half = float(stdtrit(n - 1, 0.975)) * se
    return ratio, ratio - half, ratio + half


def plus_minus(interval: tuple[float, float, float] | None, digits: int = 2) -> str:
    """A symmetric interval as `0.31 ± 0.06`; without width, the estimate alone."""
    if interval is None:
        return ""
    mean, low, high = interval
    if low == high:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def short(value: float, digits: int = 2) -> str:
    """A share without its leading zero, for narrow columns: `.31`."""
    return f"{value:.{digits}f}".removeprefix("0")
