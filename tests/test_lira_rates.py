"""LiRA's ratio and its rates with two-way intervals, on made-up scores."""

import numpy as np
import pytest
from scipy import stats

from eval.lira.rates import FPRS, rates_of
from eval.lira.ratio import (
    beside_others,
    beside_unread,
    enough_shadows,
    lira_scores,
    token_logit,
)
from jaxcontam.stats.roc import auc_delong, tpr_at_fpr
from tests.lira_scores import E, N, population

pytestmark = pytest.mark.unoptimised


def one_group(e=E):
    return np.ones(e, np.int64)


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_ratio_is_that_of_two_gaussians_fitted_to_the_other_models(kind):
    values, read = population()
    found = lira_scores(values, read, one_group(), kind=kind)
    for target, text in ((0, 0), (7, 3), (N - 1, E - 1)):
        others = np.delete(values[:, text], target)
        inside = np.delete(read[:, text], target)
        one, other = others[inside], others[~inside]
        value = values[target, text]
        out = stats.norm(other.mean(), other.std(ddof=1))
        if kind == "online":
            expected = stats.norm(one.mean(), one.std(ddof=1)).logpdf(value)
            expected -= out.logpdf(value)
        else:
            # 1 - Pr[Z > value] of the paper, which ranks alike.
            expected = stats.norm.ppf(out.cdf(value))
        # Float64 arithmetic of two dozen numbers.
        assert found[target, text] == pytest.approx(expected, rel=1e-6)


def test_one_variance_is_that_within_texts_of_a_group():
    values, read = population()
    group = np.arange(E) % 2
    found = lira_scores(values, read, group, pooled=True)
    others, inside = values[1:], read[1:]
    spread = {}
    for side in (True, False):
        mask = (inside == side)[:, group == 1]
        mean = others[:, group == 1].mean(axis=0, where=mask)
        squares = np.square(others[:, group == 1] - mean).sum(where=mask)
        spread[side] = np.sqrt(squares / (mask.sum(axis=0) - 1).sum())
    densities = [
        stats.norm(others[inside[:, 1] == side, 1].mean(), spread[side]).logpdf(
            values[0, 1]
        )
        for side in (True, False)
    ]
    assert found[0, 1] == pytest.approx(densities[0] - densities[1], rel=1e-6)


@pytest.mark.parametrize("kind", ["online", "offline"])
@pytest.mark.parametrize("pooled", [True, False])
def test_what_the_target_read_does_not_enter_its_scores(kind, pooled):
    values, read = population()
    other = read.copy()
    other[5] = ~other[5]
    found, again = (
        lira_scores(values, one, one_group(), kind=kind, pooled=pooled)
        for one in (read, other)
    )
    np.testing.assert_array_equal(found[5], again[5])
    assert not np.array_equal(found[6], again[6])


def test_ratio_reaches_the_best_that_can_be_done_and_the_score_alone_does_not():
    values, read = population(3, n=120, e=200)
    found = lira_scores(values, read, one_group(200), pooled=True)
    auc, se = auc_delong(found[read], found[~read])
    # N(1, 1) against N(0, 1): Phi(1 / sqrt 2) = 0.760 is the best; 60 shadows a side
    # move means by 0.13, which costs less than 0.01. Six errors of 24,000 pairs.
    assert 0.750 - 6 * se < auc < 0.760 + 6 * se
    # With levels of texts of variance 4 it is Phi(1 / sqrt 10) = 0.624.
    assert auc_delong(values[read], values[~read])[0] < 0.70


@pytest.mark.parametrize("kind", ["online", "offline"])
@pytest.mark.parametrize("pooled", [True, False])
def test_models_that_remember_nothing_are_at_chance(kind, pooled):
    values, read = population(4, n=40, e=200, shift=0.0)
    found = lira_scores(values, read, one_group(200), kind=kind, pooled=pooled)
    # 8,000 pairs; four errors of 0.0065. Scores of a text share their shadows, which
    # puts a little to it.
    assert auc_delong(found[read], found[~read])[0] == pytest.approx(0.5, abs=0.03)


def test_so_many_shadows_are_the_next_ones_half_of_which_read_the_text():
    values, read = population(5)
    assert enough_shadows(read, 8)
    few = lira_scores(values, read, one_group(), n_shadows=8)
    target, text = 20, 4
    order = (target + 1 + np.arange(N - 1)) % N
    inside = [i for i in order if read[i, text]][:4]
    outside = [i for i in order if not read[i, text]][:4]
    densities = [
        stats.norm(mine.mean(), mine.std(ddof=1)).logpdf(values[target, text])
        for mine in (values[inside, text], values[outside, text])
    ]
    assert few[target, text] == pytest.approx(densities[0] - densities[1], rel=1e-6)


def test_text_without_shadows_of_a_side_says_nothing():
    values, read = population(6)
    read[:, 2] = True
    read[:, 3] = False
    assert not enough_shadows(read, 4)
    for kind in ("online", "offline"):
        found = lira_scores(values, read, one_group(), kind=kind)
        assert np.isfinite(found).all()
        assert (found[:, 2] == 0).all()
    assert (lira_scores(values, read, one_group())[:, 3] == 0).all()
    assert (beside_unread(values, read)[:, 2] == 0).all()


@pytest.mark.parametrize("n_shadows", [2, 5])
def test_impossible_numbers_of_shadows_are_refused(n_shadows):
    values, read = population()
    with pytest.raises(ValueError, match="n_shadows must be even and at least 4"):
        lira_scores(values, read, one_group(), n_shadows=n_shadows)
    with pytest.raises(ValueError, match="models must be at least 3"):
        lira_scores(values[:2], read[:2], one_group())


def test_token_logit_is_the_logit_of_the_mean_probability_and_rises():
    mean = np.log([0.01, 0.5, 0.9])
    np.testing.assert_allclose(token_logit(mean), np.log([1 / 99, 1, 9]), atol=1e-12)
    assert np.isfinite(token_logit(np.array([0.0, -200.0]))).all()
    assert (np.diff(token_logit(np.linspace(-30, -1e-5, 400))) > 0).all()


def test_references_are_means_of_other_models():
    values, read = population(7)
    others = np.delete(values[:, 1], 9)
    unread = others[~np.delete(read[:, 1], 9)]
    assert beside_others(values)[9, 1] == pytest.approx(values[9, 1] - others.mean())
    assert beside_unread(values, read)[9, 1] == pytest.approx(
        values[9, 1] - unread.mean()
    )
    following = [i for i in (*range(10, N), *range(9)) if not read[i, 1]]
    assert beside_unread(values, read, n_references=1)[9, 1] == pytest.approx(
        values[9, 1] - values[following[0], 1]
    )


@pytest.mark.parametrize("digits", [12, 0])
def test_rates_are_those_of_all_pairs_with_ties_counted_alike(digits):
    values, read = population(8)
    scores = np.round(values, digits)
    found = rates_of({"s": scores}, read, n_boot=100, seed=0)["s"]
    members, others = scores[read], scores[~read]
    assert found.auc == pytest.approx(auc_delong(members, others)[0], abs=1e-12)
    for fpr, tpr in zip(FPRS, found.tpr, strict=True):
        assert tpr == tpr_at_fpr(members, others, fpr)[0]
    assert (found.n_members, found.n_nonmembers) == (len(members), len(others))
    assert found.auc_low < found.auc < found.auc_high


def test_constant_score_finds_nothing():
    _, read = population()
    found = rates_of({"s": np.zeros((N, E))}, read, n_boot=100, seed=0)["s"]
    assert (found.auc, found.auc_low, found.auc_high) == (0.5, 0.5, 0.5)
    assert set((*found.tpr, *found.tpr_high)) == {0.0}


def test_interval_holds_the_mean_of_the_auc_where_targets_and_texts_vary():
    rng = np.random.default_rng(9)
    found = []
    n, e, n_trials = 12, 16, 150
    for trial in range(n_trials):
        read = rng.random((n, e)) < 0.5
        levels = rng.normal(size=(n, 1)) + rng.normal(size=e)
        scores = read + levels + rng.normal(size=(n, e))
        found.append(rates_of({"s": scores}, read, n_boot=100, seed=trial)["s"])
    mean = np.mean([one.auc for one in found])
    held = np.mean([one.auc_low <= mean <= one.auc_high for one in found])
    # Nominal 0.95, and the pigeonhole bootstrap errs to the wide side; percentiles of
    # few targets to the narrow one. 3.3 standard errors of 150 trials are 0.059.
    assert held >= 0.95 - 0.059


def test_score_is_not_behind_itself_and_differences_use_the_same_resamples():
    values, read = population(10)
    scores = {"best": values + read, "same": values + read, "worse": values}
    found = rates_of(scores, read, n_boot=100, seed=0, best="best")
    for name in ("best", "same"):
        one = found[name]
        assert (one.behind, one.behind_low, one.behind_high) == (0.0, 0.0, 0.0)
    worse = found["worse"]
    assert worse.behind == pytest.approx(found["best"].auc - worse.auc)
    assert 0 < worse.behind_low < worse.behind < worse.behind_high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_boot": 99}, "n_boot must be at least 100"),
        ({"read_NE": np.ones((N, E), bool)}, "members and non-members"),
        ({"scores": {"s": np.full((N, E), np.nan)}}, "s must be .* finite scores"),
        ({"scores": {"s": np.zeros((N, E + 1))}}, "s must be .* finite scores"),
    ],
)
def test_rates_refuse_what_they_cannot_judge(change, message):
    values, read = population()
    given = {"scores": {"s": values}, "read_NE": read, "n_boot": 100, "seed": 0}
    with pytest.raises(ValueError, match=message):
        rates_of(**(given | change))
