"""Gradient norm: how much a text would still change the model."""

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod


def gradient_norm(text: ScoredText) -> float:
    """Minus the L2 norm of the gradient of the text's mean loss by all weights.

    At most 0; higher is more likely a member: training has made the gradients of its
    own texts small. It needs the weights, and memory for a gradient.

    Source:
        Nasr, Shokri and Houmansadr, arXiv:1812.00910, for white-box attacks, and the
        norm as in MIMIR (Duan et al., arXiv:2402.07841).
    """
    return -text.only("gradients")


METHOD = ScoreMethod(
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
