"""Loss: how likely a text is a token; the perplexity is exp of minus this score."""

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod


def loss(text: ScoredText) -> float:
    """Mean log-probability of a text's tokens, nats, at most 0.

    Higher is more likely a member, and also more likely a plain text: common phrases
    score high in any model. The ranking is that of perplexity, exp(-score).

    Source:
        Yeom et al., arXiv:1709.01604, as used for language models by Carlini et al.,
        arXiv:2012.07805; "PPL" in Shi et al., arXiv:2310.16789.
    """
    return text.mean_logprob


METHOD = ScoreMethod(
    name="loss",
    score=loss,
    cost="1 pass",
    finds="presence in any order, as a ranking; takes plain texts for members",
    source="Yeom et al. 2018, arXiv:1709.01604; Carlini et al. 2021, arXiv:2012.07805",
    departure="the first token counts too, after BOS or EOS where there is one",
)
