"""Con-ReCall: what a prefix of non-members does, against a prefix of members."""

from jaxcontam.methods.membership.score import (
    ScoredText,
    ScoreMethod,
    at_least_loss,
    ratio,
)

GAMMA = 0.5
"""Weight of the prefix of members. The paper tries 0.1 to 1 and names no default."""


def con_recall(text: ScoredText, *, gamma: float = GAMMA) -> float:
    """(LL after non-members - gamma * LL after members) / LL of the text alone.

    Each LL is a mean log-probability, at most 0. Higher is more likely a member: for
    those the prefix of non-members costs much and that of members little.

    Args:
        text: Its log-probabilities and both prefixed ones are read.
        gamma: Weight of the prefix of members; with 0 it is `recall`.

    Source:
        Wang et al., arXiv:2409.03363, as in their code, which tries nine weights on the
        texts under test; here it is fixed.
    """
    after_nonmembers = at_least_loss(text.only("nonmember_prefix"))
    after_members = at_least_loss(text.only("member_prefix"))
    return ratio(after_nonmembers - gamma * after_members, text)


METHOD = ScoreMethod(
    name="con_recall",
    score=con_recall,
    reads=("nonmember_prefix", "member_prefix"),
    setting=f"gamma={GAMMA:g}",
    needs="log-probabilities; some known members and non-members (--members and "
    "--nonmembers)",
    cost="3 passes, two of them after a prefix",
    finds="as recall; only where some members are known for certain",
    source="Wang et al. 2024, arXiv:2409.03363",
    departure="gamma is fixed, not the best of nine on the texts under test; prefixes "
    "as for recall",
)
