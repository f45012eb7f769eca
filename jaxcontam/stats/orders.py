"""Strata of a file, and counterfactual orders of each that anybody can draw again.

Strata are contiguous runs of examples, whose order is tested within each run. Draws
follow from the seed and from what a file holds, never from its order.

Dimension key
    K  strata
    M  orders per stratum, M = m + 1; the published one and m counterfactuals
    S  examples in the largest stratum
    N  examples in a stratum
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np


def fewest_strata(n_orders: int) -> int:
    """Strata that keep the floor (m + 1)^-K below 1e-12: 20 at m = 9, 40 at m = 1.

    Fewer than 20 would leave a single stratum in charge.
    """
    return max(20, math.ceil(12 / math.log10(n_orders + 1)))


def stratum_size(
    n_examples: int,
    n_ids: int,
    context: int,
    n_orders: int,
    *,
    limit: int | None = None,
) -> int:
    """Examples a stratum: as many as the context holds while the floor stays low.

    A function of the unordered file alone: packing examples greedily in file order
    would depend on the order under test. At least two.
    """
    fits = (context - 1) * n_examples // n_ids
    size = min(fits, n_examples // fewest_strata(n_orders))
    if limit is not None:
        size = min(size, limit)
    return max(size, 2)


def split_strata(n_examples: int, size: int) -> list[np.ndarray]:
    """Contiguous strata of at most `size` examples; sizes differ by at most 1."""
    return np.array_split(np.arange(n_examples), math.ceil(n_examples / size))


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


def row_generator(seed: int, content_digest: str, *row: int) -> np.random.Generator:
    """Generator of one row: of the seed, what the file holds, and the row's number.

    The digest is blind to the order, or the versions, under test. Several numbers tell
    rows of several kinds apart; none is the generator of the whole file.
    """
    entropy = int(content_digest.removeprefix("sha256:"), 16)
    return np.random.default_rng([seed, entropy, *row])


def draw_places(sizes: Sequence[int], *, seed: int, content_digest: str) -> np.ndarray:
    """(K,) int64, uniform in each row, so that no column tells the published one."""
    places = [
        int(row_generator(seed, content_digest, k).integers(size))
        for k, size in enumerate(sizes)
    ]
    return np.array(places, np.int64)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OrderDesign:
    """Orders to score, before any model has been asked.

    Attributes:
        orders: (K, m + 1, s_max) int32; column 0 is published, -1 pads short strata.
        place: (K,) where the published order stands among the m + 1 while they are
            scored, so that no column can be told apart by its position.
        n_dropped: Strata whose orders are all the same.
    """

    orders: np.ndarray
    place: np.ndarray
    n_dropped: int

    @property
    def n_strata(self) -> int:
        """K, the strata that take part."""
        return self.orders.shape[0]

    @property
    def n_orders(self) -> int:
        """m, the counterfactual orders per stratum."""
        return self.orders.shape[1] - 1


def draw_orders(
    strata: Sequence[np.ndarray],
    n_orders: int,
    *,
    seed: int,
    content_digest: str,
    groups: Sequence[object] | None = None,
) -> OrderDesign:
    """Draw m uniform orders for each stratum, with replacement.

    The generator of stratum k is seeded by (seed, content digest, k): draws depend on
    what the file holds, never on the order under test, and strata are independent, as
    the exact test needs. With groups, examples move among positions of equal value.
    """

    def shuffled(
        stratum_N: np.ndarray, codes_N: np.ndarray, rng: np.random.Generator
    ) -> list[np.ndarray]:
        by_group_N = np.argsort(codes_N, kind="stable")
        drawn = []
        for _ in range(n_orders):
            order_N = np.empty(len(stratum_N), np.int64)
            order_N[by_group_N] = np.lexsort((rng.random(len(stratum_N)), codes_N))
            drawn.append(stratum_N[order_N])
        return drawn

    return _design(strata, shuffled, n_orders, seed, content_digest, groups)


def reversed_orders(
    strata: Sequence[np.ndarray],
    n_orders: int = 1,
    *,
    seed: int,
    content_digest: str,
    groups: Sequence[object] | None = None,
) -> OrderDesign:
    """The published order of each stratum beside its reversal: m must be 1.

    The seed only places the published order.
    """
    if n_orders != 1:
        raise ValueError(f"n_orders must be 1 for a reversal, got {n_orders}")

    def reversal(
        stratum_N: np.ndarray, codes_N: np.ndarray, rng: np.random.Generator
    ) -> list[np.ndarray]:
        reversed_N = stratum_N.copy()
        for code in np.unique(codes_N):
            positions = np.flatnonzero(codes_N == code)
            reversed_N[positions] = stratum_N[positions[::-1]]
        return [reversed_N]

    return _design(strata, reversal, 1, seed, content_digest, groups)


def published_orders(
    strata: Sequence[np.ndarray], *, groups: Sequence[object] | None = None
) -> tuple[OrderDesign, np.ndarray]:
    """The published order of each stratum alone, for tests that score pairs.

    Gives a design with one column, and (K, s_max) int64 codes of equal groups; strata
    with a single order are left out.
    """
    codes = [_group_codes(stratum_N, groups) for stratum_N in strata]
    # Codes count up from 0.
    kept = [k for k, own in enumerate(codes) if own.max() + 1 < len(own)]
    largest = max((len(strata[k]) for k in kept), default=0)
    orders_K1S = np.full((len(kept), 1, largest), -1, np.int32)
    codes_KS = np.zeros((len(kept), largest), np.int64)
    for row, k in enumerate(kept):
        orders_K1S[row, 0, : len(strata[k])] = strata[k]
        codes_KS[row, : len(strata[k])] = codes[k]
    place_K = np.zeros(len(kept), np.int64)
    return OrderDesign(orders_K1S, place_K, len(strata) - len(kept)), codes_KS


def boundaries_gained(orders_KMS: np.ndarray, *, counted: bool) -> np.ndarray:
    """True neighbours that the published order has over the counterfactual ones, (K,).

    Counts those that the drawn orders keep where `counted` (needed with groups; for a
    reversal it gives s - 1), else takes the mean over all s! orders, (s - 1)(1 - 1/s).
    """
    sizes_K = (orders_KMS[:, 0] >= 0).sum(-1).astype(np.float64)
    if counted:
        left_KMS, right_KMS = orders_KMS[:, :, :-1], orders_KMS[:, :, 1:]
        kept_KM = ((right_KMS == left_KMS + 1) & (left_KMS >= 0)).sum(-1)
        return (sizes_K - 1) - kept_KM[:, 1:].mean(-1)
    return (sizes_K - 1) * (1 - 1 / sizes_K)


def to_scoring_columns(values_KM: np.ndarray, place_K: np.ndarray) -> np.ndarray:
    """Move column 0 to `place` in each row: the order in which rows are scored."""
    return np.stack(
        [
            np.insert(row[1:], place, row[0], axis=0)
            for row, place in zip(values_KM, place_K, strict=True)
        ]
    )


def from_scoring_columns(values_KM: np.ndarray, place_K: np.ndarray) -> np.ndarray:
    """Undo `to_scoring_columns`: the published column comes first again."""
    return np.stack(
        [
            np.concatenate([row[place : place + 1], np.delete(row, place, axis=0)])
            for row, place in zip(values_KM, place_K, strict=True)
        ]
    )


def _design(
    strata: Sequence[np.ndarray],
    counterfactuals: Callable[
        [np.ndarray, np.ndarray, np.random.Generator], list[np.ndarray]
    ],
    n_orders: int,
    seed: int,
    content_digest: str,
    groups: Sequence[object] | None,
) -> OrderDesign:
    """Orders of every stratum that has more than one, each from its own generator."""
    columns, places, dropped = [], [], 0
    for k, stratum_N in enumerate(strata):
        codes_N = _group_codes(stratum_N, groups)
        if len(np.unique(codes_N)) == len(stratum_N):
            dropped += 1
            continue
        rng = row_generator(seed, content_digest, k)
        columns.append([stratum_N, *counterfactuals(stratum_N, codes_N, rng)])
        places.append(int(rng.integers(n_orders + 1)))
    largest = max((len(orders[0]) for orders in columns), default=0)
    orders_KMS = np.full((len(columns), n_orders + 1, largest), -1, np.int32)
    for k, orders in enumerate(columns):
        orders_KMS[k, :, : len(orders[0])] = np.stack(orders)
    return OrderDesign(orders_KMS, np.array(places, np.int64), dropped)


def _group_codes(stratum_N: np.ndarray, groups: Sequence[object] | None) -> np.ndarray:
    """Codes of equal values in order of first appearance; zeros without groups."""
    if groups is None:
        return np.zeros(len(stratum_N), np.int64)
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(groups[i], len(seen)) for i in stratum_N])
