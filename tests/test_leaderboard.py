"""The detector leaderboard: its books, its figures, and a pulse run."""

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from eval.leaderboard import __main__ as leaderboard
from eval.leaderboard.__main__ import FIELD, PULSE, Leaderboard
from eval.leaderboard.budget import Budget, MeteredScorer, OverBudgetError
from eval.leaderboard.detector import Entry, Finding, Subject, finding_of_p
from eval.leaderboard.find import built_in_entries, chosen_entries, entry_of_file
from eval.leaderboard.population import read_texts, subject_of, train_arena
from eval.leaderboard.standings import refusals, standings
from eval.leaderboard.trials import Trial, try_entry
from eval.python_docs import PythonDocs, Question
from jaxcontam.cli import run_command
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.method import OrderMethod, PairMethod, SequentialMethod
from jaxcontam.methods.two_min import CombinedMethod
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.scorer import Scorer, SequenceSums

DOCS = Path(__file__).resolve().parent.parent / "docs" / "leaderboard.md"


class CountingPairs:
    has_tokens = True

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


def entry(name, detect=lambda subject: Finding(score=0.0), **changes):
    fields = {
        "gives": "score",
        "family": "other",
        "about": "made up",
        "source": "a test",
    }
    return Entry(name=name, detect=detect, **fields | changes)


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


@pytest.fixture(scope="module")
def words():
    """A small corpus in the form of `read_python_docs`, made in no time."""
    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(150)]

    def text(n):
        return " ".join(rng.choice(names, n))

    return PythonDocs(
        tuple(text(100) for _ in range(80)),
        tuple(Question(text(4), text(1) + str(i)) for i in range(150)),
    )


@pytest.fixture(scope="module")
def arena(words):
    """A trained pulse model with its sets."""
    pool = [question.text for question in words.questions]
    return train_arena(PULSE, read_texts(words.documents, pool, PULSE), seed=3)


@pytest.fixture
def small(monkeypatch, words):
    """Runs read the small corpus."""
    monkeypatch.setattr(leaderboard, "read_python_docs", lambda: words)


@pytest.fixture
def example(tmp_path):
    """The example of the documentation as a file."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    path = tmp_path / "context_gain.py"
    path.write_text(code)
    return path


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
    assert isinstance(found[0], SequenceSums) and found[0] is found[1]
    assert len(asked) == 1 and [b.spent for b in budgets] == [5, 5]
    # Other sequences of the same ids in all are another call.
    MeteredScorer(scorer, budgets[0], known).sums([np.arange(3), np.arange(3, 6)])
    assert len(asked) == 2


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_finding_must_be_finite(score):
    with pytest.raises(ValueError, match="score must be finite"):
        Finding(score=score)


@pytest.mark.parametrize("p_value", [0.0, 1.1, math.nan])
def test_p_value_must_be_one(p_value):
    with pytest.raises(ValueError, match="p_value must be in"):
        Finding(score=0.0, p_value=p_value)


def test_finding_of_a_p_value_ranks_by_it():
    deep, mild, none = (finding_of_p(x) for x in (-4.0, -1.0, 1e-17))
    assert deep.score > mild.score > none.score == 0.0
    assert (deep.p_value, none.p_value) == (pytest.approx(1e-4), 1.0)


def test_every_order_test_and_score_has_an_entry():
    names = set(built_in_entries())
    tests = (OrderMethod, PairMethod, SequentialMethod, CombinedMethod)
    # One needs known members, one the weights; the others more passes than a budget of
    # ten buys before any p-value could be small.
    outside = {
        "con_recall",
        "gradient_norm",
        "permutation_sequential",
        "permutation_besag_clifford",
    }
    for name, method in METHODS.items():
        if isinstance(method, (*tests, ScoreMethod)) and name not in outside:
            assert name in names, name


def test_detector_sees_what_it_needs_and_never_how_often_a_set_was_planted(arena):
    shown = [
        subject_of(arena, i, entry("a"), passes=3, reference=None, counts_V=None)
        for i in range(len(arena.copies))
    ]
    assert {subject.benchmark.name for subject in shown} == {"set"}
    assert {subject.seed for subject in shown} == {arena.planned.seed}
    for subject in shown:
        assert (subject.unseen, subject.reference, subject.corpus_counts) == (
            (),
            None,
            None,
        )
        assert subject.model.with_moments is None
        assert subject.model.model.checkpoint is None


def test_unseen_texts_stand_in_no_set_and_beside_one_set_only(arena):
    wants = entry("a", needs=("unseen texts",))
    shown = [
        subject_of(arena, i, wants, passes=3, reference=None, counts_V=None)
        for i in range(len(arena.copies))
    ]
    texts = [text for s in shown for text in (*s.texts, *s.unseen)]
    assert len(set(texts)) == len(texts) == len(shown) * 3 * PULSE.n_examples
    copies = dict(zip(PULSE.set_names, PULSE.copies, strict=True))
    assert sum(copies.values()) == sum(arena.copies)


def test_who_says_that_no_model_is_read_gets_no_token(arena):
    def peeks(subject: Subject) -> Finding:
        return Finding(score=float(subject.scorer.sums(subject.encoded.ids).loglik[0]))

    found = try_entry(
        entry("peeks", peeks, needs=()),
        arena,
        passes=10,
        reference=None,
        counts_V=None,
    )
    assert all(one.refused and one.score is None for one in found)


def test_entry_that_breaks_its_word_on_p_values_is_an_error(arena):
    broken = entry("broken", lambda subject: Finding(score=1.0), gives="p-value")
    with pytest.raises(ValueError, match="says that it gives a p-value"):
        try_entry(broken, arena, passes=1, reference=None, counts_V=None)


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
    assert first.behind is None and last.behind is not None
    assert last.behind.value == pytest.approx(0.5)
    assert first.found_by_copies is not None
    assert {n: one.value for n, one in first.found_by_copies.items()} == {2: 1, 8: 1}
    # As many sets at each count, so that their mean is that of all.
    by_copies = [one.value for one in second.auc_by_copies.values()]
    assert second.auc.value == pytest.approx(np.mean(by_copies))
    for one in (first, second, last):
        assert one.auc.low <= one.auc.value <= one.auc.high


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
    ]
    assert standings([entry("a")], trials) == []
    assert refusals(trials) == {"a": "asked for 3.0 passes, 1 allowed"}


def test_study_is_the_one_that_the_documentation_describes():
    page = DOCS.read_text()
    assert FIELD.copies[: FIELD.n_tested] == (0, 0, 1, 2, 4, 8, 16)
    assert f"sets of {FIELD.n_examples} examples stand 1, 2, 4, 8 or 16 times" in page
    beside = FIELD.n_examples * (len(FIELD.copies) // FIELD.n_tested - 1)
    assert f"{beside} texts of the same pool" in page
    assert f"tokens for {Leaderboard().budget:g} passes over the set" in page
    assert f"all entries, {Leaderboard().models} models" in page


def test_example_of_the_documentation_runs(small, example, tmp_path, capsys):
    flags = {"entry": (example,), "only": ("context_gain", "coin", "min_k")}
    run = Leaderboard(tiny=True, out=tmp_path / "out", **flags)
    document = run.run()
    assert {one["entry"] for one in document["standings"]} == {
        "context_gain",
        "coin",
        "min_k",
    }
    passes = {one["entry"]: one["passes"] for one in document["standings"]}
    # Each example once alone and twice in pairs, but for the ends; and the texts once
    # without their separators.
    assert 2.5 < passes["context_gain"] < 3 and 0.9 < passes["min_k"] < 1
    assert passes["coin"] == 0
    table = (tmp_path / "out" / "leaderboard.md").read_text()
    assert "| context_gain | order | score |" in table
    assert "python -m eval.leaderboard" in table
    ElementTree.fromstring((tmp_path / "out" / "leaderboard.svg").read_text())
    assert json.loads((tmp_path / "out" / "leaderboard.json").read_text()) == document
    assert "context_gain" in capsys.readouterr().out


def test_finished_entries_are_kept_and_a_changed_file_is_tried_again(
    small, example, tmp_path, monkeypatch
):
    run = Leaderboard(
        tiny=True, out=tmp_path / "out", entry=(example,), only=("context_gain",)
    )
    first = run.run()
    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "train_arena", None)
        again = run.run()
    assert again["standings"] == first["standings"]
    assert again["earlier_cpu_seconds"] > 0
    # The other way round, with the scores of the first file still there.
    text = example.read_text().replace("score=float(", "score=-float(")
    example.write_text(text)
    (turned,) = run.run()["standings"]
    (before,) = first["standings"]
    assert turned["auc"]["value"] == pytest.approx(1 - before["auc"]["value"])


def test_entry_over_the_budget_is_named_and_not_ranked(small, tmp_path, capsys):
    run = Leaderboard(
        tiny=True, out=tmp_path, budget=1.5, only=("adjacency", "reversal", "coin")
    )
    document = run.run()
    assert set(document["over_budget"]) == {"adjacency", "reversal"}
    assert [one["entry"] for one in document["standings"]] == ["coin"]
    assert "reversal: over budget, asked for 2.0 passes, 1.5 allowed" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_every_entry_keeps_to_the_budget(small, tmp_path):
    document = Leaderboard(tiny=True, out=tmp_path).run()
    assert document["over_budget"] == {}
    found = {one["entry"]: one for one in document["standings"]}
    assert set(found) == set(built_in_entries())
    assert all(one["passes"] <= 10 for one in found.values())
    for name in ("coin", "blind_length", "blind_words"):
        assert found[name]["passes"] == 0
    gives = {name: one.entry.gives for name, one in built_in_entries().items()}
    for name, one in found.items():
        assert bool(one["power"]) == (gives[name] == "p-value")


NO_ENTRY = "ENTRY = 3\n"
TWICE = "from eval.leaderboard.entries.coin import ENTRY\n"


@pytest.mark.parametrize(
    ("flags", "written", "message"),
    [
        ({"only": ("adjacensy",)}, None, "unknown entry 'adjacensy'"),
        ({"entry": (Path("mine.py"),)}, None, "mine.py: no such Python file"),
        ({"entry": (Path("mine.py"),)}, NO_ENTRY, "mine.py: holds no ENTRY"),
        ({"entry": (Path("mine.py"),)}, TWICE, "two entries are named 'coin'"),
        ({"models": 1}, None, "--models must be at least 2, got 1"),
        ({"budget": 0.0}, None, "--budget must be at least 1, got 0.0"),
    ],
)
def test_bad_input_is_two_lines_before_anything_is_trained(
    flags, written, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(leaderboard, "read_python_docs", None)
    if written is not None:
        Path("mine.py").write_text(written)
    code = run_command(lambda: Leaderboard(tiny=True, **flags).run(), name="x")
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith(f"x: error: {message}") and err.count("\n") <= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "My-Entry"}, "a name is small letters"),
        ({"gives": "p"}, "gives cannot be 'p'"),
        ({"family": "tea"}, "family cannot be 'tea'"),
        ({"needs": ("weights",)}, "needs cannot be 'weights'"),
    ],
)
def test_entry_that_the_table_cannot_show_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        entry(**{"name": "a"} | changes)


def test_files_beside_the_built_in_entries_are_found(example):
    found = chosen_entries((example,), ())
    assert list(found)[-1] == "context_gain"
    assert found["context_gain"].entry.gives == "score"
    assert entry_of_file(example).digest == found["context_gain"].digest
