"""The power study: its populations, its models, and a pulse run."""

import dataclasses
import json
import types

import numpy as np
import pytest

from eval.power import __main__ as power
from eval.power import designs, model
from eval.power.__main__ import Power
from eval.power.designs import POPULATIONS, Population
from eval.power.estimates import LEVELS
from eval.power.model import Variant, method_of, n_read, record_of
from eval.study import read_fields
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import OrderFile, plan_test
from train.population_models import DivergedError
from train.population_workers import Failure

pytestmark = pytest.mark.unoptimised

PULSE = designs.PULSE.study


@pytest.mark.parametrize("population", POPULATIONS.values(), ids=POPULATIONS)
def test_planted_copies_are_about_half_of_the_stream(population):
    study = population.study
    most = study.max_example_tokens * study.n_examples * sum(study.copies)
    assert 0.45 < most / study.n_tokens < 0.55


def test_seeds_of_populations_differ_and_none_was_tried():
    first, second = (
        set(range(one.first_seed, one.first_seed + one.n_models))
        for one in POPULATIONS.values()
    )
    assert not first & second and max(first | second) < 90_000


def test_tests_that_are_compared_read_as_many_passes():
    """Within a tenth of adjacency's: by plans of examples of equal length, unscored."""
    passes, study = {}, POPULATIONS["main"].study
    n = study.n_examples
    ids = tuple(np.full(20, i, np.int32) for i in range(n))
    benchmark = Benchmark("b", tuple(map(str, range(n))), (None,) * n)
    for variant in study.variants:
        test = plan_test(
            benchmark,
            Encoded(ids, 1, np.zeros(n, np.int64)),
            method_of(variant),
            prefix_id=0,
            context=study.preset.decoder.context,
            seed=1,
            n_orders=variant.n_orders,
        )
        for name, _ in variant.readings:
            passes[name] = n_read(test.layout) / (20 * n)
    compared = [value for name, value in passes.items() if "of 6" in name]
    assert compared == [pytest.approx(passes["adjacency"], rel=0.1)] * 2


@pytest.mark.parametrize(("n_shards", "n_orders"), [(4, 3), (10, 7)])
def test_shards_of_a_variant_are_as_many_as_it_says(n_shards, n_orders):
    variant = Variant(
        scored="sharded_t", n_orders=n_orders, n_shards=n_shards, readings=()
    )
    design = method_of(variant).design(
        OrderFile(n_examples=40, n_ids=800, context=64, seed=1, content_digest="ab"),
        n_orders,
    )
    sizes = (design.orders[:, 0] >= 0).sum(axis=1)
    assert design.orders.shape[:2] == (n_shards, n_orders + 1)
    assert sizes.sum() == 40 and np.ptp(sizes) <= 1


def test_variant_without_strata_of_its_own_is_the_method():
    for name in ("adjacency", "stratified", "reversal"):
        assert method_of(Variant(scored=name, readings=())) is order_method(name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("power")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eval.study.code_version", lambda: "a commit")
        code = Power(out=out, tiny=True, processes=1).run()
    return code, json.loads((out / "tiny/power.json").read_text()), out


def test_pulse_tests_every_set_of_every_model_at_every_level(finished):
    code, document, out = finished
    assert code == 0 and document["failures"] == []
    cells = {(r["test"], r["copies"]) for r in document["power"]}
    n_tests = sum(len(variant.readings) for variant in PULSE.variants)
    assert len(cells) == n_tests * len(PULSE.copies)
    assert len(document["power"]) == len(cells) * len(LEVELS)
    for found in document["power"]:
        assert found["n_models"] == 2
        assert 0 <= found["low"] <= found["n_rejected"] / 2 <= found["high"] <= 1
        assert 0 < found["passes"] <= 9
    (population,) = document["populations"]
    assert population["seeds"] == [1000, 1001]
    assert "python -m eval.power" in (out / "tiny/power.md").read_text()


def test_finished_models_are_not_made_again(finished, monkeypatch):
    _, document, out = finished
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")
    monkeypatch.setattr(power, "made", lambda job, tasks, **_: not_called(tasks))
    assert Power(out=out, tiny=True).run() == 0
    again = json.loads((out / "tiny/power.json").read_text())
    assert again["power"] == document["power"]
    assert again["earlier_cpu_seconds"] > 0
    monkeypatch.setattr("eval.study.code_version", lambda: "another commit")
    with pytest.raises(AssertionError):
        Power(out=out, tiny=True).run()
    assert Power(out=out, tiny=True, any_code=True).run() == 0


def not_called(tasks):
    assert not tasks
    return iter(())


def test_a_model_that_diverged_is_not_tested(monkeypatch):
    monkeypatch.setattr(
        model, "plan_model", lambda *_, seed: types.SimpleNamespace(rows=0)
    )
    monkeypatch.setattr(
        model, "train_scanned", lambda *_, seed: (0, np.full(3, np.nan))
    )
    monkeypatch.setattr(model, "local_scorer", None)
    with pytest.raises(DivergedError, match="not finite from step 1 on"):
        model.planted_model(PULSE, None, seed=0)


def test_populations_made_one_by_one_stand_in_one_table(
    finished, monkeypatch, tmp_path
):
    _, _, out = finished
    made = kept(out, 1000)
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
            found = dataclasses.replace(made, design=study.name, seed=seed)
            job.keep(study, found)
            yield (study, seed), found

    monkeypatch.setattr(power, "made", make)
    for name in small:
        assert Power(out=tmp_path, only=(name,)).run() == 0
    document = json.loads((tmp_path / "power.json").read_text())
    assert {about["name"] for about in document["populations"]} == {"one", "two"}


def test_a_model_that_fails_costs_the_others_nothing(finished, monkeypatch, tmp_path):
    _, document, out = finished
    records = {seed: kept(out, seed) for seed in (1000, 1001)}

    def one_fails(job, tasks, **_):
        for task in tasks:
            failed = task[1] == 1000
            yield task, Failure("OSError: full") if failed else records[task[1]]

    monkeypatch.setattr(power, "made", one_fails)
    assert Power(out=tmp_path, tiny=True).run() == 3
    found = json.loads((tmp_path / "tiny/power.json").read_text())
    assert [one["seed"] for one in found["failures"]] == [1000]
    assert {row["n_models"] for row in found["power"]} == {1}
    assert document["failures"] == []


def kept(out, seed):
    """The record of a model of the finished pulse run."""
    return record_of(read_fields(out / f"tiny/models/{PULSE.name}-{seed}.json"))
