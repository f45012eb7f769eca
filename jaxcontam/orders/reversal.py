"""Reversal test: the published order against the same order backwards."""

import numpy as np

from jaxcontam.orders.method import OrderFile, OrderMethod
from jaxcontam.stats.orders import reversed_orders, split_strata, stratum_size
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.result import OrderNumbers

# A reversal keeps no neighbour, so short strata lose little and give more of them.
LARGEST_STRATUM = 6


def strata(file: OrderFile, n_orders: int) -> list[np.ndarray]:
    """Contiguous strata of at most 6 examples."""
    size = stratum_size(
        file.n_examples, file.n_ids, file.context, n_orders, limit=LARGEST_STRATUM
    )
    return split_strata(file.n_examples, size)


def analyse(loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int) -> OrderNumbers:
    """Exact sign-flip p-value that strata score higher forwards than backwards.

    Null hypothesis: reversibility, which grouped and label-sorted files satisfy too.
    Not valid where order has an arrow: numbered items, dates, dialogue. Without groups
    a reversal breaks s - 1 neighbours. The seed is that of the Monte Carlo cross-check.

    Source:
        A two-element group of orders in the test of Oren et al., arXiv:2310.17623.
    """
    return randomisation_test(loglik_KM, boundaries_K, scores="centred", seed=seed)


METHOD = OrderMethod(
    name="reversal",
    strata=strata,
    analyse=analyse,
    draw=reversed_orders,
    default_orders=1,
    counted_boundaries=True,
    locates=True,
    null="reversibility",
    validity="exact",
    cost="2 passes",
    finds="the direction of the published order; holds for grouped files",
    source="a two-order group in Oren et al. 2023, arXiv:2310.17623",
)
