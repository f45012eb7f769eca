"""Bootstrap and threshold intervals: known errors, and coverage by simulation."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxcontam.members.rates import operating_point
from jaxcontam.stats.bootstrap import bootstrap, tpr_interval, tpr_statistic
from jaxcontam.stats.roc import tpr_at_fpr


def difference_of_means(members_KP, nonmembers_KQ):
    return members_KP.mean(axis=1) - nonmembers_KQ.mean(axis=1)


@pytest.mark.parametrize(("copies", "shared"), [(1, False), (5, False), (5, True)])
def test_error_of_documents_is_the_textbook_one_of_their_means(copies, shared):
    """Or of the differences of their means, where each holds both kinds."""
    rng = np.random.default_rng(1)
    members, others = rng.normal(size=30) * 2, rng.normal(size=30 if shared else 20)
    codes = np.arange(30).repeat(copies), np.arange(30, 50).repeat(copies)
    if shared:
        members, codes = members + others, codes[:1] * 2
    found, again, other = (
        bootstrap(
            difference_of_means,
            members.repeat(copies),
            others.repeat(copies),
            clusters=codes if copies > 1 else None,
            n_boot=3000,
            seed=seed,
        )
        for seed in (7, 7, 8)
    )
    assert found == again != other
    se = np.sqrt(members.var() / 30 + others.var() / 20)
    if shared:
        se = np.std(members - others) / np.sqrt(30)
    # The standard deviation of 3,000 draws is known to 1.3 %; 4 of those.
    assert found.se == pytest.approx(se, rel=0.055)
    assert found.statistic == pytest.approx(members.mean() - others.mean())


@pytest.mark.parametrize("convention", ["le", "lt"])
def test_rows_of_the_rate_equal_the_direct_rule(convention):
    rng = np.random.default_rng(4)
    members, others = rng.normal(size=(2, 40, 30)).round(1)
    found = tpr_statistic(0.1, convention)(members + 1, others)
    direct = [
        tpr_at_fpr(a + 1, b, 0.1, convention)[0]
        for a, b in zip(members, others, strict=True)
    ]
    np.testing.assert_allclose(found, direct, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize(
    ("n_members", "n", "fpr"),
    [(100, 100, 0.05), (1000, 600, 0.01), (100, 100, 0.01), (20, 20, 0.05)],
)
def test_interval_of_the_rate_holds_the_true_one(n_members, n, fpr, shift):
    rng = np.random.default_rng(5)
    truth = norm.sf(norm.ppf(1 - fpr) - shift)
    held = 0
    for _ in range(400):
        point = operating_point(
            rng.normal(size=n_members) + shift, rng.normal(size=n), fpr, n_boot=60
        )
        held += point.tpr_low <= truth <= point.tpr_high
    # 2 standard errors of 400 samples; the bootstrap holds .91 at 6 expected.
    assert held / 400 >= 0.95 - 2 * 0.0109


@pytest.mark.parametrize("convention", ["le", "lt"])
def test_every_interval_holds_the_rate_that_was_found(convention):
    rng = np.random.default_rng(6)
    for seed in range(60):
        n, fpr = int(rng.integers(20, 120)), float(rng.uniform(0.05, 0.2))
        members = (rng.normal(size=int(rng.integers(2, 60))) + 2).round(1)
        others = rng.normal(size=n).round(1)
        point = operating_point(
            members, others, fpr, convention=convention, n_boot=40, seed=seed
        )
        assert 0 <= point.tpr_low <= point.tpr <= point.tpr_high <= 1


def test_a_rate_of_zero_has_an_interval_above_zero():
    documents = np.arange(50), np.arange(50, 250)
    point = operating_point(
        np.zeros(50), np.arange(200.0), 0.1, clusters=documents, n_boot=50
    )
    assert point.tpr == point.tpr_low == 0
    # Wilson's upper end of 0 in 50: z^2 / (n + z^2).
    assert point.tpr_high == pytest.approx(1.959964**2 / (50 + 1.959964**2))


def test_interval_is_wide_of_few_nonmembers_and_binomial_of_many():
    # The true threshold lies above all of 100 non-members with probability 0.37.
    low, high = tpr_interval(np.arange(100.0) + 50, np.arange(100.0), 0.01)
    assert low == 0 and high > 0.5
    members = np.repeat([1.0, -1.0], [30, 70])
    low, high = tpr_interval(members, np.linspace(-0.5, 0.5, 20_000), 0.05)
    # Clopper and Pearson of 30 in 100, as in any table.
    assert (low, high) == pytest.approx((0.2124, 0.3998), abs=1e-4)


def test_a_rate_of_one_in_all_nonmembers_is_one_in_spite_of_rounding():
    """1 / 49 * 49 is a hair below 1 in binary."""
    members, others = np.array([[46.5, 47.5]]), np.arange(49.0)[None]
    assert tpr_statistic(1 / 49)(members, others)[0] == 0.5
