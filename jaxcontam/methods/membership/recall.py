"""ReCaLL: how much a text loses when texts that were not seen stand before it."""

from jaxcontam.methods.membership.score import (
    ScoredText,
    ScoreMethod,
    at_least_loss,
    ratio,
)


def recall(text: ScoredText) -> float:
    """Mean log-probability after a prefix of non-members over that of the text alone.

    Both are at most 0, so the ratio is at least 0. A foreign prefix takes more from a
    text that is known than from another: higher is more likely a member.

    Source:
        Xie et al., arXiv:2406.15968: LL(x | P) / LL(x), the ratio of their code.
    """
    return ratio(at_least_loss(text.only("nonmember_prefix")), text)


METHOD = ScoreMethod(
    name="recall",
    score=recall,
    reads=("nonmember_prefix",),
    needs="log-probabilities; some known non-members (--nonmembers)",
    cost="2 passes, one of them after the prefix",
    finds="texts that the model would rather recall than read",
    source="Xie et al. 2024, arXiv:2406.15968",
    departure="one prefix for all texts, of as many texts as fit with the longest, "
    "joined by newlines; theirs are joined by nothing and counted by mean length",
)
