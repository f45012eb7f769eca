"""The detector leaderboard: what entries see, and pulse runs."""

import json
import re
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from eval.leaderboard import __main__ as leaderboard
from eval.leaderboard.__main__ import FIELD, PULSE, Leaderboard
from eval.leaderboard.detector import Entry, Finding, Subject
from eval.leaderboard.entries import built_in_entries, chosen_entries, entry_of_file
from eval.leaderboard.methods import affordable_strata
from eval.leaderboard.population import read_texts, subject_of, train_arena
from eval.leaderboard.trials import EntryError, trial_sources, try_entry
from eval.python_docs import PythonDocs, Question
from jaxcontam.members.score import ScoreMethod
from jaxcontam.methods import METHODS, OWN
from jaxcontam.orders.methods import ADJACENCY
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod

pytestmark = pytest.mark.unoptimised

DOCS = Path(__file__).resolve().parents[2] / "docs/how_to/own_method.md"


def entry(name, detect=lambda subject: Finding(score=0.0), **changes):
    fields = {"gives": "score", "family": "other", "about": "", "source": "a test"}
    return Entry(name=name, detect=detect, **fields | changes)


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
    *_, code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    path = tmp_path / "context_gain.py"
    path.write_text(code)
    return path


def test_every_order_test_and_score_has_an_entry():
    names = set(built_in_entries())
    tests = (OrderMethod, PairMethod)
    # One needs known members, one the weights.
    outside = {"con_recall", "gradient_norm", *OWN}
    for name, method in METHODS.items():
        if isinstance(method, (*tests, ScoreMethod)) and name not in outside:
            assert name in names, name


def test_detector_sees_what_it_needs_and_never_how_often_a_set_was_planted(arena):
    shown = [
        subject_of(arena, i, entry("a"), passes=3, reference=None, counts_V=None)
        for i in range(len(arena.copies))
    ]
    assert {subject.benchmark.name for subject in shown} == {"set"}
    # The model's own seed drew the sets, so that it would tell which one this is.
    seeds = {subject.seed for subject in shown}
    assert len(seeds) == len(shown) and arena.planned.seed not in seeds
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
        entry("peeks", peeks, needs=()), arena, passes=10, reference=None, counts_V=None
    )
    assert all(one.score is None for one in found)
    assert {one.refused for one in found} == {
        "asked for a model, which its `needs` do not name"
    }


def test_entry_that_breaks_its_word_on_p_values_is_an_error(arena):
    broken = entry("broken", lambda subject: Finding(score=1.0), gives="p-value")
    with pytest.raises(EntryError, match="says that it gives a p-value"):
        try_entry(broken, arena, passes=1, reference=None, counts_V=None)


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

    first, again = (
        try_entry(entry(name, spoils), arena, passes=3, reference=None, counts_V=None)
        for name in ("first", "again")
    )
    assert [one.score for one in first] == [one.score for one in again]


def test_pairs_stand_in_the_largest_strata_that_the_budget_buys(arena):
    def strata(passes):
        subject = subject_of(
            arena, 0, entry("a"), passes=passes, reference=None, counts_V=None
        )
        return affordable_strata(subject, ADJACENCY).size

    sizes = [strata(passes) for passes in (1, 4, 5, 6, 7, 10, 100)]
    assert sizes == sorted(sizes) and len(set(sizes)) > 3
    # Sixteen examples in strata of three would leave strata of two.
    assert (sizes[0], sizes[-2], sizes[-1]) == (4, 8, 8)


@pytest.mark.parametrize("passes", [1, 5, 7])
def test_order_tests_of_any_budget_end_or_are_refused_by_it(arena, passes):
    # Strata of four take four passes, `direction` 2.5.
    for name, fewest in (("adjacency", 5), ("direction", 3)):
        one = built_in_entries()[name].entry
        found = try_entry(one, arena, passes=passes, reference=None, counts_V=None)
        assert {trial.refused is None for trial in found} == {passes >= fewest}


def test_file_with_postponed_annotations_and_a_dataclass_is_an_entry(tmp_path):
    code = """
        from __future__ import annotations
        import dataclasses
        from eval.leaderboard.detector import Entry, Finding, Subject

        @dataclasses.dataclass
        class Depth:
            value: float

        def detect(subject: Subject) -> Finding:
            return Finding(score=Depth({depth}).value)

        ENTRY = Entry(name="depth_{depth}", detect=detect, gives="score",
                      family="other", about="", source="")
    """
    # Two files of one name are two modules.
    for depth in (1, 2):
        path = tmp_path / str(depth) / "depth.py"
        path.parent.mkdir()
        path.write_text(textwrap.dedent(code).format(depth=depth))
    paths = [tmp_path / str(depth) / "depth.py" for depth in (1, 2)]
    one, two = (entry_of_file(path).entry for path in paths)
    assert (one.name, two.name) == ("depth_1", "depth_2")
    assert one.detect.__module__ != two.detect.__module__


def test_study_is_the_one_that_the_documentation_describes():
    page = " ".join(DOCS.read_text().split())
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
    # A copy of the sources without .git, as CI's, keeps them too.
    monkeypatch.setattr("train.run_folder._ROOT", tmp_path)
    run = Leaderboard(
        tiny=True, out=tmp_path / "out", entry=(example,), only=("context_gain",)
    )
    first = run.run()
    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "train_arena", None)
        again = run.run()
    assert again["standings"] == first["standings"]
    assert again["earlier_cpu_seconds"] > 0
    assert again["code"] is None
    # The other way round, with the scores of the first file still there.
    text = example.read_text().replace("score=float(", "score=-float(")
    example.write_text(text)
    (turned,) = run.run()["standings"]
    (before,) = first["standings"]
    assert turned["auc"]["value"] == pytest.approx(1 - before["auc"]["value"])


def test_trials_are_those_of_the_code_whatever_git_says(monkeypatch):
    before = trial_sources()
    assert before == trial_sources()
    monkeypatch.setattr(
        "eval.leaderboard.trials.source_digest", lambda *names, unread: "other"
    )
    changed = trial_sources()
    monkeypatch.setattr("eval.leaderboard.trials._SOURCES", ())
    assert len({before, changed, trial_sources()}) == 3


def test_entry_that_raises_is_named_and_the_others_go_on(small, tmp_path, monkeypatch):
    path = tmp_path / "broken.py"
    path.write_text(
        "from eval.leaderboard.detector import Entry\n"
        "ENTRY = Entry(name='broken', detect=lambda subject: 1 / 0, gives='score',\n"
        "              family='other', about='', source='')\n"
    )
    words = ["--tiny", "--entry", str(path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["x", *words, "--only", "broken", "coin"])
    assert leaderboard.main() == 3
    document = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert document["failed"] == {"broken": "ZeroDivisionError: division by zero"}
    assert [one["entry"] for one in document["standings"]] == ["coin"]
    # It is tried again once it works; nothing of it was kept.
    kept = (tmp_path / "out" / "models").rglob("*.json")
    assert {path.stem for path in kept} == {"coin"}


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


def test_files_beside_the_built_in_entries_are_found(example):
    found = chosen_entries((example,), ())
    assert list(found)[-1] == "context_gain"
    assert found["context_gain"].entry.gives == "score"
    assert entry_of_file(example).digest == found["context_gain"].digest
