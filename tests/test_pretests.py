"""Pre-tests: shuffled files pass, sorted and grouped ones are caught."""

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.pretests import (
    directional,
    label_fields,
    pretest_battery,
)


def sentences(rng, n):
    words = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
    ]
    return [
        " ".join(rng.choice(words, size=rng.integers(3, 20))) + f" {rng.integers(1e9)}"
        for _ in range(n)
    ]


def failed(texts, fields=None, **kwargs):
    battery = pretest_battery(texts, fields or {}, seed=0, **kwargs)
    return {test.name for test in battery if not test.passed}


def test_files_in_random_order_pass_at_their_level():
    rng = np.random.default_rng(0)
    n_failed = sum(
        bool(failed(sentences(rng, 60), {"label": rng.integers(0, 3, 60).tolist()}))
        for _ in range(60)
    )
    # Familywise level 0.01: three or more of 60 happen by chance once in 3,000.
    assert n_failed <= 2


def test_file_sorted_by_length_fails():
    texts = sorted(sentences(np.random.default_rng(1), 200), key=len)
    assert failed(texts) >= {"length_autocorrelation", "length_trend"}


def test_file_in_alphabetical_order_fails():
    texts = sorted(sentences(np.random.default_rng(2), 200))
    assert "alphabetical_trend" in failed(texts)


def test_alternating_lengths_fail_though_they_have_no_trend():
    rng = np.random.default_rng(3)
    texts = ["x" * int(rng.integers(1, 40) + 100 * (i % 2)) for i in range(100)]
    assert failed(texts) == {"length_autocorrelation"}


def test_file_grouped_by_label_fails_and_permuting_within_the_label_passes():
    rng = np.random.default_rng(4)
    texts, labels = sentences(rng, 200), ["a"] * 100 + ["b"] * 100
    assert failed(texts, {"label": labels}) == {"equal_neighbours:label"}
    assert failed(texts, {"label": labels}, groups=labels) == set()


def test_perfectly_alternating_labels_fail_too():
    texts = sentences(np.random.default_rng(5), 200)
    assert failed(texts, {"label": [0, 1] * 100}) == {"equal_neighbours:label"}


def test_constant_lengths_are_no_evidence():
    texts = [f"{i:04d}" for i in np.random.default_rng(0).permutation(100)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    assert battery["length_autocorrelation"].p_value == 1.0
    assert battery["length_trend"].p_value == 1.0


def test_statistics_are_those_of_scipy():
    texts = sentences(np.random.default_rng(6), 50)
    lengths = [len(text) for text in texts]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    rho = scipy.stats.spearmanr(range(50), lengths).statistic
    assert battery["length_trend"].statistic == pytest.approx(rho)
    lexicographic = np.argsort(np.argsort(texts))
    rho = scipy.stats.spearmanr(range(50), lexicographic).statistic
    assert battery["alphabetical_trend"].statistic == pytest.approx(rho)


def test_permutation_pvalue_of_spearman_is_near_its_asymptotic_one():
    rng = np.random.default_rng(7)
    texts = ["x" * int(length) for length in rng.integers(1, 200, 80) + np.arange(80)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    witness = scipy.stats.spearmanr(range(80), [len(t) for t in texts]).pvalue
    # Four standard errors of 9,999 draws, doubled for two sides.
    assert battery["length_trend"].p_value == pytest.approx(witness, abs=0.01)


def test_same_seed_same_pvalues():
    texts = sentences(np.random.default_rng(8), 40)
    assert pretest_battery(texts, {}, seed=3) == pretest_battery(texts, {}, seed=3)


def test_reversal_needs_the_trends_alone():
    texts = sentences(np.random.default_rng(9), 40)
    battery = pretest_battery(texts, {"label": [0, 1] * 20}, seed=0)
    names = [test.name for test in directional(battery)]
    assert names == ["length_trend", "alphabetical_trend"]


def test_fields_with_two_to_a_quarter_distinct_values_are_looked_at():
    rows = [
        {"id": i, "label": i % 2, "constant": "x", "tags": [i % 3], "half": i // 2}
        for i in range(40)
    ]
    assert set(label_fields(rows)) == {"label", "tags"}
    assert label_fields([None] * 40) == {}


def test_many_label_fields_do_not_drown_a_sorted_file():
    rng = np.random.default_rng(10)
    texts = sorted(sentences(rng, 240), key=len)
    fields = {f"label{i}": rng.integers(0, 3, 240).tolist() for i in range(60)}
    assert {"length_autocorrelation", "length_trend"} <= failed(texts, fields)
