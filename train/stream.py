"""The packed training stream: documents with canary blocks between them.

Dimension key
    N  ids of the stream
    R  training rows
    T  targets a row
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.encoding import Encoded


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Canary:
    """A test set to plant.

    Attributes:
        name: The set's own name.
        encoded: Its ids, in published order.
        copies: Duplication count; 0 plants nothing.
        shuffled: Draw a fresh order for each copy.
    """

    name: str
    encoded: Encoded
    copies: int
    shuffled: bool = False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Ids to train on, and where the canaries stand in them.

    Attributes:
        ids: (N,) int32.
        offsets: For each set, the place of each copy's first id.
        orders: For each shuffled set, the order of each copy.
        n_canary_ids: Ids that belong to canary copies.
    """

    ids: np.ndarray
    offsets: dict[str, tuple[int, ...]]
    orders: dict[str, tuple[tuple[int, ...], ...]]
    n_canary_ids: int


def build_stream(
    documents: Sequence[np.ndarray],
    canaries: Sequence[Canary],
    *,
    prefix_id: int,
    seed: int,
) -> Stream:
    """Lay documents end to end, with each canary copy at a random boundary.

    A copy is one contiguous block. One `prefix_id` stands before each document and
    each block, never between examples.

    Args:
        documents: Ids of each background document, in their order.
        canaries: Sets to plant.
        prefix_id: BOS.
        seed: Draws the boundaries and the orders of shuffled copies.
    """
    rng = np.random.default_rng([seed, 1])
    blocks: list[tuple[float, str, tuple[int, ...], np.ndarray]] = []
    for canary in canaries:
        order = np.arange(len(canary.encoded.ids))
        for _ in range(canary.copies):
            if canary.shuffled:
                order = rng.permutation(len(order))
            ids = np.concatenate([canary.encoded.ids[i] for i in order])
            # Boundary j lies before document j; the fraction orders its blocks.
            place = int(rng.integers(len(documents) + 1)) - rng.random()
            blocks.append((place, canary.name, tuple(order.tolist()), ids))
    pieces = [(float(j), None, (), ids) for j, ids in enumerate(documents)]
    pieces = sorted([*pieces, *blocks], key=lambda piece: piece[0])
    offsets: dict[str, list[int]] = {canary.name: [] for canary in canaries}
    orders: dict[str, list[tuple[int, ...]]] = {c.name: [] for c in canaries}
    prefix = np.array([prefix_id], np.int32)
    stream, length = [], 0
    for _, name, order, ids in pieces:
        stream += [prefix, ids]
        if name is not None:
            offsets[name].append(length + 1)
            orders[name].append(order)
        length += 1 + len(ids)
    shuffled = {canary.name for canary in canaries if canary.shuffled}
    return Stream(
        ids=np.concatenate(stream).astype(np.int32),
        offsets={name: tuple(found) for name, found in offsets.items()},
        orders={name: tuple(orders[name]) for name in shuffled},
        n_canary_ids=sum(len(ids) for *_, ids in blocks),
    )


def training_rows(
    ids_N: np.ndarray, context: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut the stream into rows at a random phase, and shuffle the rows.

    Returns:
        (R, T + 1) int32 rows, each one's last id the first of the next in the stream,
        so that every id is a target once; and (R,) where each row starts. The stream
        is taken as a circle; what does not fill a row is left out.
    """
    rng = np.random.default_rng([seed, 2])
    N = len(ids_N)
    phase, n_rows = int(rng.integers(context)), (N - 1) // context
    starts_R = (phase + context * rng.permutation(n_rows)) % N
    return ids_N[(starts_R[:, None] + np.arange(context + 1)) % N], starts_R


def steps_of_copy(
    offset: int, n_ids: int, *, starts_R: np.ndarray, context: int, n_ids_in_all: int
) -> np.ndarray:
    """Rows, in the order of training, that hold any target of a copy.

    Args:
        offset: Place of the copy's first id in the stream.
        n_ids: Ids of the copy.
        starts_R: From `training_rows`.
        context: T.
        n_ids_in_all: N.

    Returns:
        Indices of rows, ascending.
    """
    # Row targets are start + 1 .. start + T; the copy is offset .. offset + n - 1.
    gap_R = (starts_R - (offset - context)) % n_ids_in_all
    return np.flatnonzero(gap_R <= n_ids + context - 2)
