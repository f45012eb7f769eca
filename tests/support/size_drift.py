"""Files whose rows drift in reversible ways, and a clean scorer of their pairs.

The null of direction alone: hidden states of the rows make a reversible chain, so a
file is as likely backwards, but neighbours are alike. Nothing here was tuned on sizes.

Dimension key
    N  rows of a file
    K  strata
    S  examples of a stratum
    G  states
"""

import zlib

import numpy as np

from tests.support.size_designs import direction_p_value, needed_alone, shares

N_STRATA, SIZE = 12, 8
"""Strata of a file and their size: all combinations of reversals can be counted."""


def walk(rng, strengths_GG, n_rows, length):
    """(n_rows,) states of a reversible chain that stays for `length` rows on average.

    The strength of the link between two states is symmetric, with a diagonal of 0.
    """
    totals_G = strengths_GG.sum(axis=1)
    ends_GG = np.cumsum(strengths_GG, axis=1)
    states_N = np.empty(n_rows, np.int64)
    states_N[0] = rng.choice(len(totals_G), p=totals_G / totals_G.sum())
    moves_N, steps_N = rng.random(n_rows) < 1 / length, rng.random(n_rows)
    for i in range(1, n_rows):
        state = states_N[i - 1]
        if moves_N[i]:
            step = steps_N[i] * totals_G[state]
            state = np.searchsorted(ends_GG[state], step, side="right")
        states_N[i] = state
    return states_N


def _topics(rng, n_rows, length):
    """A walk on twelve topics, some of which follow each other often."""
    half_GG = np.triu(np.exp(rng.normal(size=(12, 12))), 1)
    return walk(rng, half_GG + half_GG.T, n_rows, length)


def _labels(rng, n_rows, length):
    """Two labels, three rows to seven; a row keeps the label before it or draws one."""
    fresh_N = rng.random(n_rows) < 1 / length
    fresh_N[0] = True
    drawn_N = (rng.random(n_rows) < 0.3).astype(np.int64)
    return drawn_N[np.maximum.accumulate(np.where(fresh_N, np.arange(n_rows), 0))]


def _styles(rng, n_rows, length):
    """Turns of so many rows by one of three hands; the file begins within a turn."""
    turns_N = (np.arange(n_rows) + rng.integers(int(length))) // int(length)
    return rng.integers(3, size=turns_N[-1] + 1)[turns_N]


KINDS = {
    "topics": _topics,
    "labels": _labels,
    "styles": _styles,
}
"""(generator, rows, rows of a run) -> the hidden state of each row."""

LENGTHS = {"short": 3.0, "long": 12.0}
"""Rows until a state is drawn anew; long runs span several of direction's."""


SCORERS = {"coherent": (0.0, 0.0), "incoherent": (4.0, 0.5)}
"""Attraction alike both ways, as of one joint law; or far from it: for a pair of
states the standard deviation of what one is expected after the other, less the other
way round, in that of the noise; and that of the logarithm of what a row gains."""


def pairs_of(rng, states_N, directed, scaled):
    """(K, S, S) pairs `log p(row b | row a)` of a scorer that never saw the file."""
    n_states = int(states_N.max()) + 1
    states_KS = states_N.reshape(-1, SIZE)
    K, S = states_KS.shape
    # Rows of one state are likelier beside each other, and so are some states.
    links_GG = rng.normal(scale=0.5, size=(n_states, n_states))
    gains_GG = np.eye(n_states) + (links_GG + links_GG.T) / 2
    turns_GG = rng.normal(size=(n_states, n_states))
    gains_GG += directed * (turns_GG - turns_GG.T) / np.sqrt(8)
    gains_KSS = gains_GG[states_KS[:, :, None], states_KS[:, None, :]]
    scale_KS = rng.lognormal(sigma=scaled, size=(K, S))
    shared_KSS, own_KSS = rng.normal(size=(2, K, S, S))
    shared_KSS = np.triu(shared_KSS) + np.swapaxes(np.triu(shared_KSS, 1), 1, 2)
    loud_KS1, heard_KS = rng.lognormal(sigma=0.5, size=(2, K, S))
    noise_KSS = (shared_KSS + own_KSS) / np.sqrt(2)
    noise_KSS *= loud_KS1[:, :, None] * heard_KS[:, None, :]
    rows_KS, columns_KS = rng.normal(scale=10, size=(2, K, S))
    gained_KSS = scale_KS[:, None, :] * gains_KSS + noise_KSS
    return rows_KS[:, :, None] + columns_KS[:, None, :] + gained_KSS


def drift_sizes(kind, length, scorer, n_files):
    """Sizes of direction, of all pairs and of those it needs, over fresh files."""
    words = (kind, length, scorer)
    rng = np.random.default_rng([0, *(zlib.crc32(word.encode()) for word in words)])
    p = {"direction": [], "direction, sparse": []}
    for _ in range(n_files):
        states_N = KINDS[kind](rng, N_STRATA * SIZE, LENGTHS[length])
        pairs_KSS = pairs_of(rng, states_N, *SCORERS[scorer])
        p["direction"].append(direction_p_value(pairs_KSS))
        p["direction, sparse"].append(direction_p_value(needed_alone(pairs_KSS)))
    return {test: shares(values) for test, values in p.items()}
