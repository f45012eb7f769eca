"""Choice of what is kept of a file, so that its order plays no unfair part."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError


def without_repeats(benchmark: Benchmark) -> Benchmark:
    """A benchmark with one copy of each text, in published order.

    Copies put the same order into many strata, which are then not independent. In a
    file of 2, 4, 8, ... copies the first ones stand sorted by number of copies, however
    well it was shuffled, so the copy that stays is drawn, afresh for each order of the
    rows. Where the rows were equally likely to stand in any order, in any within
    groups, or backwards, so are those that are left. A file that was written several
    times, one whole after the other, is read once.
    """
    places: dict[str, list[int]] = {}
    for i, text in enumerate(benchmark.texts):
        places.setdefault(text, []).append(i)
    n_all, n_kept = len(benchmark), len(places)
    if n_kept == n_all:
        return benchmark
    stays, kept = "the first", list(range(n_kept))
    if benchmark.texts != benchmark.texts[:n_kept] * (n_all // n_kept):
        rng = np.random.default_rng(_order_entropy(benchmark))
        kept, stays = (
            [own[rng.integers(len(own))] for own in places.values()],
            "a random",
        )
    left_out = (
        f"{n_all - n_kept} of {n_all} examples repeat another one and are left out: "
        f"of each text {stays} copy stays"
    )
    return dataclasses.replace(
        benchmark,
        left_out=(*benchmark.left_out, left_out),
        texts=tuple(benchmark.texts[i] for i in sorted(kept)),
        rows=tuple(benchmark.rows[i] for i in sorted(kept)),
    )


def _order_entropy(benchmark: Benchmark) -> int:
    """SHA-256 of all rows in their published order."""
    digest = hashlib.sha256()
    for text, row in zip(benchmark.texts, benchmark.rows, strict=True):
        digest.update(json.dumps([text, row], default=repr).encode() + b"\n")
    return int.from_bytes(digest.digest())


def drawn_places(keys: Sequence[str], n: int | None) -> list[int]:
    """Places of at most n items, ascending, drawn by the SHA-256 of what they hold.

    The first n of a file that is sorted by length, date or difficulty are of one kind,
    and of two files of unequal length of two kinds. Copies are drawn each by itself:
    what is drawn is as a smaller file of the same source.
    """
    if n is not None and n < 1:
        raise InputError(f"--limit must be at least 1, got {n}")
    seen: dict[str, int] = {}
    digests = []
    for key in keys:
        seen[key] = count = seen.get(key, -1) + 1
        words = json.dumps([key, count]).encode()
        digests.append(hashlib.sha256(words).digest())
    return sorted(sorted(range(len(keys)), key=digests.__getitem__)[:n])
