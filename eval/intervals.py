"""Shares and means with 95 % intervals, and the words of tables for them."""

import dataclasses
import math
from collections.abc import Iterable

from jaxcontam.stats.proportions import wilson_interval

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


def n_rejected(log10_ps: Iterable[float], level: float) -> int:
    """p-values at or below a level, counted from their logarithms."""
    return sum(log10_p <= math.log10(level) + ROUNDING for log10_p in log10_ps)


def short(value: float, digits: int = 2) -> str:
    """A share without its leading zero, for narrow columns: `.31`."""
    return f"{value:.{digits}f}".removeprefix("0")
