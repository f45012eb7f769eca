"""What order tests cannot see: records, tables, a pulse run."""

import dataclasses
import json
import math
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from eval.blind_spots import __main__ as study
from eval.blind_spots import model as models
from eval.blind_spots.__main__ import FIFTY, PULSE, TEN, BlindSpots
from eval.blind_spots.forms import (
    FORMS,
    UNSEEN,
    draw_sets,
    eligible,
)
from eval.blind_spots.model import (
    ModelRecord,
    read_record,
    record_key,
    write_record,
)
from eval.blind_spots.seen import (
    COPIED,
    SCORES,
    VARIANTS_WITHOUT,
    Seen,
    controls_of,
)
from eval.blind_spots.table import cells, grids, mean_interval, picture
from eval.python_docs import PythonDocs
from jaxcontam.data.manifest import read_manifest
from jaxcontam.errors import InputError
from tests.blind_spot_questions import COPIES, N, made_up_questions
from train.sources import corpus_digest

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
    assert mean_interval(values) is None


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


def test_tables_have_a_row_a_form_and_the_picture_a_word_a_cell():
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
    svg = picture(table, "s")
    ElementTree.fromstring(svg)
    assert svg.count(">2/2<") == 2 and svg.count(">.75<") == 1


@pytest.mark.parametrize(
    "change", [{"seed": 4001}, {"code": "b"}, {"corpus": "b"}, {"scale": FIFTY}]
)
def test_record_of_other_inputs_is_not_taken(tmp_path, change):
    inputs = {"scale": TEN, "seed": 4000, "corpus": "a", "code": "a"}
    record = made_up(
        4000, [Seen(form="block", method="adjacency", log10_p=-1.0, tokens=1)]
    )

    def keys(**more):
        found = inputs | more
        scale, seed = found.pop("scale"), found.pop("seed")
        code = found.pop("code")
        return {
            "key": record_key(scale, seed, **found, code=code),
            "any_code_key": record_key(scale, seed, **found, code=None),
        }

    write_record(tmp_path, record, **keys())
    assert read_record(tmp_path, keys()["key"], by="key") == record
    assert read_record(tmp_path, keys(**change)["key"], by="key") is None
    any_code = read_record(tmp_path, keys(**change)["any_code_key"], by="any_code_key")
    assert any_code == (record if "code" in change else None)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"key": "k", "record": {}}'])
def test_broken_record_is_made_again(tmp_path, text):
    (tmp_path / models.RECORD_NAME).write_text(text)
    assert read_record(tmp_path, "k", by="key") is None


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
    ElementTree.fromstring((out / "seen-pulse.svg").read_text())
    assert "python -m eval.blind_spots" in (out / "blind_spots.md").read_text()


@pytest.fixture
def with_pulse_model(pulse, monkeypatch):
    """The quickstart's pulse model in place of one that reads the planted sets.

    Questions are all of about one length, so that little is compiled.
    """
    load = models.load_checkpoint
    docs = PythonDocs((), tuple(made_up_questions(PULSE.n_examples * len(FORMS))))
    monkeypatch.setattr(study, "read_python_docs", lambda: docs)
    monkeypatch.setattr(study, "code_version", lambda: "a commit")
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


def planted_folder(folder, scale, sets, seed):
    """What training writes of a model, with the quickstart's weights."""
    rows = []
    (folder / "model").mkdir(parents=True)
    for one in sets:
        planned, planted_file = one.planned, None
        if planned.texts_planted is not None:
            planted_file = f"{one.form.name}.jsonl"
            lines = [json.dumps({"text": text}) for text in planned.texts_planted]
            (folder / planted_file).write_text("\n".join(lines))
        rows.append(
            SimpleNamespace(
                fingerprint=planned.benchmark.fingerprint,
                copies=planned.copies,
                shuffled=planned.shuffled or planned.layout == "spread",
                layout=planned.layout,
                planted_file=planted_file,
            )
        )
    return SimpleNamespace(
        seed=seed,
        preset=scale.preset,
        corpus_digest=corpus_digest(()),
        finished=True,
        sets=rows,
    )


def test_record_of_older_code_is_made_whole_and_the_rest_of_it_stays(
    with_pulse_model, tmp_path, monkeypatch
):
    new = BlindSpots(tiny=True, out=tmp_path).run()["models"][0]["rows"]
    folder = tmp_path / f"{PULSE.name}-4000"
    file = folder / models.RECORD_NAME
    fields = json.loads(file.read_text())
    # As older code left it, and with a mark that tells it from one that is made anew.
    rows = [r for r in fields["record"]["rows"] if r["method"] != VARIANTS_WITHOUT]
    rows[0]["tokens"] = 12_345
    fields["record"]["rows"] = rows
    file.write_text(json.dumps(fields))
    sets = draw_sets(
        eligible(study.read_python_docs().questions),
        n_examples=PULSE.n_examples,
        copies=PULSE.copies,
        seed=4000,
    )
    manifest = planted_folder(folder, PULSE, sets, 4000)
    monkeypatch.setattr(models, "read_manifest", lambda _: manifest)
    monkeypatch.setattr(study, "code_version", lambda: "another commit")
    monkeypatch.setattr(models, "trained", None)
    monkeypatch.setattr(study, "model_record", None)

    def again():
        return BlindSpots(tiny=True, out=tmp_path, any_code=True).run()["models"][0]

    whole = list(again()["rows"])
    assert whole[: len(rows)] == rows
    added = [row for row in new if row["method"] == VARIANTS_WITHOUT]
    assert len(added) == 2
    assert whole[len(rows) :] == added
    monkeypatch.setattr(models, "versions_seen", None)
    assert list(again()["rows"]) == whole


@pytest.mark.parametrize(
    "change",
    [{"finished": False}, {"seed": 1}, {"corpus_digest": "other"}, {"sets": []}, None],
)
def test_only_a_finished_model_of_these_texts_is_taken_from_other_code(
    tmp_path, monkeypatch, change
):
    scale = dataclasses.replace(PULSE, n_examples=N, copies=COPIES)
    questions = made_up_questions(N * len(FORMS))
    sets = draw_sets(questions, n_examples=N, copies=COPIES, seed=3)
    manifest = planted_folder(tmp_path, scale, sets, 3)
    monkeypatch.setattr(models, "read_manifest", lambda _: manifest)

    def found():
        return models._finished(tmp_path, scale, sets, (), seed=3)

    assert found() is manifest
    if change is None:
        (tmp_path / "reworded.jsonl").write_text('{"text": "other"}\n' * N)
    else:
        vars(manifest).update(change)
    assert found() is None


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
