"""Commands with a store: interrupted, estimated, shared and refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli.main import main


@pytest.fixture
def asked_of_kernel(monkeypatch):
    """List of the batches that scorers ask the kernel for."""
    from jaxcontam.scoring import local

    asked = []

    def counting_calls_of(sharded):
        def counting(*args, **kwargs):
            forward = sharded(*args, **kwargs)

            def count(inputs, *rest):
                asked.append(inputs.shape)
                return forward(inputs, *rest)

            return count

        return counting

    for name in ("sharded_forward", "sharded_pairs"):
        monkeypatch.setattr(local, name, counting_calls_of(getattr(local, name)))
    return asked


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
    assert main([*words, "--dry-run", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
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
    assert "The store holds every score. No example was scored" in " ".join(
        said.split()
    )
    assert re.search(r"x +adjacency +([\d,]+) +\1 ", said)


def test_dry_run_prices_its_minutes_and_names_the_folder_of_compiled_programs(
    pulse, benchmark, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ["audit", str(pulse / "model"), str(benchmark), "--dry-run"]
    assert main([*words, "--json", "--price-per-hour", "30"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["price"] == pytest.approx(30 * found["minutes"] / 60)
    assert Path(found["compiled_in"]).is_dir()
    assert main(words) == 0
    assert "Compiled programs stay in " in capsys.readouterr().out
    assert main([*words, "--price-per-hour", "-1"]) == 2
    assert "--price-per-hour must be at least 0" in capsys.readouterr().err


def test_scores_of_one_command_are_served_to_another(
    pulse, benchmark, tmp_path, capsys, asked_of_kernel
):
    words = ["score", str(pulse / "model"), str(benchmark), "--out"]
    first, second, third = (tmp_path / f"{name}.jsonl" for name in "abc")
    assert main([*words, str(first)]) == 0
    assert [path.name for path in tmp_path.glob("*.store")] == ["a.jsonl.store"]
    n_batches = len(asked_of_kernel)
    assert n_batches > 0
    assert main([*words, str(second), "--store", f"{first}.store"]) == 0
    assert len(asked_of_kernel) == n_batches
    assert main([*words, str(third), "--no-store"]) == 0
    assert len(asked_of_kernel) == 2 * n_batches
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
