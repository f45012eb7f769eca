"""The leaderboard's books and figures, on made-up calls and trials."""

import dataclasses
import math

import numpy as np
import pytest

from eval.leaderboard.detector import (
    Budget,
    Entry,
    Finding,
    MeteredScorer,
    OverBudgetError,
    finding_of_p,
)
from eval.leaderboard.standings import COMPARED, refusals, standings
from eval.leaderboard.trials import Trial
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.scorer import Scorer, SequenceSums

pytestmark = pytest.mark.unoptimised


def entry(name, detect=lambda subject: Finding(score=0.0), **changes):
    fields = {
        "gives": "score",
        "family": "other",
        "about": "made up",
        "source": "a test",
    }
    return Entry(name=name, detect=detect, **fields | changes)


class CountingPairs:
    def __init__(self):
        self.n_calls = 0

    def logprobs(self, groups, progress=None):
        self.n_calls += 1
        return PairScores([[np.zeros(2)] * len(g.continuations) for g in groups], 0)


def counting_scorer(context):
    """A scorer whose model gives 0 and counts the positions that it is asked for."""
    asked = []

    def forward(inputs_BS, targets_BS):
        asked.append(inputs_BS.shape)
        return (np.zeros(inputs_BS.shape, np.float32), None, None, None)

    scorer = Scorer(forward, context=context, batch_tokens=64, pairs=CountingPairs())  # type: ignore[arg-type]
    return scorer, asked


def trial(name, seed, copies, score, p_value=None, refused=None):
    return Trial(
        entry=name,
        seed=seed,
        copies=copies,
        score=score,
        p_value=p_value,
        passes=2.0,
        seconds=0.1,
        refused=refused,
    )


def test_every_window_is_charged():
    budget = Budget(100, pass_tokens=10)
    scorer, _ = counting_scorer(8)
    # Windows of 8 tokens at 0, 4 and 8, of whose last one nothing is predicted.
    MeteredScorer(scorer, budget, {}).sums([np.arange(8 + 4 + 4)])
    assert budget.spent == 7 + 7 + 7
    assert (budget.left, budget.passes) == (79, 2.1)


def test_prefix_is_charged_once_and_each_continuation():
    budget = Budget(100, pass_tokens=10)
    scorer, _ = counting_scorer(8)
    pairs = MeteredScorer(scorer, budget, {}).pairs
    prefix, text = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    pairs.logprobs([PairGroup(prefix, (text, text), 0, (1, 2))])
    assert budget.spent == 3 + 2 + 2


def test_call_above_the_budget_does_not_reach_the_model():
    scorer, asked = counting_scorer(8)
    metered = MeteredScorer(scorer, Budget(5, pass_tokens=5), {})
    with pytest.raises(OverBudgetError, match=r"asked for 1\.2 passes, 1\.0 allowed"):
        metered.sums([np.arange(7)])
    assert asked == []
    metered.sums([np.arange(6)])
    assert len(asked) == 1


def test_same_call_of_two_detectors_is_computed_once_and_charged_to_both():
    scorer, asked = counting_scorer(8)
    known = {}
    budgets = [Budget(10, pass_tokens=5) for _ in range(2)]
    found = [MeteredScorer(scorer, b, known).sums([np.arange(6)]) for b in budgets]
    assert isinstance(found[0], SequenceSums)
    assert found[0].loglik is found[1].loglik
    assert len(asked) == 1 and [b.spent for b in budgets] == [5, 5]
    # Other sequences of the same ids in all are another call.
    MeteredScorer(scorer, budgets[0], known).sums([np.arange(3), np.arange(3, 6)])
    assert len(asked) == 2


def test_finding_of_a_p_value_ranks_by_it():
    deep, mild, none = (finding_of_p(x) for x in (-4.0, -1.0, 1e-17))
    assert deep.score > mild.score > none.score == 0.0
    assert (deep.p_value, none.p_value) == (pytest.approx(1e-4), 1.0)


def test_best_ranking_comes_first_and_a_constant_is_at_chance():
    rng = np.random.default_rng(0)
    names = ("constant", "noisy", "perfect")
    trials = [
        trial(name, seed, copies, score)
        for seed in range(10)
        for copies in (0, 0, 2, 8)
        for name, score in (
            ("constant", 1.0),
            ("noisy", float(rng.normal() + copies / 4)),
            ("perfect", float(copies)),
        )
    ]
    first, second, last = standings([entry(name) for name in names], trials)
    assert [one.entry for one in (first, second, last)] == [
        "perfect",
        "noisy",
        "constant",
    ]
    assert (first.auc.value, last.auc.value) == (1.0, 0.5)
    assert {one.difference for one in (first, second, last)} == {None}
    assert first.found_by_copies is not None
    assert {n: one.value for n, one in first.found_by_copies.items()} == {2: 1, 8: 1}
    # As many sets at each count, so that their mean is that of all.
    by_copies = [one.value for one in second.auc_by_copies.values()]
    assert second.auc.value == pytest.approx(np.mean(by_copies))
    for one in (first, second, last):
        assert one.auc.low <= one.auc.value <= one.auc.high


def compared(scores):
    """Standings by name of entries whose scores are given for (seed, copies)."""
    trials = [
        trial(name, seed, copies, score(seed, copies))
        for name, score in scores.items()
        for seed in range(8)
        for copies in (0, 0, 4)
    ]
    found = standings([entry(name) for name in scores], trials)
    return {one.entry: one for one in found}


def test_difference_is_from_the_entry_that_was_chosen_beforehand():
    """Whichever is best here: that one is best by luck too."""
    found = compared(
        {
            "perfect": lambda seed, copies: float(copies),
            COMPARED: lambda seed, copies: float(copies * (seed % 4 > 0)),
            "constant": lambda seed, copies: 1.0,
        }
    )
    assert list(found) == ["perfect", COMPARED, "constant"]
    assert found[COMPARED].difference is None
    gaps = [found[name].difference for name in ("perfect", "constant")]
    # Of eight models two planted sets tie with the clean ones, and count for a half.
    assert [gap.value for gap in gaps] == [pytest.approx(x) for x in (1 / 8, -3 / 8)]
    assert gaps[1].low < -3 / 8 < gaps[1].high < 0


def test_scores_of_one_model_vary_together():
    """A shift of each model's scores widens the interval that counts sets alone."""
    rng = np.random.default_rng(1)
    trials = [
        trial("a", seed, copies, shift + 0.01 * rng.normal() + copies)
        for seed, shift in enumerate(rng.normal(size=30))
        for copies in (0, 0, 0, 0, 1, 1, 1, 1)
    ]
    alone = [dataclasses.replace(one, seed=number) for number, one in enumerate(trials)]
    (together,), (apart,) = (standings([entry("a")], of) for of in (trials, alone))
    assert together.auc.value == apart.auc.value
    width = [one.auc.high - one.auc.low for one in (together, apart)]
    assert width[0] > 1.3 * width[1]


def test_power_counts_p_values_at_the_level_and_below():
    trials = [
        trial("a", seed, copies, score=-math.log10(p), p_value=p)
        for seed, (clean, planted) in enumerate([(0.05, 1e-3), (0.2, 0.04), (0.9, 0.5)])
        for copies, p in ((0, clean), (3, planted))
    ]
    (found,) = standings([entry("a", gives="p-value")], trials)
    shares = {
        level: {n: share.value for n, share in row.items()}
        for level, row in found.power.items()
    }
    assert shares == {
        0.05: {0: pytest.approx(1 / 3), 3: pytest.approx(2 / 3)},
        0.001: {0: 0.0, 3: pytest.approx(1 / 3)},
    }
    # Too few clean sets for a threshold that 5 % of them exceed.
    assert found.found_by_copies is None


def test_entry_that_was_refused_once_is_named_and_not_ranked():
    trials = [
        trial("a", 0, 0, None, refused="asked for 3.0 passes, 1 allowed"),
        trial("a", 0, 1, 1.0),
        trial("a", 1, 0, None, refused="asked for 2.0 passes, 1 allowed"),
    ]
    assert standings([entry("a")], trials) == []
    # What it asked for first, whatever it asked for later.
    assert refusals(trials) == {"a": "asked for 3.0 passes, 1 allowed"}
