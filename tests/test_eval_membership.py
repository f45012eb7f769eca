"""The studies of membership: texts, tasks, numbers, and one study in its pulse size."""

import dataclasses
import json

import numpy as np
import pytest

from eval.membership.bench import TINY, Bench, resized, score_methods
from eval.membership.cells import (
    Stratum,
    accuracy_rows,
    cell,
    right_answers,
    share_difference,
    trend,
)
from eval.membership.downstream import accuracy_study, occurrence_study, rate_study
from eval.membership.table import grids, study_figure
from eval.membership.texts import (
    Item,
    Pool,
    drawn,
    pieces,
    python_tasks,
    read_task,
    without,
)
from eval.python_docs import Question
from jaxcontam.errors import InputError
from jaxcontam.stats.roc import auc_delong

pytestmark = pytest.mark.unoptimised


def questions(n):
    return tuple(
        Question(f"Give back part {i} of it", f"module.f{i}") for i in range(n)
    )


def strata(rng, shift, n=40):
    return [Stratum(rng.normal(shift, 1, n), rng.normal(0, 1, n)) for _ in range(3)]


def numbers(found, **more):
    settings = {"study": "s", "setting": "one", "x": 1.0, "method": "loss"} | more
    return cell(found, **settings)


def test_auc_of_several_strata_is_their_mean_by_members():
    rng = np.random.default_rng(0)
    a = Stratum(rng.normal(1, 1, 30), rng.normal(0, 1, 50))
    b = Stratum(rng.normal(0, 1, 10), rng.normal(0, 1, 50))
    expected = 0.75 * auc_delong(a.members, a.nonmembers)[0]
    expected += 0.25 * auc_delong(b.members, b.nonmembers)[0]
    assert numbers([a, b]).auc == pytest.approx(expected, abs=1e-12)


def test_levels_of_strata_do_not_count():
    rng = np.random.default_rng(1)
    found = strata(rng, 0.5)
    moved = [
        Stratum(one.members + 10 * i, one.nonmembers + 10 * i)
        for i, one in enumerate(found)
    ]
    assert numbers(moved).auc == pytest.approx(numbers(found).auc, abs=1e-12)


def test_interval_of_the_mean_covers_the_truth():
    rng = np.random.default_rng(2)
    # P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2).
    truth, n = 0.76025, 400
    held = 0
    for _ in range(n):
        found = numbers(strata(rng, 1.0))
        held += found.auc_low <= truth <= found.auc_high
    # Nominal 0.95; 3.3 standard errors of 400 trials are 0.036.
    assert held / n >= 0.95 - 0.036


def test_too_few_nonmembers_give_no_true_positive_rate():
    rng = np.random.default_rng(3)
    assert numbers(strata(rng, 1.0, n=19)).tpr is None
    assert numbers(strata(rng, 9.0, n=20)).tpr == 1.0


def test_a_setting_against_itself_shows_no_trend():
    found = strata(np.random.default_rng(4), 0.5)
    same = trend(
        found,
        found,
        settings=("a", "b"),
        study="s",
        method="loss",
        paper="rises",
        paired=True,
    )
    assert (same.difference, same.found) == (0.0, "not seen")


@pytest.mark.parametrize("paired", [True, False])
def test_a_score_that_learns_rises(paired):
    rng = np.random.default_rng(5)
    first = strata(rng, 0.0, n=200)
    last = [Stratum(one.members + 2, one.nonmembers) for one in first]
    found = trend(
        first,
        last,
        settings=("a", "b"),
        study="s",
        method="loss",
        paper="rises",
        paired=paired,
    )
    assert found.found == "rises"
    assert found.low < found.difference < found.high


def test_difference_of_shares_is_newcombes():
    # Newcombe (1998), table II, example (a): 56/70 against 48/80, method 10.
    assert share_difference(56, 70, 48, 80) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=5e-5
    )


def test_every_example_of_every_task_differs_between_its_options_at_the_end():
    tasks = python_tasks(questions(60), seed=0)
    assert [task.name for task in tasks] == ["names", "sentences", "truth"]
    assert sum(len(task.items) for task in tasks) == 60
    for task in tasks:
        for item in task.items:
            assert len(set(item.versions)) == len(item.versions)
            assert item.text == item.versions[item.answer]


def test_right_answers_of_truth_are_right():
    own = {question.answer: question.sentence for question in questions(60)}
    (truth,) = (t for t in python_tasks(questions(60), seed=0) if t.name == "truth")
    words = set()
    for item in truth.items:
        sentence, rest = item.text.split(". Is this about ")
        name, word = rest.split("? ")
        assert (own[name] == sentence) == (word == "yes")
        words.add(word)
    assert words == {"yes", "no"}


def test_tasks_of_a_file_take_its_answers(tmp_path):
    path = tmp_path / "items.jsonl"
    rows = [
        {"question": f"Which is {i}?", "choices": ["a", "b", "c"], "answer": i % 3}
        for i in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = read_task(path, question_field="question")
    assert [item.text[-1] for item in task.items] == ["a", "b", "c"] * 2
    with pytest.raises(InputError, match="no text in the field 'asked'"):
        read_task(path, question_field="asked")


def test_pieces_have_their_words_and_do_not_overlap():
    documents = tuple(" ".join(f"w{i}x{j}" for j in range(23)) for i in range(5))
    found = pieces(documents, 5)
    assert len(found) == 5 * 4
    assert all(len(piece.split()) == 5 for piece in found)
    words = [word for piece in found for word in piece.split()]
    assert len(set(words)) == len(words)
    assert without(documents, found[:1], 5) == list(documents[1:])


def test_a_draw_depends_on_its_seed_alone():
    items = list(range(100))
    assert drawn(items, 10, seed=1, what="numbers") == drawn(
        items, 10, seed=1, what="numbers"
    )
    assert drawn(items, 10, seed=1, what="numbers") != drawn(
        items, 10, seed=2, what="numbers"
    )
    with pytest.raises(InputError, match="the corpus gives 100 numbers, 101 needed"):
        drawn(items, 101, seed=1, what="numbers")


def test_scores_of_one_pass_need_nothing_else():
    names = {method.name for method in score_methods()}
    assert {"min_k", "min_k_pp", "loss", "zlib"} <= names
    assert not names & {"lowercase", "reference", "neighbourhood", "gradient_norm"}


def test_resized_models_keep_vocabulary_and_rows():
    preset = resized(TINY.preset, 64, 3, rate=1e-3)
    assert preset.decoder.vocab_size == TINY.preset.decoder.vocab_size
    assert preset.context == TINY.preset.context
    assert (preset.decoder.d_model, preset.decoder.n_layers) == (64, 3)


def test_accuracy_counts_seeds_and_tasks_together():
    both = np.array([True, True]), np.array([True, False])
    answered = {"x": [both], "y": [both] * 2}
    rows = accuracy_rows("a", answered, answered)
    assert [(row.task, row.n_seen, row.unseen, row.gain) for row in rows] == [
        ("x", 2, 0.5, 0.0),
        ("y", 4, 0.5, 0.0),
        ("all", 6, 0.5, 0.0),
    ]


def test_gain_leaves_out_what_was_known_before():
    yes, no = np.ones(50, bool), np.zeros(50, bool)
    (row, _) = accuracy_rows("a", {"x": [(yes, no)]}, {"x": [(yes, no)]})
    assert (row.difference, row.gain) == (1.0, 0.0)
    (row, _) = accuracy_rows("a", {"x": [(yes, no)]}, {"x": [(no, no)]})
    assert (row.gain, row.gain_low, row.gain_high) == (1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Made-up texts, so that nothing depends on this Python installation."""
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "en", "ir", "oth")]
    documents = tuple(" ".join(rng.choice(words, 60)) for _ in range(200))
    asked = tuple(
        Question(" ".join(rng.choice(words, 6)).capitalize(), f"m.{words[i % 48]}{i}")
        for i in range(140)
    )
    return Bench(
        scale=dataclasses.replace(
            TINY,
            preset=resized(TINY.preset, 16, 1, rate=5e-3),
            base_share=0.2,
            main_tokens=2_000,
            rates=(1e-4, 3e-3),
            many_copies=1,
        ),
        pool=Pool(documents, asked),
        tasks=(),
        seeds=(0,),
        out=tmp_path_factory.mktemp("study"),
        any_code=True,
    )


@pytest.fixture(scope="module")
def rates(bench):
    return rate_study(bench)


# Fifteen seconds for all that read the rates.
@pytest.mark.slow
def test_every_rate_has_every_score(rates):
    names = [method.name for method in score_methods()]
    assert [(one.method, one.x) for one in rates.cells] == [
        (name, rate) for name in names for rate in (1e-4, 3e-3)
    ]
    assert {one.method for one in rates.trends} == set(names)
    assert all(one.n_members == one.n_nonmembers == 60 for one in rates.cells)


# Fifteen seconds for all that read the rates.
@pytest.mark.slow
def test_finished_models_are_taken_again(bench, rates):
    folders = [path for path in (bench.out / "models").iterdir() if path.is_dir()]
    before = {path: (path / "manifest.json").stat().st_mtime_ns for path in folders}
    assert rate_study(bench).cells == rates.cells
    assert before == {
        path: (path / "manifest.json").stat().st_mtime_ns for path in folders
    }


# Fifteen seconds for all that read the rates.
@pytest.mark.slow
def test_members_stand_in_the_stream_and_nonmembers_do_not(bench, rates):
    seen, unseen = bench.split_tasks(0)["names"]
    manifest = json.loads(
        (bench.out / "models/tasks-0-2000-0.003/manifest.json").read_text()
    )
    (planted,) = (row for row in manifest["sets"] if row["name"] == "names")
    texts = (bench.out / "models/tasks-0-2000-0.003" / planted["file"]).read_text()
    assert all(item.text in texts for item in seen.items)
    assert not any(item.text in texts for item in unseen.items)


@pytest.mark.slow
def test_accuracy_before_training_is_that_of_the_base_model(bench):
    found = accuracy_study(bench).accuracy
    base = [row for row in found if row.setting == "before"]
    split, model = bench.split_tasks(0), bench.ready(bench.base())
    for row in base[:-1]:
        answers = right_answers(model, split[row.task][0].items)
        assert row.seen == pytest.approx(answers.mean())


def test_the_likeliest_version_is_the_answer():
    class Fixed:
        plain = property(lambda self: self)

        def sequences(self, texts):
            return texts

        def log_likelihoods(self, texts):
            return np.array([-float(len(text)) for text in texts])

    items = [Item(("long text", "text"), 1), Item(("long text", "text"), 0)]
    assert right_answers(Fixed(), items).tolist() == [True, False]


@pytest.mark.slow
def test_occurrences_rise_and_are_drawn_among_the_seen(bench):
    found = occurrence_study(bench)
    of_loss = [one for one in found.cells if one.method == "loss"]
    assert [one.x for one in of_loss] == [1.0, 2.0]
    assert sum(one.n_members for one in of_loss) <= 60


def test_tables_and_figure_of_a_study(rates):
    found = json.loads(json.dumps(dataclasses.asdict(rates)))
    table, trends = (grid for grid in grids("rate", found) if "found" not in grid.title)
    assert table.title == "By learning rate: AUC" and len(table.header) == 3
    assert {"min_k_pp", "loss"} <= {row[0] for row in table.rows}
    assert trends.header[0] == "score" and len(trends.rows) == len(table.rows)
    assert study_figure("rate", found).startswith("<svg")
    assert study_figure("tasks", found) is None
