"""Bootstrap shares for paired scores, as they were published and as they were released.

Neither is calibrated: at ten pairs the paired one calls 8 % of null sets significant at
0.05. They stand beside the exact test for comparison with published numbers.

Dimension key
    N  pairs
    K  resamples
"""

import numpy as np

from jaxcontam.stats.sign_flip import checked_pairs

N_RESAMPLES = 10_000
_UNIT = 0.01
# Indices drawn at once; 32 MiB of int64.
_MOST_CELLS = 1 << 22


def paired_bootstrap_p(
    first: np.ndarray,
    second: np.ndarray,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> float:
    """Share of resampled pairs in whose mean the first is not larger.

    Scores are rounded to two decimals before, as the published ones were, so ties are
    exact and count against the first.

    Args:
        first: (N,) finite.
        second: (N,) finite; the other score of each pair.
        n_resamples: K, at least 1.
        seed: Seed of the draws.

    Returns:
        (1 + such resamples) / (1 + K). The published files divide by K alone and hold
        zeros; no resampling can show a chance of zero.

    Raises:
        ValueError: If the shapes differ, there is no pair, or a value is not finite.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, appendix B. The p-values that they
        published follow from paired draws.
    """
    first_N, second_N = _in_units(first, second)
    return _share(first_N - second_N, np.zeros_like(first_N), n_resamples, seed)


def unpaired_bootstrap_p(
    first: np.ndarray,
    second: np.ndarray,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> float:
    """The same with first and second scores drawn apart, as the released code does.

    It forgets which scores belong together: where they vary together it hardly ever
    calls anything significant.
    """
    first_N, second_N = _in_units(first, second)
    return _share(first_N, second_N, n_resamples, seed)


def _share(a_N: np.ndarray, b_N: np.ndarray, n_resamples: int, seed: int) -> float:
    """(1 + resamples whose sum of `a` is at most that of `b`) / (1 + resamples)."""
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    rng = np.random.default_rng(seed)
    n_not_larger, n_left = 0, n_resamples
    while n_left:
        shape = (min(n_left, max(1, _MOST_CELLS // len(a_N))), len(a_N))
        sums_K = a_N[rng.integers(len(a_N), size=shape)].sum(axis=1)
        if b_N.any():
            sums_K -= b_N[rng.integers(len(b_N), size=shape)].sum(axis=1)
        n_not_larger += int(np.count_nonzero(sums_K <= 0))
        n_left -= shape[0]
    return (1 + n_not_larger) / (1 + n_resamples)


def _in_units(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as whole hundredths, int64."""
    checked_pairs(first, second)
    first_N, second_N = (
        np.rint(np.asarray(scores, np.float64) / _UNIT).astype(np.int64)
        for scores in (first, second)
    )
    return first_N, second_N
