"""Commands with a store: estimated and shared."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.scoring.store import ScoreStore


@pytest.fixture
def commits(monkeypatch):
    """A list with an entry for each batch that a run scores and keeps."""
    commit, made = ScoreStore.commit, []

    def counted(self, rows):
        commit(self, rows)
        made.append(rows)

    monkeypatch.setattr(ScoreStore, "commit", counted)
    return made


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "x.txt"
    order = np.random.default_rng(0).permutation(60)
    path.write_text("".join(f"question {i} of many\n" for i in order))
    return path


def test_dry_run_says_what_would_be_scored_and_writes_nothing(
    pulse, benchmark, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ["audit", str(pulse / "model"), str(benchmark)]
    files = sorted(tmp_path.rglob("*"))
    assert main([*words, "--dry-run", "--json", "--price-per-hour", "30"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["price"] == pytest.approx(30 * before["minutes"] / 60)
    assert Path(before["compiled_in"]).is_dir()
    assert sorted(tmp_path.rglob("*")) == files
    # Direction, which decides, is read from the same pairs.
    assert [test["method"] for test in before["tests"]] == ["direction", "adjacency"]
    assert before["tests"][0]["n_sequences"] == before["tests"][0]["n_targets"] == 0
    assert before["minutes"] > 0
    for test in before["tests"]:
        assert 0 < test["mde_low"] < test["mde_high"]
    out = tmp_path / "out"
    assert main([*words, "--out", str(out)]) == 0
    document = json.loads((out / "report.json").read_text())
    (path,) = (out / "store").iterdir()
    head = len(path.read_bytes().split(b"\n", 1)[0]) + 1
    assert path.stat().st_size - head == round(
        1000 * sum(test["store_kb"] for test in before["tests"])
    )
    scored = {row["method"]: row for row in document["results"]}
    for test in before["tests"]:
        row = scored[test["method"]]
        assert 10 ** test["log10_p_floor"] == pytest.approx(row["p_floor"])
        if test["n_sequences"]:
            assert test["n_targets"] - test["n_cached"] == row["tokens_scored"]
    capsys.readouterr()
    assert main([*words, "--out", str(out), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "The store holds every score. No" in " ".join(said.split())
    assert re.search(r"x +adjacency +([\d,]+) +\1 ", said)


def test_scores_of_one_command_are_served_to_another(
    pulse, benchmark, tmp_path, commits
):
    words = ["score", str(pulse / "model"), str(benchmark), "--out"]
    first, second, third = (tmp_path / f"{name}.jsonl" for name in "abc")
    assert main([*words, str(first)]) == 0
    assert [path.name for path in tmp_path.glob("*.store")] == ["a.jsonl.store"]
    n_batches = len(commits)
    assert n_batches > 0
    assert main([*words, str(second), "--store", f"{first}.store"]) == 0
    assert main([*words, str(third), "--no-store"]) == 0
    assert len(commits) == n_batches
    assert not (tmp_path / "c.jsonl.store").exists()
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
