"""The power study: its populations, its models, and a pulse run."""

import dataclasses
import math

import numpy as np
import pytest

from eval.power import __main__ as power
from eval.power import estimates
from eval.power.__main__ import Power
from eval.power.estimates import LEVELS, dup50_rows, half_power_copies, power_table
from eval.power.models import (
    POPULATIONS,
    PULSE,
    Variant,
    maker,
    method_of,
    n_read,
)
from eval.python_docs import read_python_docs
from eval.study import exit_code, read_fields
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.order_test import OrderFile, plan_test
from jaxcontam.scoring.seam import SEAM, WHOLE
from train.population_device import train_together
from train.population_models import DivergedError

pytestmark = pytest.mark.unoptimised


def test_tests_that_are_compared_read_as_many_passes():
    """Within a tenth of adjacency's: by plans of examples of equal length, unscored."""
    passes, study = {}, POPULATIONS["main"]
    n, context = study.n_examples, study.config.decoder.context
    ids = tuple(np.full(20, i, np.int32) for i in range(n))
    encoded = Encoded(ids, 1, np.zeros(n, np.int64))
    benchmark = Benchmark("b", tuple(map(str, range(n))), (None,) * n)
    asked = dict(prefix_id=0, context=context, seed=1)
    for variant in study.variants:
        method, m = method_of(variant), variant.n_orders
        test = plan_test(benchmark, encoded, method, n_orders=m, **asked)
        for name, _ in variant.readings:
            passes[name] = n_read(test.layout) / (20 * n)
    compared = [value for name, value in passes.items() if "of 6" in name]
    assert compared == [pytest.approx(passes["adjacency"], rel=0.1)] * 2


def test_a_seam_is_judged_by_the_share_of_mean_z_that_it_leaves():
    """And its variants score so much of each pair, whole pairs first."""
    variants = POPULATIONS["seam_60"].variants
    assert variants[0].seam == WHOLE
    assert SEAM in [variant.seam for variant in variants]
    tests = ("all read, all scored", "48 read, 32 scored")

    def record(z):
        rows = [
            {"test": test, "copies": copies, "effect": 2 * one, "effect_se": 2.0}
            for test, one in zip(tests, z, strict=True)
            for copies in (0, 4)
        ]
        return {"design": "seam_60", "rows": rows}

    (grid,) = estimates.seam_grids([record((3.0, 2.0)), record((1.0, 1.8))])
    assert grid.rows == (
        ("all read", "1.000", ""),
        ("48 read", "", "0.950"),
    )


@pytest.mark.parametrize(("n_shards", "n_orders"), [(4, 3), (10, 7)])
def test_shards_of_a_variant_are_as_many_as_it_says(n_shards, n_orders):
    asked = {"n_orders": n_orders, "n_shards": n_shards, "readings": ()}
    method = method_of(Variant(scored="sharded_t", **asked))
    file = OrderFile(n_examples=40, n_ids=800, context=64, seed=1, content_digest="ab")
    orders = method.design(file, n_orders).orders
    sizes = (orders[:, 0] >= 0).sum(axis=1)
    assert orders.shape[:2] == (n_shards, n_orders + 1)
    assert sizes.sum() == 40 and np.ptp(sizes) <= 1


def test_pulse_tests_every_set_of_every_model_at_every_level(study):
    document = study("power").document
    cells = {(r["test"], r["copies"]) for r in document["power"]}
    n_tests = sum(len(variant.readings) for variant in PULSE.variants)
    assert len(cells) == n_tests * len(PULSE.copies)
    assert len(document["power"]) == len(cells) * len(LEVELS)
    for found in document["power"]:
        assert found["n_models"] == 2 and 0 < found["passes"] <= 9
        assert 0 <= found["low"] <= found["n_rejected"] / 2 <= found["high"] <= 1


def test_models_side_by_side_are_those_of_one_after_the_other(study, monkeypatch):
    """And one that diverges costs the others nothing."""
    folder, docs = study("power").out / "tiny/models", read_python_docs()
    tasks = [(PULSE, seed) for seed in (1000, 1001, 1002)]
    questions = [one.text for one in docs.questions]

    def together(*given, **how):
        graphdef, states, losses_MN = train_together(*given, **how)
        return graphdef, states, np.where([[False], [False], [True]], np.nan, losses_MN)

    monkeypatch.setattr("eval.population.train_together", together)
    make = maker(docs.documents, questions, chunks=[tasks])
    with pytest.raises(DivergedError, match="not finite from step 1"):
        make(tasks[2])
    for task in tasks[:2]:
        found, expected = make(task), read_fields(folder / f"pulse-{task[1]}.json")
        assert found["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        effects = [[row["effect"] for row in one["rows"]] for one in (found, expected)]
        assert effects[0] == pytest.approx(effects[1], abs=1e-4)


def test_populations_one_by_one_stand_in_one_table(study, monkeypatch, tmp_path):
    """And a model that fails costs the others nothing."""
    folder = study("power").out / "tiny/models"
    made = read_fields(folder / f"{PULSE.name}-1000.json")
    small = [dataclasses.replace(PULSE, name=n, first_seed=1) for n in ("one", "two")]
    monkeypatch.setattr(power, "POPULATIONS", {one.name: one for one in small})
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")

    def make(task):
        one, seed = task
        if (one.name, seed) == ("two", 1):
            raise OSError("full")
        return made | {"design": one.name, "seed": seed}

    monkeypatch.setattr(power, "maker", lambda *_, **__: make)
    asked = dict(out=tmp_path, models=2, processes=1)
    first, found = (Power(only=(name,), **asked).run() for name in ("one", "two"))
    assert exit_code(first) is first and exit_code(found) == 3
    seeds = {about["name"]: about["seeds"] for about in found["populations"]}
    assert seeds == {"one": [1, 2], "two": [2]}
    assert found["failed"] == {"two-1": "OSError: full"}


def row(test, copies, p):
    known = {"effect": 0.1, "passes": 10.0}
    return {"test": test, "copies": copies, "log10_p": math.log10(p), **known}


def record(*rows):
    return {"design": "d", "rows": rows}


def test_power_counts_pvalues_at_the_level_and_below():
    p_values = (1e-300, 0.001, 0.0011, 0.05, 0.3)
    rows = [record(row("a", 4, p)) for p in p_values]
    found = power_table(rows)
    counts = [(one.level, one.n_rejected, one.n_models) for one in found]
    assert counts == [(0.001, 2, 5), (0.01, 3, 5), (0.05, 4, 5)]
    assert 10 ** found[0].median_log10_p == pytest.approx(0.0011)


@pytest.mark.parametrize(
    ("power", "copies"),
    [
        ((0.0, 0.5, 1.0, 1.0), 1.0),
        ((0.0, 0.2, 0.8, 1.0), math.sqrt(2)),
        ((0.0, 1.0, 1.0, 1.0), 0.5),
        ((0.0, 0.1, 0.2, 0.49), math.inf),
        # The dip at 2 copies is pooled with the peak before it: .25 from 1 to 2.
        ((0.0, 0.4, 0.1, 0.75), 2 * math.sqrt(2)),
        ((0.5, 0.6, 0.7, 0.8), 0.0),
    ],
)
def test_copies_of_half_power(power, copies):
    (found,) = half_power_copies((0, 1, 2, 4), np.array([power]))
    assert found == pytest.approx(copies)


def test_half_power_interval_covers_as_often_as_it_says(monkeypatch):
    """100 experiments of 60 models whose power is known at every count."""
    monkeypatch.setattr(estimates, "LEVELS", (0.05,))
    counts, truth = (1, 2, 4, 8), np.array([0.1, 0.35, 0.7, 0.95])
    (true_copies,) = half_power_copies(counts, truth[None])
    rng = np.random.default_rng(3)
    n_covered = 0
    for _ in range(100):
        p_MC = np.where(rng.random((60, 4)) < truth, 1e-9, 1.0)
        records = [record(*map(row, "aaaa", counts, p_C)) for p_C in p_MC]
        found = dup50_rows(records)[0]
        n_covered += found.low <= true_copies <= found.high
    # 95 % less 3.3 standard errors of 100 experiments.
    assert n_covered / 100 > 0.95 - 3.3 * math.sqrt(0.95 * 0.05 / 100)


def test_half_power_is_said_of_sets_of_each_count_and_forty_models():
    records = [record(*(row("a", n, 1.0) for n in (0, 1, 2, 4))) for _ in range(5)]
    for found in dup50_rows(records):
        numbers = found.copies, found.low, found.high, found.most
        assert numbers == (None, None, None, 4), "above the most"
    rows = [row("a", n, 0.5) for n in range(4)]
    for wrong in ([*rows, rows[-1]], rows[1:]):
        assert dup50_rows([record(*wrong)]) == []
    for n_models, expected in ((39, False), (40, True)):
        found = dup50_rows([record(*rows)] * n_models)
        assert {one.has_interval for one in found} == {expected}
