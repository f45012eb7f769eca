"""Membership scores, a row each: `SCORES`.

First those of a text's mean log-probability, alone or beside another reading, then
those that look at each token: the least likely ones, or the rarest.

Dimension key
    T  scored tokens of a text
    V  vocabulary
"""

import functools
import itertools
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxcontam.data.encoding import Encoder, encode_texts
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.members.score import ScoredText, ScoreMethod, moments_of
from jaxcontam.reports.methods import MethodWords, joined_rows, words_of

# Nats a token: what float32 resolves of a log-probability near 0, some units over.
_LEAST_LOSS = 1e-6

GAMMA = 0.5
"""Weight of the prefix of members. The paper tries 0.1 to 1 and names no default."""

FRACTION = 0.2
"""Share of tokens that count unless another is asked for, as in the paper."""

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""The sweep of the paper."""

LEAST_VARIANCE = 1e-12
"""Least variance: if one token has all the mass, it is 0 except for rounding."""

WINDOW = 3
"""Neighbouring tokens whose gaps are averaged; the default of the authors' code."""

MOST_ENTROPY = 2.0
"""Nats below which the model counts as sure."""

BOUND = 0.01
"""Most that one token may count; the default of the authors' code."""

EDITS, SPANS = "edits of words", "filled spans"
"""Kinds of neighbours: those without a model, and those that DetectGPT divides."""

# Documents that are tokenised at once; the tokenizer spreads them over cores.
_BATCH = 256


def loss(text: ScoredText) -> float:
    """Mean log-probability of a text's tokens, nats, at most 0: minus log perplexity.

    Higher is more likely a member, and also more likely a plain text: common phrases
    score high in any model. The ranking is that of perplexity, exp(-score).
    """
    return text.mean_logprob


LOSS = ScoreMethod(
    name="loss",
    score=loss,
    cost="1 pass",
    finds="presence in any order, as a ranking; takes plain texts for members",
    source="Yeom et al. 2018, arXiv:1709.01604; Carlini et al. 2021, arXiv:2012.07805",
    departure="the first token counts too, after BOS or EOS if there is one",
)


def zlib_score(text: ScoredText) -> float:
    """Mean log-probability over the bytes that zlib makes of the text.

    Nats a token and byte, at most 0; higher is more likely a member. A text that
    compresses badly and is likely all the same is known to the model rather than plain.
    It depends on the length of the text, so texts should be of one length.
    """
    # A lone surrogate of a broken file is a character too, and not UTF-8.
    packed = zlib.compress(text.text.encode("utf-8", errors="surrogatepass"))
    return text.mean_logprob / len(packed)


ZLIB = ScoreMethod(
    name="zlib",
    score=zlib_score,
    cost="1 pass",
    finds="as loss, but repetitive texts count less; depends on length",
    source="Carlini et al. 2021, arXiv:2012.07805",
)


def lowercase(text: ScoredText) -> float:
    """Mean log-probability of the lowercased text over that of the text itself.

    Both are at most 0, so the ratio is at least 0; above 1 the text as it stands is the
    likelier one. Higher is more likely a member. A text without capitals scores 1.
    """
    return _ratio(_at_least_loss(text.only("lowercase")), text)


LOWERCASE = ScoreMethod(
    name="lowercase",
    score=lowercase,
    reads=("lowercase",),
    cost="2 passes",
    finds="texts known letter by letter; blind to texts without capitals",
    source="Carlini et al. 2021, arXiv:2012.07805",
    departure="their released scores are minus this ratio, with labels turned too",
)


def neighbourhood(text: ScoredText) -> float:
    """Mean log-probability a token minus its mean over the neighbours of the text.

    Higher is more likely a member: a text that was seen stands out from its own
    neighbours. One port of the authors' code takes the likeliest neighbour instead.
    """
    # Differences first: equal neighbours then leave nothing, not a rounding.
    return float((text.mean_logprob - text.rewrite("neighbours")).mean())


def neighbourhood_z(text: ScoredText) -> float:
    """`neighbourhood` over the standard deviation of the neighbours, as DetectGPT's.

    Neighbours that are all equally likely have none: it then counts as 1.
    """
    gaps_R = text.mean_logprob - text.rewrite("neighbours")
    return float(gaps_R.mean() / (gaps_R.std() if np.ptp(gaps_R) > 0 else 1.0))


def neighbourhood_by(neighbours: str) -> ScoreMethod:
    """The score with neighbours of a kind, which tables name beside it."""
    is_z = neighbours == SPANS
    return ScoreMethod(
        name="neighbourhood",
        score=neighbourhood_z if is_z else neighbourhood,
        reads=("neighbours",),
        setting=f"{neighbours}, over their deviation" if is_z else neighbours,
        needs="log-probabilities; neighbours are better of a masked model, or of one "
        "that fills spans (neighbourhood:FOLDER)",
        cost="1 pass, and 1 for each neighbour",
        finds="texts known word for word",
        source="Mattern et al. 2023, arXiv:2305.18462; filled spans: Mitchell et al. "
        "2023, arXiv:2301.11305",
        departure="without such a model neighbours are edits of words and characters, "
        "which are worse texts, so edits cost members and non-members alike",
    )


NEIGHBOURHOOD = neighbourhood_by(EDITS)


def reference(text: ScoredText) -> float:
    """Mean log-probability a token minus that under the reference model.

    Higher is more likely a member. A model beside itself scores 0. Where the tokenizers
    differ the two means are over other tokens, which shifts all scores by about the
    same and ranks texts nearly alike.
    """
    return text.mean_logprob - text.only("reference")


REFERENCE = ScoreMethod(
    name="reference",
    score=reference,
    reads=("reference",),
    needs="log-probabilities of two models (--reference)",
    cost="1 pass of each model",
    finds="what the model knows and a similar model does not; strongest if the "
    "reference saw the same kind of text",
    source="Carlini et al. 2021, arXiv:2012.07805; Shi et al. 2023, arXiv:2310.16789",
    departure="log-probabilities on both sides; the released code mixes one with a "
    "loss if the model is behind an API",
)


def recall(text: ScoredText) -> float:
    """Mean log-probability after a prefix of non-members over that of the text alone.

    Both are at most 0, so the ratio is at least 0. A foreign prefix takes more from a
    text that is known than from another: higher is more likely a member.
    """
    return _ratio(_at_least_loss(text.only("nonmember_prefix")), text)


RECALL = ScoreMethod(
    name="recall",
    score=recall,
    reads=("nonmember_prefix",),
    needs="log-probabilities; some known non-members (--nonmembers)",
    cost="2 passes, one of them after the prefix",
    finds="texts that the model recalls rather than reads",
    source="Xie et al. 2024, arXiv:2406.15968",
    departure="one prefix for all texts, of as many texts as fit with the longest, "
    "joined by newlines; theirs are joined without a separator and counted by mean "
    "length",
)


def con_recall(text: ScoredText) -> float:
    """(LL after non-members - GAMMA * LL after members) / LL of the text alone.

    Each LL is a mean log-probability, at most 0. Higher is more likely a member: for
    those the prefix of non-members costs much and that of members little.
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
    finds="as recall; only if some members are known for certain",
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
    """
    return text.mean_logprob - text.only("own_file")


CODEC = ScoreMethod(
    name="codec",
    score=codec,
    reads=("own_file",),
    needs="log-probabilities; 2 texts or more of each side",
    cost="2 passes, one of them after another text",
    finds="files whose texts do not help to predict each other, either because they "
    "were seen or because the model knows their kind; says little about which split "
    "was seen (Zarzecki et al. 2026, arXiv:2606.03305)",
    source="Zawalski et al. 2025, arXiv:2510.27055",
    departure="one text precedes each, and each precedes one other; a score for each "
    "text as well as the share of the file",
)


def gradient_norm(text: ScoredText) -> float:
    """Minus the L2 norm of the gradient of the text's mean loss by all weights.

    At most 0; higher is more likely a member: training has made the gradients of its
    own texts small. It needs the weights, and memory for a gradient.
    """
    return -text.only("gradients")


GRADIENT_NORM = ScoreMethod(
    name="gradient_norm",
    score=gradient_norm,
    reads=("gradients",),
    needs="the weights",
    cost="a forward and a backward pass",
    finds="texts from which the model has nothing left to learn",
    source="Nasr et al. 2019, arXiv:1812.00910; Duan et al. 2024, arXiv:2402.07841",
    departure="one L2 norm over all weights; MIMIR takes by default the mean over "
    "tensors of their largest entries",
)


def _at_least_loss(mean: float) -> float:
    return min(mean, -_LEAST_LOSS)


def _ratio(numerator: float, text: ScoredText) -> float:
    """A number over a mean log-probability, which rounds to 0 for texts known by heart.

    It then counts as `_LEAST_LOSS`, so that the ratio is large and finite.
    """
    return numerator / _at_least_loss(text.mean_logprob)


def min_k(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean log-probability of a text's least likely tokens.

    A score, not a p-value: it ranks texts by how few surprises they hold, and means
    nothing across models or tokenizers. Higher is more likely a member. With a fraction
    of 1 it is `loss`. Nats a token, at most 0.
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
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    if n == 0:
        raise ValueError("a text must have at least one scored token")
    return max(1, int(n * fraction))


def min_k_at(fraction: float) -> ScoreMethod:
    """Min-K% Prob at a share of tokens, such as `min_k_10` for 0.1."""
    n_lowest(1, fraction)
    return ScoreMethod(
        name=name_at("min_k", fraction),
        label="Min-K% Prob",
        score=lambda text: min_k(text, fraction=fraction),
        setting=f"k={100 * fraction:g}%",
        cost="1 pass",
        finds="presence in any order, as a ranking against unseen texts; proves "
        "nothing",
        source="Shi et al. 2023, arXiv:2310.16789",
        departure="keeps at least one token; theirs keeps none of a text shorter than "
        "1 / k",
    )


def min_k_pp(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean of the lowest standardised log-probabilities of a text's tokens.

    A token's z is (log p(x_t) - mu_t) / sigma_t with mu_t and sigma_t the mean and the
    standard deviation of log p under the model's own distribution at that place. A
    ranking, not a p-value. Higher is more likely a member. In standard deviations.
    Variances are centred sums; the authors' code subtracts squares, which can turn
    negative.
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
        finds="as min_k, but places where everything is unlikely count less",
        source="Zhang et al. 2024, arXiv:2404.02936",
        departure="variance as a centred sum, at least 1e-12; keeps at least one token",
    )


def name_at(name: str, fraction: float) -> str:
    """Name of a score at a fraction: its own at `FRACTION`, else with percent."""
    return name if fraction == FRACTION else f"{name}_{100 * fraction:g}"


MIN_K, MIN_K_PP = min_k_at(FRACTION), min_k_pp_at(FRACTION)
AT_K = {"min_k": min_k_at, "min_k_pp": min_k_pp_at}
"""Scores of any share of tokens."""


def sweep_methods() -> list[ScoreMethod]:
    """Min-K% at each share; one pass serves them all."""
    return [min_k_at(fraction) for fraction in FRACTIONS]


def gap_k(text: ScoredText) -> float:
    """Mean of the lowest smoothed gaps to the model's likeliest tokens.

    A token's gap is (log p(x_t) - max_v log p(v)) / sigma_t, with sigma_t the standard
    deviation of log p under the model's own distribution there; gaps are averaged over
    each run of `WINDOW` tokens. At most 0, and 0 for a greedy text; higher is more
    likely a member. A text shorter than the window is not smoothed.
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


def surp(text: ScoredText) -> float:
    """Mean log-probability of a text's surprising tokens.

    A token is surprising if it is among the least likely ones of the text and the
    entropy of the model's distribution there is low. Higher is more likely a member. A
    text without a surprising token is given the mean of its least likely tokens, as if
    every entropy were low: the score of `min_k`, on the same scale. Ported code gives
    it -100, far below all others, though nothing in it surprised.
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
    finds="as min_k, but only at places where the model was certain",
    source="Zhang and Wu 2024, arXiv:2407.21248",
    departure="a text without a surprising token gets its Min-K% score, not -100",
)


def dc_pdd(text: ScoredText) -> float:
    """Mean over distinct tokens of min(p(x_t) * -log f(x_t), BOUND).

    f is the smoothed frequency of a token in the corpus; of a token that comes again,
    its first place counts. Between 0 and the bound; higher is more likely a member.
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
    needs="log-probabilities; token counts of a corpus (dc_pdd:FILE)",
    cost="1 pass, and the corpus through the tokenizer once",
    finds="rare tokens that the model expects",
    source="Zhang et al. 2024, arXiv:2409.14781",
    departure="frequencies of the corpus that the user names, not of C4; not negated; "
    "the first token counts if BOS or EOS precedes it",
)


def token_frequencies(
    documents: Iterable[str], tokenizer: Encoder, vocab_size: int
) -> np.ndarray:
    """Count every token of a corpus, (V,) int64: tokens, where a port counts documents.

    Texts are read once and never held together, so parts of a long document may come
    apart.
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
    """Log of each token's frequency, log((1 + c) / (N + V)), as in arXiv:2409.14781."""
    if len(counts_V) == 0 or counts_V.min() < 0:
        raise ValueError("counts must be at least 0, of one token or more")
    total = int(counts_V.sum()) + len(counts_V)
    return np.log1p(counts_V.astype(np.float64)) - np.log(total)


_HERE: tuple[ScoreMethod, ...] = (
    *(MIN_K, MIN_K_PP, LOSS, ZLIB, SURP, GAP_K, DC_PDD, LOWERCASE, NEIGHBOURHOOD),
    *(REFERENCE, RECALL, CON_RECALL, CODEC, GRADIENT_NORM),
)

SCORES: Mapping[str, ScoreMethod]
"""Scores that may follow `--scores`, those of other packages last."""

# A set of texts is judged by several scores together.
_SET_LEVEL = MethodWords(
    name="set_level",
    label="set_level",
    finds="a set of texts that as a whole is more familiar than the non-members, "
    "by the scores below together",
    source="Maini et al. 2024, arXiv:2406.06443; not as in the authors' code: scales "
    "come from both sides, all texts are held out once, and a permutation test "
    "replaces the t-test",
)


def score_method(name: str) -> ScoreMethod:
    """Look up a membership score by name, such as `loss`, `min_k` or `min_k_10`.

    Min-K% and Min-K%++ take any share of tokens: a number of percent after the name.
    """
    if name in _scores():
        return _scores()[name]
    kind, _, percent = name.rpartition("_")
    try:
        if kind in AT_K and 0 < float(percent) <= 100:
            return AT_K[kind](float(percent) / 100)
    except ValueError:
        pass
    raise unknown_name("score", name, _scores())


def score_words(name: str) -> MethodWords | None:
    """Words of reports for a score; None for one that a study has of its own."""
    if name == _SET_LEVEL.name:
        return _SET_LEVEL
    try:
        return words_of(score_method(name), name)
    except InputError:
        return None


def __getattr__(name: str) -> Any:
    """`SCORES`, once it is asked for: a package's row may need this module whole."""
    if name != "SCORES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _scores()


@functools.cache
def _scores() -> Mapping[str, ScoreMethod]:
    return joined_rows(_HERE, ScoreMethod)
