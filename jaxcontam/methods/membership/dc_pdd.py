"""DC-PDD: likelihood weighed by how rare each token is in a corpus."""

import numpy as np

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod

BOUND = 0.01
"""Most that one token may count; the default of the authors' code."""


def dc_pdd(text: ScoredText, *, bound: float = BOUND) -> float:
    """Mean over distinct tokens of min(p(x_t) * -log f(x_t), bound).

    f is the smoothed frequency of a token in the corpus; of a token that comes again,
    its first place counts. Between 0 and the bound; higher is more likely a member.

    Args:
        text: Its ids, log-probabilities and corpus log-frequencies are read.
        bound: Most that one token may count, above 0.

    Raises:
        ValueError: If there are no corpus frequencies.

    Source:
        Zhang et al., arXiv:2409.14781. Counts tokens, where a port counts documents;
        the authors' code stores the negative and is read with turned labels.
    """
    if text.corpus_logprobs is None:
        raise ValueError("no corpus frequencies were read for this text")
    _, first = np.unique(text.ids, return_index=True)
    probs = np.exp(text.logprobs[first].astype(np.float64))
    return float(np.minimum(probs * -text.corpus_logprobs[first], bound).mean())


METHOD = ScoreMethod(
    name="dc_pdd",
    score=dc_pdd,
    reads=("corpus",),
    setting=f"a={BOUND:g}",
    needs="log-probabilities; token counts of a corpus (--corpus)",
    cost="1 pass, and the corpus through the tokenizer once",
    finds="rare tokens that the model expects",
    source="Zhang et al. 2024, arXiv:2409.14781",
    departure="frequencies of the corpus that the user names, not of C4; not negated; "
    "the first token counts where BOS or EOS stands before it",
)
