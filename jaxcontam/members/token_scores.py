"""Scores that look at each token of a text: the least likely ones, or the rarest.

Dimension key
    T  scored tokens of a text
    V  vocabulary
"""

import itertools
from collections.abc import Iterable

import numpy as np

from jaxcontam.data.encoding import Encoder, encode_texts
from jaxcontam.members.score import ScoredText, ScoreMethod, moments_of

FRACTION = 0.2
"""Share of tokens that count unless another is asked for, as in the paper."""


def min_k(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean log-probability of a text's least likely tokens.

    A score, not a p-value: it ranks texts by how few surprises they hold, and means
    nothing across models or tokenizers. Higher is more likely a member. With a fraction
    of 1 it is `loss`. Nats a token, at most 0.

    Source:
        Shi et al., arXiv:2310.16789. Rounds down as the authors' code does, but keeps
        at least one token of a short text.
    """
    if fraction == 1:
        # The same sum in the same order as `loss`, so that the two are equal.
        return text.mean_logprob
    return mean_of_lowest(text.logprobs.astype(np.float64), fraction)


def mean_of_lowest(values_T: np.ndarray, fraction: float) -> float:
    """Mean of the lowest `n_lowest` values of a text."""
    return float(np.sort(values_T)[: n_lowest(len(values_T), fraction)].mean())


def n_lowest(n: int, fraction: float) -> int:
    """Number of tokens that a fraction of `n` keeps: rounded down, at least one.

    Rounds the float product, as the released code of Min-K% and Min-K%++ does: 29 % of
    100 tokens are 28, because 100 * 0.29 is a hair below 29 in binary.

    Raises:
        ValueError: If `fraction` is outside (0, 1] or there is no token.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    if n == 0:
        raise ValueError("a text must have at least one scored token")
    return max(1, int(n * fraction))


def name_at(name: str, fraction: float) -> str:
    """Name of a score at a fraction: its own at `FRACTION`, else with percent."""
    return name if fraction == FRACTION else f"{name}_{100 * fraction:g}"


def min_k_at(fraction: float) -> ScoreMethod:
    """Min-K% Prob with another share of tokens, such as `min_k_10` for 0.1."""
    n_lowest(1, fraction)
    return ScoreMethod(
        name=name_at("min_k", fraction),
        label="Min-K% Prob",
        score=lambda text: min_k(text, fraction=fraction),
        setting=f"k={100 * fraction:g}%",
        cost="1 pass",
        finds="presence in any order, as a ranking beside unseen texts; proves nothing",
        source="Shi et al. 2023, arXiv:2310.16789",
        departure="keeps at least one token; theirs keeps none of a text shorter than "
        "1 / k",
    )


MIN_K = min_k_at(FRACTION)


LEAST_VARIANCE = 1e-12
"""Where one token has all the mass, the variance is 0 but for rounding."""


def min_k_pp(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean of the lowest standardised log-probabilities of a text's tokens.

    A token's z is (log p(x_t) - mu_t) / sigma_t with mu_t and sigma_t the mean and the
    standard deviation of log p under the model's own distribution at that place. A
    ranking, not a p-value. Higher is more likely a member. In standard deviations.

    Source:
        Zhang et al., arXiv:2404.02936. Variances are centred sums and
        at least 1e-12; the authors' code subtracts squares, which can go below 0.
    """
    means_T, variances_T, _ = moments_of(text)
    sigmas_T = np.sqrt(np.maximum(variances_T, LEAST_VARIANCE))
    return mean_of_lowest((text.logprobs - means_T) / sigmas_T, fraction)


def min_k_pp_at(fraction: float) -> ScoreMethod:
    """Min-K%++ with another share of tokens, such as `min_k_pp_10` for 0.1."""
    n_lowest(1, fraction)
    return ScoreMethod(
        name=name_at("min_k_pp", fraction),
        score=lambda text: min_k_pp(text, fraction=fraction),
        reads=("moments",),
        setting=f"k={100 * fraction:g}%",
        needs="log-probabilities of the whole vocabulary",
        cost="1 pass",
        finds="as min_k, with places where everything is unlikely counting less",
        source="Zhang et al. 2024, arXiv:2404.02936",
        departure="variance as a centred sum, at least 1e-12; keeps at least one token",
    )


MIN_K_PP = min_k_pp_at(FRACTION)
AT_K = {"min_k": min_k_at, "min_k_pp": min_k_pp_at}
"""Scores of any share of tokens."""


WINDOW = 3
"""Neighbouring tokens whose gaps are averaged; the default of the authors' code."""


def gap_k(text: ScoredText) -> float:
    """Mean of the lowest smoothed gaps to the model's likeliest tokens.

    A token's gap is (log p(x_t) - max_v log p(v)) / sigma_t, with sigma_t the standard
    deviation of log p under the model's own distribution there; gaps are averaged over
    each run of `WINDOW` tokens. At most 0, and 0 for a greedy text; higher is more
    likely a member. A text shorter than the window is not smoothed.

    Source:
        Kwak and Kim, arXiv:2601.19936. Their code clamps the variance at 1e-8.
    """
    _, variances_T, tops_T = moments_of(text)
    gaps_T = (text.logprobs - tops_T) / np.sqrt(np.maximum(variances_T, LEAST_VARIANCE))
    if len(gaps_T) >= WINDOW:
        gaps_T = np.convolve(gaps_T, np.full(WINDOW, 1 / WINDOW), mode="valid")
    return mean_of_lowest(gaps_T, FRACTION)


GAP_K = ScoreMethod(
    name="gap_k",
    score=gap_k,
    reads=("moments",),
    setting=f"k={100 * FRACTION:g}%, window={WINDOW}",
    needs="log-probabilities of the whole vocabulary",
    cost="1 pass",
    finds="as min_k_pp, against the likeliest token, in runs of tokens",
    source="Kwak and Kim 2026, arXiv:2601.19936",
    departure="variance at least 1e-12, not 1e-8",
)


MOST_ENTROPY = 2.0
"""Nats below which the model counts as sure."""


def surp(text: ScoredText) -> float:
    """Mean log-probability of a text's surprising tokens.

    A token is surprising if it is among the least likely ones of the text and the
    entropy of the model's distribution there is low. Higher is more likely a member. A
    text without a surprising token is given the mean of its least likely tokens, as if
    every entropy were low: the score of `min_k`, on the same scale.

    Source:
        Zhang and Wu, arXiv:2407.21248. Ported code gives -100 to a text without a
        surprising token, far below all others, though nothing in it surprised.
    """
    means_T, _, _ = moments_of(text)
    logprobs_T = text.logprobs.astype(np.float64)
    keep = n_lowest(len(logprobs_T), FRACTION)
    lowest = np.argsort(logprobs_T, kind="stable")[:keep]
    sure = lowest[-means_T[lowest] < MOST_ENTROPY]
    return float(logprobs_T[sure if len(sure) else lowest].mean())


SURP = ScoreMethod(
    name="surp",
    score=surp,
    reads=("moments",),
    setting=f"k={100 * FRACTION:g}%, entropy < {MOST_ENTROPY:g}",
    needs="log-probabilities of the whole vocabulary",
    cost="1 pass",
    finds="as min_k, reading only places where the model was sure",
    source="Zhang and Wu 2024, arXiv:2407.21248",
    departure="a text without a surprising token gets its Min-K% score, not -100",
)


BOUND = 0.01
"""Most that one token may count; the default of the authors' code."""


def dc_pdd(text: ScoredText) -> float:
    """Mean over distinct tokens of min(p(x_t) * -log f(x_t), BOUND).

    f is the smoothed frequency of a token in the corpus; of a token that comes again,
    its first place counts. Between 0 and the bound; higher is more likely a member.

    Source:
        Zhang et al., arXiv:2409.14781. Counts tokens, where a port counts documents;
        the authors' code stores the negative and is read with turned labels.
    """
    if text.corpus_logprobs is None:
        raise ValueError("no corpus frequencies were read for this text")
    _, first = np.unique(text.ids, return_index=True)
    probs = np.exp(text.logprobs[first].astype(np.float64))
    return float(np.minimum(probs * -text.corpus_logprobs[first], BOUND).mean())


DC_PDD = ScoreMethod(
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


# Documents that are tokenised at once; the tokenizer spreads them over cores.
_BATCH = 256


def token_frequencies(
    documents: Iterable[str], tokenizer: Encoder, vocab_size: int
) -> np.ndarray:
    """Count every token of a corpus; tokens, not the documents that hold them.

    Texts are read once and never held together, so parts of a long document may come
    apart. Gives `counts_V`, int64; ValueError if an id is not below `vocab_size`.
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

    log((1 + c) / (N + V)), nats, of probabilities that sum to 1.

    Source:
        Zhang et al., arXiv:2409.14781: Laplace smoothing.
    """
    if len(counts_V) == 0 or counts_V.min() < 0:
        raise ValueError("counts must be at least 0, of one token or more")
    total = int(counts_V.sum()) + len(counts_V)
    return np.log1p(counts_V.astype(np.float64)) - np.log(total)
