"""Gigantic lines and a million examples: memory bounded, errors short."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from tests.faults.folders import said

pytestmark = pytest.mark.unoptimised

ROOT = Path(__file__).resolve().parents[2]
MILLION = 10**6
# What imports of the command take by themselves, with room for other versions.
_IMPORTS = 700 << 20


# What getrusage says begins with the memory of the process that was forked.
PEAK = (
    "[int(line.split()[1]) << 10 for line in open('/proc/self/status') "
    "if line.startswith('VmHWM')][0]"
)


def peak(words, folder):
    """Most bytes of memory that a command took, which ends well."""
    code = (
        "import sys; from jaxcontam.cli.main import main; code = main(sys.argv[1:]); "
        f"print({PEAK}, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def test_a_gigantic_line_is_one_example(tmp_path):
    text = "word " * 400_000
    for name, content in (
        ("a.jsonl", json.dumps({"text": text}) + "\n" + '{"text": "b"}\n'),
        ("a.json", json.dumps([{"text": text}, {"text": "b"}])),
        ("a.csv", f'text\n"{text}"\nb\n'),
        ("a.tsv", f"text\n{text}\nb\n"),
    ):
        (tmp_path / name).write_text(content)
        found = load_benchmark(tmp_path / name, text_field="text")
        assert [len(one) for one in found.texts] == [len(text), 1]


def test_an_error_in_a_gigantic_line_is_a_short_one(tmp_path, capsys):
    giant = "x" * 2_000_000
    faults = {
        "a.jsonl": f'{{"{giant}": 1}}\n' * 2,
        "b.jsonl": f'{{"a": "{giant}\n',
        "a.csv": f"{giant},{giant}\n1,2\n",
        "b.csv": f"a,b\n{giant}\n",
        "a.json": f'[{{"{giant}": 1}}]',
    }
    for name, content in faults.items():
        (tmp_path / name).write_text(content)
        words = ["audit", "m", tmp_path / name, "--text-field", "q"]
        assert len(said(words, capsys)) < 5_000
    (tmp_path / "m.csv").write_text(f"1,{giant}\n")
    assert len(said(["prove", tmp_path / "m.csv"], capsys)) < 5_000
    assert len(said([giant], capsys)) < 5_000
    assert len(said(["audit", "m", "b", f"--{giant}"], capsys)) < 5_000


def test_a_limit_reads_the_first_examples_of_a_long_file(tmp_path):
    path = tmp_path / "a.jsonl"
    # Behind them nothing is parsed, as in a table.
    path.write_text("".join(f'{{"text": "line {i}"}}\n' for i in range(3)) + "{" * 9)
    assert load_benchmark(path, limit=3).texts == tuple(
        f'{{"text": "line {i}"}}' for i in range(3)
    )


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    """A million examples of 100 characters, 110 MB, and a corpus of one line."""
    folder = tmp_path_factory.mktemp("million")
    with (folder / "b.jsonl").open("w") as file:
        for i in range(MILLION):
            text = f"question {i} " + "abcdefgh " * 9
            file.write(json.dumps({"text": text[:90]}) + "\n")
    return folder


def test_a_matrix_of_many_rows_needs_memory_in_proportion_to_it(tmp_path):
    matrix_KM = np.random.default_rng(0).normal(size=(100_000, 10))
    for name, rows in (("little.csv", matrix_KM[:20]), ("large.csv", matrix_KM)):
        np.savetxt(tmp_path / name, rows, delimiter=",")
    little, large = (
        peak(["prove", name, "--out", f"{name}-out"], tmp_path)
        for name in ("little.csv", "large.csv")
    )
    # The draws of the cross-check and buffers, which do not grow with the matrix.
    assert large < little + (40 << 20) + 10 * matrix_KM.nbytes


@pytest.mark.slow
def test_a_million_examples_need_memory_in_proportion_to_their_file(million):
    size = (million / "b.jsonl").stat().st_size
    code = (
        "from jaxcontam.data.benchmark import load_benchmark; "
        f"found = load_benchmark('b.jsonl', limit=None); print(len(found), {PEAK})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=million,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    n, n_bytes = map(int, done.stdout.split())
    assert n == MILLION
    # The text, each line, its record and their headers.
    assert n_bytes < _IMPORTS + 12 * size


@pytest.mark.slow
def test_a_few_examples_of_a_million_cost_no_more_than_their_file(million, pulse):
    words = ["audit", pulse / "model", "b.jsonl", "--dry-run", "--tests", "reversal"]
    size = (million / "b.jsonl").stat().st_size
    assert peak([*words, "--limit", 100], million) < 2 * _IMPORTS + 12 * size


@pytest.mark.slow
def test_a_gigantic_line_is_released_and_read_back(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for i in range(3):
            file.write(json.dumps({"text": f"{i}" * 50_000_000}) + "\n")
    words = ["release", str(path), "--out", str(tmp_path / "b.jsonl")]
    assert main([*words, "--seed-file", str(tmp_path / "seed.json")]) == 0
    lines = sorted((tmp_path / "b.jsonl").read_text().splitlines())
    assert lines == sorted(path.read_text().splitlines())
