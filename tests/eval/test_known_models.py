"""`eval.known_models`: its table, and its run on stand-ins of the same layout."""

import dataclasses
import shutil

import numpy as np
import pytest

import jaxcontam
from eval import known_models
from eval.canaries.tables import CANARIES
from eval.known_models import KnownModels, read_table
from eval.study import exit_code
from jaxcontam.stats.roc import auc_delong
from tests.support.known_mirror import (
    COUNTS,
    HUBBLE,
    PLANTED,
    PYTHIA,
    ROWS,
    SMALLER,
)
from tests.support.membership_model import MEMBERS, OTHERS

pytestmark = pytest.mark.unoptimised
TABLE = read_table()
STANDARD = HUBBLE.replace("perturbed", "standard")


@pytest.fixture
def mirror(study):
    return study("known_models").folder / "mirror"


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(known_models, "read_table", lambda: tuple(ROWS))


@pytest.fixture
def found(study):
    """What a finished run found, by model and set."""
    document = study("known_models").document
    assert not document["failed"]
    return {(row["model"], row["set"]): row for row in document["sets"]}


def test_table_has_the_copies_and_figures_that_the_canary_study_quotes():
    for plan, name in (("published", "higher"), ("lower", "lower")):
        rows = [r for r in TABLE if r.model.endswith(f"dupcount-{name}")]
        planted = {r.name: int(r.copies) for r in rows if r.copies != "0"}
        assert planted == {n: getattr(one, plan) for n, one in CANARIES.items()}
        assert len(rows) == len(planted) + 5  # controls
    figures = {r.name: r.published for r in TABLE if r.model == PLANTED and r.published}
    assert figures == {n: c.sharded_p for n, c in CANARIES.items()}
    # Every row is one of its own, and a figure has a measure.
    assert len({(row.model, row.name) for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert row.source.startswith(("https://", "arXiv:"))
        assert not row.published or "figure" in row.source
        assert row.copies != "0" or row.expected in ("no evidence", "no difference")


def test_the_number_beside_a_published_one_is_of_the_same_test(found, mirror):
    row = next(row for row in ROWS if row.name == "mnli")
    model, path = str(mirror / PLANTED), str(mirror / row.set)
    tests = ["adjacency", "sharded_t"]
    result = jaxcontam.audit(model, path, tests=tests, order="random")
    own = found[PLANTED, row.set]
    assert own["published"] == "1.96e-11"
    assert own["ours"] == result["sharded_t"].numbers.p_value
    assert own["verdict"] == result["adjacency"].verdict
    control = found[PLANTED, "contam-1.4b/pubmedqa.txt"]
    assert (control["copies"], control["ours"] > 0.001) == ({}, True)


def test_texts_of_both_sides_are_ranked_and_members_by_their_copies(found, mirror):
    own = found[HUBBLE, "hf:allegrolab/testset_munch"]
    model, reference = (str(mirror / name) for name in (HUBBLE, STANDARD))
    texts = {"members": MEMBERS, "nonmembers": OTHERS}
    result = jaxcontam.membership(model, reference=reference, **texts)
    assert own["ours"] == result.auc["min_k"]
    assert own["verdict"] == result.verdict == "members rank higher"
    scores = np.array([row["scores"]["min_k"] for row in result.rows])
    others = scores[len(MEMBERS) :]
    for i, n in enumerate(COUNTS):
        members = scores[: len(MEMBERS)][i :: len(COUNTS)]
        assert own["copies"][str(n)] == auc_delong(members, others)[0]
    unseen = found[STANDARD, own["set"]]
    assert unseen["verdict"] != "members rank higher" and unseen["copies"] == {}


def test_each_score_stands_beside_the_papers_with_what_made_its_neighbours(
    found, mirror, study
):
    """A reference that read the same data is one of the scores."""
    own = found[PYTHIA, "hf:swj0419/WikiMIA:WikiMIA_length128"]
    texts = {"members": MEMBERS, "nonmembers": OTHERS}
    asked = {"scores": [*own["published_scores"]], "reference": str(mirror / SMALLER)}
    result = jaxcontam.membership(str(mirror / PYTHIA), **asked, **texts)
    assert own["ours"] == result.auc["min_k"]
    assert own["scores"] == {
        f"{one.method} {one.setting}".strip(): [one.auc, one.operating_points[0].tpr]
        for one in result.results
    }
    assert {"neighbourhood edits of words", "reference"} <= {*own["scores"]}
    table = (study("known_models").out / "known_models.md").read_text()
    assert "| min_k k=20% |  | .67, 13.7% | 1.00, 100.0% |" in table


def test_table_has_both_settings_of_five_models_and_all_six_scores_of_shi_et_al():
    rows = [row for row in TABLE if row.published_scores]
    assert len(rows) == 10 and len({row.model for row in rows}) == 5
    paraphrased = [row for row in rows if row.set.endswith("_paraphrased")]
    # Averages that the paper states of table 1, to two decimals.
    stated = {"min_k": 0.72, "loss": 0.67, "zlib": 0.65, "lowercase": 0.61}
    stated |= {"reference": 0.66, "neighbourhood": 0.65}
    for score, mean in stated.items():
        figures = [float(row.published_scores[score].split(",")[0]) for row in rows]
        assert np.mean(figures) == pytest.approx(mean, abs=0.006)
    assert len(paraphrased) == 5


@pytest.mark.parametrize(
    ("copies", "expected", "verdict", "word"),
    [
        ("10", "contaminated", "contaminated", "yes"),
        ("1", "contaminated", "suspected", "yes"),
        ("1", "contaminated", "inconclusive", "missed"),
        ("0", "no evidence", "contaminated", "alarm"),
        ("0", "no evidence", "inconclusive", "yes"),
        ("", "confounded", "no difference", "missed"),
        ("", "", "suspected", ""),
    ],
)
def test_a_verdict_is_held_to_what_is_known(copies, expected, verdict, word):
    row = next(row for row in ROWS if row.name == "mnli")
    known = dataclasses.replace(row, copies=copies, expected=expected)
    assert known.agrees(verdict) == word


def test_what_cannot_be_had_is_told_once_and_the_others_go_on(
    mirror, few, tmp_path, capsys
):
    half = tmp_path / "half"
    for name in (PYTHIA, SMALLER, "swj0419", "contam-1.4b", PLANTED):
        shutil.copytree(mirror / name, half / name)
    weights = half / PLANTED / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    found = KnownModels(mirror=half, out=tmp_path, only=("pythia", "dupcount")).run()
    assert exit_code(found) == 3
    assert [row["model"] for row in found["sets"]] == [PYTHIA]
    said = capsys.readouterr().err
    assert said.count("no such folder") == 1
    assert f"jaxcontam convert {half / PLANTED} " in said
