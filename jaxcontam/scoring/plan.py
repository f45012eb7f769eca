"""From orders and versions to token sequences, each distinct one once.

The plan puts every stratum's orders, and every row's versions, in their random places,
so whoever scores the sequences cannot know which of them is the published one.

Dimension key
    K  strata, or rows of versions
    M  orders per stratum, M = m + 1
    N  examples
    C  sequences
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.encoding import Encoded, ids_before, own_ids
from jaxcontam.errors import InputError
from jaxcontam.stats.orders import (
    OrderDesign,
    cut_to_budget,
    draw_places,
    from_scoring_columns,
    to_scoring_columns,
)
from jaxcontam.stats.rows import padded


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoringPlan:
    """Sequences of one order test.

    Attributes:
        sequences: Distinct ones, the prefix id first.
        index: (K, M) the sequence of each order, in scoring columns.
        place: (K,) where the published order stands.
        cut: (N,) ids removed from each example in all.
        examples: For each sequence, (example, end of its ids) pairs.
    """

    sequences: tuple[np.ndarray, ...]
    index: np.ndarray
    place: np.ndarray
    cut: np.ndarray
    examples: tuple[tuple[tuple[int, int], ...], ...]

    def matrix(self, loglik_C: np.ndarray) -> np.ndarray:
        """(K, m + 1) float64 from one number a sequence; the published order first."""
        return from_scoring_columns(loglik_C[self.index], self.place)

    def example_at(self, sequence: int, position: int) -> int:
        """The example that holds the id at `position` of a sequence."""
        for example, end in self.examples[sequence]:
            if position < end:
                return example
        raise IndexError(position)


def plan_orders(
    design: OrderDesign,
    encoded: Encoded,
    *,
    prefix_id: int | None,
    context: int,
    windowed: bool,
) -> ScoringPlan:
    """Lay out every order of every stratum as a sequence of ids.

    The prefix id stands before each sequence, unless each example begins with it.
    `windowed` leaves long strata whole, to be scored in windows. Otherwise a stratum of
    more than context - 1 ids is cut, each example to the same largest length that fits.
    """
    prefix = ids_before(prefix_id, encoded.ids)
    cut_N = encoded.n_cut_ids.copy()
    known: dict[bytes, int] = {}
    sequences, examples = [], []
    if not design.n_strata:
        index_KM = np.zeros((0, design.n_orders + 1), np.int64)
        return ScoringPlan((), index_KM, design.place, cut_N, ())
    emitted_KMS = to_scoring_columns(design.orders, design.place)
    index_KM = np.empty(emitted_KMS.shape[:2], np.int64)
    for k, orders_MS in enumerate(emitted_KMS):
        members = np.sort(orders_MS[0][orders_MS[0] >= 0])
        lengths = encoded.lengths[members]
        length = None if windowed else cut_to_budget(lengths, context - 1)
        if length is not None:
            if length <= len(encoded.separator):
                raise InputError(
                    f"no two examples fit the model's context of {context} tokens",
                    hint="use a model with a longer context",
                )
            cut_N[members] += np.maximum(lengths - length, 0).astype(np.int32)
        for j, order_S in enumerate(orders_MS):
            order = order_S[order_S >= 0].tolist()
            parts = [encoded.cut(i, length) for i in order]
            sequence = np.concatenate([prefix, *parts])
            key = sequence.tobytes()
            if key not in known:
                known[key] = len(sequences)
                sequences.append(sequence)
                ends = len(prefix) + np.cumsum([len(part) for part in parts])
                examples.append(tuple(zip(order, ends.tolist(), strict=True)))
            index_KM[k, j] = known[key]
    return ScoringPlan(tuple(sequences), index_KM, design.place, cut_N, tuple(examples))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class VersionPlan:
    """Sequences of a test of versions.

    `index` is, for each row, the sequence of each version, in scoring columns; `place`
    (K,) where the published version stands while it is scored.
    """

    sequences: tuple[np.ndarray, ...]
    index: tuple[np.ndarray, ...]
    place: np.ndarray

    def rows(self, values_C: np.ndarray) -> list[np.ndarray]:
        """One float64 array a row from one number per sequence; published first."""
        return [
            values_C[np.concatenate([index[[place]], np.delete(index, place)])]
            for index, place in zip(self.index, self.place, strict=True)
        ]

    def matrix(self, values_C: np.ndarray) -> np.ndarray:
        """(K, m + 1) float64, see `rows`; short rows end in NaN."""
        return padded(self.rows(values_C))

    def version_of(self, sequence: int) -> tuple[int, int]:
        """The first row and version (0 = published) that a sequence belongs to."""
        for k, (index, place) in enumerate(zip(self.index, self.place, strict=True)):
            for column in np.flatnonzero(index == sequence).tolist():
                if column == place:
                    return k, 0
                return k, column + 1 if column < place else column
        raise IndexError(sequence)


def plan_versions(
    rows: Sequence[Sequence[np.ndarray]],
    *,
    prefix_id: int | None,
    seed: int,
    content_digest: str,
) -> VersionPlan:
    """Lay out rows of versions, the published one of each, its first, at random.

    `content_digest` is blind to which that is; with the seed and the row's number it
    seeds the place.
    """
    prefix = np.array([] if prefix_id is None else [prefix_id], np.int32)
    places = draw_places(list(map(len, rows)), seed=seed, content_digest=content_digest)
    known: dict[bytes, int] = {}
    sequences: list[np.ndarray] = []
    indices = []
    for versions, place in zip(rows, places.tolist(), strict=True):
        emitted = [*versions[1:]]
        emitted.insert(place, versions[0])
        index = []
        for ids in emitted:
            own = own_ids(ids, prefix_id)
            sequence = np.concatenate([prefix, own]).astype(np.int32)
            key = sequence.tobytes()
            if key not in known:
                known[key] = len(sequences)
                sequences.append(sequence)
            index.append(known[key])
        indices.append(np.array(index, np.int64))
    return VersionPlan(tuple(sequences), tuple(indices), places)
