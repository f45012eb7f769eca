"""Which checks of a battery reject: Holm's correction over those that could."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.multiple import holm

LEVEL = 0.01
"""Familywise level of the battery."""


def gate(pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """The same checks, passed or not at the familywise `LEVEL`.

    Args:
        pretests: Checks of one file. What is not applicable always passes and is no
            test to correct for.
    """
    counted = [i for i, test in enumerate(pretests) if test.applicable]
    adjusted = holm(np.array([pretests[i].p_value for i in counted], np.float64))
    failed = {i for i, p in zip(counted, adjusted.tolist(), strict=True) if p <= LEVEL}
    return tuple(
        dataclasses.replace(test, passed=i not in failed)
        for i, test in enumerate(pretests)
    )
