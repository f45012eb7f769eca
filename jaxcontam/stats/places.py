"""Draws that follow from the seed and from what a file holds, never from its order."""

from collections.abc import Sequence

import numpy as np


def row_generator(seed: int, content_digest: str, *row: int) -> np.random.Generator:
    """The generator of one row: of the seed, what the file holds, and its number.

    Args:
        seed: The run's seed.
        content_digest: `sha256:...`, blind to the order, or the versions, under test.
        *row: Its number, or several where rows of several kinds are drawn; none is
            the generator of the whole file.
    """
    entropy = int(content_digest.removeprefix("sha256:"), 16)
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, entropy, *row]))
    )


def draw_places(sizes: Sequence[int], *, seed: int, content_digest: str) -> np.ndarray:
    """(K,) int64, uniform in each row, so that no column tells the published one.

    Args:
        sizes: Versions of each row.
        seed: The run's seed.
        content_digest: See `row_generator`.
    """
    return np.array(
        [
            int(row_generator(seed, content_digest, k).integers(size))
            for k, size in enumerate(sizes)
        ],
        np.int64,
    )
