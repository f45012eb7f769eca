"""zlib: the loss beside how well the text compresses without any model."""

import zlib

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod


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


METHOD = ScoreMethod(
    name="zlib",
    score=zlib_score,
    cost="1 pass",
    finds="as loss, with repetitive texts counting less; depends on length",
    source="Carlini et al. 2021, arXiv:2012.07805",
)
