"""Rows and columns of the table of audits: words, .toml files, flags of each."""

import dataclasses
from pathlib import Path

import pytest

from eval.public import cells
from eval.public.__main__ import Public
from eval.public.cells import plan_cell
from eval.public.entries import read_entries
from jaxcontam.errors import InputError

pytestmark = pytest.mark.unoptimised

CODE = "a commit"


@pytest.mark.parametrize(
    ("kind", "words", "names"),
    [
        ("model", ["org/a,b", "c/model"], ["a", "b", "c"]),
        ("model", ["api:https://h/v1#org/x,y"], ["org-x-y"]),
        (
            "model",
            ["lm_eval:hf:pretrained=D,dtype=x"],
            ["lm_eval-hf-pretrained-D-dtype-x"],
        ),
        ("model", ["one/gpt,two/gpt", "one/run/model,two/run/model"], None),
        ("benchmark", ["a.jsonl,hf:o/n:main:test", "lm_eval:boolq"], None),
        ("benchmark", ["boolq/dev.jsonl", "piqa/dev.jsonl"], ["boolq-dev", "piqa-dev"]),
        (
            "benchmark",
            ["lm_eval:boolq,lm_eval:piqa:test,a.txt,lm_eval:arc_easy"],
            ["boolq", "piqa-test", "a", "arc_easy"],
        ),
    ],
)
def test_words_become_names_that_differ(kind, words, names):
    found = [entry.name for entry in read_entries(words, kind)]
    assert len(set(found)) == len(found)
    if names is not None:
        assert found == names
    if kind == "benchmark" and "lm_eval:boolq" in words:
        assert found == ["a", "n-main-test", "boolq"]


def test_file_with_a_comma_in_its_name_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a,b.txt").write_text("x\n")
    assert [e.word for e in read_entries(["a,b.txt"], "benchmark")] == ["a,b.txt"]


@pytest.mark.parametrize("word", ["api:https://h/v1#x", "lm_eval:hf:pretrained=D"])
@pytest.mark.parametrize("before", ["org/a", "api:https://h/v1#y"])
def test_model_with_commas_of_its_own_stands_behind_none(word, before):
    with pytest.raises(InputError, match="behind a comma") as caught:
        read_entries([f"{before},{word},dtype=x"], "model")
    assert repr(word) in str(caught.value) and "spaces" in caught.value.hint
    assert [e.word for e in read_entries([before, word], "model")] == [before, word]


def test_toml_file_stands_among_others_in_a_list_with_commas(tmp_path):
    (path,) = write_toml(tmp_path, '[boolq]\nbenchmark = "b.txt"\nlimit = 7\n')
    found = read_entries([f"a.txt,{path}", f"{tmp_path / 'c.txt'}"], "benchmark")
    assert [one.name for one in found] == ["a", "boolq", "c"]
    assert found[1].flags == {"limit": 7}


def write_toml(tmp_path, text):
    path = tmp_path / "sets.toml"
    path.write_text(text)
    return [str(path)]


def test_flags_of_a_table_are_those_of_its_cells_alone(tmp_path):
    words = write_toml(
        tmp_path,
        '[boolq]\nbenchmark = "boolq/dev.jsonl"\ntemplate = "{a}\\\\n{b}"\n'
        'limit = 7\nseparator = "\\n\\n"\n'
        '[arc]\nbenchmark = "hf:o/arc:test"\neffort = "quick"\nfix_answer = false\n',
    )
    boolq, arc = read_entries(words, "benchmark")
    (model,) = read_entries(["m"], "model")
    shared = {"limit": 5, "seed": 3, "tests": "stratified"}
    one, other = (plan_cell(model, b, shared, Path("o")).audit for b in (boolq, arc))
    assert one.benchmark == (tmp_path / "boolq/dev.jsonl",)
    assert (one.limit, one.seed, one.separator) == (7, 3, "\n\n")
    assert one.template == "{a}\\n{b}"
    assert one.test_names == ("stratified",)
    assert one.out == Path("o/cells/m/boolq")
    assert (other.limit, other.benchmark) == (5, (Path("hf:o/arc:test"),))
    # A benchmark's own effort is a choice of tests.
    assert other.test_names == ("direction",)


@pytest.mark.parametrize("value", ['"s.json"', '["s.json"]'])
def test_seed_file_of_a_table_is_beside_it(tmp_path, value):
    text = f'[a]\nbenchmark = "a.txt"\nseed_file = {value}\n'
    (benchmark,) = read_entries(write_toml(tmp_path, text), "benchmark")
    (model,) = read_entries(["m"], "model")
    cell = plan_cell(model, benchmark, {}, Path("o"))
    assert cell.audit.seed_file == (tmp_path / "s.json",)


def test_cell_follows_from_its_seed_file_and_its_tokenizer(tmp_path):
    text = '[a]\nbenchmark = "a.txt"\nseed_file = "s.json"\n'
    (benchmark,) = read_entries(write_toml(tmp_path, text), "benchmark")
    text = '[m]\nmodel = "api:https://h/v1#m"\ntokenizer = "words"\n'
    (model,) = read_entries(write_toml(tmp_path, text), "model")
    cell = plan_cell(model, benchmark, {}, Path("o"))
    (tmp_path / "words").mkdir()
    keys = {cells.cell_key(cell, CODE)}
    for path, words in [
        ("a.txt", "x"),
        ("s.json", "1"),
        ("s.json", "2"),
        ("words/tokenizer.json", "1"),
        ("words/tokenizer.json", "12"),
    ]:
        (tmp_path / path).write_text(words)
        keys.add(cells.cell_key(cell, CODE))
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("kind", "text", "message", "hint"),
    [
        ("benchmark", "[a\n", "not TOML", ""),
        ("benchmark", 'a = "x.txt"\n', "[a]: no benchmark", "benchmark ="),
        ("benchmark", '[a]\nmodel = "x"\n', "[a]: no benchmark", "benchmark ="),
        (
            "benchmark",
            '[a]\nbenchmark = "x"\nlimt = 3\n',
            "unknown flag of a benchmark 'limt'",
            "did you mean 'limit'?",
        ),
        (
            "benchmark",
            '[a]\nbenchmark = "x"\nout = "o"\n',
            "unknown flag of a benchmark 'out'",
            "",
        ),
        (
            "model",
            '[a]\nmodel = "x"\nlimit = 3\n',
            "unknown flag of a model 'limit'",
            "dtype",
        ),
        ("model", '["a b"]\nmodel = "x"\n', "a name has letters", "[a-b]"),
        ("model", "", "--models names none", "at least one"),
    ],
)
def test_bad_table_is_named_with_a_way_out(tmp_path, kind, text, message, hint):
    with pytest.raises(InputError) as caught:
        read_entries(write_toml(tmp_path, text), kind)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert hint in caught.value.hint


def test_two_of_one_name_are_refused():
    with pytest.raises(InputError, match="two benchmarks are named 'a-b'") as caught:
        read_entries(["hf:o/a:b", "lm_eval:a-b", "a.txt,a.txt"], "benchmark")
    assert ".toml" in caught.value.hint


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tests": "stratifed"}, "unknown test 'stratifed'"),
        ({"limit": 0}, "--limit must be at least 1"),
        ({"tests": "sequential,reversal"}, "sequential stops at p = 0.001"),
        ({"limit": "many"}, "many"),
    ],
)
def test_bad_flag_of_a_cell_names_its_benchmark(flags, message):
    (model,) = read_entries(["m"], "model")
    (benchmark,) = read_entries(["quiz.txt"], "benchmark")
    benchmark = dataclasses.replace(benchmark, flags=flags)
    with pytest.raises(InputError, match=message) as caught:
        plan_cell(model, benchmark, {}, Path("o"))
    assert "quiz.txt: " in str(caught.value)


def test_flags_are_checked_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="unknown test"):
        Public(models=("m",), benchmarks=("b",), tests="order", out=out).run()
    assert not out.exists()
    with pytest.raises(InputError, match="--limit must be at least 1"):
        Public(models=("m",), benchmarks=("b",), limit=0)
