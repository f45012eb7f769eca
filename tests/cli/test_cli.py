"""What a user of the command line reads: help, exit codes, light imports."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxcontam
from jaxcontam import __version__
from jaxcontam.cli.main import COMMANDS, flags_of, main, parse, run_command
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_and_exits_with_0(words, capsys):
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", said.out, re.MULTILINE)


# Each takes longer to import than a line of help may take.
HEAVY = ("jax", "numpy", "rich", "scipy", "transformers", "typeguard", "asyncio")
WITHOUT = f"""
import sys
from jaxcontam.cli.main import COMMANDS, main

for words in ("--version", "--help", "audit --bogus", "audit m", "audit m b --seed -1"):
    main(words.split())
for name in COMMANDS:
    main([name, "--help"])
print("heavy:", *sorted({{*{HEAVY}}} & {{*sys.modules}}))
# What checks and plans an audit: this import alone would take a second of it.
import jaxcontam.orders.run
print("scipy.stats" in sys.modules)
"""


def test_help_version_and_errors_of_parsing_import_nothing_slow():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], text=True, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["heavy:", "False"]
    assert done.stderr.count("jaxcontam: error: ") == 3


def test_flags_of_every_module_that_runs_are_read(capsys):
    runs = re.compile(r'run_(?:module\(|study\("[\w.]+", )([A-Z]\w*)')
    found = [
        (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."), name)
        for folder in ("train", "eval")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in runs.findall(path.read_text(encoding="utf-8"))
    ]
    assert {"train.population", "eval.wikimia"} <= {module for module, _ in found}
    for module, name in found:
        command = getattr(importlib.import_module(module), name)
        with pytest.raises(SystemExit) as stopped:
            parse(command, ["--help"], prog=module)
        assert not stopped.value.code, module
    assert capsys.readouterr().err == ""


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
    assert main(["doctor", "--help"]) == main(["methods", "--help"]) == 0
    said = capsys.readouterr().out
    assert "[BENCHMARK ...]" in said and "[NAME ...]" in said
    assert "(required)" not in said
    assert main(["replicate", "--help"]) == main(["audit", "--help"]) == 0
    said = " ".join(re.sub("[─│╭╮╰╯]", " ", capsys.readouterr().out).split())
    assert "Instances, drawn at random; the paper has 10. (default: 50)" in said
    assert "(default: None)" not in said and "(default: False)" not in said
    assert r"(default: '\n')" in said
    assert "audit [-h] [OPTIONS] MODEL BENCHMARK ..." in said
    assert "(default: )" not in said
    assert "Seeds every random choice. (default: 0)" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(shell, capsys):
    assert main(["--tyro-print-completion", shell]) == 0
    said = capsys.readouterr().out
    assert "membership" in said and "group-field" in said


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_is_that_of_the_package(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_methods_lists_each_and_says_all_of_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {*METHODS} <= {line.partition(" ")[0] for line in lines}
    assert all(len(line) <= 80 for line in lines)
    assert main(["methods", "adjacency", "dc_pdd"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "formula: p = P(sum of T(random order) >= sum of T(published))" in said
    assert "null hypothesis: exchangeability" in said
    assert "arXiv:2310.17623" in said
    assert "example: jaxcontam audit MODEL benchmark.jsonl --tests adjacency" in said
    assert "not of C4" in said


def raising(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        (lambda: 3, 3, ""),
        (lambda: {"a": "report"}, 0, ""),
        (
            raising(InputError("m.csv: wrong", hint="do this")),
            2,
            "train.x: error: m.csv: wrong\n  hint: do this\n",
        ),
        (raising(InputError("m.csv: wrong")), 2, "train.x: error: m.csv: wrong\n"),
        (
            raising(KeyboardInterrupt()),
            130,
            "\ntrain.x: interrupted; run the same command again\n",
        ),
    ],
)
def test_how_a_command_ends_is_its_exit_code_and_what_is_said(run, code, said, capsys):
    assert run_command(run, name="train.x") == code
    assert capsys.readouterr().err == said


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
    code = f"from jaxcontam.cli.main import main; print([main(c) for c in {commands}])"
    # Every import, also one that is undone again, is a line on stderr.
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert said.stdout.splitlines()[-1] == "[0, 0, 0, 0]"
    imported = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert {"jaxcontam.cli.main", "jaxcontam.proof.prove"} <= imported
    heavy = {"jax", "jaxlib", "flax", "transformers", "torch", "tensorflow"}
    assert not heavy & {name.partition(".")[0] for name in imported}
