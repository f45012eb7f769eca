"""`stats.inflation` against closed forms, enumeration and scipy."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import make_smoothing_spline
from scipy.special import expit

from jaxcontam.stats.inflation import constat, gap_estimate, smoothing_spline, spline_at

pytestmark = pytest.mark.unoptimised


def scored(rng, shares, n):
    """(M, n) of models that are right with these chances."""
    return (rng.random((len(shares), n)) < np.array(shares)[:, None]).astype(float)


def pair_table(both, first, second, neither):
    """Scores of one model with so many pairs right on both sides, on one, on none."""
    published = [1.0] * (both + first) + [0.0] * (second + neither)
    other = [1.0] * both + [0.0] * first + [1.0] * second + [0.0] * neither
    return np.array([published]), np.array([other])


@pytest.mark.parametrize("cells", [(5, 9, 3, 13), (0, 6, 0, 4), (12, 0, 0, 8)])
def test_pairs_have_the_interval_of_two_more_pairs_that_differ(cells):
    found = gap_estimate(*pair_table(*cells), paired=True)
    _, first, second, _ = cells
    n = sum(cells)
    share_1, share_2 = (first + 1) / (n + 2), (second + 1) / (n + 2)
    middle = share_1 - share_2
    se = math.sqrt((share_1 + share_2 - middle**2) / (n + 2))
    half = stats.t.ppf(0.975, n - 1) * se
    assert found.estimate == pytest.approx((first - second) / n, abs=1e-12)
    ends = np.clip([middle - half, middle + half], -1, 1)
    assert (found.low, found.high) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("counts", [(9, 20, 3, 15), (5, 5, 0, 4), (7, 7, 30, 30)])
def test_two_sets_have_the_interval_of_agresti_and_caffo(counts):
    right, n, right_other, n_other = counts
    sides = [
        np.array([[1.0] * one + [0.0] * (size - one)])
        for one, size in ((right, n), (right_other, n_other))
    ]
    found = gap_estimate(*sides, paired=False)
    shares = [(right + 1) / (n + 2), (right_other + 1) / (n_other + 2)]
    parts = [
        p * (1 - p) / (size + 2) for p, size in zip(shares, (n, n_other), strict=True)
    ]
    df = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (n_other - 1))
    half = stats.t.ppf(0.975, df) * math.sqrt(sum(parts))
    middle = shares[0] - shares[1]
    assert found.estimate == pytest.approx(right / n - right_other / n_other)
    ends = np.clip([middle - half, middle + half], -1, 1)
    assert (found.low, found.high) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n_references", [0, 1, 4])
def test_p_and_interval_say_the_same(paired, n_references):
    rng = np.random.default_rng(3)
    above = 0
    for gain in np.linspace(0, 0.5, 40):
        published = scored(rng, [0.4 + gain] + [0.4] * n_references, 30)
        other = scored(rng, [0.4] * (1 + n_references), 30)
        found = gap_estimate(published, other, paired=paired)
        assert (found.p_value < 0.025) == (found.low > 0)
        above += found.low > 0
    assert 0 < above < 40


def test_references_that_differ_by_themselves_widen_the_interval():
    """To the t interval of one more draw of a gap, where items have no noise."""
    gaps = np.array([0.1, 0.2, 0.4])
    other = np.full((4, 50), 0.3)
    published = other + np.array([0.3, *gaps])[:, None]
    found = gap_estimate(published, other, paired=True)
    assert found.estimate == pytest.approx(0.3 - gaps.mean())
    assert found.rests_on == "models"
    assert found.spread == pytest.approx(gaps.std(ddof=1))
    half = stats.t.ppf(0.975, 2) * found.spread * math.sqrt(4 / 3)
    assert found.high - found.low == pytest.approx(2 * half)
    alike = other + np.array([0.3, *[gaps.mean()] * 3])[:, None]
    assert gap_estimate(alike, other, paired=True).rests_on == "items"


def test_the_smallest_detectable_gap_is_found_four_times_in_five():
    """4 standard errors of 400 models, and what the mde itself varies."""
    rng, other = np.random.default_rng(5), 0.3

    def beside(share):
        sides = (scored(rng, [one], 150) for one in (share, other))
        return gap_estimate(*sides, paired=False)

    mde = beside(0.5).mde
    found = [beside(other + mde).low for _ in range(400)]
    assert np.mean(np.array(found) > 0) == pytest.approx(0.8, abs=0.08)


def test_the_spline_is_that_of_scipy():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(9))
    y = x**2 + 0.05 * rng.standard_normal(9)
    for penalty in (1e-6, 1e-3, 1.0):
        scipys = make_smoothing_spline(x, y, lam=penalty)
        own = smoothing_spline(x, y, penalty)
        inside = np.linspace(x[0], x[-1], 40)
        found = [spline_at(at, x, own) for at in inside]
        assert found == pytest.approx(scipys(inside), abs=1e-8)
        slope = scipys.derivative()(x[-1])
        beyond = scipys(x[-1]) + 0.2 * slope
        assert spline_at(x[-1] + 0.2, x, own) == pytest.approx(beyond, abs=1e-7)


def test_what_stands_above_the_line_of_the_references_is_the_estimate():
    """References at y = 0.1 + 0.8 x exactly; the curve is that line."""
    x = np.array([0.5, 0.2, 0.3, 0.4, 0.6, 0.7])
    y = 0.1 + 0.8 * x
    y[0] += 0.15
    published, other = (np.repeat(v[:, None], 20, axis=1) for v in (y, x))
    found = constat(published, other, paired=True, chance=None, n_resamples=50)
    assert found.estimate == pytest.approx(0.15, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((0.15, 0.15), abs=1e-9)
    assert found.p_value == 1 / 51
    assert not found.outside
    stronger = constat(
        published[:, :10],
        np.vstack([other[:1, :10] + 0.4, other[1:, :10]]),
        paired=True,
        chance=None,
        n_resamples=10,
    )
    assert stronger.outside
    assert stronger.estimate == pytest.approx(0.15 - 0.8 * 0.4, abs=1e-9)


def test_references_of_one_score_count_by_their_mean():
    x = np.array([0.5, 0.2, 0.2, 0.3, 0.4, 0.6, 0.7])
    y = 0.1 + 0.8 * x + np.array([0.15, 0.1, -0.1, 0, 0, 0, 0])
    published, other = (np.repeat(v[:, None], 20, axis=1) for v in (y, x))
    found = constat(published, other, paired=True, chance=None, n_resamples=10)
    assert found.estimate == pytest.approx(0.15, abs=1e-9)


def test_the_curve_needs_five_references_that_differ():
    rng = np.random.default_rng(0)
    sides = [scored(rng, [0.5] * 5, 30) for _ in range(2)]
    with pytest.raises(ValueError, match="references must be at least 5, got 4"):
        constat(*sides, paired=False, chance=0.25)
    flat = np.full((6, 30), 0.5)
    with pytest.raises(ValueError, match="different scores"):
        constat(flat, flat, paired=True, chance=None)


def test_the_bootstrap_follows_its_seed_and_resamples_pairs_together():
    rng = np.random.default_rng(2)
    published = scored(rng, [0.8, 0.4, 0.5, 0.6, 0.7, 0.45, 0.65], 40)
    found = [
        constat(published, published, paired=True, chance=0.25, n_resamples=40, seed=s)
        for s in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    apart = constat(published, published, paired=False, chance=0.25, n_resamples=40)
    assert apart.high - apart.low > found[0].high - found[0].low


# Items that are drawn together, skewed scores, and references unlike the model.


def answered(rng, logits_MN):
    return (rng.random(logits_MN.shape) < expit(logits_MN)).astype(float)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n_references", [0, 3])
@pytest.mark.parametrize("graded", [True, False])
def test_copies_in_one_group_change_nothing(paired, n_references, graded):
    """Groups whose items all agree are worth as much as one item each."""
    rng = np.random.default_rng(4)
    sides = [
        answered(rng, rng.normal(size=(1 + n_references, n))) for n in (20, 20 + paired)
    ]
    sides = [0.1 + 0.7 * side if graded else side for side in sides]
    sides = [side[:, :20] for side in sides]
    alone = gap_estimate(*sides, paired=paired)
    codes = np.repeat(np.arange(20), 7)
    groups = [codes] if paired else [codes, codes + 20]
    copies = [np.repeat(side, 7, axis=1) for side in sides]
    found = gap_estimate(*copies, paired=paired, groups=groups)
    for name in ("estimate", "low", "high", "p_value", "mde"):
        assert getattr(found, name) == pytest.approx(getattr(alone, name), abs=1e-9)
    apart = gap_estimate(*copies, paired=paired)
    assert n_references or apart.high - apart.low < 0.6 * (found.high - found.low)


@pytest.mark.parametrize("paired", [True, False])
def test_the_curve_draws_whole_groups(paired):
    rng = np.random.default_rng(4)
    sides = [answered(rng, rng.normal(size=(7, 20)) + 0.1) for _ in range(2)]
    copies, codes = [np.repeat(side, 7, axis=1) for side in sides], np.arange(140) // 7
    groups = [codes] if paired else [codes, codes + 20]
    alone, found = (
        constat(*one, paired=paired, chance=None, groups=own, n_resamples=30)
        for one, own in ((sides, None), (copies, groups))
    )
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=1e-9)


def test_a_passage_on_both_sides_takes_its_difficulty_out():
    """A split within passages tells more than one between them."""
    rng = np.random.default_rng(8)
    hard = np.repeat(rng.normal(0, 2, 40), 5)[None]
    sides = [answered(rng, hard) for _ in range(2)]
    codes = np.repeat(np.arange(40), 5)
    within = gap_estimate(*sides, paired=False, groups=[codes, codes])
    between = gap_estimate(*sides, paired=False, groups=[codes, codes + 40])
    assert within.high - within.low < 0.7 * (between.high - between.low)


PASSAGES = [(40, 5), (40, 10), (100, 10), (10, 30)]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("n_cases", "n_groups", "size", "n_references"),
    [
        (300, 40, 10, 0),
        *(
            pytest.param(1000, *one, n, marks=pytest.mark.slow)
            for one in PASSAGES
            for n in (0, 5)
        ),
    ],
)
def test_passages_are_covered(n_cases, n_groups, size, n_references, paired):
    """Both sides have one law, and how hard an item is goes with its passage.

    3 standard errors of so many models; items taken for independent hold less.
    """
    rng, held = np.random.default_rng(0), np.zeros(2)
    codes = np.repeat(np.arange(n_groups), size)
    groups = [codes] if paired else [codes, codes + n_groups]
    for _ in range(n_cases):
        sides = []
        for _ in range(2):
            hard = rng.normal(0, 1.2, n_groups)
            hard = hard + rng.normal(0, 0.8, (1 + n_references, n_groups))
            sides.append(answered(rng, np.repeat(hard, size, axis=1)))
        for i, known in enumerate((groups, None)):
            found = gap_estimate(*sides, paired=paired, groups=known)
            held[i] += found.low <= 0 <= found.high
    grouped, items = held / n_cases
    assert grouped >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / n_cases)
    assert n_references or size < 10 or items < 0.85


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("n", "rare"), [(40, 0.0741), (100, 0.0614), (300, 0.0252), (1000, 0.0075)]
)
def test_rare_items_that_the_sample_lacks_are_allowed_for(n, rare, paired):
    """Enumerated: the other side is 1 for a rare item, the published one its mean.

    Of all laws of two values this is the most skewed; these chances are near the worst
    ones. The t interval alone lies above 0 in 4.1 to 6.3 %.
    """
    published, called = np.full((1, n), rare), 0.0
    for right in range(n + 1):
        other = (np.arange(n) < right).astype(float)[None]
        if gap_estimate(published, other, paired=paired).low <= 0:
            break
        called += stats.binom.pmf(right, n, rare)
    assert called <= 0.029


@pytest.mark.parametrize(
    ("strength", "n_items", "shares"),
    [(1.7, 1000, (1, 1)), (-1.0, 1000, (1, 1)), (0.55, 40, (0, 0.05))],
)
def test_a_model_outside_its_references_is_told_apart(strength, n_items, shares):
    """Other items are harder by half a logit, which is more points near one half.

    Of clean models beside stronger references one in ten would be called inflated.
    Among them, noise of 40 items puts it beyond all five in a third of cases.
    """
    rng, outside, called = np.random.default_rng(1), 0, 0
    for _ in range(100):
        hard = rng.normal(0, 1, n_items)
        able = np.append(0.55, strength + 0.1 * rng.normal(size=5))[:, None]
        sides = [answered(rng, able - hard), answered(rng, able - hard - 0.5)]
        found = gap_estimate(*sides, paired=True)
        outside += found.outside
        called += found.low > 0 and not found.outside
    assert shares[0] <= outside / 100 <= shares[1]
    assert strength == 0.55 or not called
