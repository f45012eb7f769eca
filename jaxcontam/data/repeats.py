"""Removal of exact repeats of an example."""

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark


def first_of_equals(texts: Sequence[Hashable]) -> np.ndarray:
    """Indices of the texts, or ids as tuples, to keep: the first of equal ones.

    Items repeated in the same order, such as several samples of each question, put the
    same order into many strata, which are then not independent of each other.

    Returns:
        (n,) int64, ascending; all indices if no two examples are equal.
    """
    first: dict[Hashable, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(text, i)
    return np.fromiter(first.values(), np.int64, len(first))


def without_repeats(benchmark: Benchmark) -> Benchmark:
    """A benchmark without repeats: the first of equal texts, in order."""
    kept = first_of_equals(benchmark.texts)
    if len(kept) == len(benchmark):
        return benchmark
    n = len(benchmark) - len(kept)
    left_out = (
        f"{n} of {len(benchmark)} examples repeat an earlier one and are left out"
    )
    return dataclasses.replace(
        benchmark,
        left_out=(*benchmark.left_out, left_out),
        texts=tuple(benchmark.texts[i] for i in kept),
        rows=tuple(benchmark.rows[i] for i in kept),
    )
