"""Replication: how much of each second half does the model write, given the first?

No text has to be written. Greedy writing copies a text as long as each next token is
the likeliest one after the tokens before it, which one reading of the text shows.
"""

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Subject

# Nats; a token that ties with the likeliest one counts as written.
_TIE = 1e-5


def detect(subject: Subject) -> Finding:
    """Mean share of second halves that greedy writing copies without a miss."""
    reader = subject.model.with_moments
    if reader is None:
        raise ValueError("distributions were not given")
    sequences = subject.model.sequences(subject.texts)
    shares = []
    for ids, scores_RT in zip(sequences, reader.tokens(sequences), strict=True):
        logprobs_T, _, _, tops_T = scores_RT
        half = len(ids) // 2
        hit = logprobs_T[half:] >= tops_T[half:] - _TIE
        run = len(hit) if hit.all() else int(np.argmin(hit))
        shares.append(run / len(hit))
    return Finding(score=float(np.mean(shares)))


ENTRY = Entry(
    name="first_pieces",
    detect=detect,
    gives="score",
    family="replication",
    needs=("log-probabilities", "distributions"),
    about="share of each second half that greedy writing copies from the first half on",
    source="Golchin and Surdeanu 2023, arXiv:2308.08493; verbatim copies alone",
)
