"""Finished training runs that open questions are asked of."""

import dataclasses
import json
import types
from pathlib import Path

import numpy as np
import pytest

from eval.open_questions.__main__ import OpenQuestions
from eval.open_questions.models import (
    given_subjects,
    read_runs,
)
from eval.open_questions.scores import SetScores
from jaxcontam.data.manifest import read_manifest
from jaxcontam.errors import InputError
from jaxcontam.methods import stratified

pytestmark = pytest.mark.unoptimised


def test_sets_of_a_finished_run_have_their_copies_ids_and_stored_orders(
    pulse, tmp_path
):
    rows = {row.name: row for row in read_manifest(pulse / "manifest.json").sets}
    (run,) = read_runs([pulse])
    subjects = list(given_subjects(run, seed=0, store=tmp_path))
    ordered = {name for name, row in rows.items() if not row.shuffled}
    assert {one.benchmark.name for one in subjects} == ordered < {*rows}
    for one in subjects:
        row = rows[one.benchmark.name]
        assert (one.copies, one.n_ids) == (row.copies, row.n_tokens)
        # Read from the report of the run: nothing was scored here.
        assert one.orders is not None and one.orders.scores.shape[1] == 10
    assert not list(tmp_path.glob("*.scores"))


def test_run_that_did_not_finish_is_refused(pulse, tmp_path):
    manifest = json.loads((pulse / "manifest.json").read_text())
    text = json.dumps(manifest | {"finished": False})
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="training did not finish"):
        read_runs([tmp_path])


def linked(pulse, folder):
    """The pulse run in a folder of another name or place."""
    folder.mkdir(parents=True)
    for part in pulse.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


@pytest.mark.parametrize("lost", ["model", "sets", "manifest.json"])
def test_run_that_lacks_a_part_is_refused_before_anything_is_trained(
    pulse, tmp_path, monkeypatch, lost
):
    run = linked(pulse, tmp_path / "run")
    (run / lost).unlink()
    monkeypatch.setattr("eval.open_questions.__main__.trained_subjects", None)
    monkeypatch.setattr("eval.open_questions.__main__.read_python_docs", None)
    with pytest.raises(InputError, match=lost):
        OpenQuestions(out=tmp_path / "out", tiny=True, trained=(run,)).run()


@pytest.mark.parametrize("other", ["b/canaries", "b/../a/canaries", "a/tiny"])
def test_runs_and_populations_of_one_name_are_refused(pulse, tmp_path, other):
    (tmp_path / "b").mkdir()
    run = linked(pulse, tmp_path / "a" / "canaries")
    if not (tmp_path / other).exists():
        linked(pulse, tmp_path / other)
    with pytest.raises(InputError, match=r"is called|are called") as caught:
        read_runs([run, tmp_path / other])
    assert "rename one" in caught.value.hint


def test_run_is_called_by_its_folder_however_that_is_typed(
    pulse, tmp_path, monkeypatch
):
    monkeypatch.chdir(linked(pulse, tmp_path / "mine"))
    (run,) = read_runs([Path(".")])
    assert run.name == "mine"


def test_stored_orders_of_another_number_are_scored_anew(pulse, tmp_path, monkeypatch):
    (run,) = read_runs([pulse])
    subject = next(given_subjects(run, seed=0, store=tmp_path))
    stored = subject.orders.scores
    assert SetScores(subject).order_scores(stratified.METHOD, 9) is stored
    fewer = dataclasses.replace(
        subject, orders=types.SimpleNamespace(scores=stored[:, :5])
    )
    new = np.zeros((3, 10))
    asked = []

    def orders(self, method, n_orders):
        asked.append(n_orders)
        return types.SimpleNamespace(evidence=types.SimpleNamespace(scores=new))

    monkeypatch.setattr(SetScores, "orders", orders)
    assert SetScores(fewer).order_scores(stratified.METHOD, 9) is new
    assert asked == [9]


def test_no_models_asks_the_given_run_alone(pulse, tmp_path, monkeypatch):
    monkeypatch.setattr("eval.open_questions.__main__.trained_subjects", None)
    monkeypatch.setattr("eval.open_questions.__main__.read_python_docs", None)
    # Of the scores that stand in the run's report: nothing is scored.
    document = OpenQuestions(
        out=tmp_path, models=0, trained=(pulse,), questions=("skew",)
    ).run()
    assert {row["population"] for row in document["rows"]["skew"]} == {pulse.name}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--models must be at least 1"),
        ({"trained": (Path("x"),), "models": -1}, "--models must be at least 1"),
        ({"trained": (Path("x"),), "questions": ("efforts",)}, "none of efforts"),
    ],
)
def test_no_models_and_nothing_to_ask_is_refused(flags, message):
    with pytest.raises(InputError, match=message):
        OpenQuestions(**{"models": 0, **flags})
