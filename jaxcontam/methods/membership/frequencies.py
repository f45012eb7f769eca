"""How often each token occurs in a corpus, for scores that weigh tokens by rarity.

Dimension key
    V  vocabulary
"""

import itertools
from collections.abc import Iterable

import numpy as np

from jaxcontam.data.encoding import Encoder, encode_texts

# Documents that are tokenised at once; the tokenizer spreads them over cores.
_BATCH = 256


def token_frequencies(
    documents: Iterable[str], tokenizer: Encoder, vocab_size: int
) -> np.ndarray:
    """Count every token of a corpus; tokens, not the documents that hold them.

    Args:
        documents: Texts, read once and never held together; parts of a long document
            may come apart.
        tokenizer: Tokenizer of the model whose scores it weights; `plain_tokenizer`.
        vocab_size: V, above every id.

    Returns:
        `counts_V` int64.

    Raises:
        ValueError: If an id is not below `vocab_size`.
    """
    counts_V = np.zeros(vocab_size, np.int64)
    stream = iter(documents)
    while batch := list(itertools.islice(stream, _BATCH)):
        for ids in encode_texts(tokenizer, batch):
            own = np.bincount(ids, minlength=vocab_size)
            if len(own) > vocab_size:
                raise ValueError(
                    f"vocab_size must exceed every id, got {vocab_size} and {max(ids)}"
                )
            counts_V += own
    return counts_V


def corpus_logprobs(counts_V: np.ndarray) -> np.ndarray:
    """Logarithm of each token's frequency, one added to every count.

    Args:
        counts_V: Non-negative integers; see `token_frequencies`.

    Returns:
        (V,) float64, log((1 + c) / (N + V)), nats; they are those of probabilities that
        sum to 1.

    Raises:
        ValueError: If a count is negative.

    Source:
        Zhang et al., arXiv:2409.14781: Laplace smoothing.
    """
    if len(counts_V) == 0 or counts_V.min() < 0:
        raise ValueError("counts must be at least 0, of one token or more")
    total = int(counts_V.sum()) + len(counts_V)
    return np.log1p(counts_V.astype(np.float64)) - np.log(total)
