"""Items that are drawn together, skewed scores, and references unlike the model."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from jaxcontam.stats.inflation import constat, gap_estimate

pytestmark = pytest.mark.unoptimised


def answered(rng, logits_MN):
    return (rng.random(logits_MN.shape) < expit(logits_MN)).astype(float)


def passages(rng, n_groups, size, *, paired, n_references):
    """Scores of clean models: how hard an item is goes with its passage.

    Both sides have one law, so that no model gains.
    """

    def side():
        common = rng.normal(0, 1.2, n_groups)
        own = rng.normal(0, 0.8, (1 + n_references, n_groups))
        return answered(rng, np.repeat(common + own, size, axis=1))

    codes = np.repeat(np.arange(n_groups), size)
    return [side(), side()], [codes] if paired else [codes, codes + n_groups]


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


def test_the_curve_draws_whole_groups():
    rng = np.random.default_rng(4)
    sides = [answered(rng, rng.normal(size=(7, 20)) + 0.1) for _ in range(2)]
    alone = constat(*sides, paired=True, chance=None, n_resamples=30)
    copies = [np.repeat(side, 7, axis=1) for side in sides]
    groups = [np.repeat(np.arange(20), 7)]
    found = constat(*copies, paired=True, chance=None, groups=groups, n_resamples=30)
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


def rates(n_cases, n_groups, size, *, paired, n_references, seed=0):
    """Shares of cases that the interval of groups holds 0 in, and that of items."""
    rng = np.random.default_rng(seed)
    held = np.zeros((n_cases, 2), bool)
    for case in range(n_cases):
        sides, groups = passages(
            rng, n_groups, size, paired=paired, n_references=n_references
        )
        for i, known in enumerate((groups, None)):
            found = gap_estimate(*sides, paired=paired, groups=known)
            held[case, i] = found.low <= 0 <= found.high
    return held.mean(axis=0)


@pytest.mark.parametrize("paired", [True, False])
def test_questions_about_few_passages_are_covered(paired):
    """3 standard errors of 300 models; items taken for independent hold 7 in 10."""
    grouped, items = rates(300, 40, 10, paired=paired, n_references=0)
    assert grouped >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 300)
    assert items < 0.85


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n_references", [0, 5])
@pytest.mark.parametrize(("n_groups", "size"), [(40, 5), (40, 10), (100, 10), (10, 30)])
def test_passages_are_covered_at_any_size(n_groups, size, paired, n_references):
    """3 standard errors of 1,000 models."""
    grouped, _ = rates(1000, n_groups, size, paired=paired, n_references=n_references)
    assert grouped >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
def test_passages_of_any_length_are_covered(paired):
    """One in five is ten times as long; 3 standard errors of 1,000 models."""
    rng = np.random.default_rng(2)
    sizes = np.where(np.arange(60) % 5 == 0, 20, 2)
    codes = np.repeat(np.arange(60), sizes)
    held = 0
    for _ in range(1000):
        sides = [
            answered(rng, np.repeat(rng.normal(0, 1.5, 60), sizes)[None])
            for _ in range(2)
        ]
        groups = [codes] if paired else [codes, codes + 60]
        found = gap_estimate(*sides, paired=paired, groups=groups)
        held += found.low <= 0 <= found.high
    assert held / 1000 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 1000)


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


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 100, 300])
@pytest.mark.parametrize("paired", [True, False])
def test_lognormal_scores_keep_the_level(n, paired):
    """3 standard errors of 2,000 samples; unpaired from ten times as many published."""
    rng = np.random.default_rng(6)

    def drawn(size):
        return np.minimum(np.exp(rng.normal(size=(1, size))) / 6, 1)

    mean = stats.lognorm.expect(lambda x: np.minimum(x / 6, 1), (1,), epsabs=1e-10)
    called = 0
    for _ in range(2000):
        published = np.full((1, n), mean) if paired else drawn(10 * n)
        called += gap_estimate(published, drawn(n), paired=paired).low > 0
    assert called / 2000 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 2000)


@pytest.mark.parametrize("strength", [1.7, -1.0])
def test_a_model_outside_its_references_is_told_apart(strength):
    """Other items are harder by half a logit, which is more points near one half.

    Of clean models beside stronger references one in ten would be called inflated.
    """
    rng = np.random.default_rng(1)
    outside, called = 0, 0
    for _ in range(100):
        hard = rng.normal(0, 1, 1000)
        able = np.append(0.55, strength + 0.1 * rng.normal(size=5))[:, None]
        sides = [answered(rng, able - hard), answered(rng, able - hard - 0.5)]
        found = gap_estimate(*sides, paired=True)
        outside += found.outside
        called += found.low > 0 and not found.outside
    assert (outside, called) == (100, 0)


def test_a_model_among_its_references_is_not_outside():
    """Noise of 40 items puts it beyond all five in a third of cases."""
    rng = np.random.default_rng(1)
    found = [
        gap_estimate(*(answered(rng, np.zeros((6, 40))) for _ in range(2)), paired=True)
        for _ in range(200)
    ]
    assert np.mean([one.outside for one in found]) < 0.05
