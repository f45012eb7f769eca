"""The detector leaderboard: what entries see, pulse runs, and its books."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest

from eval.leaderboard import trials
from eval.leaderboard.__main__ import Leaderboard
from eval.leaderboard.detector import (
    Budget,
    Entry,
    Finding,
    MeteredScorer,
    OverBudgetError,
    Subject,
    finding_of_p,
)
from eval.leaderboard.entries import built_in_entries
from eval.leaderboard.methods import affordable_strata
from eval.leaderboard.standings import COMPARED, refusals, standings
from eval.leaderboard.trials import (
    PULSE,
    Bench,
    EntryError,
    Trial,
    shown_copies,
    subject_of,
    try_entry,
)
from jaxcontam.members.score import ScoreMethod
from jaxcontam.methods import METHODS, OWN
from jaxcontam.orders.methods import ADJACENCY
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.scorer import Scorer, SequenceSums
from tests.support.studies import command_line, small_docs

pytestmark = pytest.mark.unoptimised


def entry(name, detect=lambda subject: Finding(score=0.0), **changes):
    fields = {"gives": "score", "family": "other", "about": "", "source": "a test"}
    return Entry(name=name, detect=detect, **fields | changes)


COPIES = shown_copies(PULSE)


@pytest.fixture(scope="module")
def arena():
    """A trained pulse model with its sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "read_python_docs", small_docs)
        return Bench(seed=3, tiny=True).arena(3)


def shown_of(arena, wants, passes=3):
    """What an entry sees of each set."""
    return [subject_of(arena, i, wants, passes=passes) for i in range(len(COPIES))]


def tried(entry, arena, passes=3):
    return try_entry(entry, arena, passes=passes)


@pytest.fixture
def small(monkeypatch):
    """Runs read the small corpus."""
    monkeypatch.setattr(trials, "read_python_docs", small_docs)


def test_every_order_test_and_score_has_an_entry():
    names = set(built_in_entries())
    tests = (OrderMethod, PairMethod)
    # One needs known members, one the weights.
    outside = {"con_recall", "gradient_norm", *OWN}
    for name, method in METHODS.items():
        if isinstance(method, (*tests, ScoreMethod)) and name not in outside:
            assert name in names, name


def test_detector_sees_what_it_needs_and_never_how_often_a_set_was_planted(arena):
    shown = shown_of(arena, entry("a"))
    assert {subject.benchmark.name for subject in shown} == {"set"}
    # The model's own seed drew the sets, so that it would tell which one this is.
    seeds = {subject.seed for subject in shown}
    assert len(seeds) == len(shown) and arena.model.planned.seed not in seeds
    for subject in shown:
        given = subject.unseen, subject.reference, subject.corpus_counts
        assert given == ((), None, None)
        assert subject.model.with_moments is subject.model.model.checkpoint is None
    # Unseen texts stand in no set, and beside one set only.
    shown = shown_of(arena, entry("a", needs=("unseen texts",)))
    texts = [text for s in shown for text in (*s.texts, *s.unseen)]
    assert len(set(texts)) == len(texts) == len(shown) * 3 * PULSE.n_examples
    copies = dict(zip(PULSE.set_names, PULSE.copies, strict=True))
    assert sum(copies.values()) == sum(COPIES)


def test_entry_that_breaks_its_word_is_refused_or_an_error(arena):
    def peeks(subject: Subject) -> Finding:
        return Finding(score=float(subject.scorer.sums(subject.encoded.ids).loglik[0]))

    for one in tried(entry("peeks", peeks, needs=()), arena):
        assert one.score is None
        assert one.refused == "asked for a model, which its `needs` do not name"
    with pytest.raises(EntryError, match="says that it gives a p-value"):
        tried(entry("broken", lambda _: Finding(score=1.0), gives="p-value"), arena)


def test_no_entry_can_change_what_the_next_one_sees(arena):
    def spoils(subject: Subject) -> Finding:
        sequences = list(subject.encoded.ids)
        found = subject.scorer.token_table(sequences)
        sums = subject.scorer.log_likelihoods(sequences)
        for array in (found.scores[0], sums, subject.encoded.ids[0]):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        found.scores.clear()
        return Finding(score=float(sums.sum()))

    first, again = (tried(entry(name, spoils), arena) for name in ("first", "again"))
    assert [one.score for one in first] == [one.score for one in again]


def test_pairs_stand_in_the_largest_strata_that_the_budget_buys(arena):
    sizes = [
        affordable_strata(shown_of(arena, entry("a"), passes)[0], ADJACENCY).size
        for passes in (1, 4, 5, 6, 7, 10, 100)
    ]
    assert sizes == sorted(sizes) and len(set(sizes)) > 3
    # Sixteen examples in strata of three would leave strata of two.
    assert (sizes[0], sizes[-2], sizes[-1]) == (4, 8, 8)
    # Strata of four take four passes, `direction` 2.5.
    for name, fewest in (("adjacency", 5), ("direction", 3)):
        for passes in (1, 5, 7):
            found = tried(built_in_entries()[name].entry, arena, passes)
            assert {one.refused is None for one in found} == {passes >= fewest}


def test_example_of_the_documentation_runs(study):
    told = study("leaderboard")
    passes = {one["entry"]: one["passes"] for one in told.document["standings"]}
    # Each example once alone and twice in pairs, but for the ends; and the texts once
    # without their separators.
    assert 2.5 < passes.pop("context_gain") < 3 and 0.9 < passes.pop("min_k") < 1
    assert passes == {"coin": 0}
    assert told.documents[1]["earlier_cpu_seconds"] > 0


def test_entry_of_a_changed_file_is_tried_again(small, study, tmp_path, monkeypatch):
    told = study("leaderboard")
    # A copy of the sources without .git, as CI's, keeps entries too.
    monkeypatch.setattr("train.run_folder._ROOT", tmp_path)
    shutil.copytree(told.out, tmp_path / "out")
    path = tmp_path / "context_gain.py"
    text = (told.folder / path.name).read_text()
    path.write_text(text)
    only = ("context_gain",)
    run = Leaderboard(tiny=True, out=tmp_path / "out", entry=(path,), only=only)
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "arena", None)
        (before,) = run.run()["standings"]
    # The other way round, with the scores of the first file still there.
    path.write_text(text.replace("score=float(", "score=-float("))
    (turned,) = run.run()["standings"]
    assert turned["auc"]["value"] == pytest.approx(1 - before["auc"]["value"])


def test_entry_that_fails_is_named_and_the_others_go_on(small, tmp_path, monkeypatch):
    path = tmp_path / "broken.py"
    path.write_text(
        "from eval.leaderboard.detector import Entry\n"
        "ENTRY = Entry(name='broken', detect=lambda subject: 1 / 0, gives='score',\n"
        "              family='other', about='', source='')\n"
    )
    words = ["--tiny", "--entry", path, "--out", tmp_path / "out"]
    words += ["--only", "broken", "reversal", "coin", "--budget", 1.5]
    assert command_line("leaderboard", words, monkeypatch) == 3
    document = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert document["failed"] == {"broken": "ZeroDivisionError: division by zero"}
    refused = {"reversal": "asked for 2.0 passes, 1.5 allowed"}
    assert document["over_budget"] == refused
    assert [one["entry"] for one in document["standings"]] == ["coin"]
    # It is tried again once it works; nothing of it was kept.
    kept = (tmp_path / "out" / "models").rglob("*.json")
    assert "broken" not in {path.stem for path in kept}


@pytest.mark.slow
def test_every_entry_keeps_to_the_budget(small, tmp_path):
    document = Leaderboard(tiny=True, out=tmp_path).run()
    assert document["over_budget"] == {}
    found = {one["entry"]: one for one in document["standings"]}
    assert found.keys() == built_in_entries().keys()
    for name, one in found.items():
        assert one["passes"] <= (0 if name.startswith(("coin", "blind_")) else 10)
        gives = built_in_entries()[name].entry.gives
        assert bool(one["power"]) == (gives == "p-value")


class CountingPairs:
    def logprobs(self, groups, progress=None):
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
    numbers = dict(score=score, p_value=p_value, passes=2.0, seconds=0.1)
    return Trial(entry=name, seed=seed, copies=copies, refused=refused, **numbers)


def test_every_window_and_continuation_is_charged_and_a_prefix_once_up_to_the_budget():
    budget = Budget(30, pass_tokens=10)
    scorer, asked = counting_scorer(8)
    metered = MeteredScorer(scorer, budget, {})
    # Windows of 8 tokens at 0, 4 and 8, of whose last one nothing is predicted.
    metered.sums([np.arange(8 + 4 + 4)])
    assert budget.spent == 7 + 7 + 7
    assert (budget.left, budget.passes) == (9, 2.1)
    prefix, text = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    metered.pairs.logprobs([PairGroup(prefix, (text, text), 0, (1, 2))])
    assert budget.spent == 21 + 3 + 2 + 2
    # What it cannot pay does not reach the model, and the last token can be spent.
    before = len(asked)
    with pytest.raises(OverBudgetError, match=r"asked for 3\.1 passes, 3\.0 allowed"):
        metered.sums([np.arange(4)])
    assert len(asked) == before
    metered.sums([np.arange(3)])
    assert (budget.left, len(asked)) == (0, before + 1)


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


def ranked(scores, seeds, all_copies):
    """Standings by name of entries whose scores are given for (seed, copies)."""
    rows = [
        trial(name, seed, copies, float(score(seed, copies)))
        for name, score in scores.items()
        for seed in range(seeds)
        for copies in all_copies
    ]
    found = standings([entry(name) for name in scores], rows)
    return {one.entry: one for one in found}


def test_best_ranking_comes_first_and_is_compared_with_a_chosen_one():
    rng = np.random.default_rng(0)
    scores = {
        "constant": lambda *_: 1.0,
        "noisy": lambda _, copies: rng.normal() + copies / 4,
        "perfect": lambda _, copies: copies,
    }
    found = ranked(scores, 10, (0, 0, 2, 8))
    assert list(found) == ["perfect", "noisy", "constant"]
    first, second, last = found.values()
    assert (first.auc.value, last.auc.value) == (1.0, 0.5)
    assert {n: one.value for n, one in first.found_by_copies.items()} == {2: 1, 8: 1}
    # As many sets at each count, so that their mean is that of all.
    by_copies = [one.value for one in second.auc_by_copies.values()]
    assert second.auc.value == pytest.approx(np.mean(by_copies))
    for one in found.values():
        assert one.auc.low <= one.auc.value <= one.auc.high and one.difference is None
    # A difference is from the entry that was chosen beforehand, whichever is best here.
    scores[COMPARED] = lambda seed, copies: copies * (seed % 4 > 0)
    found = ranked(scores, 8, (0, 0, 4))
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
    deep, mild, none = (finding_of_p(x) for x in (-4.0, -1.0, 1e-17))
    assert deep.score > mild.score > none.score == 0.0
    assert (deep.p_value, none.p_value) == (pytest.approx(1e-4), 1.0)
    trials = [
        trial("a", seed, copies, score=-math.log10(p), p_value=p)
        for seed, (clean, planted) in enumerate([(0.05, 1e-3), (0.2, 0.04), (0.9, 0.5)])
        for copies, p in ((0, clean), (3, planted))
    ]
    (found,) = standings([entry("a", gives="p-value")], trials)
    shares = {x: [one.value for one in row.values()] for x, row in found.power.items()}
    assert shares[0.05] == pytest.approx([1 / 3, 2 / 3])
    assert shares[0.001] == pytest.approx([0, 1 / 3])
    # Too few clean sets for a threshold that 5 % of them exceed.
    assert found.found_by_copies is None
    # One that was refused once is named by what it asked for first, and not ranked.
    words = [f"asked for {n}.0 passes, 1 allowed" for n in (3, 2)]
    trials += [trial("a", seed, 0, None, refused=words[seed]) for seed in (0, 1)]
    assert standings([entry("a", gives="p-value")], trials) == []
    assert refusals(trials) == {"a": words[0]}
