"""What the shells themselves complete, each with its own script."""

import os
import shutil
import subprocess

import pytest

from jaxcontam.cli import main

CASES = [
    ("jaxcontam aud", {"audit"}),
    ("jaxcontam --vers", {"--version"}),
    ("jaxcontam audit --gro", {"--group-field"}),
    ("jaxcontam audit --dtype ", {"float32", "bfloat16"}),
    ("jaxcontam audit --tests rev", {"reversal"}),
    ("jaxcontam membership --scores zl", {"zlib"}),
    ("jaxcontam --completion f", {"fish"}),
]


@pytest.fixture
def script(tmp_path, capsys):
    def made(shell):
        assert main(["--completion", shell]) == 0
        path = tmp_path / f"completion.{shell}"
        path.write_text(capsys.readouterr().out)
        return str(path)

    return made


def said(tmp_path, *words):
    ended = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stderr == ""
    return ended.stdout


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"needs {shell}")


@needs("bash")
def test_bash_completes_commands_flags_and_values(tmp_path, script):
    source = script("bash")
    for line, wanted in CASES:
        words = line.split(" ")
        answer = said(
            tmp_path,
            "bash",
            "-c",
            'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            "_jaxcontam; printf '%s\\n' \"${COMPREPLY[@]}\"",
            source,
            *words,
        )
        assert set(answer.split()) == wanted, line


@needs("bash")
def test_bash_leaves_names_of_files_to_the_shell(tmp_path, script):
    answer = said(
        tmp_path,
        "bash",
        "-c",
        'source "$0"; complete -p jaxcontam; COMP_WORDS=(jaxcontam audit model/); '
        "COMP_CWORD=2; _jaxcontam; echo ${#COMPREPLY[@]}",
        script("bash"),
    )
    assert answer.splitlines() == ["complete -o default -F _jaxcontam jaxcontam", "0"]


@needs("fish")
def test_fish_completes_commands_flags_values_and_files(tmp_path, script):
    (tmp_path / "bench.jsonl").write_text("")
    for line, wanted in [*CASES, ("jaxcontam audit be", {"bench.jsonl"})]:
        answer = said(
            tmp_path, "fish", "-c", f"source {script('fish')}; complete -C '{line}'"
        )
        assert {row.split("\t")[0] for row in answer.splitlines()} == wanted, line


@needs("zsh")
def test_zsh_takes_the_script_without_a_word(tmp_path, script):
    answer = said(
        tmp_path,
        "zsh",
        "-f",
        "-c",
        f"source {script('zsh')}; print ${{_comps[jaxcontam]}}",
    )
    assert "_jaxcontam" in answer
