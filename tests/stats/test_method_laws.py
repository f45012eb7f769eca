"""Laws of every test in METHODS, and of the functions of jaxcontam.stats behind them.

A test is given small scores and has to keep what its null hypothesis says: its p-value
is the share of all arrangements, which it might as well have been given, that score as
high. So it is valid, and simulations of its size (test_sizes) look at larger designs.

A new row of METHODS is tested here as it is. A test of pairs needs a line in `SUMS`:
its statistic, written down a second time.

Dimension key
    K  strata
    M  columns of a stratum, the published one first
    S  examples of a stratum
    P  pairs of a stratum that were scored
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from jaxcontam.methods import METHODS
from jaxcontam.orders.pairs import stratum_runs
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.proof.result import Evidence
from jaxcontam.proof.test_row import TestRow
from jaxcontam.stats import exact_tail, pair_test, randomisation
from jaxcontam.stats.conformal import conformal_p_values, share_seen
from jaxcontam.stats.direction import needed_pairs
from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.inflation import gap_estimate
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.multiple import max_t
from jaxcontam.stats.paired import (
    paired_bootstrap_p,
    sign_flip_test,
    unpaired_bootstrap_p,
)
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.relabelling import auc_p_values, set_level_test
from jaxcontam.stats.rows import padded

pytestmark = pytest.mark.unoptimised

DIGEST = "sha256:" + "5" * 64
# Draws of a cross-check, which is no part of a p-value and takes most of the time.
N_DRAWS = 999
# Sums of the whole numbers below differ by more or are equal, in their unit.
TIE = 1e-4

TESTS = {name: row for name, row in METHODS.items() if isinstance(row, TestRow)}
# `auto` leaves rows as short as these alone.
TESTS["studentised"] = dataclasses.replace(
    METHODS["stratified"],
    name="studentised",
    analyse=lambda loglik_KM, boundaries_K, seed: randomisation_test(
        loglik_KM, boundaries_K, scores="studentised", seed=seed
    ),
)
EXACT = [name for name, row in TESTS.items() if row.validity != "asymptotic"]
MOST_STRATA = {"canary_alone": 1}

law = settings(
    max_examples=15,
    # Files are small as they are drawn; to make them smaller takes minutes.
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
every_test = pytest.mark.parametrize("name", TESTS)
every_exact_test = pytest.mark.parametrize("name", EXACT)


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """Cross-checks of `N_DRAWS` draws."""
    whole = randomisation.monte_carlo_p

    def monte_carlo_p(values, *, tolerance, seed, n_draws):
        return whole(values, tolerance=tolerance, seed=seed, n_draws=N_DRAWS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomisation, "monte_carlo_p", monte_carlo_p)
        patch.setattr(pair_test, "N_MONTE_CARLO", N_DRAWS)
        yield


@dataclasses.dataclass(frozen=True)
class File:
    """Scores of K strata: rows of M columns, or matrices of S x S pairs.

    `codes` are the groups of the examples of each matrix; orders keep to them.
    """

    strata: list
    codes: list = dataclasses.field(default_factory=list)

    def __repr__(self):
        return f"{[one.tolist() for one in self.strata]}, {self.codes}"


@st.composite
def files(draw, name, most_strata=6, most_columns=7, most_examples=5):
    """Whole numbers, many of them equal, as small as the witness can count."""
    row = TESTS[name]
    fewest = getattr(row, "fewest_strata", None) or 1
    most = MOST_STRATA.get(name, 2 if row.scores_pairs else most_strata)
    K = draw(st.integers(fewest, max(fewest, most)))

    def numbers(*shape):
        n = math.prod(shape)
        values = st.lists(st.integers(-4, 4), min_size=n, max_size=n)
        return np.array(draw(values), float).reshape(shape)

    if row.scores_pairs:
        sizes = [draw(st.integers(4, most_examples)) for _ in range(K)]
        codes = [draw(st.sampled_from([[0] * S, [0, 0, 1, 0, 1][:S]])) for S in sizes]
        return File([numbers(S, S) for S in sizes], codes)
    M = draw(st.integers(2, most_columns))
    same = isinstance(row, OrderMethod)
    lengths = [M if same else draw(st.integers(2, M)) for _ in range(K)]
    return File([numbers(length) for length in lengths])


def evidence_of(name, file, sparse=False):
    """The file as its test is given it; `sparse` leaves out pairs that it may lack."""
    row, K = TESTS[name], len(file.strata)
    if not row.scores_pairs:
        scores, orders = padded(file.strata), np.arange(2 * K).reshape(K, 1, 2)
        if not isinstance(row, OrderMethod):
            return Evidence(scores=scores)
        return Evidence(scores=scores, orders=orders, boundaries=np.ones(K))
    sizes = [len(pairs_SS) for pairs_SS in file.strata]
    shape = (K, max(sizes))
    published_KS, codes_KS = np.full(shape, -1), np.zeros(shape, np.int64)
    pairs_KSS = np.zeros((*shape, max(sizes)))
    for k, S in enumerate(sizes):
        published_KS[k, :S] = np.arange(S) + sum(sizes[:k])
        codes_KS[k, :S] = file.codes[k]
    # Runs of four examples, as in a file of 60 and more.
    runs_KS = stratum_runs(published_KS, 60)
    for k, S in enumerate(sizes):
        needed_SS = needed_pairs(runs_KS[k, :S]) | np.eye(S, dtype=bool)
        kept_SS = needed_SS | (not sparse)
        pairs_KSS[k, :S, :S] = np.where(kept_SS, file.strata[k], np.nan)
    return Evidence(
        pairs=pairs_KSS, orders=published_KS[:, None], codes=codes_KS, runs=runs_KS
    )


def numbers_of(name, file, *, seed=0, sparse=False, locates=False):
    row = dataclasses.replace(TESTS[name], locates=TESTS[name].locates and locates)
    evidence = evidence_of(name, file, sparse)
    return row.numbers(evidence, grouped=False, seed=seed, content_digest=DIGEST)


def without_effects(pairs_SS):
    """Least squares over the scored pairs: (S, S) residuals, 0 where not scored."""
    S = len(pairs_SS)
    scored_SS = ~np.isnan(pairs_SS) & ~np.eye(S, dtype=bool)
    left_P, right_P = np.nonzero(scored_SS)
    design = np.hstack([np.eye(S)[left_P], np.eye(S)[right_P]])
    found_P = pairs_SS[scored_SS]
    residual_SS = np.zeros((S, S))
    effects = np.linalg.lstsq(design, found_P, rcond=None)[0]
    residual_SS[scored_SS] = found_P - design @ effects
    return residual_SS


def by_distance(residual_SS):
    return sum(
        (residual_SS[i, j] - residual_SS[j, i]) / (j - i)
        for i, j in itertools.combinations(range(len(residual_SS)), 2)
    )


# Statistic of a test of pairs -> the sum over a file that stands in its order.
SUMS = {
    "double-centred": lambda residual_SS: np.trace(residual_SS, 1),
    "forwards less backwards": by_distance,
}


def orders_of(null, codes, runs):
    """Orders that the null hypothesis takes for as likely as the published one."""
    S, codes = len(codes), np.array(codes)
    if null == "exchangeability":
        orders = map(list, itertools.permutations(range(S)))
        return [order for order in orders if (codes[order] == codes).all()]
    turned = []
    for run in set(runs):
        order = np.arange(S)
        for code in set(codes):
            at = np.flatnonzero((runs == run) & (codes == code))
            order[at] = at[::-1]
        if (order != np.arange(S)).any():
            turned.append(order)
    orders = [np.arange(S)]
    for order in turned:
        orders += [order[one] for one in orders]
    return orders


def columns_of(name, file, sparse=False):
    """Scores of every arrangement of each stratum by hand, the published one first."""
    row = TESTS[name]
    if row.scores_pairs:
        evidence, columns = evidence_of(name, file, sparse), []
        for k, codes in enumerate(file.codes):
            S = len(codes)
            residual_SS = without_effects(evidence.pairs[k, :S, :S])
            columns.append(
                [
                    SUMS[row.statistic.name](residual_SS[np.ix_(order, order)])
                    for order in orders_of(row.null, codes, evidence.runs[k, :S])
                ]
            )
        return [np.array(one) for one in columns]
    centred = [row_M - row_M.mean() for row_M in file.strata]
    if name == "studentised":
        return [row_M / (row_M.std(ddof=1) or 1.0) for row_M in centred]
    return centred


def share_as_high(columns, tie=TIE):
    sums = np.zeros(1)
    for column in columns:
        sums = np.add.outer(sums, column).ravel()
    return np.mean(sums >= sum(column[0] for column in columns) - tie)


@every_exact_test
@law
@given(st.data())
def test_p_is_the_share_of_all_arrangements_that_score_as_high(name, data):
    file = data.draw(files(name))
    sparse = not TESTS[name].whole and data.draw(st.booleans())
    columns = columns_of(name, file, sparse)
    exact, floor = share_as_high(columns), 1 / math.prod(map(len, columns))
    found = numbers_of(name, file, sparse=sparse)
    assert found.statistic == pytest.approx(sum(one[0] for one in columns), abs=1e-9)
    assert found.p_value == pytest.approx(exact, rel=1e-9)
    assert found.p_lower == pytest.approx(exact, rel=1e-9)
    assert found.p_floor == pytest.approx(floor, rel=1e-9)
    assert found.log10_p == pytest.approx(math.log10(exact), abs=1e-9)
    # Five standard errors of the draws, and the added 1.
    slack = 5 * math.sqrt(exact * (1 - exact) / N_DRAWS) + 1 / N_DRAWS
    assert abs(found.p_monte_carlo - exact) <= slack
    # As if there were too many arrangements to count, and by numbers on no grid.
    file = dataclasses.replace(file, strata=[one / 3 for one in file.strata])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_tail, "_ENUMERABLE", 1)
        patch.setattr(exact_tail, "_MERGED", data.draw(st.sampled_from([1, 2**12])))
        on_grid = numbers_of(name, file, sparse=sparse)
    assert on_grid.p_floor <= on_grid.p_lower <= exact * (1 + 1e-9)
    assert exact <= on_grid.p_value * (1 + 1e-9)


@every_exact_test
@settings(law, max_examples=4)
@given(st.data())
def test_mean_evalue_over_all_arrangements_is_one(name, data):
    file = data.draw(files(name, most_strata=3, most_columns=4, most_examples=4))
    if TESTS[name].scores_pairs:
        file = File(file.strata[:1], file.codes[:1])
        codes = np.array(file.codes[0])
        runs_S = evidence_of(name, file).runs[0]
        given_too = [
            File([file.strata[0][np.ix_(order, order)]], [codes[order].tolist()])
            for order in orders_of(TESTS[name].null, codes, runs_S)
        ]
    else:
        turned = [[np.roll(row, j) for j in range(len(row))] for row in file.strata]
        given_too = [File(list(strata)) for strata in itertools.product(*turned)]
    found = [numbers_of(name, one).e_value for one in given_too]
    assert np.mean(found) == pytest.approx(1, rel=1e-9)


@every_test
@pytest.mark.parametrize("score", [-417.3, -1 / 3, 0.0])
def test_scores_that_no_arrangement_changes_give_p_of_one(name, score):
    """Each stratum has a score of its own; each example of a pair, two of its own."""
    K = MOST_STRATA.get(name, 5)
    file = File([score * (1 + k) * np.ones(4) for k in range(K)])
    if TESTS[name].scores_pairs:
        own_S = score * np.arange(1.0, 6)
        file = File([own_S[:, None] - 2 * own_S**2] * K, [[0] * 5] * K)
    found = numbers_of(name, file, locates=True)
    given_p = (found.p_value, found.p_lower or 1.0, found.p_monte_carlo or 1.0)
    assert given_p == (1.0, 1.0, 1.0)
    assert found.log10_p == 0.0
    assert (found.statistic, found.effect) == pytest.approx((0, 0), abs=1e-6)
    assert found.e_value in (None, pytest.approx(1))
    assert not found.exposure
    assert found.local is None or found.local.p_value == 1.0
    assert (found.local is not None) == TESTS[name].locates


@every_test
@law
@given(st.data())
def test_what_is_no_arrangement_changes_no_p(name, data):
    """Unit, level, order of strata and order of the columns that were not published.

    The unit is one for all strata: a sum weighs each by its own spread. The level is a
    number for each stratum, or for each example before and after any other, not so
    large that gains look like rounding. Tests of pairs have no columns but those that
    follow from the published order. The cross-check draws other columns, and where the
    evidence lies is a place in the file.
    """
    file = data.draw(files(name))
    if TESTS[name].validity == "asymptotic":
        # Gains that are all alike are divided by the size of rounding.
        assume(np.ptp([row[0] - row[1:].mean() for row in file.strata]) > 0)
    scale = data.draw(st.sampled_from([1e-3, 1 / 3, 1.0, 7.0, 2.0**20]))
    order = data.draw(st.permutations(range(len(file.strata))))
    strata = []
    for one in (file.strata[k] for k in order):
        before, after = data.draw(st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
        if TESTS[name].scores_pairs:
            own_S = np.arange(len(one)) ** 2.0
            one = one + before * own_S[:, None] + after * own_S
        else:
            one = np.array([one[0], *data.draw(st.permutations(one[1:]))]) + before
        strata.append(scale * one)
    first = numbers_of(name, file)
    moved = numbers_of(name, File(strata, [file.codes[k] for k in order if file.codes]))
    is_ratio = name.startswith(("sharded_t", "studentised"))
    units = {
        **dict.fromkeys(("p_value", "log10_p", "p_lower", "p_floor", "e_value"), 1.0),
        **dict.fromkeys(("effect", "effect_se"), scale),
        "statistic": 1.0 if is_ratio else scale,
        "exposure": 1.0,
    }
    for field, unit in units.items():
        expected = getattr(first, field)
        if expected is not None:
            expected = pytest.approx(unit * expected, rel=1e-6, abs=1e-9 * unit)
        assert getattr(moved, field) == expected, field


def test_unit_of_one_stratum_counts_unless_rows_are_studentised():
    rows = [np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 0.0])]
    scaled = [rows[0], 9 * rows[1]]
    for name, is_same in [("stratified", False), ("studentised", True)]:
        one, other = (numbers_of(name, File(x)).p_value for x in (rows, scaled))
        assert (one == other) == is_same


@every_test
def test_seed_draws_the_cross_check_and_the_place_and_nothing_else(name):
    rng = np.random.default_rng(0)
    K = MOST_STRATA.get(name, 5)
    shape = (5, 5) if TESTS[name].scores_pairs else (5,)
    file = File([rng.normal(size=shape) for _ in range(K)], [[0] * 5] * K)
    first, again, other = (
        numbers_of(name, file, seed=seed, locates=True) for seed in (3, 3, 4)
    )
    assert first == again
    assert dataclasses.replace(
        other, p_monte_carlo=first.p_monte_carlo, local=first.local
    ) == (first)
    is_drawn = K > 1 and first.p_monte_carlo not in (None, first.p_value)
    assert (other.p_monte_carlo != first.p_monte_carlo) == is_drawn
    assert (other.local != first.local) == TESTS[name].locates


@every_test
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused(name, value):
    K = MOST_STRATA.get(name, 2)
    if TESTS[name].scores_pairs:
        if np.isnan(value) and not TESTS[name].whole:
            pytest.skip("says that a pair was not scored")
        file = File([np.eye(4, k=1) for _ in range(K)], [[0] * 4] * K)
        file.strata[-1][2, 1] = value
    else:
        file = File([np.array([2.0, 1.0, 0.0]) for _ in range(K)])
        # A row of versions that ends in NaN is a shorter one.
        file.strata[-1][1] = value
    told = "(log-likelihoods|pair matrices) must be finite|row of scores has a hole"
    with pytest.raises(ValueError, match=told):
        numbers_of(name, file)


# Functions behind the tests, and beside them.


@law
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=10))
def test_sign_flips_give_the_share_of_all_signs(units):
    d = np.array(units) / 100
    found = sign_flip_test(np.maximum(d, 0), np.maximum(-d, 0))
    columns = [np.array([unit, -unit]) for unit in units]
    assert found.p_value == pytest.approx(share_as_high(columns), rel=1e-12)
    assert found.p_floor == 0.5 ** np.count_nonzero(d)


def best_of_all_runs(scores):
    return max(
        sum(scores[a:b]) / math.sqrt(b - a)
        for a, b in itertools.combinations(range(len(scores) + 1), 2)
    )


@law
@given(st.data())
def test_place_of_the_evidence_has_the_p_of_all_column_choices(data):
    rows = data.draw(files("variants", most_strata=4, most_columns=6)).strata
    varies = [row for row in rows if np.ptp(row)]
    found = local_evidence(rows, np.zeros(len(rows)), seed=0, n_draws=N_DRAWS)
    sd = [row.std(ddof=1) or 1.0 for row in rows]
    if min(map(len, rows)) < 5 and varies:
        sd = [math.sqrt(np.mean([row.var(ddof=1) for row in varies]))] * len(rows)
    z_rows = [(row - row.mean()) / own for row, own in zip(rows, sd, strict=True)]
    published = best_of_all_runs([row[0] for row in z_rows])
    assert found.statistic == pytest.approx(published, abs=1e-9)
    run = [row[0] for row in z_rows[found.first : found.last + 1]]
    assert sum(run) / math.sqrt(len(run)) == pytest.approx(published, abs=1e-9)
    choices = itertools.product(*z_rows)
    exact = np.mean([best_of_all_runs(one) >= published - 1e-9 for one in choices])
    slack = 5 * math.sqrt(exact * (1 - exact) / N_DRAWS) + 1 / N_DRAWS
    assert abs(found.p_value - exact) <= slack


HALF = np.arange(40) < 20


@pytest.mark.parametrize(
    "p_value",
    [
        lambda x_N: 10 ** lattice_tail(np.stack([x_N - x_N[0]] * 9), 0.0).log10_upper,
        lambda x_N: local_evidence(x_N[None], np.zeros(1), seed=0).p_value,
        lambda x_N: max_t(np.stack([x_N, -x_N])).p_value,
        lambda x_N: sign_flip_test(x_N, x_N).p_value,
        lambda x_N: paired_bootstrap_p(x_N, x_N),
        lambda x_N: unpaired_bootstrap_p(x_N, x_N),
        lambda x_N: conformal_p_values(x_N[:3], x_N[3:]),
        lambda x_N: 1 - share_seen(x_N, x_N)[0],
        lambda x_N: auc_p_values(x_N[:, None], HALF, n=19),
        lambda x_N: set_level_test(x_N[:, None], HALF, n_permutations=19).p_value,
    ],
)
def test_scores_that_are_all_equal_give_p_of_one(p_value):
    np.testing.assert_array_equal(p_value(np.full(40, 0.3)), 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "test",
    [
        lambda x: lattice_tail(x[None], 0.0),
        lambda x: local_evidence(x[None], np.zeros(1), seed=0),
        lambda x: max_t(x[None]),
        lambda x: sign_flip_test(x, np.zeros(2)),
        lambda x: paired_bootstrap_p(x, np.zeros(2)),
        lambda x: conformal_p_values(np.zeros(2), x),
        lambda x: share_seen(np.zeros(2), x),
        lambda x: share_seen(x, np.zeros(2)),
        lambda x: gap_estimate(x[None], np.zeros((1, 2)), paired=True),
        lambda x: auc_p_values(x[:, None], np.array([True, False]), n=1),
        lambda x: set_level_test(np.tile(x[:, None], (4, 1)), np.arange(8) < 4),
    ],
)
def test_every_function_refuses_what_is_not_finite(test, value):
    with pytest.raises(ValueError, match="must be finite"):
        test(np.array([0.5, value]))
