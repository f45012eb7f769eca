"""Reversal test: the published order against the same order backwards."""

from collections.abc import Sequence

import numpy as np

from jaxcontam.methods.method import OrderFile, OrderMethod
from jaxcontam.results import OrderNumbers
from jaxcontam.stats.orders import OrderDesign, reversed_orders
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.strata import split_strata, stratum_size

# A reversal keeps no neighbour, so short strata lose little and give more of them.
LARGEST_STRATUM = 6


def design(file: OrderFile, n_orders: int) -> OrderDesign:
    """Each stratum of at most 6 examples beside its reversal; `n_orders` is 1."""
    if n_orders != 1:
        raise ValueError(f"n_orders must be 1 for a reversal, got {n_orders}")
    size = stratum_size(
        file.n_examples, file.n_ids, file.context, 1, limit=LARGEST_STRATUM
    )
    return reversed_orders(
        split_strata(file.n_examples, size),
        seed=file.seed,
        content_digest=file.content_digest,
        groups=file.groups,
    )


def analyse(loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int) -> OrderNumbers:
    """Exact sign-flip p-value that strata score higher forwards than backwards.

    Null hypothesis: reversibility, which grouped and label-sorted files satisfy too.
    Not valid where order has an arrow: numbered items, dates, dialogue.

    Args:
        loglik_KM: (K, 2) float64, nats, column 0 the published order.
        boundaries_K: Neighbours that the reversal breaks; s - 1 without groups.
        seed: Seeds the Monte Carlo cross-check.

    Source:
        A two-element group of orders in the test of Oren et al., arXiv:2310.17623.
    """
    return randomisation_test(loglik_KM, boundaries_K, scores="centred", seed=seed)


def redraw(
    strata: Sequence[np.ndarray], n_orders: int, *, seed: int, content_digest: str
) -> OrderDesign:
    """Strata beside their reversals once more; `n_orders` is 1, and nothing draws."""
    if n_orders != 1:
        raise ValueError(f"n_orders must be 1 for a reversal, got {n_orders}")
    return reversed_orders(strata, seed=seed, content_digest=content_digest)


METHOD = OrderMethod(
    name="reversal",
    design=design,
    analyse=analyse,
    redraw=redraw,
    default_orders=1,
    counted_boundaries=True,
    locates=True,
    null="reversibility",
    validity="exact",
    cost="2 passes",
    finds="the direction of the published order; holds for grouped files",
    source="a two-order group in Oren et al. 2023, arXiv:2310.17623",
)
