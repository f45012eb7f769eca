"""What a user of the command line reads: exit codes, whole stderr, light imports."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxcontam
from jaxcontam import __version__
from jaxcontam.cli import COMMANDS, GONE, flags_of, main, parse, run_command
from jaxcontam.errors import InputError

ROOT = Path(__file__).parents[1]
SCORES = (
    "min_k, min_k_pp, loss, zlib, surp, gap_k, dc_pdd, lowercase, neighbourhood, "
    "reference, recall, con_recall, codec, gradient_norm"
)
TESTS = (
    "direction, adjacency, stratified, reversal, permutation, "
    "sharded_t, sharded_t_released, options"
)


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "boolq.jsonl"
    path.write_text('{"q": "one"}\n{"q": "two"}\n')
    return str(path)


@pytest.fixture
def refused(capsys):
    """Run words that must fail; returns stderr, after checking what never changes."""

    def run(*words):
        assert main(list(words)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("jaxcontam: error: ")
        assert said.err.count("\n") <= 2, "one line and a hint"
        assert "Traceback" not in said.err
        return said.err

    return run


def in_subprocess(*words, **environment):
    """A finished Python process in the root of the repository."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_and_exits_with_0(words, capsys):
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", said.out, re.MULTILINE)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_a_command_has_examples_that_parse_and_every_flag(
    name, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith(f"usage: jaxcontam {name}")
    lines = said.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    examples = [line for line in lines if line.startswith(f"    jaxcontam {name}")]
    assert examples
    for line in examples:
        words = shlex.split(re.sub(r"\s# .*", "", line))[2:]
        parse(COMMANDS[name], words, prog=f"jaxcontam {name}")
    shown = re.findall(r"(?<=. )(--[\w-]+)(?= )", said.out[said.out.index("options") :])
    assert {*flags_of(COMMANDS[name])} <= {*shown}


def test_help_says_what_a_flag_does_and_defaults_that_say_something(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["replicate", "--help"]) == 0
    said = " ".join(re.sub("[─│╭╮╰╯]", " ", capsys.readouterr().out).split())
    assert "Instances, drawn at random; the paper has 10. (default: 50)" in said
    assert "(default: None)" not in said and "(default: False)" not in said
    assert main(["audit", "--help"]) == 0
    said = capsys.readouterr().out
    assert r"(default: '\n')" in re.sub(r"[│\s]+", " ", said)
    assert "Seeds every random choice. (default: 0)" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(shell, capsys):
    assert main(["--tyro-print-completion", shell]) == 0
    said = capsys.readouterr().out
    assert "membership" in said and "group-field" in said


@pytest.mark.parametrize("place", GONE)
def test_what_left_names_what_to_use_instead(place, refused):
    # A flag alone: what a command needs beside it is not asked for first.
    said = refused(*place.split(), "x")
    assert f"there is no {place.split()[-1]} any more" in said
    assert GONE[place] in said
    name = place.split()[0]
    assert place != name or name not in COMMANDS


def test_unknown_flag_is_told_before_what_its_value_was_taken_for(refused):
    said = refused(
        "membership", "m", "--members", "a", "--nonmembers", "b", "--hop", "x"
    )
    assert "unknown flag '--hop'" in said


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_is_that_of_the_package(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_methods_lists_each_and_says_all_of_one(capsys, refused, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods"]) == 0
    said = capsys.readouterr().out
    for name in [*TESTS.split(", "), *SCORES.split(", ")]:
        assert re.search(rf"^{name} ", said, re.MULTILINE)
    assert all(len(line) <= 80 for line in said.splitlines())
    assert main(["methods", "adjacency", "dc_pdd"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "formula: p = P(sum of T(random order) >= sum of T(published))" in said
    assert "null hypothesis: exchangeability" in said
    assert "arXiv:2310.17623" in said
    assert "example: jaxcontam audit MODEL benchmark.jsonl --tests adjacency" in said
    assert "not of C4" in said
    assert "did you mean 'adjacency'?" in refused("methods", "adjacancy")


def test_unknown_command_names_the_nearest(refused):
    assert refused("audi") == (
        "jaxcontam: error: unknown command 'audi'\n"
        "  hint: did you mean 'audit'? choices: " + ", ".join(COMMANDS) + "\n"
    )


@pytest.mark.parametrize(
    ("command", "typed", "nearest"),
    [
        ("audit", "--n-order", "--n-orders"),
        ("audit", "--tets", "--tests"),
        ("prove", "--score", "--scores"),
        ("score", "--text-feild", "--text-field"),
    ],
)
def test_unknown_flag_names_the_nearest(refused, command, typed, nearest):
    positionals = {"audit": ["m", "b.txt"], "prove": ["m.csv"], "score": ["m", "b.txt"]}
    words = [*positionals[command], *["--out", "o"][: 2 * (command == "score")]]
    error, hint = refused(command, *words, typed, "3").splitlines()
    assert error == f"jaxcontam: error: unknown flag {typed!r}"
    assert hint.startswith(f"  hint: did you mean {nearest!r}? choices: --")


def test_flag_of_the_wrong_type_names_flag_and_value(refused, benchmark):
    error, hint = refused("audit", "m", benchmark, "--n-orders", "many").splitlines()
    # The parser's own words, but its frame and footer never show.
    assert "--n-orders" in error
    assert "'many'" in error
    assert not re.search("[─│╭╰]", error)
    assert hint == "  hint: see jaxcontam audit --help"


def test_audit_without_a_benchmark_is_refused(refused):
    assert refused("audit", "m") == (
        "jaxcontam: error: no benchmark file\n  hint: name at least one\n"
    )


def test_unknown_test_names_the_nearest_before_any_file_is_opened(refused):
    assert refused("audit", "m", "nowhere.txt", "--tests", "reversal,stratifed") == (
        "jaxcontam: error: unknown test 'stratifed'\n"
        f"  hint: did you mean 'stratified'? choices: {TESTS}\n"
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--n-orders=0", "--n-orders must be at least 1, got 0"),
        ("--seed=-1", "--seed must be at least 0, got -1"),
        ("--batch-tokens=0", "--batch-tokens must be at least 1, got 0"),
        ("--min-effect=nan", "--min-effect must be a finite number, got float"),
        ("--tests=min_k", "unknown test 'min_k'"),
    ],
)
def test_flags_that_cannot_be_are_refused(refused, benchmark, flag, message):
    assert message in refused("audit", "m", benchmark, flag)


def test_missing_model_is_refused_after_the_benchmark_was_read(
    refused, benchmark, tmp_path
):
    model = str(tmp_path / "model")
    assert refused("audit", model, benchmark) == (
        f"jaxcontam: error: {model}: no such model directory\n"
        "  hint: give a folder with config.json, or a hub name such as org/name\n"
    )


def test_model_directory_with_a_slip_is_told_the_one_beside_it(
    refused, benchmark, tmp_path
):
    (tmp_path / "llama-small").mkdir()
    said = refused("audit", str(tmp_path / "lama-small"), benchmark)
    assert f"hint: did you mean '{tmp_path}/llama-small'?\n" in said


def test_address_without_api_is_told_how_to_name_it(refused, benchmark):
    said = refused("audit", "http://127.0.0.1:1/v1#m", benchmark)
    assert "hint: for a model behind it: api:http://127.0.0.1:1/v1#m\n" in said


@pytest.mark.parametrize("flag", [["--template", "{qq}"], ["--group-field", "qq"]])
def test_field_with_a_slip_is_told_before_the_model(refused, benchmark, flag):
    said = refused("audit", "m", benchmark, *flag)
    assert "hint: did you mean 'q'? " in said


def test_two_benchmarks_of_one_name_are_refused(refused, benchmark):
    assert refused("audit", "m", benchmark, benchmark) == (
        "jaxcontam: error: two benchmarks are named 'boolq'\n  hint: rename a file\n"
    )


def test_exit_code_of_a_command_is_passed_on():
    assert run_command(lambda: 3) == 3
    assert run_command(lambda: {"a": "report"}) == 0


def test_hint_has_a_line_of_its_own_and_only_if_there_is_one(capsys):
    def fail(hint):
        raise InputError("m.csv: wrong", hint=hint)

    assert run_command(lambda: fail("do this"), name="train.x") == 2
    assert capsys.readouterr().err == "train.x: error: m.csv: wrong\n  hint: do this\n"
    assert run_command(lambda: fail("")) == 2
    assert capsys.readouterr().err == "jaxcontam: error: m.csv: wrong\n"


def test_interruption_exits_with_130_and_says_what_to_do(capsys):
    def interrupt():
        raise KeyboardInterrupt

    assert run_command(interrupt) == 130
    assert capsys.readouterr().err == (
        "\njaxcontam: interrupted; run the same command again\n"
    )


def test_bug_of_our_own_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: 1 // 0)


def test_every_command_is_a_class_of_the_package():
    for command in COMMANDS.values():
        assert getattr(jaxcontam, command.__name__) is command


def test_command_without_a_model_imports_no_jax_torch_or_transformers(tmp_path):
    matrix, out = tmp_path / "m.csv", tmp_path / "out"
    matrix.write_text("2,1\n2,1\n")
    prove = ["prove", str(matrix), "--out", str(out), "--json"]
    commands = [["--help"], ["methods"], prove, ["verify", str(out)]]
    code = f"from jaxcontam.cli import main; print([main(c) for c in {commands}])"
    # Every import, also one that is undone again, is a line on stderr.
    said = in_subprocess("-X", "importtime", "-c", code)
    assert said.stdout.splitlines()[-1] == "[0, 0, 0, 0]"
    imported = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert {"jaxcontam.cli", "jaxcontam.analyses.prove"} <= imported
    heavy = {"jax", "jaxlib", "flax", "transformers", "torch", "tensorflow"}
    assert not heavy & {name.partition(".")[0] for name in imported}
