"""Location of the evidence in a file: the best run of neighbouring strata.

Dimension key
    K  strata, in file order
    M  columns of a stratum
    B  re-draws
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.rows import Matrix

N_DRAWS = 9_999
"""Re-draws; no p-value is below 1 / (this + 1)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The best of many runs of strata, which are counted from 0.

    The statistic is its sum of scores over the root of its length; the p-value is that
    the best run of a model that never saw the file is as good.
    """

    first: int
    last: int
    statistic: float
    p_value: float


def local_evidence(
    rows: Matrix, ties_K: np.ndarray, *, seed: int, n_draws: int = N_DRAWS
) -> Run:
    """Find the run of neighbouring strata that prefers its published order most.

    Null hypothesis: in every row the columns are exchangeable, so a small p-value says
    that some of the file was seen in its order. It does not prove that each stratum of
    the run was seen, nor that those outside were not.

    Each row is centred and divided by its own standard deviation over all columns, or
    by the one pooled over rows where some have fewer than 5 columns: of two columns the
    own one leaves nothing but a sign. A row whose values differ by no more than
    `ties_K` scores 0. Rows stand in file order, column 0 published.

    Source:
        Arias-Castro, Castro, Tanczos and Wang, "Distribution-free detection of
        structured anomalies: permutation and rank-based scans", arXiv:1508.03002.
        Departure: columns are re-drawn within rows instead of permuting all values.
    """
    K = len(rows)
    if K < 1 or min(len(row_M) for row_M in rows) < 2:
        raise ValueError("rows must be 1 or more with 2 columns or more each")
    if ties_K.shape != (K,):
        raise ValueError(f"ties must have shape {(K,)}, got {ties_K.shape}")
    if not all(np.isfinite(row_M).all() for row_M in rows):
        raise ValueError("log-likelihoods must be finite")
    scores, slack_K = _standardised(rows, ties_K)
    published_K = np.array([scores_M[0] for scores_M in scores])
    lengths = list(range(1, K + 1))
    if K > 200:
        # The best run of a power of two is off by a factor of at most sqrt(2) in
        # length, which costs a sixth of the statistic.
        lengths = [2**i for i in range(K.bit_length()) if 2**i < K] + [K]
    first, last, statistic = _best_run(published_K, lengths)
    # The statistic moves by no more when each score moves by its slack; the added hair
    # covers the rounding of sums.
    tolerance = _best_run(slack_K, lengths)[2] + 1e-9 * math.sqrt(K)
    scans_B = _redrawn(scores, lengths, n_draws, seed)
    n_as_high = int(np.count_nonzero(scans_B >= statistic - tolerance))
    return Run(first, last, statistic, (1 + n_as_high) / (1 + n_draws))


def _standardised(
    rows: Matrix, ties_K: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Scores of each row, and by how much ties let each one differ."""
    varies_K = np.array([np.ptp(row_M) for row_M in rows]) > ties_K
    sd_K = np.array([row_M.std(ddof=1) for row_M in rows])
    if min(len(row_M) for row_M in rows) < 5 and varies_K.any():
        sd_K[:] = math.sqrt(float((sd_K[varies_K] ** 2).mean()))
    scale_K = np.where(varies_K, sd_K, 1.0)
    scores = [
        (row_M - row_M.mean()) / scale if varies else np.zeros(len(row_M))
        for row_M, scale, varies in zip(rows, scale_K, varies_K, strict=True)
    ]
    return scores, np.where(varies_K, ties_K / scale_K, 0.0)


def _best_run(scores_K: np.ndarray, lengths: list[int]) -> tuple[int, int, float]:
    """First and last stratum of the best run, the shortest among equals, its value."""
    sums = np.concatenate([[0.0], np.cumsum(scores_K)])
    best = (0, 0, -math.inf)
    for length in lengths:
        runs = (sums[length:] - sums[:-length]) / math.sqrt(length)
        start = int(runs.argmax())
        if runs[start] > best[2] + 1e-12:
            best = (start, start + length - 1, float(runs[start]))
    return best


def _redrawn(
    scores: Sequence[np.ndarray], lengths: list[int], n_draws: int, seed: int
) -> np.ndarray:
    """(B,) best runs of random columns."""
    K = len(scores)
    flat = np.concatenate(scores)
    widths_K1 = np.array([[len(scores_M)] for scores_M in scores])
    starts_K1 = np.cumsum(widths_K1, axis=0) - widths_K1
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    scans_B = np.empty(n_draws)
    # A block of re-draws stays in cache.
    n_block = max(1, 2**16 // K)
    for start in range(0, n_draws, n_block):
        block = slice(start, min(start + n_block, n_draws))
        columns_KB = rng.integers(widths_K1, size=(K, block.stop - block.start))
        drawn_KB = flat[starts_K1 + columns_KB]
        sums_KB = np.concatenate([np.zeros((1, drawn_KB.shape[1])), drawn_KB])
        np.cumsum(sums_KB, axis=0, out=sums_KB)
        best = [
            (sums_KB[length:] - sums_KB[:-length]).max(axis=0) / math.sqrt(length)
            for length in lengths
        ]
        scans_B[block] = np.max(best, axis=0)
    return scans_B
