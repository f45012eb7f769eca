"""Blind baselines: what texts alone give away, and what a score adds to it."""

import numpy as np
import pytest

from jaxcontam.members.blind import (
    NAMES,
    blind_baselines,
    grouped_folds,
    increment,
    length_features,
    number_features,
)

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]


def pool(rng, n, n_words=30):
    """Texts of one law, and labels that were drawn at random."""
    texts = [" ".join(rng.choice(WORDS, size=n_words)) for _ in range(n)]
    return texts, rng.permutation(np.arange(n) < n // 2)


def aucs(blind):
    return {row.name: row.auc for row in blind.rows}


def test_random_labels_of_one_pool_are_at_chance():
    texts, labels = pool(np.random.default_rng(0), 200)
    blind = blind_baselines(texts, labels)
    assert tuple(aucs(blind)) == NAMES
    assert blind.scores.shape == (200, 5)
    assert blind.reference is None
    assert blind.low is not None and blind.low < 0.5
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
        ("numbers", lambda text: text + " 2024"),
        ("ngram", lambda text: text.replace("a", "ä")),
    ],
)
def test_each_baseline_finds_its_own_kind_of_tell(name, tell):
    texts, labels = pool(np.random.default_rng(1), 120)
    told = [
        tell(text) if label else text for text, label in zip(texts, labels, strict=True)
    ]
    if name == "numbers":
        # Both have a year, so that words and length hardly differ.
        told = [
            t if label else t + " 2019" for t, label in zip(told, labels, strict=True)
        ]
    blind = blind_baselines(told, labels)
    assert aucs(blind)[name] > 0.9
    assert blind.low is not None and blind.low > 0.55
    assert blind.auc == max(aucs(blind).values())


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
    texts = [f"{' '.join(rng.choice(WORDS, size=20))} topic{c} theme{c}" for c in codes]
    by_texts = aucs(blind_baselines(texts, labels))["bag_of_words"]
    blind = blind_baselines(texts, labels, clusters=codes.tolist())
    assert by_texts > 0.9
    assert blind.low is not None and blind.low < 0.5
    for code in range(20):
        assert len(set(blind.folds[codes == code])) == 1


def test_equal_texts_share_a_fold():
    texts, labels = pool(np.random.default_rng(4), 40)
    blind = blind_baselines(texts * 2, np.concatenate([labels, labels]))
    np.testing.assert_array_equal(blind.folds[:40], blind.folds[40:])


def test_folds_hold_about_the_same_share_of_members():
    rng = np.random.default_rng(5)
    labels, codes = np.arange(300) < 90, rng.integers(0, 10_000, 300)
    folds = grouped_folds(labels, codes, n_folds=5, seed=0)
    shares = [labels[folds == fold].mean() for fold in range(5)]
    sizes = np.bincount(folds)
    assert max(shares) - min(shares) < 0.03
    assert sizes.max() - sizes.min() <= 6


@pytest.mark.parametrize(
    ("n", "clusters", "words"),
    [
        (18, None, "9 distinct texts"),
        (80, [i // 10 for i in range(80)], "4 distinct documents"),
    ],
)
def test_too_few_for_cross_validation_is_a_warning(n, clusters, words):
    texts, _ = pool(np.random.default_rng(6), n)
    blind = blind_baselines(texts, np.arange(n) < n // 2, clusters=clusters)
    assert (blind.rows, blind.low, blind.auc) == ((), None, None)
    assert words in blind.warnings[0]


def test_the_smallest_groups_run():
    texts, labels = pool(np.random.default_rng(7), 20)
    assert len(blind_baselines(texts, labels).rows) == 5


def test_texts_without_words_or_of_half_a_character_run():
    texts = ["!" * (i % 17) + "\ud800" + "?" * i for i in range(40)]
    blind = blind_baselines(texts, np.arange(40) % 2 == 0)
    assert np.isfinite(blind.scores).all()
    assert aucs(blind)["bag_of_words"] == 0.5


def test_empty_and_odd_texts_have_features():
    texts = ["", " ", "\ud800", "7" * 400, "In May 1999 and 2001, 3.5 times."]
    assert np.isfinite(length_features(texts)).all()
    found = number_features(texts)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[-1, :2], [1999, 2001])
    np.testing.assert_allclose(found[-1, 2:5], [2 / 7, 1 / 7, 3 / 7])


def test_a_score_that_only_reads_the_tell_adds_nothing_and_memory_adds():
    rng = np.random.default_rng(9)
    texts, labels = pool(rng, 300)
    # A word that gives away most labels, but not all.
    told = labels ^ (rng.random(300) < 0.25)
    texts = [text + " kirsten" * int(t) for text, t in zip(texts, told, strict=True)]
    blind = blind_baselines(texts, labels)
    tell, memory = told + rng.normal(size=300) * 0.1, labels + rng.normal(size=300)
    of_tell, of_memory = (increment(blind, score, labels) for score in (tell, memory))
    assert of_tell.low < 0.01 < of_memory.low
    assert of_memory.p_value < 0.001


def test_a_noise_score_is_found_to_add_something_no_more_often_than_its_level():
    rng = np.random.default_rng(10)
    texts, labels = pool(rng, 150)
    blind = blind_baselines(texts, labels)
    found = [increment(blind, rng.normal(size=150), labels) for _ in range(12)]
    n_found = sum(one.p_value <= 0.05 for one in found)
    # 0.05 and 4 standard errors of 12 draws.
    assert n_found <= 12 * (0.05 + 4 * 0.0629)


def test_texts_without_a_score_are_left_out_of_the_increment():
    rng = np.random.default_rng(11)
    texts, labels = pool(rng, 80)
    blind = blind_baselines(texts, labels)
    score = rng.normal(size=80) + labels
    score[::10] = np.nan
    assert np.isfinite(increment(blind, score, labels).difference)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="same length"):
        blind_baselines(["a"] * 20, np.arange(19) < 9)


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


@pytest.mark.parametrize(
    "tell",
    [
        str.upper,
        str.capitalize,
        lambda text: text.replace(" ", "  "),
        lambda text: text.replace(" ", "\n"),
        lambda text: " " + text,
    ],
)
def test_case_and_space_that_a_model_sees_are_seen(tell):
    texts, labels = pool(np.random.default_rng(30), 80)
    told = [
        tell(text) if label else text for text, label in zip(texts, labels, strict=True)
    ]
    blind = blind_baselines(told, labels)
    assert blind.low is not None and blind.low > 0.55
