"""Set-level test and relabelling: size with long tails, power, leakage shown."""

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxcontam.stats.relabelling import auc_p_values, relabellings, set_level_test


def test_documents_that_differ_are_no_evidence_where_texts_would_be():
    rng = np.random.default_rng(3)
    n_by_texts = n_by_documents = 0
    codes = np.arange(20).repeat(15)
    is_suspect = codes < 10
    for seed in range(60):
        features = rng.normal(size=(20, 3))[codes] + rng.normal(size=(300, 3))
        by_texts, by_documents = (
            set_level_test(
                features, is_suspect, clusters_N=own, n_permutations=19, seed=seed
            ).p_value
            for own in (None, codes)
        )
        n_by_texts += by_texts <= 0.05
        n_by_documents += by_documents <= 0.05
    # 3 and 4 standard errors of 60 draws at 0.05, which are 1.7.
    assert n_by_documents <= 9
    assert n_by_texts > 30


def test_predictions_do_not_depend_on_the_unit_of_a_feature():
    rng = np.random.default_rng(4)
    features, is_suspect = rng.normal(size=(100, 4)), np.arange(100) < 50
    features[:50] += 0.6
    first, scaled = (
        set_level_test(one, is_suspect, n_permutations=99)
        for one in (features, features * 1e6 - 5)
    )
    assert first.p_value == scaled.p_value == 1 / 100 and first.auc > 0.6
    np.testing.assert_allclose(first.scores, scaled.scores, rtol=1e-6, atol=1e-9)


def test_one_sided_pvalue_of_an_auc_agrees_with_all_relabellings():
    rng = np.random.default_rng(5)
    scores, labels = rng.normal(size=9).round(1), np.arange(9) < 4
    p = auc_p_values(scores[:, None], labels, n=4999)[0]
    ranks = stats.rankdata(scores)
    sums = np.array([ranks[list(s)].sum() for s in itertools.combinations(range(9), 4)])
    exact = (sums >= ranks[labels].sum()).mean()
    # 4 standard errors of 4,999 draws.
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4999))
    # A perfect score is never certain.
    labels = np.arange(200) < 100
    assert auc_p_values(labels[:, None] * 1.0, labels, n=999)[0] == 1 / 1000


def test_documents_change_labels_as_a_whole_and_split_ones_are_refused():
    labels = np.array([1, 1, 1, 0, 0], bool)
    codes = np.array([0, 0, 0, 1, 1])
    (drawn,) = relabellings(labels, codes, n=400, seed=0)
    assert {tuple(row) for row in drawn.tolist()} == {
        (True, True, True, False, False),
        (False, False, False, True, True),
    }


@pytest.mark.parametrize(
    ("labels", "codes", "told"),
    [
        ([True, True, False, False], [0, 1, 1, 2], "one label"),
        ([True] * 4, [0, 1, 2, 3], "both members and non-members"),
    ],
)
def test_labels_that_cannot_change_places_are_refused(labels, codes, told):
    with pytest.raises(ValueError, match=told):
        next(relabellings(np.array(labels), np.array(codes), n=1, seed=0))
