"""Power formulas against the tests that they speak of."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.methods import METHODS
from jaxcontam.orders.order_test import OrderFile
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.power_designs import (
    PLANNED,
    FilePlan,
    fewest_examples,
    power_design,
    workload,
)
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.power import (
    detectable_effect,
    drawn_design,
    pair_design,
    power,
    reversal_design,
    sd_from,
    smallest_enough,
    standard_error,
)
from jaxcontam.stats.randomisation import randomisation_test

LEVEL = 0.001


def raised_pairs(rng, s, effect, share=1.0, symmetry=0.0):
    """A normal pair matrix; a share of its boundaries carries all of the effect."""
    common_SS = np.triu(rng.standard_normal((s, s)), 1)
    pairs_SS = math.sqrt(1 - symmetry) * rng.standard_normal((s, s))
    pairs_SS += math.sqrt(symmetry) * (common_SS + common_SS.T)
    carries_G = rng.random(s - 1) < share
    pairs_SS[np.arange(s - 1), np.arange(1, s)] += effect / share * carries_G
    return pairs_SS


def drawn_scores(rng, s, n_strata, m, effect, share):
    """(K, m + 1) scores of the published order and of random ones."""
    rows = []
    for _ in range(n_strata):
        orders_MS = np.array([np.arange(s), *(rng.permutation(s) for _ in range(m))])
        rows.append(path_sums(raised_pairs(rng, s, effect, share), orders_MS))
    return np.array(rows)


def check(is_rejected, design, effect, *, level, share):
    """The share of simulations agrees within 3 standard errors.

    Where few boundaries carry the effect, what even ones would promise is refuted.
    """
    n, found = len(is_rejected), np.mean(is_rejected)
    expected, even = (
        power(design, effect, 1.0, share=part, level=level) for part in (share, 1.0)
    )
    assert 0.1 < expected < 0.98
    assert abs(found - expected) <= 3 * math.sqrt(expected * (1 - expected) / n)
    assert share == 1 or found < even - 3 * math.sqrt(even * (1 - even) / n)


@pytest.mark.parametrize(
    ("share", "K", "m", "effect", "level"),
    [(1.0, 12, 4, 0.5, 0.05), (1.0, 20, 9, 0.55, 0.001), (0.1, 20, 9, 0.55, 0.001)],
)
def test_drawn_orders_have_the_power_of_the_exact_test(share, K, m, effect, level):
    rng = np.random.default_rng(1)
    p = [
        randomisation_test(
            drawn_scores(rng, 5, K, m, effect, share),
            np.ones(K),
            relative_tolerance=1e-9,
            n_draws=0,
        ).p_value
        for _ in range(250)
    ]
    design = drawn_design(5 * K, K, m)
    check(np.array(p) <= level, design, effect, level=level, share=share)


@pytest.mark.parametrize(
    ("share", "symmetry", "K"), [(1.0, 0.0, 15), (1.0, 0.6, 15), (0.1, 0.0, 25)]
)
def test_pairs_have_the_power_of_random_paths(share, symmetry, K):
    s, effect, level, n, n_draws = 6, 0.35, 0.01, 200, 10_000
    orders_MS = np.array(list(itertools.permutations(range(s))))
    rng, p = np.random.default_rng(2), []
    for _ in range(n):
        published, null_B = 0.0, np.zeros(n_draws)
        for _ in range(K):
            pairs_SS = raised_pairs(rng, s, effect, share, symmetry)
            sums_M = path_sums(double_centred(pairs_SS), orders_MS)
            published += sums_M[0]
            null_B += sums_M[rng.integers(len(sums_M), size=n_draws)]
        p.append((1 + np.count_nonzero(null_B >= published - 1e-9)) / (n_draws + 1))
    design = pair_design(s * K, K, symmetry=symmetry)
    check(np.array(p) <= level, design, effect, level=level, share=share)


@pytest.mark.parametrize(
    ("share", "symmetry", "K", "effect", "level"),
    [
        (1.0, 0.0, 30, 0.38, 0.01),
        (1.0, 0.5, 30, 0.38 * math.sqrt(0.5), 0.01),
        (0.1, 0.0, 60, 0.3, 0.001),
    ],
)
def test_reversal_has_the_power_of_sign_flips(share, symmetry, K, effect, level):
    s, n, rng = 6, 400 if share < 1 else 800, np.random.default_rng(3)
    signs_BK = rng.choice([-1.0, 1.0], size=(10_000, K))
    p = []
    for _ in range(n):
        pairs = [raised_pairs(rng, s, effect, share, symmetry) for _ in range(K)]
        forward_K = np.array([np.trace(one, 1) - np.trace(one, -1) for one in pairs])
        p.append(np.mean(signs_BK @ forward_K >= forward_K.sum() - 1e-9))
    is_rejected = np.array(p) <= level
    design = reversal_design(s * K, K, symmetry=symmetry)
    check(is_rejected, design, effect, level=level, share=share)
    # What z alone would promise is refuted by the same simulation.
    z = effect / standard_error(design, 1.0) - scipy.stats.norm.isf(level)
    promised = scipy.stats.norm.cdf(z)
    error = math.sqrt(promised * (1 - promised) / n)
    assert abs(np.mean(is_rejected) - promised) > 3 * error


@pytest.mark.parametrize(("share", "s"), [(1.0, 5), (0.1, 10)])
def test_shards_have_the_power_of_the_t_test_of_scipy(share, s):
    K, m, effect, level, n = 20, 9, 0.4, 0.01, 600
    rng = np.random.default_rng(4)
    scores = (drawn_scores(rng, s, K, m, effect, share) for _ in range(n))
    gains_NK = np.array([one[:, 0] - one[:, 1:].mean(axis=1) for one in scores])
    p = scipy.stats.ttest_1samp(gains_NK, 0, axis=1, alternative="greater").pvalue
    design = drawn_design(s * K, K, m, rule="t")
    check(p <= level, design, effect, level=level, share=share)


@pytest.mark.parametrize(("share", "s", "effect"), [(1.0, 50, 0.3), (0.1, 60, 0.4)])
def test_one_order_has_the_power_of_its_rank(share, s, effect):
    m, level, n = 99, 0.05, 1_500
    rng = np.random.default_rng(5)
    scores_NM = np.array(
        [drawn_scores(rng, s, 1, m, effect, share)[0] for _ in range(n)]
    )
    p = (1 + np.count_nonzero(scores_NM[:, 1:] >= scores_NM[:, :1], axis=1)) / (m + 1)
    design = drawn_design(s, 1, m, rule="rank")
    check(p <= level, design, effect, level=level, share=share)


@pytest.mark.parametrize("m", [1, 9])
def test_z_is_the_formula_of_strata_of_equal_size(m):
    n, s, effect, sd, rho = 400, 10, 0.3, 1.5, 0.6
    expected = effect / sd * math.sqrt(n) * (1 - 1 / s) / math.sqrt(1 + 1 / m)
    found = effect / standard_error(drawn_design(n, n // s, m), sd)
    assert found == pytest.approx(expected)
    expected = effect / sd * math.sqrt(n * (1 - 1 / s) / (2 * (1 - rho)))
    found = effect / standard_error(reversal_design(n, n // s, symmetry=rho), sd)
    assert found == pytest.approx(expected)


def test_design_whose_floor_exceeds_the_level_has_no_power():
    assert power(drawn_design(10_000, 1, 998, rule="rank"), 9.0, 1.0) == 0
    assert power(drawn_design(10_000, 1, 999, rule="rank"), 9.0, 1.0) > 0.999
    assert power(reversal_design(54, 9), 100.0, 1.0, level=LEVEL) == 0
    assert power(reversal_design(60, 10), 100.0, 1.0, level=LEVEL) > 0.99
    assert power(reversal_design(54, 9), 100.0, 1.0, share=0.1) == 0
    assert detectable_effect(reversal_design(54, 9), 1.0) is None
    with pytest.raises(ValueError, match="share must be in"):
        power(reversal_design(60, 10), 1.0, 1.0, share=0.0)


@pytest.mark.parametrize("name", PLANNED)
def test_inverses_give_back_what_was_wanted(name):
    sd, effect, wanted = 2.0, 0.8, 0.8
    m = 1_999 if name == "permutation" else None

    def power_of(n):
        file = FilePlan(n_examples=n, example_tokens=20, context=256)
        return power(power_design(name, file, m), effect, sd)

    needed = smallest_enough(power_of, wanted, smallest=fewest_examples(name))
    assert power_of(needed) >= wanted > power_of(needed - 1)
    file = FilePlan(n_examples=needed, example_tokens=20, context=256)
    design = power_design(name, file, m)
    mde = detectable_effect(design, sd, wanted=wanted)
    assert mde <= effect
    assert power(design, mde, sd) == pytest.approx(wanted, abs=1e-6)
    assert sd_from(design, standard_error(design, sd)) == pytest.approx(sd)


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("n", [37, 200, 1_001])
def test_planned_strata_are_those_of_the_test_itself(name, n):
    file = FilePlan(n_examples=n, example_tokens=20, context=256)
    design = power_design(name, file, None)
    method = METHODS[name]
    if isinstance(method, PairMethod):
        n_strata = math.ceil(n / method.size)
        sizes = [len(part) for part in np.array_split(np.arange(n), n_strata)]
        runs = [runs_of(size, run_length(n)) for size in sizes]
        # Direction has a row of its power for each run, adjacency for each stratum.
        n_turned = sum(int((np.bincount(own) > 1).sum()) for own in runs)
        n_rows = n_strata if method.whole else n_turned
        assert design.n_strata == n_rows
        n_pairs = sum(
            size * (size - 1) if method.whole else needed_pairs(own).sum()
            for size, own in zip(sizes, runs, strict=True)
        )
        assert workload(name, file, design).n_targets == 20 * n_pairs
        return
    real = method.design(
        OrderFile(
            n_examples=n, n_ids=20 * n, context=256, seed=0, content_digest="sha256:00"
        ),
        method.default_orders,
    )
    assert (design.n_strata, design.n_orders) == (real.n_strata, real.n_orders)
    n_targets = 20 * np.count_nonzero(real.orders >= 0)
    assert workload(name, file, design).n_targets == n_targets
