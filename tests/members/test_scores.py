"""Every membership score: its formula in plain NumPy, its laws, its sign."""

import dataclasses
import functools
import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.errors import InputError
from jaxcontam.members.passes import Inputs, score_texts, text_model
from jaxcontam.members.score import ScoredText
from jaxcontam.members.scores import (
    MIN_K,
    SCORES,
    SPANS,
    corpus_logprobs,
    gap_k,
    min_k,
    min_k_at,
    min_k_pp,
    min_k_pp_at,
    n_lowest,
    neighbourhood_by,
    score_method,
    surp,
    token_frequencies,
)
from jaxcontam.scoring.kernel import target_scores
from jaxcontam.scoring.opened import opened_checkpoint
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    SHOTS,
    checkpoint_of,
    drawn_texts,
    fresh_decoder,
    overfitted,
)

pytestmark = pytest.mark.unoptimised

ROWS = list(SCORES.values())
V = 40
KERNEL = jax.jit(target_scores, static_argnames="moments")
# float32 scores of the kernel, each good to some units of 1e-6, in means of 5 to 30.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
REWRITES = {
    "lowercase": np.array([-3.5]),
    "neighbours": np.array([-3.0, -4.25, -2.5]),
    "reference": np.array([-2.75]),
    "nonmember_prefix": np.array([-4.5]),
    "member_prefix": np.array([-1.5]),
    "own_file": np.array([-3.25]),
    "gradients": np.array([7.5]),
}
COUNTS = np.arange(V) ** 2


@functools.cache
def drawn(T, seed=0):
    """What the kernel says of random logits, and the same in float64: text, x, mu, sd.

    Log-probabilities of the tokens, and mean and deviation over the vocabulary.
    """
    rng = np.random.default_rng(seed)
    logits_TV = rng.normal(scale=2.5, size=(T, V)).astype(np.float32)
    ids_T = rng.integers(0, V, size=T, dtype=np.int32)
    # Logits as hidden states before a head that is the identity.
    found = KERNEL(jnp.asarray(logits_TV), jnp.eye(V), jnp.asarray(ids_T), moments=True)
    names = ("logprobs", "means", "variances", "tops")
    text = ScoredText(
        text="Some words, " * T,
        ids=ids_T,
        **dict(zip(names, map(np.asarray, found), strict=True)),
        corpus_logprobs=np.log((1 + COUNTS) / (COUNTS.sum() + V))[ids_T],
        rewrites=REWRITES,
    )
    probs_TV = np.exp(logits_TV.astype(np.float64))
    probs_TV /= probs_TV.sum(axis=1, keepdims=True)
    logs_TV = np.log(probs_TV)
    mu_T1 = (probs_TV * logs_TV).sum(axis=1, keepdims=True)
    sd_T = np.sqrt((probs_TV * (logs_TV - mu_T1) ** 2).sum(axis=1))
    return text, logs_TV[np.arange(T), ids_T], mu_T1[:, 0], sd_T, logs_TV.max(axis=1)


def plain_scores(text, x, mu, sd, top):
    """Every score of SCORES again, as its paper writes it."""
    T, mean = len(x), x.mean()
    k = max(1, int(T * 0.2))
    lowest = np.argsort(x)[:k]
    sure = [t for t in lowest if -mu[t] < 2.0] or lowest
    gaps = (x - top) / sd
    if T >= 3:
        gaps = np.convolve(gaps, np.ones(3) / 3, "valid")
    n_gaps = max(1, int(len(gaps) * 0.2))
    seen, rarities = set(), []
    for t, i in enumerate(text.ids.tolist()):
        if i not in seen:
            seen.add(i)
            frequency = (1 + i**2) / (sum(j**2 + 1 for j in range(V)))
            rarities.append(min(math.exp(x[t]) * math.log(1 / frequency), 0.01))
    return {
        "min_k": x[lowest].mean(),
        "min_k_pp": np.sort((x - mu) / sd)[:k].mean(),
        "loss": mean,
        "zlib": mean / len(zlib.compress(text.text.encode())),
        "surp": x[sure].mean(),
        "gap_k": np.sort(gaps)[:n_gaps].mean(),
        "dc_pdd": sum(rarities) / len(rarities),
        "lowercase": -3.5 / mean,
        "neighbourhood": mean + (3.0 + 4.25 + 2.5) / 3,
        "reference": mean + 2.75,
        "recall": -4.5 / mean,
        "con_recall": (-4.5 + 0.5 * 1.5) / mean,
        "codec": mean + 3.25,
        "gradient_norm": -7.5,
    }


# One token, fewer than the window of gap_k, and fifths that are no whole number.
@pytest.mark.parametrize("T", [1, 2, 3, 15, 64])
@pytest.mark.parametrize("method", ROWS, ids=lambda row: row.name)
def test_every_score_is_its_formula_on_random_logits(method, T):
    for seed in range(3):
        case = drawn(T, seed)
        expected = plain_scores(*case)[method.name]
        np.testing.assert_allclose(method.score(case[0]), expected, **CLOSE)


def test_filled_spans_are_compared_in_their_standard_deviations():
    """As `run_perturbation_experiment` of DetectGPT's code does by its criterion z."""
    text, row = drawn(9)[0], neighbourhood_by(SPANS)
    lls = REWRITES["neighbours"]
    expected = (text.mean_logprob - np.mean(lls)) / np.std(lls)
    assert row.score(text) == pytest.approx(expected, rel=1e-12)
    alike = dataclasses.replace(text, rewrites={"neighbours": np.full(3, -0.1)})
    assert row.score(alike) == pytest.approx(text.mean_logprob + 0.1, rel=1e-12)


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.55, 1.0])
def test_min_k_and_its_successor_take_any_share_of_tokens(fraction):
    text, x, mu, sd, _ = drawn(30)
    for method, values in ((min_k_at, x), (min_k_pp_at, (x - mu) / sd)):
        expected = np.sort(values)[: int(30 * fraction)].mean()
        np.testing.assert_allclose(method(fraction).score(text), expected, **CLOSE)
    # To the bit.
    assert min_k_at(1.0).score(text) == SCORES["loss"].score(text)


def test_the_number_of_tokens_is_rounded_down_as_in_the_released_code():
    assert [n_lowest(n, 0.2) for n in (1, 9, 10, 64)] == [1, 1, 2, 12]
    # 100 * 0.29 is a hair below 29 in binary.
    assert n_lowest(100, 0.29) == 28


def test_a_score_is_found_by_name_with_any_share():
    assert score_method("zlib") is SCORES["zlib"]
    assert score_method("min_k_10").name == min_k_at(0.1).name == "min_k_10"
    assert score_method("min_k_pp_12.5").setting == "k=12.5%"
    # 20 % is the share of the name alone.
    assert score_method("min_k_20").name == min_k_at(0.2).name == "min_k"
    for end in ("min_k_0", "min_k_101", "min_k_x", "min_k_nan", "loss_10", "adjacency"):
        with pytest.raises(InputError, match="unknown score"):
            score_method(end)


def test_what_is_out_of_range_is_refused_by_the_core():
    for fraction in (0.0, -0.2, 1.01):
        for make in (min_k_at, min_k_pp_at):
            with pytest.raises(ValueError, match=r"fraction must be in \(0, 1\]"):
                make(fraction)
    empty = ScoredText(text="", ids=np.zeros(0, np.int32), logprobs=np.zeros(0))
    with pytest.raises(ValueError, match="at least one scored token"):
        min_k(empty)
    text = ScoredText(text="x", ids=np.array([1]), logprobs=np.array([-1.0]))
    for row in ROWS:
        if row.reads:
            with pytest.raises(ValueError, match="read"):
                row.score(text)
        else:
            assert np.isfinite(row.score(text))


def test_certain_and_uniform_distributions_give_finite_scores():
    """Variances of 0, log-probabilities of 0: nothing is divided by them."""
    for logprob in (0.0, -np.log(V)):
        flat = np.full(9, logprob, np.float32)
        text = dataclasses.replace(
            drawn(9)[0], logprobs=flat, means=flat, variances=0 * flat, tops=flat
        )
        for row in ROWS:
            assert np.isfinite(row.score(text)), row.name
        assert gap_k(text) == 0
        assert min_k_pp(text) == pytest.approx(0, abs=1)


def test_surp_of_a_text_without_a_sure_place_is_its_min_k():
    text, *_ = drawn(40)
    means = np.full(40, -2.5, np.float32)
    unsure = dataclasses.replace(text, means=means)
    assert surp(unsure) == pytest.approx(MIN_K.score(text), rel=1e-12)
    # Sure at one of the lowest tokens alone: that token.
    lowest = int(np.argsort(text.logprobs)[2])
    means[lowest] = -1.5
    sure = dataclasses.replace(text, means=means)
    assert surp(sure) == pytest.approx(float(text.logprobs[lowest]), rel=1e-6)


def test_tokens_of_a_corpus_are_counted_and_not_documents():
    words = {"[UNK]": 0, "a": 1, "b": 2, "c": 3, "d": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    counts = token_frequencies(["a b a a", "b x", "a"], tokenizer, 6)
    assert counts.dtype == np.int64
    assert counts.tolist() == [1, 4, 2, 0, 0, 0]
    # (1 + c) / (N + V) with N = 7 and V = 6.
    expected = np.log(np.array([2, 5, 3, 1, 1, 1]) / 13)
    np.testing.assert_allclose(corpus_logprobs(counts), expected, rtol=1e-12)
    # However they are batched.
    documents = iter(["a b", "c", "", "d d d"] * 200)
    counts = token_frequencies(documents, tokenizer, 5)
    assert counts.tolist() == [0, 200, 200, 200, 600]
    message = "vocab_size must exceed every id, got 3 and 4"
    with pytest.raises(ValueError, match=message):
        token_frequencies(["a d"], tokenizer, 3)


@pytest.fixture(scope="module")
def table():
    """Scores of all kinds under a model that knows `MEMBERS` by heart."""
    model = overfitted()
    other = opened_checkpoint(checkpoint_of(fresh_decoder(5), fingerprint="other"))
    vocab_size = model.checkpoint.config.vocab_size
    counts = token_frequencies(
        drawn_texts(60, seed=7), model.checkpoint.tokenizer, vocab_size
    )
    inputs = Inputs(
        reference=text_model(other, store=None),
        nonmember_prefix=tuple(SHOTS),
        member_prefix=tuple(drawn_texts(2, seed=4, n_words=4)),
        company=(*MEMBERS[1:], MEMBERS[0], *OTHERS[1:], OTHERS[0]),
        corpus_counts=counts,
        n_neighbours=3,
    )
    return score_texts([*MEMBERS, *OTHERS], ROWS, model, inputs=inputs)


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_members_of_an_overfitted_model_score_higher(table, name):
    scores = table.values[:, table.names.index(name)]
    members, others = scores[: len(MEMBERS)], scores[len(MEMBERS) :]
    above = (members[:, None] > others[None]).mean()
    # A mirrored score is at 0; 24 and 24 texts at chance have a standard error of 0.08.
    assert above > 0.5 + 4 * 0.084
