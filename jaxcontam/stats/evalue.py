"""Soft-rank e-value of a (K, m + 1) matrix.

Dimension key
    K  strata
    M  columns, M = m + 1
    L  mixture components
"""

import numpy as np

LAMBDAS = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
"""Bets of different boldness; their mean is a martingale like each of them."""


def soft_rank_log_e(loglik_KM: np.ndarray) -> float:
    """Natural log of an e-value against exchangeable columns; large is evidence.

    Mean over lambda of prod_k exp(lambda a_k0) / mean_j exp(lambda a_kj), where a is
    centred and divided by the standard deviation pooled over all strata, a symmetric
    number. Its expectation under the null is 1. Zero for a constant scorer.

    Args:
        loglik_KM: (K, m + 1) float64, column 0 the published version; any unit.

    Returns:
        log e, natural; minus infinity never, since no bet is all or nothing.

    Source:
        Soft-rank e-values as in Ramdas et al., "Game-theoretic statistics and safe
        anytime-valid inference" (2023), section on permutation e-values.
    """
    centred_KM = loglik_KM - loglik_KM.mean(axis=1, keepdims=True)
    pooled = float(np.sqrt(np.mean(loglik_KM.var(axis=1, ddof=1))))
    if pooled == 0.0:
        return 0.0
    bets_LKM = LAMBDAS[:, None, None] * (centred_KM / pooled)
    top_LK1 = bets_LKM.max(axis=2, keepdims=True)
    means_LK = np.log(np.exp(bets_LKM - top_LK1).mean(axis=2)) + top_LK1[..., 0]
    log_e_L = (bets_LKM[:, :, 0] - means_LK).sum(axis=1)
    return float(np.logaddexp.reduce(log_e_L) - np.log(len(LAMBDAS)))
