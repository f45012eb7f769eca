"""A coin: what the table looks like for a detector that knows nothing."""

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Subject, finding_of_p


def detect(subject: Subject) -> Finding:
    """A uniform p-value, drawn for this model and these texts."""
    p_value = 1 - np.random.default_rng(subject.seed).random()
    return finding_of_p(float(np.log10(p_value)))


ENTRY = Entry(
    name="coin",
    detect=detect,
    gives="p-value",
    family="blind",
    needs=(),
    about="a p-value drawn by chance: what knowing nothing looks like",
    source="",
)
