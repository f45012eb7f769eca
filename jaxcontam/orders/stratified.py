"""Stratified order test: the default, exact at any size."""

import numpy as np

from jaxcontam.orders.method import OrderFile, OrderMethod
from jaxcontam.stats.orders import split_strata, stratum_size
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.result import OrderNumbers


def strata(file: OrderFile, n_orders: int) -> list[np.ndarray]:
    """Contiguous strata that fit the context."""
    size = stratum_size(file.n_examples, file.n_ids, file.context, n_orders)
    return split_strata(file.n_examples, size)


def analyse(loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int) -> OrderNumbers:
    """Exact p-value that the published orders' summed scores are this high.

    Null hypothesis: the model is indifferent to the order of exchangeable examples
    within each stratum. Valid at any number of strata and orders. Blind to a model that
    saw the examples in other orders. The seed is that of the Monte Carlo cross-check.

    Source:
        Oren et al., arXiv:2310.17623, section 3.2: the same scores. Departure: the
        law of the summed scores is computed exactly instead of a t-test over shards.
    """
    return randomisation_test(loglik_KM, boundaries_K, scores="auto", seed=seed)


METHOD = OrderMethod(
    name="stratified",
    strata=strata,
    analyse=analyse,
    default_orders=9,
    locates=True,
    null="exchangeability",
    validity="exact",
    cost="m + 1 passes (10)",
    finds="the published order of neighbours; not shuffled copies",
    source="Oren et al. 2023, arXiv:2310.17623, with an exact law",
)
