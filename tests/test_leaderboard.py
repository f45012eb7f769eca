"""The detector leaderboard: what entries see, and pulse runs."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from eval.leaderboard import __main__ as leaderboard
from eval.leaderboard.__main__ import FIELD, PULSE, Leaderboard
from eval.leaderboard.detector import Entry, Finding, Subject
from eval.leaderboard.find import built_in_entries, chosen_entries, entry_of_file
from eval.leaderboard.population import read_texts, subject_of, train_arena
from eval.leaderboard.trials import try_entry
from eval.python_docs import PythonDocs, Question
from jaxcontam.cli import run_command
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.method import OrderMethod, PairMethod, SequentialMethod
from jaxcontam.methods.two_min import CombinedMethod

pytestmark = pytest.mark.unoptimised

DOCS = Path(__file__).resolve().parent.parent / "docs" / "leaderboard.md"


def entry(name, detect=lambda subject: Finding(score=0.0), **changes):
    fields = {
        "gives": "score",
        "family": "other",
        "about": "made up",
        "source": "a test",
    }
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
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    path = tmp_path / "context_gain.py"
    path.write_text(code)
    return path


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


def test_files_beside_the_built_in_entries_are_found(example):
    found = chosen_entries((example,), ())
    assert list(found)[-1] == "context_gain"
    assert found["context_gain"].entry.gives == "score"
    assert entry_of_file(example).digest == found["context_gain"].digest
