"""AUC, its errors and intervals, ROC curves: brute force, scikit-learn, simulation."""

import numpy as np
import pytest
import scipy.stats
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from jaxcontam.stats import roc
from jaxcontam.stats.multiple import holm
from jaxcontam.stats.roc import (
    auc_delong,
    auc_interval,
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


def pooled(members, others):
    labels = np.repeat([1, 0], [len(members), len(others)])
    return labels, np.concatenate([members, others])


def held(intervals, truth):
    return np.mean([low <= truth <= high for low, high in intervals])


@pytest.mark.parametrize("decimals", [0, 1, 8])
@pytest.mark.parametrize("seed", range(5))
def test_auc_is_the_share_of_ordered_pairs_with_ties_half(seed, decimals):
    rng = np.random.default_rng(seed)
    members = (rng.normal(size=13) + 0.5).round(decimals)
    others = rng.normal(size=17).round(decimals)
    gaps = members[:, None] - others[None]
    pairs = (gaps > 0) + 0.5 * (gaps == 0)
    auc, se = auc_delong(members, others)
    assert auc == pytest.approx(pairs.mean(), abs=1e-12)
    rows = pairs.mean(axis=1).var(ddof=1) / 13 + pairs.mean(axis=0).var(ddof=1) / 17
    assert se == pytest.approx(np.sqrt(rows), abs=1e-12)


def test_swapping_the_groups_mirrors_the_auc():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20) + 1, rng.normal(size=30)
    auc, se = auc_delong(a, b)
    assert auc > 0.5
    assert auc_delong(b, a) == pytest.approx((1 - auc, se))


def test_delong_error_matches_the_spread_over_samples():
    rng = np.random.default_rng(1)
    found = [
        auc_delong(rng.normal(size=60) + 0.7, rng.normal(size=60)) for _ in range(600)
    ]
    aucs, errors = np.array(found).T
    # The standard deviation of 600 draws is known to 3 %; 4 of those.
    assert errors.mean() == pytest.approx(aucs.std(), rel=0.12)


@pytest.mark.parametrize(
    ("members", "others", "message"),
    [([1.0], [0.0, 1.0], "at least 2"), ([1.0, np.nan], [0.0, 1.0], "finite")],
)
def test_bad_scores_are_named(members, others, message):
    with pytest.raises(ValueError, match=message):
        auc_delong(np.array(members), np.array(others))


def test_holm_multiplies_by_the_number_of_hypotheses_left():
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_one_and_keeps_a_single_pvalue():
    np.testing.assert_array_equal(holm(np.array([0.7, 0.9])), [1.0, 1.0])
    np.testing.assert_array_equal(holm(np.array([0.3])), [0.3])


def test_auc_and_curve_equal_sklearn_on_tied_sets():
    for members, others in tied_sets():
        labels, scores = pooled(members, others)
        # Sums of a few dozen halves: 1e-12 is a thousand roundings.
        assert auc_delong(members, others)[0] == pytest.approx(
            roc_auc_score(labels, scores), abs=1e-12
        )
        own_fpr, own_tpr = roc.roc_curve(members, others)
        fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
        np.testing.assert_allclose(own_fpr, fpr, atol=1e-12)
        np.testing.assert_allclose(own_tpr, tpr, atol=1e-12)


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
    assert n_allowed(100, 0.29) == 29
    assert n_allowed(100, 0.29, "lt") == 28
    assert n_allowed(20, 0.05) == 1
    assert n_allowed(20, 0.05, "lt") == 0


def test_a_rate_below_one_nonmember_is_refused():
    with pytest.raises(ValueError, match=r"at least 1, got 0\.05 \* 19"):
        tpr_at_fpr(np.ones(5), np.zeros(19), 0.05)


def test_clusters_of_one_text_change_nothing():
    rng = np.random.default_rng(3)
    members, others = rng.normal(size=30) + 0.5, rng.normal(size=40)
    single = (np.arange(30), np.arange(30, 70))
    plain, clustered = (
        auc_delong(members, others),
        auc_delong(members, others, clusters=single),
    )
    assert clustered == pytest.approx(plain, rel=1e-12)


def test_texts_repeated_in_their_document_tell_no_more_than_one():
    rng = np.random.default_rng(4)
    members, others = rng.normal(size=15) + 0.5, rng.normal(size=20)
    once = auc_delong(members, others)
    codes = (np.arange(15).repeat(7), np.arange(15, 35).repeat(7))
    repeated = auc_delong(members.repeat(7), others.repeat(7), clusters=codes)
    assert repeated == pytest.approx(once, rel=1e-12)


def test_clustered_error_matches_the_spread_over_samples_of_mixed_documents():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(600):
        shared = rng.normal(size=(20, 1))
        scores = shared + rng.normal(size=(20, 8))
        is_member = np.tile(rng.random(8) < 0.5, (20, 1)) | (np.arange(8) == 0)
        is_member &= np.arange(8) != 7
        codes = np.arange(20)[:, None].repeat(8, axis=1)
        found.append(
            auc_delong(
                scores[is_member] + 0.4,
                scores[~is_member],
                clusters=(codes[is_member], codes[~is_member]),
            )
        )
    aucs, errors = np.array(found).T
    # The standard deviation of 600 draws is known to 3 %; 4 of those.
    assert errors.mean() == pytest.approx(aucs.std(), rel=0.12)


def test_documents_of_a_single_cluster_are_refused():
    codes = np.zeros(3, int), np.array([1, 1, 2, 2])
    with pytest.raises(ValueError, match="at least 2 documents"):
        auc_delong(np.arange(3.0), np.arange(4.0), clusters=codes)


@pytest.mark.parametrize("auc", [0.5, 0.8, 0.98])
@pytest.mark.parametrize(("n_members", "n_others"), [(20, 20), (50, 300)])
def test_interval_holds_the_auc_in_95_of_100_samples(auc, n_members, n_others):
    rng = np.random.default_rng(6)
    shift = norm.ppf(auc) * np.sqrt(2)
    intervals = []
    for _ in range(400):
        members, others = rng.normal(size=n_members) + shift, rng.normal(size=n_others)
        intervals.append(
            auc_interval(*auc_delong(members, others), n=min(n_members, n_others))
        )
    # Standard error of a coverage of 95 % over 400 samples: 1.1 %; 3 of those.
    assert held(intervals, auc) >= 0.95 - 0.033


def test_interval_of_long_tails_near_one_holds_too():
    """DeLong's error alone: 57 % of such samples."""
    rng = np.random.default_rng(7)
    pool = rng.standard_t(2, size=(2, 200_000))
    shift = float(np.quantile(pool[0] - pool[1], 0.98))
    intervals = []
    for _ in range(300):
        members = rng.standard_t(2, size=20) + shift
        others = rng.standard_t(2, size=500)
        intervals.append(auc_interval(*auc_delong(members, others), n=20))
    assert held(intervals, 0.98) >= 0.95 - 0.038


def test_interval_by_documents_holds_where_that_by_texts_fails():
    rng = np.random.default_rng(8)
    by_documents, by_texts = [], []
    codes = np.arange(10).repeat(10), np.arange(10, 20).repeat(10)
    for _ in range(400):
        members, others = (
            rng.normal(size=10).repeat(10) * 0.6 + rng.normal(size=100) * 0.8
            for _ in range(2)
        )
        by_texts.append(auc_interval(*auc_delong(members, others), n=100))
        by_documents.append(
            auc_interval(*auc_delong(members, others, clusters=codes), n=10)
        )
    assert held(by_documents, 0.5) >= 0.95 - 0.033
    assert held(by_texts, 0.5) < 0.8


def test_perfect_separation_has_the_interval_of_n_pairs_that_all_hold():
    low, high = auc_interval(1.0, 0.0, n=50)
    assert high == 1
    assert low**50 == pytest.approx(0.025)
    assert auc_interval(0.0, 0.0, n=50) == pytest.approx((0.0, 1 - low))


def test_constant_score_has_an_interval_about_one_half():
    auc, se = auc_delong(np.zeros(30), np.zeros(30))
    low, high = auc_interval(auc, se, n=30)
    assert (auc, se) == (0.5, 0)
    assert low == pytest.approx(1 - high)
    assert 0.4 < low < 0.5


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


def test_a_score_against_itself_differs_by_nothing():
    rng = np.random.default_rng(10)
    members, others = rng.normal(size=20), rng.normal(size=20)
    found = paired_delong(members, others, 2 * members, 2 * others)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_perfect_against_reversed_is_as_sure_as_the_number_of_texts():
    up, down = np.arange(10.0) + 20, np.arange(10.0)
    found = paired_delong(up, down, -up, -down)
    assert found.difference == 1
    # Ten independent pairs that all differ in one direction, at even odds.
    assert found.p_value == pytest.approx(2 * 0.5**10)
    assert 0 < found.low < found.high == 1


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
    half = paired_delong(up, down, 0 * up, 0 * down)
    assert (half.difference, half.se) == (0.5, 0)
    alike = 0.025 ** (1 / n)
    assert half.low == pytest.approx(0.5 * alike - (1 - alike))
    assert half.high == pytest.approx(0.5 * alike + (1 - alike))


def test_paired_test_keeps_its_size():
    rng = np.random.default_rng(11)
    n_found = 0
    for _ in range(500):
        shared = rng.normal(size=(2, 60))
        a, b = (shared + rng.normal(size=(2, 60)) for _ in range(2))
        n_found += paired_delong(a[0] + 1, a[1], b[0] + 1, b[1]).p_value <= 0.05
    # 0.05 and 4 standard errors of 500 draws.
    assert n_found / 500 <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 500)


def test_an_error_of_rounding_is_no_certainty():
    low, high = auc_interval(0.556, 1e-17, n=12)
    assert (low, high) == auc_interval(0.556, 0.0, n=12)
    assert low < 0.45 and high > 0.6
