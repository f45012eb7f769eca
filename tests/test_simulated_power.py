"""Simulated power: draws, scores and p-values beside the library's, and a pulse run."""

import functools
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from eval.simulated_power import __main__ as study
from eval.simulated_power.cells import CONTEXT, LEVELS, examples_needed, planner_cells
from eval.simulated_power.laws import LAWS, Pairs, draw_pairs
from eval.simulated_power.statistics import (
    is_reversal,
    order_parts,
    p_values,
    saddlepoint_tail,
)
from jaxcontam.stats.adjacency import double_centred, path_moments
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.power import drawn_design, pair_design, reversal_design

N_SETS, N_STRATA, SIZE = 100, 10, 6
MEASURED = ("t3", "unequal strata", "unequal examples", "symmetry .9", "item effects")
SIZES = [(SIZE, N_STRATA - 1), (SIZE - 1, 1)]
OFF_DIAGONAL = ~np.eye(SIZE, dtype=bool)


def key_of(seed):
    return jax.random.key(seed, impl="rbg")


tails = jax.jit(jax.vmap(lambda rows: saddlepoint_tail(rows, rows[:, 0].sum())))


@pytest.fixture(scope="module")
def entries():
    """Law -> off-diagonal entries (sets, strata, pairs), and those across from them."""
    found = {}
    for name in MEASURED:
        draw = jax.jit(lambda key, law=LAWS[name]: draw_pairs(key, law, SIZES, N_SETS))
        pairs, _ = draw(key_of(90_000))
        noise = np.asarray(pairs.noise, np.float64)
        swapped = noise.swapaxes(-1, -2)
        found[name] = noise[..., OFF_DIAGONAL], swapped[..., OFF_DIAGONAL]
    return found


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("t3", scipy.stats.t(3, scale=1 / math.sqrt(3))),
        ("symmetry .9", scipy.stats.norm()),
    ],
)
def test_entries_follow_the_law_that_they_are_named_after(entries, name, law):
    values = entries[name][0][:, :, 0].ravel()
    # One entry a stratum: independent, whatever the symmetry.
    assert scipy.stats.kstest(values, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", [n for n in MEASURED if n != "t3"])
def test_chance_adds_one_standard_deviation_and_item_effects_their_own(entries, name):
    squares = (entries[name][0] ** 2).mean(axis=(1, 2))
    # Sets are independent; five standard errors over 100 of them. Scales are set so
    # that a whole file has 1, and one of the file's ten strata is not in here.
    expected = 1 + 2 * LAWS[name].item_effects ** 2
    assert abs(squares.mean() - expected) < 5 * squares.std() / math.sqrt(N_SETS) + 1e-6


@pytest.mark.parametrize("name", ["t3", "unequal examples", "symmetry .9"])
def test_entries_across_the_diagonal_correlate_as_the_law_says(entries, name):
    one, other = entries[name]
    products = np.sign(one * other).mean(axis=(1, 2))
    # Of two normals the signs agree with probability 1/2 + arcsin(rho) / pi.
    expected = 2 / math.pi * math.asin(LAWS[name].symmetry)
    assert abs(products.mean() - expected) < 5 * products.std() / math.sqrt(N_SETS)


@pytest.mark.parametrize("name", ["first fifth", "random fifth"])
def test_gains_are_the_effect_on_average(name):
    pairs = jax.jit(lambda key: draw_pairs(key, LAWS[name], SIZES, N_SETS))(key_of(3))
    weights = np.concatenate(
        [np.asarray(own.weights).reshape(N_SETS, -1) for own in pairs], axis=1
    )
    # A random fifth: five standard errors of 100 x 49 weights of variance 4.
    error = 5 * 2 / math.sqrt(weights.size) if name == "random fifth" else 1e-5
    assert abs(weights.mean() - 1) < error
    if name == "first fifth":
        assert (np.diff(weights, axis=1) <= 0).all()


@pytest.mark.parametrize(("K", "M"), [(28, 2), (8, 8)])
def test_saddlepoint_tail_is_that_of_counting(K, M):
    rng = np.random.default_rng(K)
    rows = rng.normal(size=(60, K, M))
    rows[:, :, 0] += rng.uniform(0.2, 1.2, size=(60, 1))
    centred = rows - rows.mean(axis=2, keepdims=True)
    found = tails(jnp.asarray(centred, jnp.float32))
    counted = [10 ** lattice_tail(x - x[:, :1], 1e-9).log10_upper for x in rows]
    # Where a level could be. These rows are fewer than those of the study, so that all
    # their sums can be counted: the formula's error falls as rows are added.
    at_level = [n for n, p in enumerate(counted) if 2e-4 < p < 0.1]
    assert len(at_level) > 10
    ratios = np.log(np.asarray(found)[at_level] / np.array(counted)[at_level])
    assert np.abs(ratios).mean() < 0.02
    assert np.abs(ratios).max() < 0.2


def test_rows_without_spread_or_excess_give_one():
    rows = np.zeros((60, 28, 2), np.float32)
    rows[1:] = [-1, 1]
    rows[2:, :, :] = [1, -1]
    found = tails(jnp.asarray(rows))
    assert found[0] == found[1] == 1
    # All 28 rows at their largest: 2^-28; the formula is finite where it has no root.
    assert 0 <= found[2] < 1e-7


@pytest.fixture(scope="module")
def pairs():
    sizes = [(4, 3)]
    return jax.jit(lambda key: draw_pairs(key, LAWS["normal"], sizes, 400))(key_of(4))


@functools.partial(jax.jit, static_argnums=0)
def drawn_parts(design, pairs, key):
    return order_parts(design, pairs, key)


def parts_of(design, pairs, seed=5):
    return drawn_parts(design, pairs, key_of(seed))


def first_stratum(own):
    return Pairs(own.noise[:, :1], own.weights[:, :1])


def paths(matrix_SS):
    """Sums of all orders."""
    size = len(matrix_SS)
    return np.array(
        [
            matrix_SS[list(order[:-1]), list(order[1:])].sum()
            for order in itertools.permutations(range(size))
        ]
    )


@pytest.mark.parametrize("rule", ["sum", "rank"])
def test_random_orders_are_uniform_and_the_published_one_comes_first(pairs, rule):
    (own,) = pairs
    if rule == "rank":
        own = first_stratum(own)
    design = drawn_design(12 if rule == "sum" else 4, len(own.noise[0]), 9, rule=rule)
    parts = parts_of(design, [own])
    counts = np.zeros(24)
    for d in range(400 if rule == "sum" else 5):
        for k in range(design.n_strata):
            all_paths = paths(np.asarray(own.noise[d, k]))
            scores = np.asarray(parts.chance[d, k])
            assert scores[0] == pytest.approx(all_paths[0], abs=1e-5)
            places = np.abs(scores[1:, None] - all_paths).argmin(axis=1)
            np.testing.assert_allclose(all_paths[places], scores[1:], atol=1e-5)
            counts[places] += 1
            kept = paths(np.eye(4, k=1))[places]
            np.testing.assert_array_equal(np.asarray(parts.gain[d, k, 1:]), kept)
    assert np.asarray(parts.gain[..., 0]) == pytest.approx(3.0)
    if rule == "sum":
        # 10,800 draws of 24 orders.
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_whole_file_shares_its_orders_within_a_batch_only(pairs):
    (own,) = pairs
    own = first_stratum(own)
    design = drawn_design(4, 1, 9, rule="rank")
    first, again = (parts_of(design, [own], seed) for seed in (5, 6))
    assert (first.gain == first.gain[:1]).all()
    assert (first.gain != again.gain).any()
    assert len(np.unique(np.asarray(first.gain[0]))) > 2


def test_pairs_are_centred_and_their_law_has_the_variance_of_all_orders(pairs):
    (own,) = pairs
    design = pair_design(12, 3, log10_orders=lambda s: 1.0)
    parts = parts_of(design, [own])
    assert parts.variance is not None
    effect = 0.7
    for d, k in ((0, 0), (7, 2)):
        matrix = np.asarray(own.noise[d, k], np.float64) + effect * np.eye(4, k=1)
        centred = double_centred(matrix)
        score = parts.chance[d, k, 0] + effect * parts.gain[d, k, 0]
        assert score == pytest.approx(np.trace(centred, 1), abs=1e-5)
        variance = parts.variance[d, k] @ jnp.array([1, effect, effect**2])
        assert variance == pytest.approx(path_moments(centred)[1], rel=1e-4)


def test_reversal_compares_both_ways(pairs):
    (own,) = pairs
    design = reversal_design(12, 3)
    assert is_reversal(design)
    parts = parts_of(design, [own])
    matrix = np.asarray(own.noise[3, 1])
    expected = [np.trace(matrix, 1), np.trace(matrix, -1)]
    np.testing.assert_allclose(parts.chance[3, 1], expected, atol=1e-5)
    np.testing.assert_array_equal(parts.gain[3, 1], [3, 0])


def test_t_test_is_that_of_scipy(pairs):
    (own,) = pairs
    design = drawn_design(12, 3, 9, rule="t")
    parts = parts_of(design, [own])
    found = p_values(design, parts, jnp.float32(0.4))
    scores = np.asarray(parts.chance + 0.4 * parts.gain, np.float64)
    gains = scores[..., 0] - scores[..., 1:].mean(axis=-1)
    expected = scipy.stats.ttest_1samp(gains, 0, axis=1, alternative="greater").pvalue
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_planner_cells_are_what_the_plan_command_asks_for(capsys):
    from jaxcontam.cli import main

    words = f"plan --effect 0.5 --sd 1 --example-tokens 32 --context {CONTEXT} --json"
    assert main(words.split()) == 0
    plan = json.loads(capsys.readouterr().out)
    for test in plan["tests"]:
        if test["method"] != "permutation":
            assert examples_needed(test["method"], 0.5) == test["examples_needed"]


@pytest.fixture(scope="module")
def pulse(tmp_path_factory):
    """Document and folder of a pulse run, on a seed that the study does not use."""
    out = tmp_path_factory.mktemp("simulated_power")
    run = study.SimulatedPower(tiny=True, seed=90_000, out=out)
    return run, run.run(), out / "tiny"


def shares(document, test):
    (cell,) = [c for c in document["cells"] if c["cell"]["test"] == test]
    return {(share["name"], share["level"]): share for share in cell["shares"]}


TESTS = ["adjacency", "stratified", "permutation"]


@pytest.mark.parametrize("test", TESTS)
def test_a_clean_file_is_accused_as_often_as_the_level_says(pulse, test):
    found = shares(pulse[1], test)["none", 0.05]["simulated"]
    # Four standard errors of 500 files.
    assert abs(found - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 500)


@pytest.mark.parametrize("test", TESTS)
def test_the_formula_is_near_what_is_simulated(pulse, test):
    share = shares(pulse[1], test)["wanted", 0.001]
    # Four standard errors of 500 files, and .04 that the formula may be off by.
    error = 4 * math.sqrt(0.8 * 0.2 / 500) + 0.04
    assert abs(share["simulated"] - share["formula"]) < error


@pytest.mark.parametrize("test", TESTS)
def test_more_effect_and_higher_levels_find_more(pulse, test):
    found = shares(pulse[1], test)
    ladder = ["none", "0.4", "0.7", "wanted", "1.3"]
    for level in LEVELS:
        powers = [found[name, level]["simulated"] for name in ladder]
        assert powers == sorted(powers)
    for name in ladder:
        powers = [found[name, level]["simulated"] for level in sorted(LEVELS)]
        assert powers == sorted(powers)


@pytest.mark.parametrize("test", TESTS)
def test_p_values_are_the_librarys(pulse, test):
    (check,) = [check for check in pulse[1]["checks"] if check["test"] == test]
    # Adjacency sees all orders through 256 of them; the library's bracket is .03 wide.
    width = 0.5 if test == "adjacency" else 0.03
    assert all(abs(ratio) < width for ratio in check["log_ratios"])


def test_finished_cells_are_kept_and_tables_made_again(pulse, capsys):
    _, document, out = pulse
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*.json")}
    assert len(before) == len(document["cells"]) == 3
    again = study.SimulatedPower(
        tiny=True, seed=90_000, out=out.parent, tables=True, any_code=True
    ).run()
    assert again["cells"] == document["cells"]
    assert again["checks"] == document["checks"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "sets / s" in capsys.readouterr().out
    assert (out / "difference.svg").read_text().startswith("<svg")


def test_a_pulse_run_writes_over_nothing_of_a_full_one(pulse):
    assert [path.name for path in pulse[2].parent.iterdir()] == ["tiny"]


def test_cells_of_other_seeds_and_sizes_are_kept(tmp_path, monkeypatch):
    (cell,) = planner_cells([1.0])[:1]
    monkeypatch.setattr(study.SimulatedPower, "_cells", lambda self: [cell])
    for made in ("finish_study", "grids", "numbers", "difference_svg"):
        monkeypatch.setattr(study, made, lambda *_, **__: {})
    result = study.CellResult(
        cell=cell,
        n_sets=500,
        n_strata=3,
        n_orders=None,
        spread=1.0,
        shares=(),
        cpu_seconds=1.0,
    )
    monkeypatch.setattr(study, "simulate", lambda *_, **__: (result, None))
    for flags in ({"sets": 500}, {"sets": 500, "seed": 2}, {"sets": 600}):
        study.SimulatedPower(out=tmp_path, **flags).run()
    assert len(list(tmp_path.glob("cells/*.json"))) == 3


def test_cost_of_a_cell_holds_compilation_and_check(pulse):
    out = pulse[2]
    kept = [json.loads(path.read_text()) for path in out.glob("cells/*.json")]
    for fields in kept:
        assert fields["cpu_seconds"] > fields["result"]["cpu_seconds"]
    again = study.SimulatedPower(
        tiny=True, seed=90_000, out=out.parent, tables=True, any_code=True
    ).run()
    total = sum(fields["cpu_seconds"] for fields in kept)
    # Rounded to a tenth.
    assert again["earlier_cpu_seconds"] == pytest.approx(total, abs=0.051)


def test_tables_of_nothing_say_what_to_do(tmp_path, monkeypatch, capsys):
    words = ["x", "--tables", "--tiny", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    assert study.main() == 2
    assert capsys.readouterr().err == (
        f"eval.simulated_power: error: {tmp_path / 'tiny'}: no finished cell of these "
        "flags and this code\n  hint: leave out --tables, or add --any-code\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_planned_files_are_of_the_planned_power():
    for cell in planner_cells([1.0]):
        result, _ = study.simulate(cell, 4_000, seed=90_001)
        share = result.share("wanted", 0.001)
        # Five standard errors; and with 3 strata of 8 the formula is a rough one.
        assert abs(share.simulated - share.formula) < 5 * share.se + 0.06
