"""Permutation test of the whole file."""

import dataclasses

import numpy as np

from jaxcontam.orders.method import OrderMethod
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.result import OrderNumbers


def analyse(loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int) -> OrderNumbers:
    """(1 + #{orders that score as high}) / (m + 1), ties counting against detection.

    Null hypothesis: the model is indifferent to the order of exchangeable examples. The
    p-value is never below 1 / (m + 1), however strong the contamination. The seed
    changes nothing: one stratum has nothing to re-draw.

    Source:
        Oren et al., arXiv:2310.17623, section 3.1; Phipson and Smyth (2010) for the
        added 1.
    """
    numbers = randomisation_test(loglik_KM, boundaries_K, seed=seed)
    return dataclasses.replace(numbers, p_monte_carlo=numbers.p_value)


METHOD = OrderMethod(
    name="permutation",
    # The whole file as one stratum, scored in windows.
    strata=lambda file, n_orders: [np.arange(file.n_examples)],
    analyse=analyse,
    default_orders=99,
    windowed=True,
    null="exchangeability",
    validity="exact",
    cost="m + 1 passes (100), twice that in windows",
    finds="the published order of the file; p not below 1 / (m + 1)",
    source="Oren et al. 2023, arXiv:2310.17623, section 3.1",
)
