"""How long do 10^4 orders a stratum take through the exact law, and 10^5 fresh ones?

A pair matrix gives the score of any order of its stratum without a model call. Either
the orders of each stratum are drawn once and the law of the sum over strata is computed
from them (the exact p-value), or all strata are drawn anew for each value of the sum
(for statistics that are no sums). Both must be cheap beside the pair matrix itself.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np

from eval.speed.measure import interleaved

# A thousand examples in strata of 25.
_STRATA, _EXAMPLES = 40, 25
_ORDERS, _FRESH = 10_000, 100_000
# Orders drawn at a time: in cache, and next to no memory.
_CHUNK = 5_000


def measure_orders(rounds: int, *, tiny: bool) -> dict:
    """Seconds and peak megabytes of both ways; one core, interleaved.

    Seconds of the process, not of the clock on the wall: one thread does all the work,
    and there is no rival whose ratio other work on the machine would leave alone.
    """
    rng = np.random.default_rng(0)
    pairs_KNN = rng.normal(size=(_STRATA, _EXAMPLES, _EXAMPLES))
    shrink = 100 if tiny else 1
    ways = {
        "exact": lambda: exact_p(pairs_KNN, _ORDERS // shrink, seed=1),
        "fresh": lambda: fresh_p(pairs_KNN, _FRESH // shrink, seed=1),
    }
    timed = interleaved(ways, rounds, clock=time.process_time)
    return {
        "shape": [_STRATA, _EXAMPLES],
        "orders": {"exact": _ORDERS // shrink, "fresh": _FRESH // shrink},
        "seconds": timed.seconds,
        "median_seconds": {name: timed.median(name) for name in ways},
        "p_value": timed.last,
        "peak_mb": {name: _peak_mb(way) for name, way in ways.items()},
    }


def exact_p(pairs_KNN: np.ndarray, n_orders: int, *, seed: int) -> float:
    """p-value of the file order among `n_orders` a stratum, from the law of the sum.

    Args:
        pairs_KNN: (K, N, N) float64; [k, i, j] is the score of j straight after i.
        n_orders: Random orders a stratum.
        seed: Seeds the orders.
    """
    from jaxcontam.stats.lattice import lattice_tail

    rng = np.random.default_rng(seed)

    def differences() -> Iterator[np.ndarray]:
        for pairs_NN in pairs_KNN:
            published = _published(pairs_NN)
            sums = [s - published for s in _drawn_sums(pairs_NN, n_orders, rng)]
            yield np.concatenate([np.zeros(1), *sums])

    return 10.0 ** lattice_tail(differences(), 0.0).log10_upper


def fresh_p(pairs_KNN: np.ndarray, n_orders: int, *, seed: int) -> float:
    """(1 + #{sums as high}) / (B + 1) over B orders of the whole file, strata kept.

    Arguments as in `exact_p`; every stratum is drawn anew in each of the B orders.
    """
    rng = np.random.default_rng(seed)
    sums_B = np.zeros(n_orders)
    for pairs_NN in pairs_KNN:
        start = 0
        for drawn in _drawn_sums(pairs_NN, n_orders, rng):
            sums_B[start : start + len(drawn)] += drawn
            start += len(drawn)
    published = sum(_published(pairs_NN) for pairs_NN in pairs_KNN)
    return (1 + int(np.count_nonzero(sums_B >= published))) / (n_orders + 1)


def _published(pairs_NN: np.ndarray) -> float:
    return float(np.diagonal(pairs_NN, offset=1).sum())


def _drawn_sums(
    pairs_NN: np.ndarray, n_orders: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Sums over neighbours of uniformly random orders, some thousands at a time."""
    n = len(pairs_NN)
    flat = np.ascontiguousarray(pairs_NN).ravel()
    orders_BN = np.tile(np.arange(n), (min(n_orders, _CHUNK), 1))
    for start in range(0, n_orders, _CHUNK):
        drawn_BN = orders_BN[: n_orders - start]
        rng.permuted(drawn_BN, axis=1, out=drawn_BN)
        yield flat.take(drawn_BN[:, :-1] * n + drawn_BN[:, 1:]).sum(axis=1)


def _peak_mb(way: Callable[[], float]) -> float:
    """Most memory that a way's arrays take at once, megabytes; not timed."""
    tracemalloc.start()
    way()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak * 1e-6
