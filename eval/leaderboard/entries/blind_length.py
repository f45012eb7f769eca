"""Blind: mean length of the texts. It reads no model, so it must be at chance."""

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Subject


def detect(subject: Subject) -> Finding:
    """Mean number of characters."""
    return Finding(score=float(np.mean([len(text) for text in subject.texts])))


ENTRY = Entry(
    name="blind_length",
    detect=detect,
    gives="score",
    family="blind",
    needs=(),
    about="mean length of the texts; reads no model, so it must be at chance",
    source="Das et al. 2024, arXiv:2406.16201",
)
