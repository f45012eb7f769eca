"""Strata: contiguous runs of examples whose order is tested within each run."""

import math

import numpy as np

# Fewer strata than this leave the p-value's floor or a single stratum in charge.
_MIN_STRATA = 20
# Depth that the floor (m + 1)^-K must allow, in decades.
_FLOOR_DECADES = 12


def fewest_strata(n_orders: int) -> int:
    """Strata that keep the floor (m + 1)^-K below 1e-12: 20 at m = 9, 40 at m = 1."""
    return max(_MIN_STRATA, math.ceil(_FLOOR_DECADES / math.log10(n_orders + 1)))


def stratum_size(
    n_examples: int,
    n_ids: int,
    context: int,
    n_orders: int,
    *,
    limit: int | None = None,
) -> int:
    """Examples a stratum: as many as the context holds while the floor stays low.

    A function of the unordered file alone. Packing examples greedily in file
    order would depend on the order under test, and the test would not be exact.

    Returns:
        The size, at least 2.
    """
    fits = (context - 1) * n_examples // n_ids
    size = min(fits, n_examples // fewest_strata(n_orders))
    if limit is not None:
        size = min(size, limit)
    return max(size, 2)


def split_strata(n_examples: int, size: int) -> list[np.ndarray]:
    """Contiguous strata of at most `size` examples; sizes differ by at most 1."""
    n_strata = math.ceil(n_examples / size)
    return np.array_split(np.arange(n_examples), n_strata)


def cut_to_budget(lengths_N: np.ndarray, budget: int) -> int | None:
    """Largest c with sum(min(length, c)) <= budget; None when nothing need be cut.

    Symmetric in the examples, so a cut stratum stays exactly exchangeable.
    """
    if int(lengths_N.sum()) <= budget:
        return None
    low, high = 0, int(lengths_N.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(lengths_N, middle).sum()) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
