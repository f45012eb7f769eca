"""Algebra of pair matrices: how much each example is expected after each other one.

Entry [i, j] of a pair matrix is log p(example j | example i), the diagonal is not
used. A path visits every example once, and its statistic sums the entries between
neighbours; under exchangeability the published order is a uniformly random path.

Dimension key
    S  examples of a stratum
    M  orders
"""

import functools
import math

import numpy as np

FEWEST_EXAMPLES = 4
"""Smallest stratum: double centring leaves nothing of three examples."""

LAGS = tuple(h for h in range(-5, 6) if h != 0)
"""Places after (or before) an example that the lag profile looks at."""


def double_centred(pairs_SS: np.ndarray) -> np.ndarray:
    """A pair matrix without row and column effects; off-diagonal sums become 0.

    Row effects say how well an example predicts anything, column effects how likely it
    is after anything. Without them a path no longer depends on which examples come
    first and last, so the noise falls and the signal stays. A function of the contents
    alone, so the order test stays exact. Diagonals are ignored, and returned as 0.

    Source:
        Effects of the social relations model (Warner, Kenny and Stoto 1979).
    """
    *_, n, _ = pairs_SS.shape
    if n < 3:
        raise ValueError(f"a pair matrix needs at least 3 examples, got {n}")
    off_SS = _off_diagonal(pairs_SS)
    rows_S, columns_S = off_SS.sum(-1), off_SS.sum(-2)
    total = off_SS.sum((-2, -1))[..., None]
    scale = n * (n - 2)
    row_effect_S = ((n - 1) * rows_S + columns_S - total) / scale
    column_effect_S = ((n - 1) * columns_S + rows_S - total) / scale
    mean = total[..., None] / (n * (n - 1))
    return _off_diagonal(
        off_SS - mean - row_effect_S[..., :, None] - column_effect_S[..., None, :]
    )


def path_moments(pairs_SS: np.ndarray) -> tuple[float, float]:
    """Mean and variance of the path statistic over all S! orders, in closed form.

    Source:
        The permutation moments of a doubly indexed sum over an open path, as for
        serial correlation (Wald and Wolfowitz 1943); derived anew and checked by
        enumeration.
    """
    n, _ = pairs_SS.shape
    off_SS = _off_diagonal(pairs_SS)
    rows_S, columns_S, total = off_SS.sum(1), off_SS.sum(0), off_SS.sum()
    squares, products = (off_SS**2).sum(), (off_SS * off_SS.T).sum()
    effects = rows_S @ rows_S + columns_S @ columns_S + products
    variance = (squares - effects / n + (total / n) ** 2) / (n - 1)
    return float(total / n), max(0.0, float(variance))


def path_sums(pairs_SS: np.ndarray, orders_MS: np.ndarray) -> np.ndarray:
    """(M,) path statistic of each order.

    Orders that are never written to share the sums of what they begin with.
    """
    n, _ = pairs_SS.shape
    flat = np.ascontiguousarray(pairs_SS).ravel()
    if not orders_MS.flags.writeable:
        sums_M = np.zeros(1)
        for n_next, cells in _beginnings(_Constant(orders_MS)):
            sums_M = np.repeat(sums_M, n_next)
            sums_M += flat[cells]
        return sums_M
    sums_M = np.zeros(len(orders_MS))
    # One neighbour after the other: a table of all of them would not stay in cache.
    for left_M, right_M in zip(orders_MS.T[:-1], orders_MS.T[1:], strict=True):
        sums_M += flat[left_M * n + right_M]
    return sums_M


class _Constant:
    """An array that is never written to: a key by itself, not by its contents."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


@functools.lru_cache(maxsize=4)
def _beginnings(orders: _Constant) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each neighbour: how many beginnings follow each shorter one, their cells."""
    orders_MS = orders.array
    M, S = orders_MS.shape
    # Where an order differs from the one before it, up to each example.
    is_new_MS = np.ones((M, S), bool)
    is_new_MS[1:] = np.logical_or.accumulate(orders_MS[1:] != orders_MS[:-1], axis=1)
    # The first neighbour begins no order but itself.
    found, starts = [], np.zeros(1, np.int64)
    for right in range(1, S):
        # The last examples tell orders apart that are drawn twice.
        is_new_M = is_new_MS[:, right] if right < S - 1 else np.ones(M, bool)
        next_starts = np.flatnonzero(is_new_M)
        n_next = np.diff(np.searchsorted(next_starts, starts), append=len(next_starts))
        cells = orders_MS[next_starts, right - 1] * S + orders_MS[next_starts, right]
        found.append((n_next, cells))
        starts = next_starts
    return found


def boundaries_matrix(n: int) -> np.ndarray:
    """Gain of 1 at each published boundary, as a centred pair matrix."""
    return double_centred(np.eye(n, k=1))


def symmetry(centred: list[np.ndarray]) -> float | None:
    """Correlation of [i, j] with [j, i] over all strata; None if nothing varies.

    Near 1, an order and its reverse score alike by chance, and a reversal test is
    nearly as strong as one over all orders; near 0 it is weaker by 1 / sqrt(2).
    """
    products = sum(float((pairs_SS * pairs_SS.T).sum()) for pairs_SS in centred)
    squares = sum(float((pairs_SS**2).sum()) for pairs_SS in centred)
    return products / squares if squares > 0 else None


def lag_profile(centred: list[np.ndarray]) -> tuple[float | None, ...]:
    """Mean centred entry [i, i + h] for h in `LAGS`, in standard deviations.

    A memorised order is a spike at +1; topics that drift through a file are a smooth
    hill on both sides. None where no stratum is as long as the lag.
    """
    squares = sum(float((pairs_SS**2).sum()) for pairs_SS in centred)
    count = sum(len(pairs_SS) * (len(pairs_SS) - 1) for pairs_SS in centred)
    if squares == 0:
        return (None,) * len(LAGS)
    sd = math.sqrt(squares / count)
    profile = []
    for lag in LAGS:
        found = [np.diagonal(pairs_SS, lag) for pairs_SS in centred]
        n_found, total = sum(map(len, found)), sum(float(x.sum()) for x in found)
        profile.append(total / n_found / sd if n_found else None)
    return tuple(profile)


def _off_diagonal(pairs_SS: np.ndarray) -> np.ndarray:
    return np.where(np.eye(pairs_SS.shape[-1], dtype=bool), 0.0, pairs_SS)
