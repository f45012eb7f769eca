"""The study of kills compares what it should, and goes on until it ends."""

import json
import subprocess
import sys
from pathlib import Path

from eval.kills import results

ROOT = Path(__file__).resolve().parent.parent


def report(folder, **fields):
    folder.mkdir()
    text = json.dumps({"p": 0.5, "command": ["prove", "--out", str(folder)], **fields})
    (folder / "report.json").write_text(text)
    return folder


def test_two_runs_agree_but_for_times_and_places(tmp_path):
    one = report(tmp_path / "a", started="now", results=[{"cached_tokens": 0}])
    same = report(tmp_path / "b", started="then", results=[{"cached_tokens": 9}])
    other = report(tmp_path / "c", started="now", results=[{"cached_tokens": 0}], p=0.4)
    assert results(one) == results(same) != results(other)
    (same / "orders.npz").write_bytes(b"1")
    assert results(one) != results(same)


def test_a_command_that_is_killed_goes_on(tmp_path):
    """In a process of its own: this one has threads, which a fork would lose."""
    (tmp_path / "corpus.txt").write_text("".join(f"line {i}\n" for i in range(5_000)))
    (tmp_path / "bench.txt").write_text("line 7\nanother line\n")
    code = (
        "import random, sys; from pathlib import Path; from eval.kills import killed; "
        "words = ['overlap', 'corpus.txt', 'bench.txt']; "
        "one = killed('overlap', words, 3, random.Random(0), Path('work')); "
        "print(one.n_kills, one.n_failed, one.n_other)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("3 0 0\n", "")
