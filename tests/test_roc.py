"""AUC and DeLong's error against brute force; Holm by hand."""

import numpy as np
import pytest

from jaxcontam.stats.multiple import holm
from jaxcontam.stats.roc import auc_delong


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
