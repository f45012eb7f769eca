"""SURP: how unlikely those tokens are at which the model was sure of another."""

import numpy as np

from jaxcontam.methods.membership.min_k import FRACTION, n_lowest
from jaxcontam.methods.membership.score import ScoredText, ScoreMethod, moments_of

MOST_ENTROPY = 2.0
"""Nats below which the model counts as sure."""


def surp(
    text: ScoredText, *, fraction: float = FRACTION, most_entropy: float = MOST_ENTROPY
) -> float:
    """Mean log-probability of a text's surprising tokens.

    A token is surprising if it is among the least likely ones of the text and the
    entropy of the model's distribution there is low. Higher is more likely a member. A
    text without a surprising token is given the mean of its least likely tokens, as if
    every entropy were low: the score of `min_k`, on the same scale.

    Args:
        text: Its log-probabilities and means are read.
        fraction: Share of tokens among which the surprising ones are, in (0, 1];
            see `n_lowest`.
        most_entropy: Nats; an entropy must be below it.

    Raises:
        ValueError: If `fraction` is outside (0, 1], or there are no moments.

    Source:
        Zhang and Wu, arXiv:2407.21248. Ported code gives -100 to a text without a
        surprising token, far below all others, though nothing in it surprised.
    """
    means_T, _, _ = moments_of(text)
    logprobs_T = text.logprobs.astype(np.float64)
    keep = n_lowest(len(logprobs_T), fraction)
    lowest = np.argsort(logprobs_T, kind="stable")[:keep]
    sure = lowest[-means_T[lowest] < most_entropy]
    return float(logprobs_T[sure if len(sure) else lowest].mean())


METHOD = ScoreMethod(
    name="surp",
    score=surp,
    reads=("moments",),
    setting=f"k={100 * FRACTION:g}%, entropy < {MOST_ENTROPY:g}",
    needs="log-probabilities of the whole vocabulary",
    cost="1 pass",
    finds="as min_k, reading only places where the model was sure",
    source="Zhang and Wu 2024, arXiv:2407.21248",
    departure="a text without a surprising token gets its Min-K% score, not -100",
)
