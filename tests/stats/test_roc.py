"""AUC, its errors and intervals, ROC curves: brute force, scikit-learn, simulation."""

import numpy as np
import pytest
import scipy.stats
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from jaxcontam.stats import roc
from jaxcontam.stats.roc import (
    auc_delong,
    auc_interval,
    best_threshold,
    n_allowed,
    paired_delong,
    tpr_at_fpr,
)

N_SETS = 300


def tied_sets():
    """Random groups of 2 to 40 scores that are full of ties."""
    for seed in range(N_SETS):
        rng = np.random.default_rng(seed)
        sizes, decimals = rng.integers(2, 41, size=2), int(rng.integers(0, 3))
        yield (
            (rng.normal(size=sizes[0]) + rng.uniform(-1, 1)).round(decimals),
            rng.normal(size=sizes[1]).round(decimals),
        )


def test_auc_and_curve_equal_sklearn_on_tied_sets():
    for members, others in tied_sets():
        scores = np.concatenate([members, others])
        labels = np.repeat([1, 0], [len(members), len(others)])
        # Sums of a few dozen halves: 1e-12 is a thousand roundings.
        witness = pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
        assert auc_delong(members, others)[0] == witness
        fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
        own = roc.roc_curve(members, others)
        np.testing.assert_allclose(own, [fpr, tpr], atol=1e-12)


@pytest.mark.parametrize("fpr", [0.05, 0.1, 0.29, 0.5])
def test_tpr_at_fpr_is_the_last_point_of_the_whole_curve_within_the_rate(fpr):
    n_read = 0
    for members, others in tied_sets():
        if fpr * len(others) < 1:
            continue
        own_fpr, own_tpr = roc.roc_curve(members, others)
        at_most = own_fpr <= fpr + 1e-9
        below = own_fpr < fpr - 1e-9
        found, threshold = tpr_at_fpr(members, others, fpr)
        assert found == pytest.approx(own_tpr[at_most].max(), abs=1e-12)
        assert (others > threshold).mean() <= fpr + 1e-9
        strict, _ = tpr_at_fpr(members, others, fpr, "lt")
        assert strict == pytest.approx(own_tpr[below].max(), abs=1e-12)
        n_read += 1
    assert n_read > 50


def test_products_that_binary_cannot_hold_count_as_in_decimals():
    # 0.29 * 100 is 28.999999999999996, and 0.05 * 20 is 1 exactly.
    assert (n_allowed(100, 0.29), n_allowed(100, 0.29, "lt")) == (29, 28)
    assert (n_allowed(20, 0.05), n_allowed(20, 0.05, "lt")) == (1, 0)
    for fpr in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"in \(0, 1\)"):
            n_allowed(20, fpr)


def test_texts_repeated_in_their_document_tell_no_more_than_one():
    rng = np.random.default_rng(4)
    members, others = rng.normal(size=15) + 0.5, rng.normal(size=20)
    once = auc_delong(members, others)
    codes = (np.arange(15).repeat(7), np.arange(15, 35).repeat(7))
    repeated = auc_delong(members.repeat(7), others.repeat(7), clusters=codes)
    assert repeated == pytest.approx(once, rel=1e-12)


def test_documents_of_both_groups_vary_as_one():
    members, others = np.random.default_rng(5).normal(size=(2, 20, 3))
    codes = np.arange(20).repeat(3)
    found = auc_delong(members.ravel(), others.ravel(), clusters=(codes, codes))
    above = members.ravel()[:, None] > others.ravel()
    centred = above.mean(axis=1) + above.mean(axis=0) - 2 * above.mean()
    own_C = centred.reshape(20, 3).sum(axis=1) / 60
    variance = 20 / 19 * np.square(own_C).sum()
    assert found == pytest.approx((above.mean(), np.sqrt(variance)))


@pytest.mark.parametrize("auc", [0.5, 0.8, 0.98])
@pytest.mark.parametrize(("n_members", "n_others"), [(20, 20), (50, 300)])
def test_interval_holds_the_auc_in_95_of_100_samples(auc, n_members, n_others):
    rng = np.random.default_rng(6)
    shift = norm.ppf(auc) * np.sqrt(2)
    held, n = 0, min(n_members, n_others)
    for _ in range(400):
        members, others = rng.normal(size=n_members) + shift, rng.normal(size=n_others)
        low, high = auc_interval(*auc_delong(members, others), n=n)
        held += low <= auc <= high
    # Standard error of a coverage of 95 % over 400 samples: 1.1 %; 3 of those.
    assert held / 400 >= 0.95 - 0.033


def test_perfect_separation_has_the_interval_of_n_pairs_that_all_hold():
    low, high = auc_interval(1.0, 0.0, n=50)
    assert high == 1
    assert low**50 == pytest.approx(0.025)
    assert auc_interval(0.0, 0.0, n=50) == pytest.approx((0.0, 1 - low))
    assert auc_delong(np.zeros(30), np.zeros(30)) == (0.5, 0)
    low, high = auc_interval(0.5, 0.0, n=30)
    assert low == pytest.approx(1 - high) and 0.4 < low < 0.5
    # An error of rounding is no certainty.
    low, high = auc_interval(0.556, 1e-17, n=12)
    assert (low, high) == auc_interval(0.556, 0.0, n=12)
    assert low < 0.45 and high > 0.6


def test_paired_difference_is_that_of_the_aucs_and_its_error_that_of_pairs():
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(2, 25)).round(1), rng.normal(size=(2, 25)).round(1)
    a[0] += 0.5
    found = paired_delong(a[0], a[1], b[0], b[1])
    gaps = [(x[0][:, None] > x[1]) + 0.5 * (x[0][:, None] == x[1]) for x in (a, b)]
    pairs = gaps[0] - gaps[1]
    assert found.difference == pytest.approx(pairs.mean(), abs=1e-12)
    variance = pairs.mean(axis=1).var(ddof=1) / 25 + pairs.mean(axis=0).var(ddof=1) / 25
    assert found.se == pytest.approx(np.sqrt(variance), abs=1e-12)


def test_paired_p_is_that_of_t_with_one_degree_less_than_texts():
    """Members 0, 0 and -1 above the others' pairs: mean -1/3, error 1/3, t = -1."""
    a, others = np.array([3.0, 3.0, 0.5]), np.array([1.0, 1.0, 1.0])
    b = np.array([3.0, 3.0, 3.0])
    found = paired_delong(a, others, b, others)
    assert (found.difference, found.se) == pytest.approx((-1 / 3, 1 / 3))
    assert found.p_value == pytest.approx(2 * scipy.stats.t.cdf(-1, df=2))
    assert found.low == -1, "no difference of AUCs is below it"
    assert paired_delong(b, others, a, others).high == 1


@pytest.mark.parametrize("n", [2, 5])
def test_pairs_that_all_differ_alike_have_the_interval_of_n_that_all_hold(n):
    up, down = np.arange(n) + 20.0, np.arange(float(n))
    found = paired_delong(up, down, -up, -down)
    # At the lower end n of n pairs differ so with probability 0.025.
    assert found.low == pytest.approx(2 * 0.025 ** (1 / n) - 1)
    assert found.p_value == pytest.approx(2 * 0.5**n)
    half = paired_delong(up, down, 0 * up, 0 * down)
    assert (half.difference, half.se) == (0.5, 0)
    alike = 0.025 ** (1 / n)
    assert half.low == pytest.approx(0.5 * alike - (1 - alike))
    assert half.high == pytest.approx(0.5 * alike + (1 - alike))
    same = paired_delong(up, down, 2 * up, 2 * down)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def accuracy_at(cut, members, nonmembers):
    return ((members >= cut).mean() + (nonmembers < cut).mean()) / 2


def test_no_cut_is_more_accurate_on_tied_data():
    rng = np.random.default_rng(0)
    for _ in range(300):
        members = rng.integers(0, 6, rng.integers(1, 12)).astype(float)
        nonmembers = rng.integers(0, 6, rng.integers(1, 12)).astype(float)
        found = best_threshold(members, nonmembers)
        # Whole scores: half of them are all cuts that there are.
        tried = {
            cut: accuracy_at(cut, members, nonmembers)
            for cut in np.arange(-0.5, 7.0, 0.5)
        }
        best = max(tried.values())
        assert found.accuracy == pytest.approx(best, abs=1e-12)
        assert accuracy_at(found.value, members, nonmembers) == pytest.approx(best)
        # The highest of them: a higher cut that moves any text is less accurate.
        pooled = np.concatenate([members, nonmembers])
        for cut, accuracy in tried.items():
            if cut > found.value and ((pooled >= found.value) & (pooled < cut)).any():
                assert accuracy < best - 1e-12


NEXT = np.nextafter(1.0, 2.0)


@pytest.mark.parametrize(
    ("members", "nonmembers", "value", "accuracy"),
    [
        # Half way between the groups; above all, where no cut is of use.
        ([4.0, 5.0], [1.0, 2.0], 3.0, 1.0),
        ([1.0, 1.0], [1.0], NEXT, 0.5),
        ([0.0], [1.0, 2.0], np.nextafter(2.0, 3.0), 0.5),
        # Between neighbouring floats there is no other.
        ([NEXT], [1.0], NEXT, 1.0),
    ],
)
def test_the_cut_is_the_highest_of_the_best(members, nonmembers, value, accuracy):
    found = best_threshold(np.array(members), np.array(nonmembers))
    assert (found.value, found.accuracy) == (value, accuracy)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: auc_delong(np.ones(1), np.arange(2.0)), "at least 2 scores, got 1"),
        (lambda: auc_delong(np.array([1.0, np.nan]), np.arange(2.0)), "finite"),
        (lambda: best_threshold(np.array([]), np.ones(1)), "at least 1 score, got 0"),
        (
            lambda: auc_delong(
                np.arange(3.0),
                np.arange(4.0),
                clusters=(np.zeros(3, int), np.array([1, 1, 2, 2])),
            ),
            "at least 2 documents",
        ),
        (
            lambda: tpr_at_fpr(np.ones(5), np.zeros(19), 0.05),
            r"at least 1, got 0\.05 \* 19",
        ),
    ],
)
def test_bad_scores_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
