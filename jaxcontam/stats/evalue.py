"""Soft-rank e-value of a (K, m + 1) matrix.

Dimension key
    K  strata
    M  columns, M = m + 1; may differ from row to row
    N  values of all rows together
    L  mixture components
"""

import numpy as np

from jaxcontam.stats.rows import Matrix, Rows, flat_rows

LAMBDAS = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
"""Bets of different boldness; their mean is a martingale like each of them."""


def soft_rank_log_e(loglik_KM: Matrix) -> float:
    """Natural log of an e-value against exchangeable columns; large is evidence.

    Mean over lambda of prod_k exp(lambda a_k0) / mean_j exp(lambda a_kj), where a is
    centred and divided by the standard deviation pooled over all strata, a symmetric
    number. Its expectation under the null is 1. Zero for a constant scorer.

    Args:
        loglik_KM: (K, m + 1) float64, column 0 the published version, or K rows of
            different lengths; any unit.

    Returns:
        log e, natural; minus infinity never, since no bet is all or nothing.

    Source:
        Soft-rank e-values as in Ramdas et al., "Game-theoretic statistics and safe
        anytime-valid inference" (2023), section on permutation e-values.
    """
    rows = flat_rows(loglik_KM)
    pooled = float(np.sqrt(rows.variances().mean()))
    if pooled == 0.0:
        return 0.0
    standardised = Rows(rows.minus(rows.means()).flat / pooled, rows.sizes)
    return float(_log_wealth(standardised)[-1])


def log_wealth(standardised_KM: Matrix) -> np.ndarray:
    """Natural log of the mixture's wealth after each stratum, betting on column 0.

    Args:
        standardised_KM: (K, M) float64 scores, or K rows of different lengths, in units
            of about one standard deviation. Row k may be scaled by anything that is
            known before its published column is: earlier rows, and its own values
            without their order.

    Returns:
        (K,) float64.
    """
    return _log_wealth(flat_rows(standardised_KM))


def _log_wealth(standardised: Rows) -> np.ndarray:
    wealth_LK = np.empty((len(LAMBDAS), len(standardised.sizes)))
    for i, boldness in enumerate(LAMBDAS):
        bets = Rows(boldness * standardised.flat, standardised.sizes)
        top_K = bets.largest()
        weights = Rows(np.exp(bets.minus(top_K).flat), bets.sizes)
        wealth_LK[i] = np.cumsum(bets.first - (np.log(weights.means()) + top_K))
    return np.logaddexp.reduce(wealth_LK, axis=0) - np.log(len(LAMBDAS))
