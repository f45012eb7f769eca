"""Shares that were counted: their intervals, and whether one is larger, exactly."""

import dataclasses
import math

# Normal quantile of a two-sided interval of 95 %.
_Z = 1.959964


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share; Wilson (1927), which behaves at 0 and 1."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes must be 0 to trials, got {successes} of {trials}")
    share, z2 = successes / trials, _Z * _Z / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z / (1 + z2) * math.sqrt(share * (1 - share) / trials + z2 / 4 / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def rate_interval(
    successes: int, trials: int
) -> tuple[float, float, float] | tuple[None, None, None]:
    """A share with its `wilson_interval`; three times None without a trial."""
    if not trials:
        return None, None, None
    return successes / trials, *wilson_interval(successes, trials)


# Barnard's test goes through all tables of so many; larger ones would take minutes.
_MOST_TABLES = 10**6


@dataclasses.dataclass(frozen=True, slots=True)
class RateTest:
    """One-sided p-values that the first share is no larger.

    Attributes:
        fisher: By Fisher's exact test, given the sum of both counts.
        barnard: By Barnard's, at the common share that is worst; None for samples whose
            sizes multiply to more than a million.
    """

    fisher: float
    barnard: float | None


def rate_test(found: int, n: int, found_control: int, n_control: int) -> RateTest:
    """Test that a share is larger than that of a control set.

    Null hypothesis: whether an item is found does not depend on its set. Barnard's test
    is the sharper one for small samples; both are exact.

    Source:
        Fisher 1935; Barnard 1945, "A New Test for 2 x 2 Tables", with the pooled
        statistic. Both by scipy.
    """
    from scipy import stats

    for count, items in ((found, n), (found_control, n_control)):
        if items < 1 or not 0 <= count <= items:
            raise ValueError(f"counts must be 0 to their items, got {count} of {items}")
    table = [[found, found_control], [n - found, n_control - found_control]]
    given_sums = stats.fisher_exact(table, alternative="greater")
    fisher = float(given_sums.pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    barnard = None
    if (n + 1) * (n_control + 1) <= _MOST_TABLES:
        barnard = float(stats.barnard_exact(table, alternative="greater").pvalue)
    return RateTest(fisher=fisher, barnard=barnard)
