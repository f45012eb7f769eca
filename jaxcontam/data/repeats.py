"""Equal examples: no order tells them apart, so that one of them is enough."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark


def first_of_equals(texts: Sequence[str]) -> np.ndarray:
    """Indices of the examples that repeat no earlier one, in order: (N,) int64."""
    seen: dict[str, int] = {}
    for i, text in enumerate(texts):
        seen.setdefault(text, i)
    return np.array(list(seen.values()), np.int64)


def without_repeats(benchmark: Benchmark) -> Benchmark:
    """A benchmark of the first of equal examples alone.

    Items that stand in a file several times in one order (samples of one question, say)
    make any model that copies prefer that order, and are none of its own.
    """
    kept = first_of_equals(benchmark.texts)
    if len(kept) == len(benchmark):
        return benchmark
    return dataclasses.replace(
        benchmark,
        texts=tuple(benchmark.texts[i] for i in kept),
        rows=tuple(benchmark.rows[i] for i in kept),
    )
