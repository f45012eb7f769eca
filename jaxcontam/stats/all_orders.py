"""Orders of one stratum that cost no model call: all of them, or many draws.

Dimension key
    S  examples of a stratum
    M  orders; the published one comes first
    P  orders of one group
"""

import functools
import itertools
import math

import numpy as np

MOST_ENUMERATED = math.factorial(8)
"""Strata with more distinct orders than this are drawn from."""
N_DRAWN = 100_000
"""Columns of such a stratum, the published order among them."""


def n_stratum_orders(codes_S: np.ndarray, n_most: int | None = None) -> int:
    """Columns that `stratum_orders` gives for a stratum."""
    counts = np.unique(codes_S, return_counts=True)[1]
    n_orders = math.prod(math.factorial(int(count)) for count in counts)
    if n_orders <= (MOST_ENUMERATED if n_most is None else n_most):
        return n_orders
    return N_DRAWN if n_most is None else n_most


def stratum_orders(
    codes_S: np.ndarray, rng: np.random.Generator, n_most: int | None = None
) -> np.ndarray:
    """Orders that move examples only among positions of equal code.

    All of them, once each, if there are at most 8!; else uniform draws with
    replacement, among which the published order takes its place as one more. Either
    way the published order is equally likely to be any column under the null.

    Args:
        codes_S: (S,) int64, the group of each example; all equal without groups.
        rng: Drawn from only where the orders are too many.
        n_most: Orders from which on so many are drawn; None is 8! and 100,000.

    Returns:
        (M, S) int64 positions; row 0 is 0, 1, ..., S - 1.
    """
    members = [np.flatnonzero(codes_S == code) for code in np.unique(codes_S)]
    n_orders = math.prod(math.factorial(len(group)) for group in members)
    n_columns = n_stratum_orders(codes_S, n_most)
    if n_columns == n_orders:
        return _enumerated(tuple(tuple(group.tolist()) for group in members))
    orders_MS = np.tile(np.arange(len(codes_S)), (n_columns, 1))
    for group in members:
        drawn_MP = np.tile(group, (n_columns - 1, 1))
        orders_MS[1:, group] = rng.permuted(drawn_MP, axis=1)
    return orders_MS


# Strata of a file have few sizes, and all orders of eight examples take 2.6 MB.
@functools.lru_cache(maxsize=4)
def _enumerated(members: tuple[tuple[int, ...], ...]) -> np.ndarray:
    n = sum(len(group) for group in members)
    orders_MS = np.zeros((1, n), np.int64)
    for group in members:
        permuted_PG = np.array(list(itertools.permutations(group)), np.int64)
        n_orders, n_permuted = len(orders_MS), len(permuted_PG)
        orders_MS = np.repeat(orders_MS, n_permuted, axis=0)
        orders_MS[:, list(group)] = np.tile(permuted_PG, (n_orders, 1))
    orders_MS.flags.writeable = False
    return orders_MS
