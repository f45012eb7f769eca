"""Neighbourhood: how much likelier a text is than texts that are nearly the same."""

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod


def neighbourhood(text: ScoredText) -> float:
    """Mean log-probability a token minus its mean over the neighbours of the text.

    Higher is more likely a member: a text that was seen stands out from its own
    neighbours. A text that is its own neighbour scores 0, and the order of neighbours
    changes nothing.

    Source:
        Mattern et al., arXiv:2305.18462. The mean over all neighbours: one port of it
        subtracts a list and so takes the likeliest neighbour.
    """
    # Differences first: equal neighbours then leave nothing, not a rounding.
    return float((text.mean_logprob - text.rewrite("neighbours")).mean())


METHOD = ScoreMethod(
    name="neighbourhood",
    score=neighbourhood,
    reads=("neighbours",),
    needs="log-probabilities; a masked model for better neighbours (--masked-lm)",
    cost="1 pass, and 1 for each neighbour",
    finds="texts known word for word",
    source="Mattern et al. 2023, arXiv:2305.18462",
    departure="without a masked model neighbours are edits of words and characters, "
    "which are worse texts, so that plain edits cost members and others alike",
)
