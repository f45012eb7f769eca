"""Inputs of a membership score, and its row of METHODS.

Dimension key
    N  texts
    M  scores
    T  scored tokens of a text
    R  rewrites of a text, such as its neighbours
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from jaxcontam.reports.methods import MethodRow

Reading = Literal[
    "moments",
    "lowercase",
    "neighbours",
    "reference",
    "corpus",
    "nonmember_prefix",
    "member_prefix",
    "own_file",
    "gradients",
]
"""Inputs of a score besides the log-probabilities of the text itself."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredText:
    """Readings of one text; at least one token is scored.

    `ids` are the T tokens with a score; log-probabilities are in nats.

    Attributes:
        means: (T,) float32, mean of log p under the model's own distribution there;
            minus the entropy. None, like the next two, without `moments`.
        variances: (T,) float32, its variance.
        tops: (T,) float32, log-probability of the likeliest token.
        corpus_logprobs: (T,) float64, log of each token's smoothed frequency in the
            corpus that the user named; or None.
        rewrites: Reading -> (R,) float64, mean log-probability a token of the
            lowercased text, of each neighbour, of the text under the reference model,
            after a prefix or after another text; for `gradients`, one norm.
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

    def rewrite(self, reading: Reading) -> np.ndarray:
        """(R,) float64, see `rewrites`."""
        if reading not in self.rewrites:
            raise ValueError(f"{reading} was not read of this text")
        return self.rewrites[reading]

    def only(self, reading: Reading) -> float:
        """The number of a reading that has one."""
        (value,) = self.rewrite(reading)
        return float(value)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMethod(MethodRow):
    """A membership score: a ranking, not a test.

    Attributes:
        setting: Its parameter where it has one, such as `k=20%`.
        departure: How it differs from the authors' code; empty where it does not.
    """

    label: str = ""
    score: Callable[[ScoredText], float]
    reads: tuple[Reading, ...] = ()
    setting: str = ""
    departure: str = ""

    @property
    def gives(self) -> str:
        """A ranking, with its parameter."""
        return f"a ranking, {self.setting}" if self.setting else "a ranking"

    @property
    def example(self) -> str:
        """The command that asks for this score alone."""
        return f"jaxcontam membership MODEL labelled.jsonl --scores {self.name}"


def moments_of(text: ScoredText) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, variances and tops of a text, each (T,) float64."""
    if text.means is None or text.variances is None or text.tops is None:
        raise ValueError("moments were not read of this text")
    means_T, variances_T, tops_T = (
        part.astype(np.float64) for part in (text.means, text.variances, text.tops)
    )
    return means_T, variances_T, tops_T
