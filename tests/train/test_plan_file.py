"""Plan files: what they say is what is planted, and faults are named by their key."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from train import plan
from train.plan import PlannedSet, halves, planned_set, read_plan
from train.pretrain import Pretrain

LINES = [f"question {i} word{i}" for i in range(9)]


@pytest.fixture
def folder(tmp_path):
    """A folder with a benchmark of lines, one of records, and paraphrases of both."""
    (tmp_path / "quiz.txt").write_text("".join(f"{line}\n" for line in LINES))
    records = [{"q": f"what is {i}?", "a": str(i)} for i in range(5)]
    lines = "".join(json.dumps(row) + "\n" for row in records)
    (tmp_path / "sums.jsonl").write_text(lines)
    (tmp_path / "other.txt").write_text("".join(f"tell me {i}\n" for i in range(9)))
    return tmp_path


def write(folder, text, name="plan.toml"):
    path = folder / name
    path.write_text(text)
    return path


def read(folder, *tables):
    """The plan with these sets."""
    return read_plan(write(folder, f"sets = {inline(list(tables))}"))


def inline(value):
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{key} = {inline(one)}' for key, one in value.items())}}}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value).replace("NaN", "nan")


def test_a_table_with_file_and_copies_plants_blocks_at_random_times(folder):
    (planned,) = read_plan(write(folder, '[[sets]]\nfile = "quiz.txt"\ncopies = 3\n'))
    assert planned.benchmark.texts == tuple(LINES)
    assert planned.planted == tuple(LINES)
    assert (planned.name, planned.copies, planned.shuffled) == ("quiz", 3, False)
    assert (planned.layout, planned.when, planned.form) == ("block", "uniform", "raw")


def test_tables_say_form_order_and_layout(folder):
    toml = """
[[sets]]
file = "sums.jsonl"
copies = 4
name = "sums-late"
limit = 4
template = "Q: {q} A: {a}"
order = "shuffled"
when = [0.25, 1]
[[sets]]
file = "quiz.txt"
copies = 2
layout = "spread"
"""
    first, second = read_plan(write(folder, toml))
    assert first.benchmark.texts[2] == "Q: what is 2? A: 2"
    assert len(first.benchmark) == 4
    assert (first.name, first.shuffled) == ("sums-late", True)
    assert first.when == (0.25, 1.0)
    assert (first.form, first.template) == ("template", "Q: {q} A: {a}")
    assert second.layout == "spread"


def test_the_example_in_the_documentation_is_a_plan(folder):
    """With the files that it names; two keys are shown, of which a set takes one."""
    lines = [
        line[4:] for line in str(plan.__doc__).splitlines() if line.startswith("    ")
    ]
    for name in ("boolq.jsonl", "other.jsonl"):
        rows = [json.dumps({"question": f"{name} {i}?"}) + "\n" for i in range(300)]
        (folder / name).write_text("".join(rows))
    planned, *_ = read_plan(write(folder, "\n".join(lines)))
    assert (planned.name, planned.copies, planned.when) == ("boolq", 10, (0.1, 0.5))
    assert planned.benchmark.texts[0] == "Q: boolq.jsonl 0?"
    assert planned.planted[199] == "Q: other.jsonl 199?"
    shown = {line.split(" = ")[0] for line in lines if " = " in line}
    assert {*shown, "text_field"} == set(plan._KEYS)


def test_a_text_field_is_the_template_of_that_field_alone(folder):
    by_field, by_template = read(
        folder,
        {"file": "sums.jsonl", "copies": 1, "text_field": "q"},
        {"file": "sums.jsonl", "copies": 1, "template": "{q}", "name": "b"},
    )
    assert by_field.benchmark.texts == by_template.benchmark.texts
    assert by_field.template == by_template.template == "{q}"


def test_the_tail_is_the_control_of_the_first_half(folder):
    table = {"file": "quiz.txt", "copies": 5, "held_out": "tail", "when": [0.5]}
    planned, control = read(folder, table)
    assert planned.benchmark.texts == tuple(LINES[:5])
    assert control.benchmark.texts == tuple(LINES[5:])
    assert (planned.name, planned.copies) == ("quiz", 5)
    assert (control.name, control.copies) == ("quiz-held", 0)
    assert (planned.held_out_of, control.held_out_of) == (None, "quiz")
    assert (planned.when, control.when) == ((0.5,), "uniform")


def test_random_halves_keep_the_published_order_and_share_nothing(folder):
    table = {"file": "quiz.txt", "copies": 5, "held_out": "random"}
    both = read(folder, table)
    numbers = [[LINES.index(text) for text in one.benchmark.texts] for one in both]
    assert numbers[0] == sorted(numbers[0])
    assert numbers[1] == sorted(numbers[1])
    assert sorted(numbers[0] + numbers[1]) == list(range(9))
    again = read(folder, table)
    assert [one.benchmark.texts for one in again] == [
        one.benchmark.texts for one in both
    ]


def test_each_example_is_held_out_in_half_of_the_random_draws():
    counts = np.zeros(10)
    for trial in range(400):
        texts = tuple(f"example {trial} {i}" for i in range(10))
        whole = PlannedSet(benchmark=Benchmark("x", texts, (None,) * 10), copies=1)
        _, control = halves(whole, at_random=True)
        counts[[texts.index(text) for text in control.benchmark.texts]] += 1
    # 4 standard errors of 400 fair coins: 4 * 10 counts.
    np.testing.assert_allclose(counts, 200, atol=40)


def test_the_draw_of_halves_depends_on_the_examples_and_not_on_their_order(folder):
    """Who knows the order under test must not choose who is held out by it."""
    texts = tuple(LINES)
    kept = [
        [
            one.benchmark.texts.index(text)
            for text in halves(one, at_random=True)[0].benchmark.texts
        ]
        for one in (
            PlannedSet(benchmark=Benchmark("x", order, (None,) * 9), copies=1)
            for order in (texts, texts[::-1])
        )
    ]
    assert kept[0] == kept[1]


def test_paraphrases_are_planted_and_the_benchmark_stays(folder):
    table = {"file": "quiz.txt", "copies": 2, "paraphrases": "other.txt"}
    (planned,) = read(folder, table)
    assert planned.benchmark.texts == tuple(LINES)
    assert planned.planted == tuple(f"tell me {i}" for i in range(9))
    assert planned.form == "paraphrase"


def test_halves_of_paraphrased_sets_keep_each_paraphrase_beside_its_example(folder):
    table = {"file": "quiz.txt", "copies": 2, "paraphrases": "other.txt"}
    planned, control = read(folder, {**table, "held_out": "random"})
    for text, paraphrase in zip(planned.benchmark.texts, planned.planted, strict=True):
        assert text.split()[1] == paraphrase.split()[2]
    assert control.texts_planted is None


def test_paraphrases_in_records_take_the_form_of_the_set(folder):
    rows = "".join(json.dumps({"q": f"say {i}", "a": "x"}) + "\n" for i in range(5))
    (folder / "said.jsonl").write_text(rows)
    (planned,) = read(
        folder,
        {
            "file": "sums.jsonl",
            "copies": 1,
            "text_field": "q",
            "paraphrases": "said.jsonl",
            "limit": 3,
        },
    )
    assert planned.planted == ("say 0", "say 1", "say 2")


def test_a_plan_has_limits_of_its_own():
    with pytest.raises(InputError, match="--limit is of --canaries"):
        Pretrain(corpus=("docs.jsonl",), plan=Path("plan.toml"), limit=3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"copies": 1}, "sets[1].file: missing"),
        ({"file": "quiz.txt"}, "sets[1].copies: missing"),
        ({"file": "no.txt", "copies": 1}, "sets[1].file: "),
        ({"file": "quiz.txt", "copies": -1}, "sets[1].copies: must be a whole number"),
        ({"file": "quiz.txt", "copies": 1.5}, "sets[1].copies: must be a whole number"),
        ({"file": "quiz.txt", "copies": True}, "sets[1].copies: must be a whole"),
        ({"file": "quiz.txt", "copies": "3"}, "sets[1].copies: must be a whole"),
        ({"file": 3, "copies": 1}, "sets[1].file: must be the path of a file, got 3"),
        ({"limit": 0}, "sets[1].limit: must be a whole number of at least 1, got 0"),
        ({"name": "a/b"}, "sets[1].name: must be a name that a file can have"),
        ({"name": ".."}, "sets[1].name: must be"),
        ({"order": "random"}, 'sets[1].order: must be "published" or "shuffled"'),
        ({"layout": ["block"]}, 'sets[1].layout: must be "block" or "spread"'),
        ({"when": "late"}, 'sets[1].when: must be "uniform", "clustered" or a list'),
        ({"when": []}, "sets[1].when: must be"),
        ({"when": [0.5, 1.1]}, "sets[1].when: must be"),
        ({"when": [-0.1]}, "sets[1].when: must be"),
        ({"when": [float("nan")]}, "sets[1].when: must be"),
        ({"when": 0.5}, "sets[1].when: must be"),
        ({"held_out": True}, "sets[1].held_out: must be"),
        ({"copis": 3}, "sets[1].copis: unknown key"),
        ({"template": "{x}"}, "sets[1].file: "),
        ({"template": "{q}", "text_field": "q"}, "sets[1]: template and text_field"),
        ({"layout": "spread", "order": "published"}, "sets[1].order: examples that"),
        ({"paraphrases": "sums.jsonl"}, "sets[1].paraphrases: 5 texts for 9 examples"),
        ({"paraphrases": "no.txt"}, "sets[1].paraphrases: "),
        ({"limit": 1, "held_out": "tail"}, "sets[1].held_out: one example has no"),
        ({"name": "sums"}, "two sets are named 'sums'"),
        ("quiz.txt", "sets[1]: not a table (got 'quiz.txt')"),
    ],
)
def test_faults_are_named_by_their_key(folder, table, message):
    if isinstance(table, dict) and not {"file", "copies"} & set(table):
        table = {"file": "quiz.txt", "copies": 1, **table}
    with pytest.raises(InputError) as caught:
        read(folder, {"file": "sums.jsonl", "copies": 1}, table)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("plan.toml", "[[sets]\n", "plan.toml: not TOML ("),
        ("plan.toml", "", "plan.toml: no sets"),
        ("plan.toml", "sets = 3", "plan.toml: no sets"),
        ("plan.toml", "seed = 3", "plan.toml: seed: unknown key"),
        ("plan.json", "", "unknown suffix '.json'"),
    ],
)
def test_bad_plan_files_are_named(folder, name, text, message):
    with pytest.raises(InputError) as caught:
        read_plan(write(folder, text, name=name))
    assert message in str(caught.value)


def test_a_plan_that_is_not_there_or_no_text_is_named(folder):
    with pytest.raises(InputError, match="no plan"):
        read_plan(folder / "nowhere.toml")
    (folder / "bad.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InputError, match="byte 5: not UTF-8"):
        read_plan(folder / "bad.toml")


def test_blank_examples_are_not_planted(folder):
    (folder / "gaps.jsonl").write_text('{"q": " "}\n{"q": "x"}\n')
    with pytest.raises(InputError, match="gaps: example 1 is blank"):
        read(folder, {"file": "gaps.jsonl", "copies": 1, "text_field": "q"})


def test_the_short_form_takes_the_last_equals_sign(folder):
    path = folder / "a=b.txt"
    path.write_text("one\ntwo\n")
    planned = planned_set(f"{path}=12", 1)
    assert (planned.name, planned.copies, len(planned.benchmark)) == ("a=b", 12, 1)


@pytest.mark.parametrize("word", ["quiz.txt", "quiz.txt=", "=3", "quiz.txt=²"])
def test_bad_short_forms_are_named(word):
    with pytest.raises(InputError, match="not FILE=COPIES"):
        planned_set(word)
