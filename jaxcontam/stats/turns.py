"""Sequence in which strata, and random orders of a whole file, are scored.

All of it is fixed by the seed, by what the file holds and by counts: never by scores,
by the order under test, or by the machine.

Dimension key
    K  strata
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from jaxcontam.stats.orders import OrderDesign, draw_orders
from jaxcontam.stats.places import row_generator

# Strata before the first look at the wealth: one stratum multiplies it by at most
# m + 1, so fewer of them hardly reach 1,000.
_FIRST_LOOK = 8
# Each look has a quarter more strata than the one before: at most a fifth of what is
# scored is scored in vain.
_GROWTH = 1.25
# Orders of a whole file between two looks; the published one is among the first.
_CHUNK = 16
# Key of the generator that puts strata in turn: no stratum has this number.
_TURN_STREAM = 2**63


def looks(n_strata: int) -> Iterator[int]:
    """Numbers of strata after which the wealth is looked at; the last is all."""
    n = _FIRST_LOOK
    while n < n_strata:
        yield n
        n = math.ceil(n * _GROWTH)
    yield n_strata


def strata_turns(n_strata: int, *, seed: int, content_digest: str) -> np.ndarray:
    """(K,) the order in which strata are scored; fixed before any is.

    A function of the seed and of what the file holds, not of its order or scores.
    """
    return row_generator(seed, content_digest, _TURN_STREAM).permutation(n_strata)


def n_chunks(n_orders: int) -> int:
    """Chunks that hold the published order and `n_orders` random ones."""
    return math.ceil((n_orders + 1) / _CHUNK)


def whole_file_chunk(
    c: int,
    n_orders: int,
    *,
    n_examples: int,
    seed: int,
    content_digest: str,
    groups: Sequence[object] | None = None,
) -> OrderDesign:
    """Chunk c of the orders of a whole file; the published one heads the first alone.

    Args:
        c: Number of the chunk; it has its own generator.
        n_orders: Random orders in all chunks.
        n_examples: N.
        seed: The run's seed.
        content_digest: Digest of the benchmark's content.
        groups: As in `draw_orders`.
    """
    in_chunk = min(_CHUNK, n_orders + 1 - c * _CHUNK)
    design = draw_orders(
        [np.arange(n_examples)],
        in_chunk - (c == 0),
        seed=seed,
        content_digest=content_digest,
        groups=groups,
        first=c,
    )
    if c == 0:
        return design
    return OrderDesign(
        design.orders[:, 1:], np.zeros_like(design.place), design.n_dropped
    )


def whole_file_orders(
    n_scored: int,
    n_orders: int,
    *,
    n_examples: int,
    seed: int,
    content_digest: str,
) -> OrderDesign:
    """The published order and the first `n_scored` of the random ones.

    Arguments as in `whole_file_chunk`.
    """
    chunks = [
        whole_file_chunk(
            c, n_orders, n_examples=n_examples, seed=seed, content_digest=content_digest
        )
        for c in range(n_chunks(min(n_scored, n_orders)))
    ]
    orders_KMS = np.concatenate([chunk.orders for chunk in chunks], axis=1)
    return OrderDesign(orders_KMS[:, : n_scored + 1], chunks[0].place, 0)
