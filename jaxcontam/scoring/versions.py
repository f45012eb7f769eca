"""Versions of texts as sequences to score, each distinct one once.

Each row's published version takes a random place among its counterfactuals, so
whoever scores the sequences cannot know which of them it is.

Dimension key
    K  rows
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.places import draw_places


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class VersionPlan:
    """Sequences of a test of versions.

    Attributes:
        sequences: Distinct int32 id arrays, the prefix id first.
        index: For each row the sequence of each version, in scoring columns.
        place: (K,) int64; where the published version stands while it is scored.
    """

    sequences: tuple[np.ndarray, ...]
    index: tuple[np.ndarray, ...]
    place: np.ndarray

    def rows(self, values: np.ndarray) -> list[np.ndarray]:
        """One float64 array a row from one number per sequence; published first."""
        return [
            np.concatenate([row[place : place + 1], np.delete(row, place)])
            for row, place in zip(
                (values[index] for index in self.index), self.place, strict=True
            )
        ]

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
    """Lay out rows of versions, the published one of each at a random place.

    Args:
        rows: Ids of each version, the published one first; rows may differ in length.
        prefix_id: Put before each sequence if the tokenizer has one.
        seed: The run's seed.
        content_digest: Digest of the versions, blind to which is published; with the
            seed and the row's number it seeds the place.
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
            sequence = np.concatenate([prefix, ids]).astype(np.int32)
            key = sequence.tobytes()
            if key not in known:
                known[key] = len(sequences)
                sequences.append(sequence)
            index.append(known[key])
        indices.append(np.array(index, np.int64))
    return VersionPlan(tuple(sequences), tuple(indices), places)
