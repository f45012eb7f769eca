"""The power study: its populations, its models, and a pulse run."""

import dataclasses
import json
import math
import types

import numpy as np
import pytest
from scipy import optimize

from eval.power import __main__ as power
from eval.power import designs, estimates, model
from eval.power.__main__ import Power
from eval.power.designs import POPULATIONS, Population
from eval.power.estimates import (
    LEVELS,
    dup50_rows,
    half_power_copies,
    monotone,
    power_table,
)
from eval.power.model import ModelRecord, Outcome, Variant, method_of, n_read, record_of
from eval.study import read_fields
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.order_test import OrderFile, plan_test
from train.population_models import DivergedError
from train.population_workers import Failure

pytestmark = pytest.mark.unoptimised

PULSE = designs.PULSE.study


def test_tests_that_are_compared_read_as_many_passes():
    """Within a tenth of adjacency's: by plans of examples of equal length, unscored."""
    passes, study = {}, POPULATIONS["main"].study
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


@pytest.mark.parametrize(("n_shards", "n_orders"), [(4, 3), (10, 7)])
def test_shards_of_a_variant_are_as_many_as_it_says(n_shards, n_orders):
    asked = {"n_orders": n_orders, "n_shards": n_shards, "readings": ()}
    method = method_of(Variant(scored="sharded_t", **asked))
    file = OrderFile(n_examples=40, n_ids=800, context=64, seed=1, content_digest="ab")
    orders = method.design(file, n_orders).orders
    sizes = (orders[:, 0] >= 0).sum(axis=1)
    assert orders.shape[:2] == (n_shards, n_orders + 1)
    assert sizes.sum() == 40 and np.ptp(sizes) <= 1


@pytest.fixture
def records(study):
    """The records of the models of a pulse run, by seed."""
    folder = study("power").out / "tiny/models"
    names = {seed: folder / f"{PULSE.name}-{seed}.json" for seed in (1000, 1001)}
    return {seed: record_of(read_fields(path)) for seed, path in names.items()}


def numbers(folder):
    return json.loads((folder / "power.json").read_text())


def test_pulse_tests_every_set_of_every_model_at_every_level(study):
    document = study("power").document
    assert document["failures"] == []
    cells = {(r["test"], r["copies"]) for r in document["power"]}
    n_tests = sum(len(variant.readings) for variant in PULSE.variants)
    assert len(cells) == n_tests * len(PULSE.copies)
    assert len(document["power"]) == len(cells) * len(LEVELS)
    for found in document["power"]:
        assert found["n_models"] == 2 and 0 < found["passes"] <= 9
        assert 0 <= found["low"] <= found["n_rejected"] / 2 <= found["high"] <= 1
    assert [one["seeds"] for one in document["populations"]] == [[1000, 1001]]


def test_a_model_that_diverged_is_not_tested(monkeypatch):
    rows = types.SimpleNamespace(rows=0)
    monkeypatch.setattr(model, "plan_model", lambda *_, seed: rows)
    losses = np.full(3, np.nan)
    monkeypatch.setattr(model, "train_scanned", lambda *_, seed: (0, losses))
    monkeypatch.setattr(model, "local_scorer", None)
    with pytest.raises(DivergedError, match="not finite from step 1 on"):
        model.planted_model(PULSE, None, seed=0)


def test_populations_made_one_by_one_stand_in_one_table(records, monkeypatch, tmp_path):
    small = {
        name: Population(
            study=dataclasses.replace(PULSE, name=name), n_models=1, first_seed=1
        )
        for name in ("one", "two")
    }
    monkeypatch.setattr(power, "POPULATIONS", small)
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")

    def make(job, tasks, **_):
        for study, seed in tasks:
            found = dataclasses.replace(records[1000], design=study.name, seed=seed)
            job.keep(study, found)
            yield (study, seed), found

    monkeypatch.setattr(power, "made", make)
    for name in small:
        assert Power(out=tmp_path, only=(name,)).run() == 0
    found = {about["name"] for about in numbers(tmp_path)["populations"]}
    assert found == {"one", "two"}


def test_a_model_that_fails_costs_the_others_nothing(records, monkeypatch, tmp_path):
    def one_fails(job, tasks, **_):
        for task in tasks:
            failed = task[1] == 1000
            yield task, Failure("OSError: full") if failed else records[task[1]]

    monkeypatch.setattr(power, "made", one_fails)
    assert Power(out=tmp_path, tiny=True).run() == 3
    found = numbers(tmp_path / "tiny")
    assert [one["seed"] for one in found["failures"]] == [1000]
    assert {row["n_models"] for row in found["power"]} == {1}


def row(test, copies, p):
    return Outcome(
        test=test,
        copies=copies,
        log10_p=math.log10(p),
        effect=0.1,
        effect_se=0.05,
        mde=0.2,
        n_strata=30,
        n_orders=9,
        passes=10.0,
    )


def record(*rows, seed=0):
    counts = ("n_examples", "n_parameters", "n_tokens", "n_canary_tokens")
    seconds = dict.fromkeys(("loss", "train_seconds", "test_seconds"), 1.0)
    numbers = dict.fromkeys(counts, 1) | seconds
    return ModelRecord(design="d", seed=seed, rows=rows, **numbers)


def test_power_counts_pvalues_at_the_level_and_below():
    p_values = (1e-300, 0.001, 0.0011, 0.05, 0.3)
    found = power_table(
        [record(row("a", 4, p), seed=i) for i, p in enumerate(p_values)]
    )
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


def test_rising_fit_is_isotonic_regression():
    rng = np.random.default_rng(1)
    values = rng.random((50, 7)).round(1)
    for values_C, fit in zip(values, monotone(values), strict=True):
        assert fit == pytest.approx(optimize.isotonic_regression(values_C).x)


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
    assert (
        dup50_rows([record(*rows, rows[-1])]) == dup50_rows([record(*rows[1:])]) == []
    )
    for n_models, expected in ((39, False), (40, True)):
        found = dup50_rows([record(*rows)] * n_models)
        assert {one.has_interval for one in found} == {expected}
