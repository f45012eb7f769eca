"""Blind baselines and references: rivals of a score, and what it adds to them."""

import collections

import numpy as np
import pytest

from jaxcontam.members.blind import (
    NAMES,
    Blind,
    beside_reference,
    blind_baselines,
    conditions,
    cross_validated,
    fluency_of,
    grouped_folds,
    held_out_logprobs,
    increment,
    length_features,
    logistic,
    ngram_fluency,
    number_features,
)
from jaxcontam.members.page import share_sentences
from jaxcontam.members.result import BlindBaseline
from jaxcontam.stats.roc import auc_delong, paired_delong
from tests.support.labelled_rows import WORDS, drawn
from tests.support.two_sides import asked, ranked, scores_of, study_of, told


def pool(rng, n, n_words=30):
    """Texts of one law, and labels that were drawn at random."""
    return drawn(n, rng, n_words=n_words), rng.permutation(np.arange(n) < n // 2)


def aucs(blind):
    return {row.name: row.auc for row in blind.rows}


def test_random_labels_of_one_pool_are_at_chance():
    texts, labels = pool(np.random.default_rng(0), 200)
    blind = blind_baselines(texts, labels)
    assert tuple(aucs(blind)) == NAMES
    assert blind.scores.shape == (200, 5)
    assert blind.reference is None
    assert blind.low < 0.5
    assert not blind.above_chance
    for row in blind.rows:
        # The error of a held-out AUC at 100 + 100 is 0.041 * sqrt(2); 4 of those.
        assert abs(row.auc - 0.5) < 0.232
        assert row.auc_low <= row.auc <= row.auc_high


@pytest.mark.parametrize(
    ("name", "tell"),
    [
        ("bag_of_words", lambda text: text + " kirsten moved to wolfsburg"),
        ("length", lambda text: text + " " + text[:40]),
        ("ngram", lambda text: text.replace("a", "ä")),
        # Case and space, which a model sees.
        (None, str.upper),
        (None, str.capitalize),
        (None, lambda text: text.replace(" ", "  ")),
        (None, lambda text: text.replace(" ", "\n")),
        (None, lambda text: " " + text),
    ],
)
def test_each_baseline_finds_its_own_kind_of_tell(name, tell):
    texts, labels = pool(np.random.default_rng(1), 120 if name else 80)
    blind = blind_baselines(told(texts, labels, tell), labels)
    assert blind.low > 0.55
    assert blind.auc == max(aucs(blind).values())
    assert name is None or aucs(blind)[name] > 0.9


def test_dates_on_both_sides_of_a_cut_are_found_though_no_year_repeats_a_label():
    rng = np.random.default_rng(2)
    texts, labels = pool(rng, 200)
    years = np.where(
        labels, rng.integers(1950, 2000, 200), rng.integers(2001, 2050, 200)
    )
    texts = [f"{text} in {year}" for text, year in zip(texts, years, strict=True)]
    assert aucs(blind_baselines(texts, labels))["numbers"] > 0.95


def test_documents_stay_whole_so_that_their_own_words_tell_nothing():
    rng = np.random.default_rng(3)
    codes = np.arange(20).repeat(8)
    labels = rng.permutation(np.arange(20) < 10)[codes]
    plain = drawn(160, rng, n_words=20)
    texts = [f"{t} topic{c} theme{c}" for t, c in zip(plain, codes, strict=True)]
    by_texts = aucs(blind_baselines(texts, labels))["bag_of_words"]
    blind = blind_baselines(texts, labels, clusters=codes.tolist())
    assert by_texts > 0.9
    assert blind.low < 0.5
    assert all(len(set(blind.folds[codes == code])) == 1 for code in range(20))


def test_copies_share_a_fold_and_have_the_errors_of_distinct_texts():
    texts, labels = drawn(60, 2), np.arange(60) < 30
    once = blind_baselines(texts, labels)
    copied = blind_baselines(texts * 5, np.tile(labels, 5))
    assert not np.ptp(copied.folds.reshape(5, 60), axis=0).any()
    for row, other in zip(once.rows, copied.rows, strict=True):
        width, copied_width = (one.auc_high - one.auc_low for one in (row, other))
        # Folds and fits of copies differ, widths near an AUC of 0.5 hardly.
        assert copied_width > 0.8 * width


def test_folds_hold_about_the_same_share_of_members():
    rng = np.random.default_rng(5)
    labels, codes = np.arange(300) < 90, rng.integers(0, 10_000, 300)
    folds = grouped_folds(labels, codes, n_folds=5, seed=0)
    shares = [labels[folds == fold].mean() for fold in range(5)]
    assert np.ptp(shares) < 0.03 and np.ptp(np.bincount(folds)) <= 6


@pytest.mark.parametrize(
    ("n", "clusters", "words"),
    [
        (18, None, "9 distinct texts"),
        (80, [i // 10 for i in range(80)], "4 distinct documents"),
        (20, None, None),
    ],
)
def test_too_few_for_cross_validation_is_a_warning(n, clusters, words):
    texts, _ = pool(np.random.default_rng(6), n)
    blind = blind_baselines(texts, np.arange(n) < n // 2, clusters=clusters)
    if words is None:
        assert len(blind.rows) == 5
    else:
        assert (blind.rows, blind.low, blind.auc) == ((), None, None)
        assert words in blind.warnings[0]
    with pytest.raises(ValueError, match="same length"):
        blind_baselines(texts, np.arange(n - 1) < 9)


def test_empty_and_odd_texts_have_features():
    texts = ["", " ", "\ud800", "7" * 400, "In May 1999 and 2001, 3.5 times."]
    assert np.isfinite(length_features(texts)).all()
    found = number_features(texts)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[-1, :2], [1999, 2001])
    np.testing.assert_allclose(found[-1, 2:5], [2 / 7, 1 / 7, 3 / 7])
    texts = ["!" * (i % 17) + "\ud800" + "?" * i for i in range(40)]
    blind = blind_baselines(texts, np.arange(40) % 2 == 0)
    assert np.isfinite(blind.scores).all()
    assert aucs(blind)["bag_of_words"] == 0.5


def test_a_score_that_only_reads_the_tell_adds_nothing_and_memory_adds():
    rng = np.random.default_rng(9)
    texts, labels = pool(rng, 300)
    # A word that gives away most labels, but not all.
    given = labels ^ (rng.random(300) < 0.25)
    blind = blind_baselines(told(texts, given, lambda t: t + " kirsten"), labels)
    tell, memory = given + rng.normal(size=300) * 0.1, labels + rng.normal(size=300)
    memory[::10] = np.nan
    of_tell, of_memory = (increment(blind, score, labels) for score in (tell, memory))
    assert of_tell.low < 0.01 < of_memory.low
    assert of_memory.p_value < 0.001


@pytest.mark.slow
def test_held_out_aucs_of_random_labels_spread_as_wide_as_the_intervals_say():
    """DeLong's error alone would be too small by a factor of sqrt(2)."""
    rng = np.random.default_rng(12)
    held = n_above = 0
    for seed in range(100):
        texts, labels = pool(rng, 60, n_words=15)
        blind = blind_baselines(texts, labels, seed=seed)
        held += sum(row.auc_low <= 0.5 <= row.auc_high for row in blind.rows)
        n_above += blind.above_chance
    # 500 intervals, five and five of the same texts: 92 % less 3 errors of 100 draws.
    assert held / 500 >= 0.92 - 3 * 0.027
    # 0.05 and 3 standard errors of 100 draws.
    assert n_above <= 11


def clean_case(rng, n, n_others, shift, noise):
    """Scores and a reference of texts of which one side is easier to read, for both."""
    labels = np.arange(n + n_others) < n
    ease = rng.normal(size=len(labels)) + shift * labels
    scores = ease + 0.3 * rng.normal(size=len(labels))
    common = rng.normal(size=len(labels))
    reference = [
        ease + noise * (0.9 * common + np.sqrt(1 - 0.81) * rng.normal(size=len(labels)))
        for _ in range(2)
    ]
    return labels, scores, np.stack(reference, axis=1)


def unmet_of(labels, scores, reference):
    """Conditions with the reference as the only baseline, and not seen above chance."""
    folds = grouped_folds(labels, np.arange(len(labels)), n_folds=5, seed=0)
    held_out = cross_validated(logistic(reference), labels, folds)
    row = BlindBaseline(name="reference", auc=0.5, auc_low=0.4, auc_high=0.6)
    both = np.column_stack([reference, held_out])
    blind = Blind((row,), held_out[:, None], folds, 0.45, False, both)
    return conditions(blind, 0.001, beside_reference(blind, "loss", scores, labels))


def test_a_share_of_one_score_is_compared_with_the_whole_of_another():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120))
    a[:50] += 1
    found = paired_delong(a[:50], a[50:], b[:50], b[50:], share=0.5)
    first, second = auc_delong(a[:50], a[50:])[0], auc_delong(b[:50], b[50:])[0]
    assert found.difference == pytest.approx(0.5 * (first - 0.5) - (second - 0.5))
    # With nothing of the second the error is half of the first one's.
    flat = paired_delong(a[:50], a[50:], np.zeros(50), np.zeros(70), share=0.5)
    assert flat.se == pytest.approx(auc_delong(a[:50], a[50:])[1] / 2)


def test_texts_that_are_easier_to_read_are_not_called_seen():
    """The reference is at chance by its own interval in most of these files."""
    rng, verdicts, said = np.random.default_rng(1), [], []
    for seed in range(10):
        labels, scores, reference = clean_case(rng, 400, 400, 0.27, 1.0)
        texts, table = drawn(800, rng, n_words=12), scores_of(scores, reference)
        found = asked(texts, labels, table, n_permutations=999, seed=seed)
        (row,) = ranked(texts, labels, table, n_boot=2, seed=seed).results
        verdicts += [found.set_result.verdict, row.verdict]
        assert row.verdict != "may rank higher" or "at most 0.0" in row.warnings[-1]
        assert not found.seen.beyond_reference
        # So may be what is discovered text by text.
        n_discoveries = max(row.n_discoveries for row in found.thresholds)
        warned = any(
            "may be texts that are easier to read" in w for w in found.warnings
        )
        assert warned == (n_discoveries > 0)
        # A bound above zero is not one of texts that were seen.
        if found.seen.low > 0:
            said += share_sentences(study_of(n_texts=800, seen=found.seen))
    assert "members rank higher" not in verdicts
    assert "may rank higher" in verdicts
    assert len(said) >= 5
    assert all("may be a difference of kind" in words for words in said)
    assert not any("were seen" in words for words in said)


def test_a_reference_that_ranks_by_either_number_counts():
    """Two numbers that point apart leave nothing to a classifier of both."""
    rng = np.random.default_rng(3)
    labels, scores, reference = clean_case(rng, 300, 300, 0.6, 0.3)
    texts = drawn(600, rng, n_words=12)
    for column in (0, 1):
        other = rng.normal(size=reference.shape)
        other[:, column] = reference[:, column]
        blind = blind_baselines(texts, labels, reference_N2=other)
        beside = beside_reference(blind, "loss", scores, labels)
        assert beside.p_value > 0.01 < beside.half_p_value
        own = auc_delong(other[labels, column], other[~labels, column])[0]
        assert beside.reference_auc >= own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_others", "shift"),
    [(60, 60, 1.0), (150, 300, 0.6), (400, 400, 0.3), (1000, 300, 0.35)],
)
@pytest.mark.parametrize(("noise", "level"), [(0.3, 0.001), (1.0, 0.01), (1.839, 0.05)])
def test_a_clean_model_is_accused_no_more_often_than_said(
    n, n_others, shift, noise, level
):
    """The reference shows all of what the model shows, three quarters, or a half."""
    rng = np.random.default_rng([n, round(100 * noise)])
    cases = (clean_case(rng, n, n_others, shift, noise) for _ in range(400))
    n_accused = sum(not unmet_of(*case) for case in cases)
    # 3 standard errors of 400 files.
    assert n_accused / 400 <= level + 3 * np.sqrt(level * (1 - level) / 400)


def swapped(rng, codes):
    """The text with one pair of neighbouring words exchanged."""
    i = int(rng.integers(2, len(codes) - 3))
    return [*codes[:i], codes[i + 1], codes[i], *codes[i + 2 :]]


def exchanged_words():
    """300 texts of a chain of words, half of them members by lot, and two readings.

    Of models that are near the true law, as training finds them. A pair of words of
    each non-member is exchanged.
    """
    rng, V = np.random.default_rng(0), len(WORDS)
    next_VV = rng.dirichlet(np.full(V, 0.05), size=V) * 0.95 + 0.05 / V
    labels = rng.permutation(np.arange(300) < 150)
    texts = [[int(rng.integers(V))] for _ in labels]
    for codes in texts:
        while len(codes) < 24:
            codes.append(int(rng.choice(V, p=next_VV[codes[-1]])))
    texts = told(texts, ~labels, lambda codes: swapped(rng, codes))
    read = []
    for noise in (0.5, 0.7):
        logs_VV = np.log(next_VV) + noise * rng.normal(size=(V, V))
        logs_VV -= np.log(np.exp(logs_VV).sum(axis=1, keepdims=True))
        read.append([fluency_of(logs_VV[codes[:-1], codes[1:]]) for codes in texts])
    scores, reference = np.array(read)
    words = [" ".join(WORDS[code] for code in codes) for codes in texts]
    return words, labels, scores[:, 1], reference


def test_nonmembers_with_two_words_exchanged_are_confounded_by_a_reference():
    texts, labels, scores, reference = exchanged_words()
    ranking = ranked(texts, labels, scores_of(scores, reference), n_boot=20)
    (row,), rows = ranking.results, ranking.blind.rows
    assert row.p_value == 1e-4 and row.auc > 0.8
    assert row.verdict == "confounded"
    others = [one.auc for one in rows if one.name != "reference"]
    assert max(others) < 0.65 < 0.75 < rows[-1].auc, "nothing else sees it"
    (row,) = ranked(texts, labels, scores_of(scores), n_boot=20).results
    assert row.verdict in ("may rank higher", "confounded")
    if row.verdict == "may rank higher":
        assert "one side may only be less fluent" in row.warnings[-1]
    # Such a pool proves no set.
    for theirs, verdicts in (
        (reference, ["confounded"]),
        (None, ["may rank higher", "confounded"]),
    ):
        table = scores_of(scores, theirs)
        found = asked(texts, labels, table, n_permutations=1_999).set_result
        assert found.p_value <= 0.001
        assert found.verdict in verdicts


def test_n_grams_of_both_sides_see_texts_of_exchanged_words_where_they_repeat():
    rng = np.random.default_rng(3)
    # A language of few sentences, which a small model learns from the other texts.
    sentences = [rng.choice(WORDS, size=8).tolist() for _ in range(6)]
    labels = rng.permutation(np.arange(120) < 60)
    texts = []
    for label in labels:
        codes = [w for i in rng.choice(6, size=4) for w in sentences[i]]
        texts.append(" ".join(codes if label else swapped(rng, codes)))
    assert aucs(blind_baselines(texts, labels))["fluency"] > 0.9


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


def test_fluency_is_a_mean_and_that_of_the_least_likely_fifth():
    logprobs = -np.arange(1.0, 11.0)
    np.testing.assert_array_equal(fluency_of(logprobs), [-5.5, -9.5])
    np.testing.assert_array_equal(fluency_of(logprobs[:1]), [-1.0, -1.0])
    texts = ["a b c", "", "a b d", "!", "a c b"]
    found = ngram_fluency(texts, np.array([0, 0, 1, 1, 2]))
    assert np.isnan(found[1]).all()
    assert np.isfinite(np.delete(found, 1, axis=0)).all()
    assert np.isnan(ngram_fluency(["", ""], np.array([0, 1]))).all()
