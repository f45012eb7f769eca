"""Reference: how much likelier a text is to the model than to another model."""

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod


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


METHOD = ScoreMethod(
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
