"""Fluency as a rival: texts that are only worse language, and models that see it."""

import collections
import itertools

import numpy as np
import pytest

from jaxcontam.members.blind import (
    blind_baselines,
    fluency_of,
    held_out_logprobs,
    ngram_fluency,
)
from jaxcontam.members.judging import judge, judge_texts
from jaxcontam.members.result import Scores

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]
N, N_WORDS = 300, 24


class Language:
    """A Markov chain of words, and stubs of language models that know it."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        V = len(WORDS)
        self.rng = rng
        self.next_VV = rng.dirichlet(np.full(V, 0.05), size=V) * 0.95 + 0.05 / V

    def text(self):
        codes = [int(self.rng.integers(len(WORDS)))]
        while len(codes) < N_WORDS:
            codes.append(int(self.rng.choice(len(WORDS), p=self.next_VV[codes[-1]])))
        return codes

    def model(self, noise):
        """A law of the next word that is near the true one, as training finds one."""
        logits_VV = np.log(self.next_VV) + noise * self.rng.normal(
            size=self.next_VV.shape
        )
        return np.log(np.exp(logits_VV) / np.exp(logits_VV).sum(axis=1, keepdims=True))


def swapped(rng, codes):
    """The text with one pair of neighbouring words exchanged."""
    i = int(rng.integers(2, len(codes) - 3))
    return [*codes[:i], codes[i + 1], codes[i], *codes[i + 2 :]]


def read_by(law_VV, codes):
    return fluency_of(np.array([law_VV[a, b] for a, b in itertools.pairwise(codes)]))


def words_of(codes):
    return " ".join(WORDS[code] for code in codes)


@pytest.fixture(scope="module")
def attack():
    """Members, non-members with one pair exchanged, and what two models say of all."""
    language = Language(0)
    labels = language.rng.permutation(np.arange(N) < N // 2)
    texts = [language.text() for _ in range(N)]
    texts = [
        codes if label else swapped(language.rng, codes)
        for codes, label in zip(texts, labels, strict=True)
    ]
    model, other = language.model(0.5), language.model(0.7)
    scores = np.array([read_by(model, codes) for codes in texts])
    reference = np.array([read_by(other, codes) for codes in texts])
    return [words_of(codes) for codes in texts], labels, scores, reference


def ranking_of(texts, labels, scores, reference=None):
    table = Scores(("min_k",), scores[:, 1:], reference)
    return judge("t", "d", table, labels, texts=texts, primary="min_k", n_boot=20)


def test_nonmembers_with_two_words_exchanged_are_confounded_by_a_reference(attack):
    texts, labels, scores, reference = attack
    ranking = ranking_of(texts, labels, scores, reference)
    (row,), rows = ranking.results, ranking.blind.rows
    assert row.p_value == 1e-4 and row.auc > 0.8
    assert row.verdict == "confounded"
    others = [one.auc for one in rows if one.name != "reference"]
    assert max(others) < 0.65 < 0.75 < rows[-1].auc, "nothing else sees it"


def test_without_a_reference_they_are_no_more_than_may_rank_higher(attack):
    texts, labels, scores, _ = attack
    (row,) = ranking_of(texts, labels, scores).results
    assert row.verdict in ("may rank higher", "confounded")
    if row.verdict == "may rank higher":
        assert "one side may only be less fluent" in row.warnings[-1]


def test_a_pool_of_exchanged_words_proves_no_set(attack):
    texts, labels, scores, reference = attack
    members, pool = np.flatnonzero(labels), np.flatnonzero(~labels)
    for reads in (True, False):
        found = judge_texts(
            "set",
            "d",
            Scores(
                ("min_k",), scores[members, 1:], reference[members] if reads else None
            ),
            Scores(("min_k",), scores[pool, 1:], reference[pool] if reads else None),
            texts=[texts[i] for i in members],
            pool_texts=[texts[i] for i in pool],
            n_permutations=1_999,
        ).set_result
        assert found is not None and found.p_value <= 0.001
        if reads:
            assert found.verdict == "confounded"
        else:
            assert found.verdict in ("may rank higher", "confounded")


def test_memory_beside_a_reference_that_saw_nothing_keeps_its_word():
    language = Language(1)
    labels = language.rng.permutation(np.arange(N) < N // 2)
    texts = [language.text() for _ in range(N)]
    model, other = language.model(0.5), language.model(0.7)
    scores = np.array([read_by(model, codes) for codes in texts])
    # What the model has learned by heart it finds likelier, word for word.
    scores[labels] *= 0.6
    reference = np.array([read_by(other, codes) for codes in texts])
    words = [words_of(codes) for codes in texts]
    (row,) = ranking_of(words, labels, scores, reference).results
    assert row.verdict == "members rank higher"
    (row,) = ranking_of(words, labels, scores).results
    assert row.verdict == "may rank higher"
    assert "--reference" in row.warnings[-1]


def test_n_grams_of_both_sides_see_texts_of_exchanged_words_where_they_repeat():
    rng = np.random.default_rng(3)
    # A language of few sentences, which a small model learns from the other texts.
    sentences = [rng.choice(WORDS, size=8).tolist() for _ in range(6)]
    labels = rng.permutation(np.arange(120) < 60)
    texts = []
    for label in labels:
        codes = [w for i in rng.choice(6, size=4) for w in sentences[i]]
        texts.append(" ".join(codes if label else swapped(rng, codes)))
    blind = blind_baselines(texts, labels)
    aucs = {row.name: row.auc for row in blind.rows}
    assert aucs["fluency"] > 0.9


def plain_chance(texts, order, token, context):
    """Witten and Bell's interpolation, with counters."""
    if not order:
        return 1 / len({t for some in texts for t in some})
    lower = plain_chance(texts, order - 1, token, context[1:])
    counts = collections.Counter(
        some[i]
        for some in (["<"] * 9 + list(some) for some in texts)
        for i in range(9, len(some))
        if some[i - order + 1 : i] == context
    )
    n, kinds = counts.total(), len(counts)
    return (counts[token] + kinds * lower) / (n + kinds) if n else lower


@pytest.mark.parametrize("order", [1, 2, 3])
def test_chances_are_those_of_counters_and_no_text_counts_itself(order):
    rng = np.random.default_rng(4)
    texts = [rng.choice(list("abcd"), size=n).tolist() for n in (7, 1, 5, 9, 0, 6)]
    # Every token occurs outside every fold, so that the alphabets are the same.
    texts += [list("abcd"), list("dcba")]
    folds = np.array([0, 0, 1, 1, 2, 2, 3, 4])
    found = np.exp(held_out_logprobs(texts, folds, order=order))
    expected = []
    for text, fold in zip(texts, folds, strict=True):
        others = [t for t, f in zip(texts, folds, strict=True) if f != fold]
        padded = ["<"] * 9 + text
        expected += [
            plain_chance(others, order, padded[i], padded[i - order + 1 : i])
            for i in range(9, len(padded))
        ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_labels_play_no_part_and_empty_texts_have_no_fluency():
    texts = ["a b c", "", "a b d", "!", "a c b"]
    found = ngram_fluency(texts, np.array([0, 0, 1, 1, 2]))
    assert np.isnan(found[1]).all()
    assert np.isfinite(np.delete(found, 1, axis=0)).all()
    assert np.isnan(ngram_fluency(["", ""], np.array([0, 1]))).all()


def test_the_least_likely_fifth_has_its_own_mean():
    logprobs = -np.arange(1.0, 11.0)
    np.testing.assert_array_equal(fluency_of(logprobs), [-5.5, -9.5])
    np.testing.assert_array_equal(fluency_of(logprobs[:1]), [-1.0, -1.0])
