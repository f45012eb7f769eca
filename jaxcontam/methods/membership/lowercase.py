"""Lowercase: how much worse the model reads a text in small letters."""

from jaxcontam.methods.membership.score import (
    ScoredText,
    ScoreMethod,
    at_least_loss,
    ratio,
)


def lowercase(text: ScoredText) -> float:
    """Mean log-probability of the lowercased text over that of the text itself.

    Both are at most 0, so the ratio is at least 0; above 1 the text as it stands is the
    likelier one. Higher is more likely a member. A text without capitals scores 1.

    Source:
        Carlini et al., arXiv:2012.07805, as in Shi et al., arXiv:2310.16789.
    """
    return ratio(at_least_loss(text.only("lowercase")), text)


METHOD = ScoreMethod(
    name="lowercase",
    score=lowercase,
    reads=("lowercase",),
    cost="2 passes",
    finds="texts known in the very letters; blind where there are no capitals",
    source="Carlini et al. 2021, arXiv:2012.07805",
    departure="their released scores are minus this ratio, with labels turned too",
)
