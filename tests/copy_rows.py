"""Rows that hold a copy, one copy at a time: a witness for `train.timing`."""

import numpy as np


def steps_of_copy(offset, n_ids, *, starts_R, context, n_ids_in_all):
    """Rows, in the order of training, that hold any target of a copy; ascending."""
    # Row targets are start + 1 .. start + T; the copy is offset .. offset + n - 1.
    gap_R = (starts_R - (offset - context)) % n_ids_in_all
    return np.flatnonzero(gap_R <= n_ids + context - 2)
