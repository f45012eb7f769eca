"""Order in which requests go out to an engine whose answers may drift."""

from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


def going_out(n_requests: int) -> list[int]:
    """Places of requests in a random order, the same in each run of as many.

    The answers of an engine may change with time, or with what it computes together.
    Rows of the published order stand beside one another in a plan, so such a change
    could favour or harm them; in a random order it is noise that no order gathers.
    """
    return np.random.default_rng(n_requests).permutation(n_requests).tolist()


def put_back(order: list[int], answers: list[_T]) -> list[_T]:
    """Answers in the order of the plan."""
    found = dict(zip(order, answers, strict=True))
    return [found[i] for i in range(len(order))]
