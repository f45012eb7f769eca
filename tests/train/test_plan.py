"""Plan files: what they say is what is planted. Faults: tests/cli/refusals.toml."""

import json

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from train import plant
from train.plant import PlannedSet, halves, planned_set, read_plan

LINES = tuple(f"question {i} word{i}" for i in range(9))
SAID = tuple(f"tell me {i}" for i in range(9))


@pytest.fixture
def read(tmp_path):
    """Reads a plan beside lines, records and paraphrases of both."""
    sums = [{"q": f"what is {i}?", "a": str(i)} for i in range(5)]
    said = [{"q": f"say {i}", "a": "x"} for i in range(5)]
    for name, rows in (("sums", sums), ("said", said)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "quiz.txt").write_text("\n".join(LINES))
    (tmp_path / "other.txt").write_text("\n".join(SAID))

    def read(*tables):
        path = tmp_path / "plan.toml"
        path.write_text("".join(f"[[sets]]\n{table}\n" for table in tables))
        return read_plan(path)

    return read


QUIZ = 'file = "quiz.txt"\ncopies = 5\n'
SUMS = 'file = "sums.jsonl"\ncopies = 4\n'


def test_a_table_with_file_and_copies_plants_blocks_at_random_times(read):
    (planned,) = read(QUIZ)
    assert planned.benchmark.texts == planned.planted == LINES
    assert (planned.name, planned.copies, planned.shuffled) == ("quiz", 5, False)
    assert (planned.layout, planned.when, planned.form) == ("block", "uniform", "raw")


def test_tables_say_form_order_and_layout(read):
    form = 'name = "sums-late"\nlimit = 4\ntemplate = "Q: {q} A: {a}"\n'
    first, second, by_field = read(
        SUMS + form + 'order = "shuffled"\nwhen = [0.25, 1]',
        QUIZ + 'layout = "spread"',
        SUMS + 'text_field = "q"',
    )
    assert first.benchmark.texts[2] == "Q: what is 2? A: 2"
    assert len(first.benchmark) == 4
    assert (first.name, first.shuffled) == ("sums-late", True)
    assert first.when == (0.25, 1.0)
    assert (first.form, first.template) == ("template", "Q: {q} A: {a}")
    assert second.layout == "spread"
    # A text field is the template of that field alone.
    assert (by_field.template, by_field.planted[3]) == ("{q}", "what is 3?")


def test_the_example_in_the_documentation_is_a_plan(tmp_path):
    """With the files that it names; two keys are shown, of which a set takes one."""
    doc = str(plant.__doc__).partition("Dimension key")[0]
    lines = [line[4:] for line in doc.splitlines() if line.startswith("    ")]
    for name in ("boolq.jsonl", "other.jsonl"):
        rows = [json.dumps({"question": f"{name} {i}?"}) + "\n" for i in range(300)]
        (tmp_path / name).write_text("".join(rows))
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    planned, *_ = read_plan(tmp_path / "plan.toml")
    assert (planned.name, planned.copies, planned.when) == ("boolq", 10, (0.1, 0.5))
    assert planned.benchmark.texts[0] == "Q: boolq.jsonl 0?"
    assert planned.planted[199] == "Q: other.jsonl 199?"
    shown = {line.split(" = ")[0] for line in lines if " = " in line}
    assert {*shown, "text_field"} == set(plant._KEYS)


def test_the_tail_is_the_control_of_the_first_half(read):
    planned, control = read(QUIZ + 'held_out = "tail"\nwhen = [0.5]')
    assert planned.benchmark.texts + control.benchmark.texts == LINES
    assert (planned.name, planned.copies, len(planned.benchmark)) == ("quiz", 5, 5)
    assert (control.name, control.copies) == ("quiz-held", 0)
    assert (planned.held_out_of, control.held_out_of) == (None, "quiz")
    assert (planned.when, control.when) == ((0.5,), "uniform")


def test_random_halves_keep_the_published_order_and_share_nothing(read):
    planned, control = (
        [LINES.index(text) for text in one.benchmark.texts]
        for one in read(QUIZ + 'held_out = "random"')
    )
    assert planned == sorted(planned) and control == sorted(control)
    assert sorted(planned + control) == list(range(9))


def test_each_example_is_held_out_in_half_of_the_random_draws():
    counts = np.zeros(10)
    for trial in range(400):
        texts = tuple(f"example {trial} {i}" for i in range(10))
        whole = PlannedSet(benchmark=Benchmark("x", texts, (None,) * 10), copies=1)
        _, control = halves(whole, at_random=True)
        counts[[texts.index(text) for text in control.benchmark.texts]] += 1
    # 4 standard errors of 400 fair coins: 4 * 10 counts.
    np.testing.assert_allclose(counts, 200, atol=40)


def test_the_draw_of_halves_depends_on_the_examples_and_not_on_their_order():
    """Who knows the order under test must not choose who is held out by it."""
    kept = []
    for order in (LINES, LINES[::-1]):
        whole = PlannedSet(benchmark=Benchmark("x", order, (None,) * 9), copies=1)
        planned, _ = halves(whole, at_random=True)
        kept.append([order.index(text) for text in planned.benchmark.texts])
    assert kept[0] == kept[1]


def test_paraphrases_are_planted_each_beside_its_example(read):
    others = QUIZ + 'paraphrases = "other.txt"\n'
    (planned,) = read(others)
    assert (planned.benchmark.texts, planned.planted) == (LINES, SAID)
    assert planned.form == "paraphrase"
    planned, control = read(others + 'held_out = "random"')
    for text, paraphrase in zip(planned.benchmark.texts, planned.planted, strict=True):
        assert text.split()[1] == paraphrase.split()[2]
    assert control.texts_planted is None
    # In records they take the form of the set.
    (planned,) = read(
        SUMS + 'text_field = "q"\nparaphrases = "said.jsonl"\nlimit = 3\n'
    )
    assert planned.planted == ("say 0", "say 1", "say 2")


def test_the_short_form_takes_the_last_equals_sign(tmp_path):
    path = tmp_path / "a=b.txt"
    path.write_text("one\ntwo\n")
    planned = planned_set(f"{path}=12", 1)
    assert (planned.name, planned.copies, len(planned.benchmark)) == ("a=b", 12, 1)
