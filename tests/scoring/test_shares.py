"""Shares of a run: the numbers of one process, each batch once; commands with a store.

The model is a table in NumPy, except where a command is named.
"""

import collections
import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.models import weights
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.orders.run import audit
from jaxcontam.scoring import cost, parts
from jaxcontam.scoring.load import load
from jaxcontam.scoring.parts import Share, ShareScored
from jaxcontam.scoring.shares import Division, SharesMissingError, each_scored
from jaxcontam.scoring.store import ScoreStore
from tests.support.served_model import byte_tokenizer, decoder, save
from tests.support.store_process import IDENTITY, counted, drawn_sequences

SEQUENCES = drawn_sequences(300)
WORDS = ["the", "one", "in", "then", "on", "inn", "thin", "tin", "note", "hint"]


def scorer_of(folder, share=None, **how):
    """A scorer of a share, and the names of the batches that it asks the model for."""
    return counted(folder, division=Division(share), **how)


def calls_of(scorer):
    """Two calls of one run; half of the second's batches were in the first."""
    return (
        lambda: scorer.sums(SEQUENCES),
        lambda: scorer.sums([*SEQUENCES, *drawn_sequences(300, seed=1)]),
    )


def score_share(folder, index, count):
    """What a share asks the model for."""
    scorer, asked = scorer_of(folder, Share(index, count))
    with pytest.raises(ShareScored):
        list(each_scored(calls_of(scorer)))
    return asked


def alone():
    scorer, asked = scorer_of(None)
    return [call() for call in calls_of(scorer)], asked


def assert_same_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.loglik.tobytes() == other.loglik.tobytes()
        assert one.first.tobytes() == other.first.tobytes()


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shares_together_give_the_numbers_of_one_process_to_the_bit(tmp_path, count):
    parts = [collections.Counter(score_share(tmp_path, i, count)) for i in range(count)]
    asked = sum(parts, collections.Counter())
    expected, of_one = alone()
    # No batch is scored by two shares, whichever call asks for it.
    assert max(asked.values()) == 1
    assert set(asked) <= set(of_one)
    sizes = [part.total() for part in parts]
    assert max(sizes) - min(sizes) <= 2
    merging, asked_again = scorer_of(tmp_path)
    assert_same_bits([call() for call in calls_of(merging)], expected)
    assert asked_again == []


def test_lost_shares_are_named_once_and_finished(tmp_path, capsys):
    parts = {i: score_share(tmp_path, i, 8) for i in range(8) if i not in (2, 5, 7)}
    # One was killed; the last batches that it asked for were on their way.
    killed, asked = scorer_of(tmp_path, Share(5, 8))

    def interrupt(done, total):
        if len(asked) > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed.sums(SEQUENCES, interrupt)
    scored = {name for part in (*parts.values(), asked[:-2]) for name in part}
    merging, asked = scorer_of(tmp_path)
    found = [call() for call in calls_of(merging)]
    assert capsys.readouterr().err == (
        "jaxcontam: warning: 3 of 8 shares are missing: 2, 5, 7; they are scored here\n"
    )
    expected, of_one = alone()
    assert_same_bits(found, expected)
    assert asked and set(asked) <= set(of_one) - scored


def test_a_merge_names_all_that_is_missing_and_scores_nothing(tmp_path):
    score_share(tmp_path, 0, 3)
    scorer, asked = scorer_of(tmp_path)
    for count, names in ((2, "1, 2"), (1, "2")):
        scorer.division = Division(merges=True)
        with pytest.raises(SharesMissingError) as e:
            list(each_scored(calls_of(scorer)))
        assert str(e.value) == f"{count} of 3 shares are missing: {names}"
        score_share(tmp_path, 3 - count, 3)
    scorer.division = Division(merges=True)
    assert_same_bits(each_scored(calls_of(scorer)), alone()[0])
    assert asked == []


def test_a_share_says_what_it_scored_and_scores_of_another_machine_are_told(
    tmp_path, capsys
):
    scorer, asked = scorer_of(tmp_path, Share(1, 2))
    n = len(scorer.plan(SEQUENCES)[1])
    with pytest.raises(ShareScored) as e:
        scorer.sums(SEQUENCES)
    said = f"share 1 of 2: its {n // 2} of {n} batches are in {tmp_path}"
    assert (f"{e.value}", len(asked)) == (said, n // 2)
    other = dataclasses.replace(IDENTITY, device="other")
    scorer_of(tmp_path, identity=other)[0].sums(SEQUENCES)
    said = "holds scores of another model, machine or version"
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a model, another one, and a benchmark."""
    folder = tmp_path_factory.mktemp("shares")
    save(folder / "model")
    save_checkpoint(decoder(1), byte_tokenizer(), folder / "reference")
    rng = np.random.default_rng(40)
    lines = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(40)]
    (folder / "b.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_an_audit_in_shares_is_that_of_one_process_to_the_bit(
    files, capsys, monkeypatch
):
    monkeypatch.chdir(files)
    words = ["audit", "model", "b.txt", "--tests", "adjacency,stratified"]
    words += ["--reference", "reference", "--out"]
    for end in ("one", "two --shard 0/2", "two --shard 1/2", "two"):
        assert not (files / "two" / "report.json").exists()
        assert main([*words, *end.split()]) == 0
        said = capsys.readouterr()
        assert said.out.startswith(f"share {end[-3]} of 2: its ") == ("/" in end)
        assert "missing" not in said.err
    one, two = (
        json.loads((files / out / "report.json").read_text())["results"]
        for out in ("one", "two")
    )
    # The merge scored nothing itself.
    for first, second in zip(one, two, strict=True):
        own = {"tokens_scored": 0, "cached_tokens": second["cached_tokens"]}
        assert first | own == second
    with np.load("one/orders.npz") as first, np.load("two/orders.npz") as second:
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize(
    ("n_processes", "model", "expected"),
    [(1, 1, None), (3, 1, Share(2, 3)), (3, 8, None)],
)
def test_a_joined_process_has_a_share_unless_a_copy_spans_processes(
    n_processes, model, expected, monkeypatch
):
    monkeypatch.setattr(parts, "process_count", lambda: n_processes)
    monkeypatch.setattr(parts, "process_index", lambda: n_processes - 1)
    assert jax.local_device_count() < 8
    assert parts.share_of_process(parts.MeshShape(fsdp=model)) == expected


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
    tests = ["--tests", "direction,adjacency"]
    words = ["audit", str(pulse / "model"), str(benchmark), *tests]
    files = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as slow:
        # Nothing is compiled, and no weight is read.
        slow.setattr(cost, "batch_seconds", None)
        slow.setattr(weights, "_fill", None)
        assert main([*words, "--dry-run"]) == 0
    assert " to score. The store grows by " in " ".join(capsys.readouterr().out.split())
    # Nobody can score, and keep, what such a model would say.
    with pytest.raises(RuntimeError, match="deleted"):
        audit(load(str(pulse / "model"), weights=False), benchmark, order="random")
    assert main([*words, "--dry-run", "--json", "--price", "30"]) == 0
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
    pulse, benchmark, tmp_path, monkeypatch
):
    commit, made = ScoreStore.commit, []
    # An entry for each batch that a run scores and keeps.
    monkeypatch.setattr(
        ScoreStore, "commit", lambda self, rows: made.append(commit(self, rows))
    )
    words = ["score", str(pulse / "model"), str(benchmark), "--out"]
    first, second, third = (tmp_path / f"{name}.jsonl" for name in "abc")
    assert main([*words, str(first)]) == 0
    assert [path.name for path in tmp_path.glob("*.store")] == ["a.jsonl.store"]
    n_batches = len(made)
    assert main([*words, str(second), "--store", f"{first}.store"]) == 0
    assert main([*words, str(third), "--store", "none"]) == 0
    assert len(made) == n_batches > 0
    assert not (tmp_path / "c.jsonl.store").exists()
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
