"""The packed training stream: documents with planted copies between them.

Dimension key
    N  ids of the stream
    R  training rows
    T  targets a row
    C  planted stretches of ids
"""

import dataclasses
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from train.plan import PlannedSet
from train.rows import Timed, in_time, rows_of_spans
from train.tokens import Documents

Canary = tuple[PlannedSet, Encoded]
"""A set to plant and the ids of its `planted` texts."""

# Ids that go by at a time where a stream is read as a whole.
_BLOCK = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stream:
    """Ids to train on, and where the canaries stand in them.

    Attributes:
        ids: (N,) int32 in memory; in a file uint16 where all ids fit.
        offsets: For each set, the place of each copy's first id; none for a set that
            is spread.
        orders: For each set that is shuffled or spread, the order of each copy.
        example_offsets: For each set that is spread, by copy, the place of each
            example's first id.
        timed: What has its own time; see `train.rows`.
        planted: (C, 2) int64, place of the first id and number of ids of all that is
            planted.
        n_canary_ids: Ids that belong to canary copies.
    """

    ids: np.ndarray
    offsets: dict[str, tuple[int, ...]]
    orders: dict[str, tuple[tuple[int, ...], ...]]
    example_offsets: dict[str, tuple[tuple[int, ...], ...]]
    timed: tuple[Timed, ...]
    planted: np.ndarray
    n_canary_ids: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Examples of one copy that stand together, and the boundary where they do."""

    place: float
    canary: int
    copy: int
    examples: tuple[int, ...]
    ids: np.ndarray


# The pieces of one copy, each with the place of its first id.
_Copy = list[tuple[int, _Piece]]


def build_stream(
    documents: Documents,
    canaries: Sequence[Canary],
    *,
    prefix_id: int,
    seed: int,
    out: Path | None = None,
) -> Stream:
    """Lay documents end to end, with each canary copy at a random boundary.

    A copy is one contiguous block; of a set that is spread, each example is. One
    `prefix_id` stands before each document and each block, never between examples.

    Args:
        documents: The background, in its order; ids that are mapped from a file need
            not fit in memory together.
        canaries: Sets to plant with the ids of their texts, no two of one name.
        prefix_id: BOS.
        seed: Seeds the boundaries and the orders of shuffled copies.
        out: A .npy file that takes the ids instead of memory; it stands there once
            it is whole.

    Raises:
        InputError: If its disk has too little room.
    """
    pieces = _pieces(canaries, len(documents), seed=seed)
    n_canary_ids = sum(len(piece.ids) for piece in pieces)
    n_ids = int(documents.lengths.sum()) + len(documents) + n_canary_ids + len(pieces)
    if out is None:
        ids_N = np.empty(n_ids, np.int32)
        begins = _fill(ids_N, documents, pieces, prefix_id)
    else:
        planted = (int(piece.ids.max(initial=0)) for piece in pieces)
        largest = max(prefix_id, _largest(documents), *planted)
        dtype = np.uint16 if largest <= np.iinfo(np.uint16).max else np.int32
        partial = out.with_name(out.name + ".partial")
        _check_room(out.parent, n_ids * np.dtype(dtype).itemsize)
        written_N = np.lib.format.open_memmap(partial, "w+", dtype, (n_ids,))
        begins = _fill(np.asarray(written_N), documents, pieces, prefix_id)
        written_N.flush()
        partial.replace(out)
        ids_N = np.load(out, mmap_mode="r")
    standing: list[_Copy] = [[] for _ in canaries]
    for begin, piece in zip(begins, pieces, strict=True):
        standing[piece.canary].append((begin, piece))
    sets = [one for one, _ in canaries]
    copies = {
        one.name: _copies(one, own) for one, own in zip(sets, standing, strict=True)
    }
    spread = {one.name for one in sets if one.layout == "spread"}
    shuffled = {one.name for one in sets if one.shuffled}
    return Stream(
        ids=ids_N,
        offsets={
            name: () if name in spread else tuple(copy[0][0] for copy in own)
            for name, own in copies.items()
        },
        orders={
            name: tuple(
                tuple(i for _, piece in copy for i in piece.examples) for copy in own
            )
            for name, own in copies.items()
            if name in spread | shuffled
        },
        example_offsets={
            name: tuple(
                tuple(
                    begin for begin, _ in sorted(copy, key=lambda one: one[1].examples)
                )
                for copy in own
            )
            for name, own in copies.items()
            if name in spread
        },
        timed=tuple(timed for one in sets for timed in _timed(one, copies[one.name])),
        planted=np.array([begins, [len(one.ids) for one in pieces]], np.int64).T,
        n_canary_ids=n_canary_ids,
    )


def training_order(
    n_ids: int,
    context: int,
    *,
    seed: int,
    timed: Sequence[Timed] = (),
    planted_C2: np.ndarray | None = None,
    n_trained: int | None = None,
) -> np.ndarray:
    """Where each row of training starts in the stream, in the order of training.

    The stream, a circle, is cut at a random phase into rows of T + 1 ids, each one's
    last id the first of the next, so that every id is a target once; what does not fill
    a row is left out.

    Args:
        n_ids: N, the length of the stream.
        context: T.
        seed: Draws the phase, the random order and random times. Sets that have a
            time of their own move rows; neither where rows are cut nor the order of
            the others depends on them.
        timed: From `Stream.timed`; see `train.rows`.
        planted_C2: From `Stream.planted`: its rows that training would not take change
            places with the last rows that hold none of it.
        n_trained: Rows that training will take of the R; None for all.

    Returns:
        starts_R, int64.
    """
    rng = np.random.default_rng([seed, 2])
    phase, n_rows = int(rng.integers(context)), (n_ids - 1) // context
    starts_R = (phase + context * rng.permutation(n_rows)) % n_ids
    if timed:
        starts_R = in_time(
            starts_R,
            timed,
            context=context,
            n_ids=n_ids,
            seed=seed,
            n_trained=n_trained,
        )
    if planted_C2 is None or n_trained is None:
        return starts_R
    rows, _ = rows_of_spans(
        planted_C2, starts_R=starts_R, context=context, n_ids_in_all=n_ids
    )
    is_planted_R = np.zeros(n_rows, bool)
    is_planted_R[rows] = True
    left_out = n_trained + np.flatnonzero(is_planted_R[n_trained:])
    free = np.flatnonzero(~is_planted_R[:n_trained])[::-1][: len(left_out)]
    left_out = left_out[: len(free)]
    starts_R[free], starts_R[left_out] = starts_R[left_out], starts_R[free]
    return starts_R


def rows_of_copies(
    stream: Stream,
    name: str,
    encoded: Encoded,
    *,
    starts_R: np.ndarray,
    context: int,
) -> list[np.ndarray]:
    """For each copy of a set, the rows that hold any of it, in training order."""
    copies = [
        [(offset, int(encoded.lengths.sum()))] for offset in stream.offsets[name]
    ] + [
        list(zip(offsets, encoded.lengths.tolist(), strict=True))
        for offsets in stream.example_offsets.get(name, ())
    ]
    spans_C2 = np.array([span for copy in copies for span in copy], np.int64)
    rows, spans = rows_of_spans(
        spans_C2.reshape(-1, 2),
        starts_R=starts_R,
        context=context,
        n_ids_in_all=len(stream.ids),
    )
    copy_of_C = np.repeat(np.arange(len(copies)), [len(copy) for copy in copies])
    return [np.unique(rows[copy_of_C[spans] == n]) for n in range(len(copies))]


def stream_digest(ids_N: np.ndarray) -> str:
    """SHA-256 of the ids as little-endian int32, however they are stored."""
    digest = hashlib.sha256()
    for begin in range(0, len(ids_N), _BLOCK):
        digest.update(ids_N[begin : begin + _BLOCK].astype("<i4").tobytes())
    return f"sha256:{digest.hexdigest()}"


def _check_room(folder: Path, n_bytes: int) -> None:
    # A mapped file on a full disk ends the process without a word.
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise InputError(
            f"{folder}: the stream takes {n_bytes / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free",
            hint="free some, or name a larger disk with --out",
        )


def _pieces(canaries: Sequence[Canary], n_documents: int, *, seed: int) -> list[_Piece]:
    """What to plant, in the order of the stream."""
    rng = np.random.default_rng([seed, 1])
    pieces: list[_Piece] = []
    for number, (one, encoded) in enumerate(canaries):
        examples = encoded.ids
        order = np.arange(len(examples))
        whole = np.concatenate(examples)
        for copy in range(one.copies):
            # Boundary j is before document j; the fraction orders its pieces.
            if one.layout == "spread":
                places = rng.integers(n_documents + 1, size=len(examples))
                places = places - rng.random(len(examples))
                pieces += [
                    _Piece(place, number, copy, (i,), examples[i])
                    for i, place in enumerate(places.tolist())
                ]
                continue
            if one.shuffled:
                order = rng.permutation(len(examples))
                whole = np.concatenate([examples[i] for i in order])
            place = int(rng.integers(n_documents + 1)) - rng.random()
            pieces.append(_Piece(place, number, copy, tuple(order.tolist()), whole))
    return sorted(pieces, key=lambda piece: piece.place)


def _largest(documents: Documents) -> int:
    """An id that none exceeds, near enough to tell how many bytes an id takes."""
    if documents.ids.dtype.itemsize < 4:
        return np.iinfo(documents.ids.dtype).max
    return max((int(ids.max(initial=0)) for ids in documents.stretches()), default=0)


def _fill(
    ids_N: np.ndarray, documents: Documents, pieces: Sequence[_Piece], prefix_id: int
) -> list[int]:
    """Write the stream; the place of each piece's first id."""
    # A piece stands before the first document whose number is above its place.
    before = np.array([piece.place for piece in pieces], np.float64)
    before = np.minimum(np.floor(before).astype(np.int64) + 1, len(documents))
    sizes = np.array([1 + len(piece.ids) for piece in pieces], np.int64)
    after_documents = np.cumsum([0, *(1 + documents.lengths)])
    after_pieces = np.cumsum([0, *sizes])
    begins = after_documents[before] + after_pieces[:-1]
    n_before = np.searchsorted(before, np.arange(len(documents)), side="right")
    starts = after_documents[:-1] + after_pieces[n_before]
    ids_N[begins] = prefix_id
    ids_N[starts] = prefix_id
    for to, ids in zip((starts + 1).tolist(), documents.stretches(), strict=True):
        ids_N[to : to + len(ids)] = ids
    begins = (begins + 1).tolist()
    for begin, piece in zip(begins, pieces, strict=True):
        ids_N[begin : begin + len(piece.ids)] = piece.ids
    return begins


def _copies(planned: PlannedSet, standing: _Copy) -> list[_Copy]:
    """The copies of a set: blocks in the stream's order, spread ones by copy number."""
    if planned.layout == "block":
        return [[one] for one in standing]
    copies: list[_Copy] = [[] for _ in range(planned.copies)]
    for one in standing:
        copies[one[1].copy].append(one)
    return copies


def _timed(planned: PlannedSet, copies: Sequence[_Copy]) -> list[Timed]:
    """The times of a set's copies, unless they are uniform."""
    spans = [tuple((begin, len(piece.ids)) for begin, piece in copy) for copy in copies]
    when = planned.when
    if when == "uniform" or not spans:
        return []
    if when == "clustered":
        return [Timed(None, tuple(span for copy in spans for span in copy))]
    return [Timed(when[i % len(when)], copy) for i, copy in enumerate(spans)]
