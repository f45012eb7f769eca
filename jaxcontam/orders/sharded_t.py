"""Sharded t-test: the second test of Oren et al., for comparison with the paper."""

import dataclasses
import functools
import math

import numpy as np

from jaxcontam.orders.method import OrderFile, OrderMethod
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, SMALLEST_P
from jaxcontam.stats.result import OrderNumbers, order_effect

# The paper's number of shards.
N_SHARDS = 50


def strata(file: OrderFile, n_orders: int) -> list[np.ndarray]:
    """50 contiguous shards of at least 2 examples, or fewer in a small file."""
    n_shards = min(N_SHARDS, file.n_examples // 2)
    return np.array_split(np.arange(file.n_examples), n_shards)


def analyse(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int, *, ddof: int = 1
) -> OrderNumbers:
    """One-sided t-test that shards score higher in the published order.

    Null hypothesis: the mean over shards of (published minus mean of m random orders)
    is at most zero. Asymptotic in the number of shards: with 10 left-skewed shards its
    size is 13 % at a nominal 5 %. A constant scorer gives p = 1. `ddof` 1 is the
    unbiased variance; 0 repeats the released code. The seed changes nothing: nothing is
    drawn.

    Source:
        Oren et al., arXiv:2310.17623, section 3.2. Departures: ddof 1 by default, and
        the upper tail itself, where the released 1 - cdf is 0 below 1e-16.
    """
    from scipy import stats

    K, _ = loglik_KM.shape
    if K < 2:
        raise ValueError(f"a t-test needs at least 2 shards, got {K}")
    if not np.isfinite(loglik_KM).all():
        raise ValueError("log-likelihoods must be finite")
    gains_K = loglik_KM[:, 0] - loglik_KM[:, 1:].mean(axis=1)
    tolerance = MODEL_TOLERANCE * float(np.abs(loglik_KM).max())
    spread = float(gains_K.std(ddof=ddof))
    if float(np.abs(gains_K).max()) <= tolerance:
        statistic, log_p = 0.0, 0.0
    else:
        statistic = float(gains_K.mean()) / max(spread, tolerance) * math.sqrt(K)
        log_p = float(stats.t.logsf(statistic, K - 1))
    effect = order_effect(
        loglik_KM, boundaries_K, p_floor=None, tolerance=tolerance * K
    )
    return OrderNumbers(
        statistic=statistic,
        p_value=max(math.exp(log_p), SMALLEST_P),
        log10_p=log_p / math.log(10),
        **effect._asdict(),
        scores="centred",
    )


METHOD = OrderMethod(
    name="sharded_t",
    strata=strata,
    analyse=analyse,
    default_orders=49,
    windowed=True,
    fewest_strata=2,
    null="exchangeability",
    validity="asymptotic",
    cost="m + 1 passes (50; the paper: 251), twice that in windows",
    finds="as stratified, but only approximate: for comparison with the paper",
    source="Oren et al. 2023, arXiv:2310.17623, section 3.2",
    words=ProofWords(
        approximation="; and that many shards make a t-test exact, which few do not",
        chance="the mean gain of {n_strata} shards over random orders would be as "
        "many standard errors above 0 with probability {p}, if shards were many and "
        "their gains normal",
    ),
)

RELEASED = dataclasses.replace(
    METHOD,
    name="sharded_t_released",
    analyse=functools.partial(analyse, ddof=0),
    finds="the released code's variance (ddof 0): too small a p-value",
    source="code of Oren et al. 2023",
)
