"""What order tests cannot see: records, tables, a pulse run."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from eval.blind_spots import __main__ as study
from eval.blind_spots import model as models
from eval.blind_spots.__main__ import PULSE, BlindSpots
from eval.blind_spots.forms import (
    FORMS,
    UNSEEN,
)
from eval.blind_spots.model import (
    ModelRecord,
)
from eval.blind_spots.seen import (
    COPIED,
    SCORES,
    VARIANTS_WITHOUT,
    Seen,
    controls_of,
)
from eval.blind_spots.table import cells, grids, share_interval
from eval.python_docs import PythonDocs
from jaxcontam.data.manifest import read_manifest
from jaxcontam.errors import InputError
from tests.blind_spot_questions import made_up_questions

pytestmark = pytest.mark.unoptimised


def made_up(seed, rows, scale="s"):
    return ModelRecord(
        scale=scale,
        copies=10,
        seed=seed,
        n_parameters=1,
        n_tokens=1,
        n_planted_tokens=1,
        corpus_digest="d",
        code="c",
        cpu_seconds=1.0,
        rows=tuple(rows),
    )


def test_found_counts_pvalues_at_the_level_and_below():
    records = [
        made_up(
            i, [Seen(form="block", method="adjacency", log10_p=math.log10(p), tokens=2)]
        )
        for i, p in enumerate((1e-300, 0.001, 0.0011, 0.3))
    ]
    (cell,) = cells(records)
    assert (cell.n_models, cell.n_found) == (4, 2)
    assert cell.found_low < 0.5 < cell.found_high
    assert cell.median_log10_p == pytest.approx((-3 + math.log10(0.0011)) / 2)
    assert cell.mean is None


def test_mean_and_interval_are_students_over_models():
    aucs = (0.7, 0.8, 0.85)
    records = [
        made_up(i, [Seen(form="block", method="loss", auc=a, auc_se=0.02, tokens=2)])
        for i, a in enumerate(aucs)
    ]
    (cell,) = cells(records)
    low, high = stats.t.interval(0.95, 2, np.mean(aucs), stats.sem(aucs))
    assert cell.mean == pytest.approx(np.mean(aucs), abs=1e-12)
    assert (cell.low, cell.high) == pytest.approx((low, min(high, 1)), abs=1e-9)
    assert cell.mean_se == pytest.approx(0.02) and cell.n_found is None


@pytest.mark.parametrize("values", [(0.4,), (1.0, 1.0), (0.0, 0.0, 0.0)])
def test_models_that_agree_give_no_interval(values):
    assert share_interval(values) == (None, None)


def test_copied_instances_are_a_share_and_a_test():
    row = Seen(
        form="block",
        method=COPIED,
        log10_p=-4.0,
        n_copied=10,
        n_asked=40,
        n_copied_control=0,
        n_asked_control=80,
        tokens=3,
    )
    table = cells([made_up(0, [row])])
    (cell,) = table
    assert (cell.mean, cell.n_found) == (0.25, 1)
    assert grids(table)[1].rows[0][-2:] == ("1/1 1e-4", ".25")


def test_tables_have_a_row_a_form():
    rows = [
        Seen(form=form, method="adjacency", log10_p=-5.0, tokens=1)
        for form in ("block", "unseen-a")
    ]
    rows += [Seen(form="block", method=SCORES[0], auc=0.75, auc_se=0.1, tokens=1)]
    table = cells([made_up(0, rows), made_up(1, rows)])
    tests, others, scores = grids(table)
    assert [row[0] for row in tests.rows] == ["as published", "never"]
    assert tests.rows[0][1] == "2/2 1e-5" and tests.rows[0][2] == "-"
    assert set(others.rows[0][1:]) == {"-"}
    assert scores.rows[0][1] == ".75" and scores.rows[1][1] == "-"


def test_models_of_fifty_copies_stand_between_those_of_ten():
    planned = [(scale.name, seed) for scale, seed in BlindSpots()._planned()]
    assert planned[3] == ("fifty", 5000) and planned[7] == ("fifty", 5001)
    assert [seed for name, seed in planned if name == "ten"] == [*range(4000, 4006)]


def test_numbers_below_one_are_refused():
    with pytest.raises(InputError, match="--models must be at least 1"):
        BlindSpots(models=0)


def check_document(document, out):
    """Invariants of a pulse run, whatever its model learned."""
    written = json.loads((out / "blind_spots.json").read_text())
    # Tuples are lists there.
    assert written == json.loads(json.dumps(document))
    (record,) = document["models"]
    seen = {(row["form"], row["method"]): row for row in record["rows"]}
    assert len(seen) == len(record["rows"])
    for form in FORMS:
        found = {method for name, method in seen if name == form.name}
        assert {"adjacency", "stratified", "sharded_t", "reversal"} <= found
        assert ("options" in found) == form.items != ("variants" in found)
        assert (VARIANTS_WITHOUT in found) == (form.text == "reworded")
        assert ({*SCORES, "set_level", COPIED} <= found) == bool(controls_of(form))
    for row in record["rows"]:
        assert row["log10_p"] is None or row["log10_p"] <= 1e-12
        assert row["auc"] is None or 0 <= row["auc"] <= 1
        assert row["tokens"] > 0
    for score in SCORES:
        # Each is the other's control.
        pair = [seen[name, score]["auc"] for name in UNSEEN]
        assert sum(pair) == pytest.approx(1, abs=1e-12)
    assert {cell["n_models"] for cell in document["cells"]} == {1}
    assert "python -m eval.blind_spots" in (out / "blind_spots.md").read_text()


@pytest.fixture
def with_pulse_model(pulse, monkeypatch):
    """The quickstart's pulse model in place of one that reads the planted sets.

    Questions are all of about one length, so that little is compiled.
    """
    load = models.load_checkpoint
    docs = PythonDocs((), tuple(made_up_questions(PULSE.n_examples * len(FORMS))))
    monkeypatch.setattr(study, "read_python_docs", lambda: docs)
    monkeypatch.setattr("eval.study.code_version", lambda: "a commit")
    monkeypatch.setattr(
        models, "trained", lambda *_, **__: read_manifest(pulse / "manifest.json")
    )
    monkeypatch.setattr(models, "load_checkpoint", lambda _: load(str(pulse / "model")))


def test_every_method_looks_at_every_form_that_it_applies_to(
    with_pulse_model, tmp_path, monkeypatch
):
    document = BlindSpots(tiny=True, out=tmp_path).run()
    check_document(document, tmp_path)
    monkeypatch.setattr(study, "model_record", None)
    again = BlindSpots(tiny=True, out=tmp_path).run()
    assert again["cells"] == document["cells"]
    assert again["earlier_cpu_seconds"] == document["models"][0]["cpu_seconds"]


@pytest.mark.slow
def test_pulse_run_trains_and_looks(tmp_path):
    document = BlindSpots(tiny=True, out=tmp_path).run()
    check_document(document, tmp_path)
    folder = tmp_path / f"{PULSE.name}-4000"
    manifest = read_manifest(folder / "manifest.json")
    assert manifest.finished
    assert {row.name: row.copies for row in manifest.sets} == {
        form.name: form.copies(PULSE.copies) for form in FORMS
    }
    reworded = {row.name for row in manifest.sets if row.planted_file}
    assert reworded == {"reworded", "reworded-shuffled", "template", "record"}
