"""What a membership score reads of a text, and what a row of METHODS says of it.

Dimension key
    T  scored tokens of a text
    R  rewrites of a text, such as its neighbours
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

import numpy as np

Reading = Literal[
    "moments",
    "lowercase",
    "neighbours",
    "reference",
    "corpus",
    "nonmember_prefix",
    "member_prefix",
    "gradients",
]
"""What a score needs beside the log-probabilities of the text itself."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredText:
    """What a model says of one text; at least one token is scored.

    Attributes:
        text: As it was encoded.
        ids: (T,) int32, the tokens that have a score.
        logprobs: (T,) float32, nats.
        means: (T,) float32, mean of log p under the model's own distribution there;
            minus the entropy. None, like the next two, without `moments`.
        variances: (T,) float32, its variance.
        tops: (T,) float32, log-probability of the likeliest token.
        corpus_logprobs: (T,) float64, log of each token's smoothed frequency in the
            corpus that the user named; or None.
        rewrites: Reading -> (R,) float64, mean log-probability a token of the
            lowercased text, of each neighbour, of the text under the reference model or
            after a prefix; for `gradients`, one norm.
    """

    text: str
    ids: np.ndarray
    logprobs: np.ndarray
    means: np.ndarray | None = None
    variances: np.ndarray | None = None
    tops: np.ndarray | None = None
    corpus_logprobs: np.ndarray | None = None
    rewrites: Mapping[Reading, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability a token, nats, summed in float64."""
        return float(self.logprobs.mean(dtype=np.float64))
