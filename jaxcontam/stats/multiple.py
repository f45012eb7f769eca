"""Corrections for several tests: Holm for claims, BH, BY and e-BH for screening.

Dimension key
    N  hypotheses
"""

import math

import numpy as np


def holm(p_values_N: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values; controls the familywise error under any dependence.

    Args:
        p_values_N: (N,) float64 in [0, 1], in any order.

    Returns:
        (N,) float64, in the order given, at most 1.

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    n = len(p_values_N)
    ascending = np.argsort(p_values_N, kind="stable")
    scaled = p_values_N[ascending] * (n - np.arange(n))
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted


def benjamini_hochberg(p_values_N: np.ndarray) -> np.ndarray:
    """Adjusted p-values that control the false discovery rate under independence.

    Also where p-values depend on each other positively, as conformal p-values of one
    pool do. Rejecting all that are at most q leaves an expected share of at most q of
    the rejections false.

    Args:
        p_values_N: (N,) float64 in [0, 1], in any order.

    Returns:
        (N,) float64, in the order given, at most 1.

    Source:
        Benjamini and Hochberg (1995), "Controlling the false discovery rate".
    """
    return _step_up(p_values_N, p_values_N * len(p_values_N))


def benjamini_yekutieli(p_values_N: np.ndarray) -> np.ndarray:
    """Adjusted p-values that control the false discovery rate, whatever the dependence.

    Rejecting all that are at most q leaves an expected share of at most q of the
    rejections false. Weaker than Holm's claim that each one is true.

    Args:
        p_values_N: (N,) float64 in [0, 1], in any order.

    Returns:
        (N,) float64, in the order given, at most 1.

    Source:
        Benjamini and Yekutieli (2001), "The control of the false discovery rate in
        multiple testing under dependency", theorem 1.3.
    """
    n = len(p_values_N)
    ranks = np.arange(1, n + 1)
    harmonic = float((1 / ranks).sum())
    return _step_up(p_values_N, p_values_N * n * harmonic)


def e_bh(e_values_N: np.ndarray) -> np.ndarray:
    """Levels from which on e-BH rejects each hypothesis, whatever the dependence.

    Rejecting all that are at most q is e-BH at q: the false discovery rate is at most
    q. Comparable to adjusted p-values, but computed from e-values alone.

    Args:
        e_values_N: (N,) float64, at least 0, in any order; infinity is allowed.

    Returns:
        (N,) float64, in the order given, at most 1.

    Source:
        Wang and Ramdas (2022), "False discovery rate control with e-values",
        arXiv:2009.02824.
    """
    with np.errstate(divide="ignore"):
        inverse = 1 / np.asarray(e_values_N, np.float64)
    return _step_up(inverse, inverse * len(inverse))


def mean_e(e_values_N: np.ndarray) -> float:
    """Mean of e-values: an e-value of the common null, whatever their dependence.

    For several models, seeds or statistics of one benchmark, whose e-values must not
    be multiplied.

    Source:
        Vovk and Wang (2021), "E-values: calibration, combination and applications",
        arXiv:1912.06116: no symmetric rule is essentially better.
    """
    if len(e_values_N) == 0:
        raise ValueError("e_values must not be empty")
    # Divided first: the sum of two e-values of 1e308 is no float.
    return float((np.asarray(e_values_N, np.float64) / len(e_values_N)).sum())


def calibrated_e(log10_p: float) -> float:
    """The e-value 1 / (2 sqrt(p)) of a p-value, for tests that have none of their own.

    Args:
        log10_p: log10 of a valid p-value, at most 0.

    Returns:
        At least 0.5, at most 1e300.

    Source:
        Vovk and Wang, arXiv:1912.06116: the calibrator kappa p^(kappa - 1) at
        kappa = 0.5.
    """
    if log10_p > 0:
        raise ValueError(f"log10_p must be at most 0, got {log10_p}")
    return 10.0 ** min(-0.5 * log10_p - math.log10(2), 300.0)


def two_min(log10_p: float, other_log10_p: float) -> float:
    """log10 of min(1, 2 min(p, q)): both tests in one p-value, however dependent.

    For two tests of one published order, such as `stratified` and `adjacency`. Their
    p-values are positively dependent, so Fisher's or Stouffer's rule is not valid.

    Args:
        log10_p: log10 of a valid p-value, at most 0.
        other_log10_p: The same of the other test.

    Source:
        Bonferroni's inequality.
    """
    if max(log10_p, other_log10_p) > 0:
        raise ValueError(f"log10_p must be at most 0, got {log10_p, other_log10_p}")
    return min(0.0, math.log10(2) + min(log10_p, other_log10_p))


def _step_up(order_by_N: np.ndarray, scaled_N: np.ndarray) -> np.ndarray:
    """Smallest of scaled / rank over the own and all higher ranks, at most 1."""
    n = len(order_by_N)
    ascending = np.argsort(order_by_N, kind="stable")
    per_rank = scaled_N[ascending] / np.arange(1, n + 1)
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum.accumulate(per_rank[::-1])[::-1]
    return np.minimum(1.0, adjusted)
