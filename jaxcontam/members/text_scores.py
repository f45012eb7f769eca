"""Scores of the mean log-probability of a text, alone or beside another reading."""

import zlib

from jaxcontam.members.score import ScoredText, ScoreMethod

# Nats a token: what float32 resolves of a log-probability near 0, some units over.
_LEAST_LOSS = 1e-6
GAMMA = 0.5
"""Weight of the prefix of members. The paper tries 0.1 to 1 and names no default."""


def _at_least_loss(mean: float) -> float:
    """A mean log-probability, as if no text were known better than `_LEAST_LOSS`."""
    return min(mean, -_LEAST_LOSS)


def _ratio(numerator: float, text: ScoredText) -> float:
    """A number over a mean log-probability, which rounds to 0 for texts known by heart.

    It then counts as `_LEAST_LOSS`, so that the ratio is large and finite.
    """
    return numerator / _at_least_loss(text.mean_logprob)


def loss(text: ScoredText) -> float:
    """Mean log-probability of a text's tokens, nats, at most 0: minus log perplexity.

    Higher is more likely a member, and also more likely a plain text: common phrases
    score high in any model. The ranking is that of perplexity, exp(-score).

    Source:
        Yeom et al., arXiv:1709.01604, as used for language models by Carlini et al.,
        arXiv:2012.07805; "PPL" in Shi et al., arXiv:2310.16789.
    """
    return text.mean_logprob


LOSS = ScoreMethod(
    name="loss",
    score=loss,
    cost="1 pass",
    finds="presence in any order, as a ranking; takes plain texts for members",
    source="Yeom et al. 2018, arXiv:1709.01604; Carlini et al. 2021, arXiv:2012.07805",
    departure="the first token counts too, after BOS or EOS where there is one",
)


def zlib_score(text: ScoredText) -> float:
    """Mean log-probability over the bytes that zlib makes of the text.

    Nats a token and byte, at most 0; higher is more likely a member. A text that
    compresses badly and is likely all the same is known to the model rather than plain.
    It depends on the length of the text, so texts should be of one length.

    Source:
        Carlini et al., arXiv:2012.07805; the mean as in Shi et al., arXiv:2310.16789.
    """
    # A lone surrogate of a broken file is a character too, and not UTF-8.
    packed = zlib.compress(text.text.encode("utf-8", errors="surrogatepass"))
    return text.mean_logprob / len(packed)


ZLIB = ScoreMethod(
    name="zlib",
    score=zlib_score,
    cost="1 pass",
    finds="as loss, with repetitive texts counting less; depends on length",
    source="Carlini et al. 2021, arXiv:2012.07805",
)


def lowercase(text: ScoredText) -> float:
    """Mean log-probability of the lowercased text over that of the text itself.

    Both are at most 0, so the ratio is at least 0; above 1 the text as it stands is the
    likelier one. Higher is more likely a member. A text without capitals scores 1.

    Source:
        Carlini et al., arXiv:2012.07805, as in Shi et al., arXiv:2310.16789.
    """
    return _ratio(_at_least_loss(text.only("lowercase")), text)


LOWERCASE = ScoreMethod(
    name="lowercase",
    score=lowercase,
    reads=("lowercase",),
    cost="2 passes",
    finds="texts known in the very letters; blind where there are no capitals",
    source="Carlini et al. 2021, arXiv:2012.07805",
    departure="their released scores are minus this ratio, with labels turned too",
)


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


NEIGHBOURHOOD = ScoreMethod(
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


def reference(text: ScoredText) -> float:
    """Mean log-probability a token minus that under the reference model.

    Higher is more likely a member. A model beside itself scores 0. Where the tokenizers
    differ the two means are over other tokens, which shifts all scores by about the
    same and ranks texts nearly alike.

    Source:
        Carlini et al., arXiv:2012.07805; "Smaller Ref" in Shi et al., arXiv:2310.16789.
        Log-probabilities on both sides: the released code of the latter subtracts a
        loss from a log-probability where a model stands behind an API, and that of
        ReCaLL a probability from a log-probability.
    """
    return text.mean_logprob - text.only("reference")


REFERENCE = ScoreMethod(
    name="reference",
    score=reference,
    reads=("reference",),
    needs="log-probabilities of two models (--reference)",
    cost="1 pass of each model",
    finds="what the model knows and a like model does not; strongest where the "
    "reference saw the same kind of text",
    source="Carlini et al. 2021, arXiv:2012.07805; Shi et al. 2023, arXiv:2310.16789",
    departure="log-probabilities on both sides; the released code mixes one with a "
    "loss where the model stands behind an API",
)


def recall(text: ScoredText) -> float:
    """Mean log-probability after a prefix of non-members over that of the text alone.

    Both are at most 0, so the ratio is at least 0. A foreign prefix takes more from a
    text that is known than from another: higher is more likely a member.

    Source:
        Xie et al., arXiv:2406.15968: LL(x | P) / LL(x), the ratio of their code.
    """
    return _ratio(_at_least_loss(text.only("nonmember_prefix")), text)


RECALL = ScoreMethod(
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


def con_recall(text: ScoredText) -> float:
    """(LL after non-members - GAMMA * LL after members) / LL of the text alone.

    Each LL is a mean log-probability, at most 0. Higher is more likely a member: for
    those the prefix of non-members costs much and that of members little.

    Source:
        Wang et al., arXiv:2409.03363, as in their code, which tries nine weights on the
        texts under test; here it is fixed.
    """
    after_nonmembers = _at_least_loss(text.only("nonmember_prefix"))
    after_members = _at_least_loss(text.only("member_prefix"))
    return _ratio(after_nonmembers - GAMMA * after_members, text)


CON_RECALL = ScoreMethod(
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


def codec(text: ScoredText) -> float:
    """Mean log-probability a token minus that after another text of the same file.

    Above 0 the other text lowers the model's confidence. That is so for texts known by
    heart, and as well for texts that teach nothing about each other, or are of a kind
    that the model knows: higher is more likely a member only beside unseen texts of
    that kind. The paper's number is the share of a file above 0, which reports state.

    Source:
        Zawalski et al., arXiv:2510.27055.
    """
    return text.mean_logprob - text.only("own_file")


CODEC = ScoreMethod(
    name="codec",
    score=codec,
    reads=("own_file",),
    needs="log-probabilities; 2 texts or more of each side",
    cost="2 passes, one of them after another text",
    finds="files whose texts do not help to read each other, be it that they were seen "
    "or that the model knows their kind: it says little of which split was seen "
    "(Zarzecki et al. 2026, arXiv:2606.03305)",
    source="Zawalski et al. 2025, arXiv:2510.27055",
    departure="one text stands in front, and each in front of one other; a score for "
    "each text beside the share of the file",
)


def gradient_norm(text: ScoredText) -> float:
    """Minus the L2 norm of the gradient of the text's mean loss by all weights.

    At most 0; higher is more likely a member: training has made the gradients of its
    own texts small. It needs the weights, and memory for a gradient.

    Source:
        Nasr, Shokri and Houmansadr, arXiv:1812.00910, for white-box attacks, and the
        norm as in MIMIR (Duan et al., arXiv:2402.07841).
    """
    return -text.only("gradients")


GRADIENT_NORM = ScoreMethod(
    name="gradient_norm",
    score=gradient_norm,
    reads=("gradients",),
    needs="the weights",
    cost="a forward and a backward pass",
    finds="texts that the model has no more to learn from",
    source="Nasr et al. 2019, arXiv:1812.00910; Duan et al. 2024, arXiv:2402.07841",
    departure="one L2 norm over all weights; MIMIR takes by default the mean over "
    "tensors of their largest entries",
)
