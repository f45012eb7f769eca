"""Tests of paired differences: exact by sign flips, and two bootstraps.

No bootstrap is calibrated: at ten pairs the paired one calls 8 % of null sets
significant at 0.05. They stand beside the exact test, for published numbers.

Dimension key
    N  pairs
    K  resamples
"""

import dataclasses
import math

import numpy as np

from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.randomisation import MATRIX_TOLERANCE, SMALLEST_P, power_of_ten


@dataclasses.dataclass(frozen=True, slots=True)
class SignFlipResult:
    """Result of `sign_flip_test`; `p_floor` is 2^-n of n pairs that differ."""

    statistic: float
    p_value: float
    p_floor: float


def sign_flip_test(first_N: np.ndarray, second_N: np.ndarray) -> SignFlipResult:
    """Test that the first of each pair is larger on average.

    Null hypothesis: within each pair the two values could have been exchanged, so every
    choice of signs of the differences was equally likely. Exact at any number of pairs,
    with ties (which count against the first): all choices are counted for up to 28
    pairs that differ; beyond, the p-value is rounded up. It says nothing of why.

    Source:
        Fisher 1935, "The Design of Experiments", section 21. It is the randomisation
        test of `stats.randomisation` with two columns, d/2 and -d/2.
    """
    difference_N = np.subtract(*_checked(first_N, second_N))
    # From the sum as it is to the sum with this sign turned.
    rows = [np.array([0.0, -difference]) for difference in difference_N]
    tolerance = MATRIX_TOLERANCE * float(np.abs(difference_N).sum())
    tail = lattice_tail(rows, tolerance)
    n_differ = int(np.count_nonzero(difference_N))
    p_floor = max(math.ldexp(1.0, -n_differ), SMALLEST_P)
    return SignFlipResult(
        statistic=float(difference_N.mean()),
        # The way back from the logarithm rounds.
        p_value=max(power_of_ten(tail.log10_upper), p_floor),
        p_floor=p_floor,
    )


def _checked(
    first_N: np.ndarray, second_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64, of one length."""
    first_N = np.asarray(first_N, np.float64)
    second_N = np.asarray(second_N, np.float64)
    if first_N.ndim != 1 or first_N.shape != second_N.shape:
        raise ValueError(
            f"both must be lists of one length, got {first_N.shape} {second_N.shape}"
        )
    if len(first_N) < 1:
        raise ValueError("there must be at least 1 pair, got none")
    if not (np.isfinite(first_N).all() and np.isfinite(second_N).all()):
        raise ValueError("values must be finite")
    return first_N, second_N


N_RESAMPLES = 10_000


def paired_bootstrap_p(
    first_N: np.ndarray,
    second_N: np.ndarray,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> float:
    """Share of resampled pairs in whose mean the first is not larger.

    Scores are rounded to two decimals before, as the published ones were, so ties are
    exact and count against the first. (1 + such resamples) / (1 + K): the published
    files divide by K alone and hold zeros, a chance that no resampling can show.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, appendix B. The p-values that they
        published follow from paired draws.
    """
    first_N, second_N = _in_units(first_N, second_N)
    return _share(first_N - second_N, np.zeros_like(first_N), n_resamples, seed)


def unpaired_bootstrap_p(
    first_N: np.ndarray,
    second_N: np.ndarray,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> float:
    """The same with first and second scores drawn apart, as the released code does.

    It forgets which scores belong together: where they vary together it hardly ever
    calls anything significant.
    """
    first_N, second_N = _in_units(first_N, second_N)
    return _share(first_N, second_N, n_resamples, seed)


def _share(a_N: np.ndarray, b_N: np.ndarray, n_resamples: int, seed: int) -> float:
    """(1 + resamples whose sum of `a` is at most that of `b`) / (1 + resamples)."""
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    rng = np.random.default_rng(seed)
    n_not_larger, n_left = 0, n_resamples
    while n_left:
        # 32 MiB of indices.
        shape = (min(n_left, max(1, (1 << 22) // len(a_N))), len(a_N))
        sums_K = a_N[rng.integers(len(a_N), size=shape)].sum(axis=1)
        if b_N.any():
            sums_K -= b_N[rng.integers(len(b_N), size=shape)].sum(axis=1)
        n_not_larger += int(np.count_nonzero(sums_K <= 0))
        n_left -= shape[0]
    return (1 + n_not_larger) / (1 + n_resamples)


def _in_units(
    first_N: np.ndarray, second_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both as whole hundredths."""
    first_N, second_N = _checked(first_N, second_N)
    return np.rint(first_N / 0.01).astype(int), np.rint(second_N / 0.01).astype(int)
