"""Rows that hold a copy, one copy at a time: a witness for `train.data`."""

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from train.plant import PlannedSet
from train.tokens import Documents


def steps_of_copy(offset, n_ids, *, starts_R, context, n_ids_in_all):
    """Rows, in the order of training, that hold any target of a copy; ascending."""
    # Row targets are start + 1 .. start + T; the copy is offset .. offset + n - 1.
    gap_R = (starts_R - (offset - context)) % n_ids_in_all
    return np.flatnonzero(gap_R <= n_ids + context - 2)


def canary(name, encoded, copies, **fields):
    """A set of so many texts for `build_stream`, and their ids."""
    n = len(encoded.ids)
    benchmark = Benchmark(name, tuple(map(str, range(n))), (None,) * n)
    return PlannedSet(benchmark=benchmark, copies=copies, **fields), encoded


def in_one(documents):
    """Documents as stretches of one array."""
    lengths = np.array([len(ids) for ids in documents], np.int64)
    return Documents(np.concatenate(documents), np.cumsum(lengths) - lengths, lengths)
