"""Shares, AUCs and means with 95 % intervals, and the words of tables for them."""

import dataclasses
import math

import numpy as np

from jaxcontam.stats.proportions import wilson_interval

# Slack of log10 p: a p-value equal to the level must not be lost.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share, an AUC, a mean or a difference of these with its 95 % interval.

    Its ends are None where nothing says how the estimate would vary.
    """

    value: float
    low: float | None
    high: float | None

    @classmethod
    def counted(cls, successes: int, trials: int) -> "Share":
        """A counted share with Wilson's interval."""
        low, high = wilson_interval(successes, trials)
        return cls(value=successes / trials, low=low, high=high)

    def words(self, form: str = ".2f") -> str:
        """`.31 [.20, .40]`, the numbers in a format without their leading zeros."""
        value = short(self.value, form)
        if self.low is None or self.high is None:
            return value
        return f"{value} [{short(self.low, form)}, {short(self.high, form)}]"


def is_rejected(log10_p: np.ndarray, level: float) -> np.ndarray:
    """True for p-values, given by their logarithms, at or below a level."""
    return log10_p <= math.log10(level) + _ROUNDING


def short(value: float, form: str = ".2f") -> str:
    """A share without its leading zero, for narrow columns: `.31`, but `0.3%`."""
    words = format(value, form)
    return words if words.endswith("%") else words.removeprefix("0")
