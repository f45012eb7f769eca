"""`eval.speed`: its arithmetic in closed form, and a pulse run of every part."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eval.speed.__main__ import ON_DEMAND, PARTS, main
from eval.speed.growth import exponents, measure_growth
from eval.speed.host import exact_p, fresh_p
from eval.speed.measure import interleaved, median_ratio, real_lengths
from eval.speed.table import judge, print_measured

ROOT = Path(__file__).resolve().parent.parent


class Clock:
    """Time that ways spend by saying so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds


def test_ways_take_turns_and_only_their_own_time_counts():
    clock, calls = Clock(), []

    def way(name, seconds):
        def run():
            calls.append(name)
            clock.spend(seconds)
            return len(calls)

        return run

    timed = interleaved({"a": way("a", 6), "b": way("b", 2)}, 3, clock=clock)
    assert calls == ["a", "b"] * 4
    assert timed.seconds == {"a": [6, 6, 6], "b": [2, 2, 2]}
    assert timed.warm_seconds == {"a": 6, "b": 2}
    assert timed.last == {"a": 7, "b": 8}
    assert timed.ratio("a", "b") == 3


def test_ratio_is_the_median_of_rounds_not_the_ratio_of_medians():
    assert median_ratio([1, 10, 3], [1, 5, 1]) == 2


def test_real_lengths_have_the_stated_law():
    lengths = np.array(real_lengths(4000, tiny=False))
    assert lengths.min() >= 8
    assert lengths.max() <= 512
    # Standard error of the median of 4,000: 60 * 1.25 * 0.8 / sqrt(4000) = 0.95.
    assert abs(np.median(lengths) - 60) < 4
    assert real_lengths(64, tiny=False) == real_lengths(64, tiny=False)


@pytest.mark.parametrize(("share", "met"), [(0.05, True), (0.0501, False)])
def test_target_is_met_at_its_bound_and_not_beyond(share, met):
    (row,) = judge({"store": {"share": share}})
    assert row["met"] is met
    assert row["wanted"] == "at most 5 %"


def test_lower_bounds_are_lower_bounds():
    cell = {"ratio_to_scratch": 1.79}
    (row,) = judge({"pairs": {"64/64": cell}})
    assert (row["met"], row["measured"]) == (False, "1.79 x")


@pytest.mark.parametrize("way", [exact_p, fresh_p])
def test_both_ways_to_draw_orders_give_the_share_of_all_orders(way):
    rng = np.random.default_rng(3)
    pairs = rng.normal(size=(2, 5, 5)) + 0.4 * np.eye(5, k=1)
    sums = [
        np.array([matrix[order[:-1], order[1:]].sum() for order in orders_of_five()])
        for matrix in pairs
    ]
    published = sum(np.trace(matrix, 1) for matrix in pairs)
    share = np.mean(np.add.outer(*sums) >= published - 1e-9)
    assert 0.02 < share < 0.5
    # Four standard errors of 20,000 draws of the whole file.
    error = 4 * np.sqrt(share * (1 - share) / 20_000)
    assert abs(way(pairs, 20_000, seed=0) - share) < error


def test_seconds_of_the_square_have_the_exponent_two():
    seconds = [3e-6 * n**2 for n in (1_000, 10_000, 100_000)]
    np.testing.assert_allclose(exponents((1_000, 10_000, 100_000), seconds), 2.0)


def test_growth_is_of_reading_checks_and_planning(capsys):
    found = measure_growth(5, 1, tiny=True)
    assert set(found["seconds"]) == {"load", "checks", "plan"}
    assert all(len(own) == 2 for own in found["seconds"].values())
    measured = {"cpu": "c", "versions": "v", "targets": [], "growth": found}
    print_measured(measured, Console(width=100))
    said = capsys.readouterr().out
    assert "checks" in said
    assert max(map(len, said.splitlines())) <= 100


def orders_of_five():
    return [np.array(order) for order in itertools.permutations(range(5))]


def test_torch_batches_hold_each_sequence_once_sorted_by_length():
    torch_ways = pytest.importorskip("eval.speed.torch_ways")
    lengths = [5, 900, 40, 45, 4096, 7]
    batches = torch_ways.batches_of([np.zeros(n) for n in lengths], batch_tokens=100)
    assert batches == [[0, 5], [2, 3], [1], [4]]


def pulse_run(out, *words):
    """What a pulse run measured; a process of its own, because it pins itself."""
    pytest.importorskip("torch")
    command = ["-m", "eval.speed", "--tiny", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, *command, *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    return json.loads((out / "speed.json").read_text())


@pytest.mark.slow
@pytest.mark.parity
def test_every_way_gives_the_same_scores(tmp_path):
    parts = [name for name in PARTS if name.startswith(("kernel", "real"))]
    found = pulse_run(tmp_path, "--only", *parts, "pairs", "generation")
    for part in parts:
        for length, cell in found[part]["cells"].items():
            ways = set(cell["tokens_per_second"])
            assert ("jaxcontam_alone" in ways) == (length == "real")
            # Float32 sums in another order; operands of 8 bits are no parity.
            assert cell["largest_difference"] < 1e-4
            assert cell["largest_difference_bf16"] < 0.5
    for cell in found["pairs"].values():
        assert cell["largest_difference"] < 1e-4
    assert found["generation"]["share_same"] == 1


@pytest.mark.slow
def test_a_pulse_run_measures_every_part(tmp_path):
    found = pulse_run(tmp_path)
    assert set(PARTS) - set(ON_DEMAND) <= found.keys()
    assert found["compiled"]["same_bits"]
    assert found["compiled"]["n_files"] > 0


def test_unknown_part_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed", "--only", "momens"])
    assert main() == 2
    error = capsys.readouterr().err
    assert "unknown part 'momens'" in error
    assert "did you mean 'moments'?" in error
