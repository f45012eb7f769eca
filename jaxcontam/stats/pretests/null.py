"""Seeded random orders of a file, p-values against them, and which of them reject.

Dimension key
    N  examples
    R  random orders
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from jaxcontam.stats.multiple import holm
from jaxcontam.stats.orders import split_strata
from jaxcontam.stats.randomisation import SMALLEST_P
from jaxcontam.stats.result import Pretest

Statistic = Callable[[np.ndarray], np.ndarray]
"""Maps `orders_RN`, each row a permutation of range(N), to one float64 per order."""

# Characters read from the beginning of each row, and from its end.
_CHARACTERS = 2_000


def draw_orders(
    n: int,
    n_orders: int,
    *,
    seed: int | tuple[int, ...],
    groups: Sequence[object] | None = None,
) -> Iterator[np.ndarray]:
    """Random orders as `orders_RN` of int32, with few rows at a time.

    Groups move examples among positions of equal value.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    codes_N = group_codes(n, groups)
    by_group_N = np.argsort(codes_N, kind="stable").astype(np.int32)
    starts = np.flatnonzero(np.diff(codes_N[by_group_N])) + 1
    while n_orders:
        # A processor's cache still holds so many indices.
        n_rows = min(n_orders, max(1, 200_000 // n))
        orders_RN = np.empty((n_rows, n), np.int32)
        for members_M in np.split(by_group_N, starts):
            tiled_RM = np.tile(members_M, (n_rows, 1))
            orders_RN[:, members_M] = rng.permuted(tiled_RM, axis=1)
        yield orders_RN
        n_orders -= n_rows


def null_distributions(
    statistics: Mapping[str, Statistic], orders: Iterator[np.ndarray]
) -> dict[str, np.ndarray]:
    """Every statistic over the same orders: float64, one value per order."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for orders_RN in orders:
        for name, statistic in statistics.items():
            parts[name].append(statistic(orders_RN))
    return {name: np.concatenate(part) for name, part in parts.items()}


def permutation_p(observed: float, drawn_R: np.ndarray, *, two_sided: bool) -> float:
    """Share of orders at least as extreme; ties count against rejection.

    One-sided p-values are for large statistics; two-sided ones are twice the smaller.
    """
    tie = 1e-9 * max(1.0, abs(observed))
    above = (1 + np.count_nonzero(drawn_R >= observed - tie)) / (1 + len(drawn_R))
    if not two_sided:
        return float(above)
    below = (1 + np.count_nonzero(drawn_R <= observed + tie)) / (1 + len(drawn_R))
    return min(1.0, 2 * float(min(above, below)))


def tail_p(
    observed: float, drawn_R: np.ndarray, *, two_sided: bool, counts: bool
) -> float:
    """The same by a law fitted to the drawn orders: where none of them is as extreme.

    A normal law, or one of Poisson, with heavier tails, where rare events are counted.
    Not exact: for sums over thousands of examples, far beyond all orders drawn.
    """
    from scipy.special import log_ndtr, pdtr, pdtrc

    if counts:
        # As if one more had been counted: rare events may be in no drawn order.
        mean = (float(drawn_R.sum()) + 1) / len(drawn_R)
        above = float(pdtrc(observed - 1, mean)) if observed >= 1 else 1.0
        below = float(pdtr(observed, mean))
    else:
        z = (observed - float(drawn_R.mean())) / float(drawn_R.std(ddof=1))
        above, below = float(np.exp(log_ndtr(-z))), float(np.exp(log_ndtr(z)))
    p_value = 2 * min(above, below) if two_sided else above
    return min(1.0, max(p_value, SMALLEST_P))


def value_codes(values: Sequence[object]) -> np.ndarray:
    """`codes_N`, int32: equal numbers for values that are written alike."""
    codes: dict[str, int] = {}
    found = [codes.setdefault(repr(value), len(codes)) for value in values]
    return np.array(found, np.int32)


def group_codes(n: int, groups: Sequence[object] | None) -> np.ndarray:
    """`codes_N`, the group of each of n rows; one group where there are none."""
    return value_codes([None] * n if groups is None else groups)


def neighbour_pairs(
    codes_N: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of rows of equal code that follow each other in a contiguous stratum.

    (P,) first and second row of each pair, and its stratum, which ascends.
    """
    n = len(codes_N)
    if n == 0:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    sizes = [len(s) for s in split_strata(n, size)]
    stratum_N = np.repeat(np.arange(len(sizes)), sizes)
    order_N = np.lexsort((np.arange(n), codes_N, stratum_N))
    left, right = order_N[:-1], order_N[1:]
    joined = (stratum_N[left] == stratum_N[right]) & (codes_N[left] == codes_N[right])
    return left[joined], right[joined], stratum_N[left[joined]]


def ends_of(text: str) -> str:
    """The first and the last 2,000 characters of a row; what lies between is cut."""
    if len(text) <= 2 * _CHARACTERS:
        return text
    return f"{text[:_CHARACTERS]}\n{text[-_CHARACTERS:]}"


LEVEL = 0.01
"""Familywise level of the battery."""


def gate(pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """The same checks of a file, passed or not at the familywise `LEVEL`.

    A check that is not applicable always passes and is no test to correct for.
    """
    counted = [i for i, test in enumerate(pretests) if test.applicable]
    adjusted = holm(np.array([pretests[i].p_value for i in counted], np.float64))
    failed = {i for i, p in zip(counted, adjusted.tolist(), strict=True) if p <= LEVEL}
    return tuple(
        dataclasses.replace(test, passed=i not in failed)
        for i, test in enumerate(pretests)
    )
