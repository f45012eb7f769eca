"""What is kept of a file, chosen so that its order plays no unfair part."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError


def without_repeats(
    benchmark: Benchmark, *, groups: Sequence[object] | None = None
) -> Benchmark:
    """A benchmark with one copy of each text, in published order.

    Copies put the same order into many strata, which are then not independent. In a
    file of 2, 4, 8, ... copies the first ones stand sorted by number of copies, however
    well it was shuffled, so the copy that stays is drawn, afresh for each order of the
    rows. Where the rows were equally likely to stand in any order, or backwards, so
    are those that are left. Texts with equally many copies are alike in this, too, and
    their first copies stay: a file written three times keeps its order.

    Args:
        benchmark: Examples in published order.
        groups: One value per example, where orders move examples within groups only:
            copies of a text then must be alike in every group for its first to stay.
    """
    places: dict[str, list[int]] = {}
    for i, text in enumerate(benchmark.texts):
        places.setdefault(text, []).append(i)
    n_all, n_kept = len(benchmark), len(places)
    if n_kept == n_all:
        return benchmark
    alike = _have_equal_copies(benchmark.texts, groups)
    if alike:
        kept = [own[0] for own in places.values()]
    else:
        rng = np.random.default_rng(_order_entropy(benchmark))
        kept = [own[rng.integers(len(own))] for own in places.values()]
    left_out = (
        f"{n_all - n_kept} of {n_all} examples repeat another one and are left out: "
        f"of each text {'the first' if alike else 'a random'} copy stays"
    )
    return dataclasses.replace(
        benchmark,
        left_out=(*benchmark.left_out, left_out),
        texts=tuple(benchmark.texts[i] for i in sorted(kept)),
        rows=tuple(benchmark.rows[i] for i in sorted(kept)),
    )


def _have_equal_copies(
    texts: Sequence[Hashable], groups: Sequence[object] | None
) -> bool:
    """Whether all texts have equally many copies, each in one group."""
    counts = Counter(texts)
    if groups is not None and len(counts) < len(set(zip(texts, groups, strict=True))):
        return False
    return len(set(counts.values())) == 1


def _order_entropy(benchmark: Benchmark) -> int:
    """SHA-256 of all rows in their published order."""
    digest = hashlib.sha256()
    for text, row in zip(benchmark.texts, benchmark.rows, strict=True):
        digest.update(json.dumps([text, row], default=repr).encode() + b"\n")
    return int.from_bytes(digest.digest())


def drawn_places(keys: Sequence[str], n: int | None) -> list[int]:
    """Places of at most n items, ascending, drawn by the SHA-256 of what they hold.

    The first n of a file that is sorted by length, date or difficulty are of one kind,
    and of two files of unequal length of two kinds.

    Raises:
        InputError: If n is below 1.
    """
    if n is not None and n < 1:
        raise InputError(f"--limit must be at least 1, got {n}")
    digests = [hashlib.sha256(key.encode("utf-8", "replace")).digest() for key in keys]
    return sorted(sorted(range(len(keys)), key=digests.__getitem__)[:n])
