"""The table of methods: claims from METHODS, numbers from files of studies."""

import json

import pytest

from eval.evidence.__main__ import (
    BLIND,
    LIRA,
    NOT_MEASURED,
    Evidence,
    claims,
    evidence_grids,
)
from eval.evidence.sources import read_source
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS
from jaxcontam.methods.replication.catalogue import REPLICATION_METHODS

RATES = {"auc": 0.8, "auc_low": 0.7, "auc_high": 0.9}


def power(test, copies, n_rejected, *, design="main", n_models=40, **more):
    row = {
        "design": design,
        "test": test,
        "copies": copies,
        "level": 0.001,
        "n_models": n_models,
        "n_rejected": n_rejected,
        "low": 0.1,
        "high": 0.3,
        "passes": 8.0,
    }
    return {name: value for name, value in (row | more).items() if value is not None}


POWER = {
    "command": ["eval.power", "--models", "40"],
    "started": "2026-01-02T03:04:05Z",
    "code": "0123456789abcdef",
    "power": [
        power("adjacency", 0, 0),
        power("adjacency", 4, 8),
        power("adjacency", 4, 40, level=0.05),
        power("t, 50 shards, 9 orders", 4, 2),
        power("adjacency", 4, 5, design="side", n_models=10),
        power("adjacency", 4, 6, setting="at 0.5"),
        power("stratified, 10 shards", 4, 4),
    ],
}
MEMBERSHIP = {
    "study": "copies",
    "command": ["eval.membership"],
    "seeds": [0, 1],
    "facts": {"n_parameters": 725664},
    "cells": [{"method": "min_k", "x": 4.0, **RATES}],
    "blind": [{"method": "length", "x": 4.0, **RATES}],
}
LIRA_FILE = {
    "command": ["eval.lira"],
    "seeds": [1, 2, 3],
    "design": {"cpu_seconds_a_model": 5.0},
    "rows": [
        {"score": "lira, online", "copies": 4, "rates": RATES},
        {"score": "zlib", "copies": 4, "rates": RATES},
        {"score": "min_k", "copies": 4, "rates": RATES | {"auc": 0.75}},
    ],
}


def asked(planted, how, n_exact, verdict, p_overlap):
    return {
        "planted": planted,
        "asked": how,
        "seed": 0,
        "n": 50,
        "n_exact": n_exact,
        "n_near": 1,
        "verdict": verdict,
        "p_overlap": p_overlap,
        "p_paired_bootstrap": p_overlap,
    }


REPLICATION = {
    "command": ["eval.replication"],
    "scale": {"copies": 50},
    "rows": [
        asked("formatted", "classification", 49, "contaminated", 1e-9),
        asked("formatted", "plain", 0, "no evidence", None),
        asked("raw", "plain", 40, "contaminated", None),
        asked("unseen", "classification", 0, "no evidence", 0.2),
    ],
}
FILES = {
    "power": ("eval.power", POWER),
    "membership": ("eval.membership", MEMBERSHIP),
    "lira": ("eval.lira", LIRA_FILE),
    "replication": ("eval.replication", REPLICATION),
}


def source(tmp_path, name, document=None):
    study, own = FILES[name]
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(own if document is None else document))
    return read_source(study, path, f"python -m {study}")


def found(tmp_path, name, **more):
    return {row.variant or row.method: row.found for row in source(tmp_path, name).rows}


def test_every_method_has_one_claim_in_its_own_words():
    rows = claims()
    names = [row.method for row in rows]
    assert len(set(names)) == len(names)
    assert set(names) == {
        *METHODS,
        *(row.name for row in REPLICATION_METHODS),
        LIRA.method,
        BLIND.method,
    }
    by_name = {row.method: row for row in rows}
    for name, row in METHODS.items():
        assert by_name[name].cost == row.cost
        assert by_name[name].sees == row.finds
    assert by_name["adjacency"].proves == "p-value, exact; null: exchangeability"


def test_power_is_that_of_the_largest_population_at_the_level_of_the_verdict(tmp_path):
    assert found(tmp_path, "power") == {
        "adjacency": {0: "0.00 (0.10-0.30)", 4: "0.20 (0.10-0.30)"},
        "t, 50 shards, 9 orders": {4: "0.05 (0.10-0.30)"},
        "stratified, 10 shards": {4: "0.10 (0.10-0.30)"},
    }
    rows = {row.variant: row for row in source(tmp_path, "power").rows}
    assert rows["t, 50 shards, 9 orders"].method == "sharded_t"
    assert rows["stratified, 10 shards"].method == "stratified"
    assert rows[""].cost == "8.0 passes"


def test_power_without_intervals_or_costs_gets_wilsons_and_none(tmp_path):
    # Wilson's interval of 8 of 40 is 0.105 to 0.348 (scipy).
    rows = [power("adjacency", 4, 8, low=None, passes=None), {"test": "reversal"}]
    (row,) = source(tmp_path, "power", POWER | {"power": rows}).rows
    assert (row.found, row.cost) == ({4: "0.20 (0.10-0.35)"}, "")


def test_scores_and_blind_baselines_come_with_their_intervals(tmp_path):
    assert found(tmp_path, "membership") == {
        "min_k": {4: "0.800 (0.700-0.900)"},
        "blind: length": {4: "0.800 (0.700-0.900)"},
    }


def test_of_the_lira_study_lira_and_what_it_is_held_against_are_taken(tmp_path):
    assert found(tmp_path, "lira") == {
        "lira, online": {4: "0.800 (0.700-0.900)"},
        "min_k": {4: "0.750 (0.700-0.900)"},
    }


def test_scores_of_the_lira_study_stand_beside_lira_and_not_among_other_models(
    tmp_path,
):
    table, _ = evidence_grids([source(tmp_path, name) for name in FILES])
    rows = [(row[0], row[-1]) for row in table.rows]
    place = rows.index(("lira, online", "eval.lira"))
    assert rows[place + 1] == ("min_k", "eval.lira")
    assert ("min_k", "eval.membership") in rows[:place]


def test_every_interval_says_what_it_is_over(tmp_path):
    table, _ = evidence_grids([source(tmp_path, name) for name in FILES])
    assert "compare within a study only" in table.title
    over = {
        row[-1]: row[table.header.index("95 % interval over")] for row in table.rows
    }
    assert over == {
        "": "",
        "eval.power": "models (Wilson)",
        "eval.membership": "texts, pooled from 2 models (DeLong)",
        "eval.lira": "targets and texts (bootstrap)",
        "eval.replication": "",
    }


def test_replication_counts_sets_asked_as_they_were_read(tmp_path):
    rows = found(tmp_path, "replication")
    assert rows["judge_local"] == {
        0: "1 of 50; 0 of 1 sets",
        50: "91 of 100; 2 of 2 sets",
    }
    assert rows["rouge_l_sign_flip"] == {0: "0 of 1", 50: "1 of 1"}


def test_unmeasured_methods_stay_in_the_table(tmp_path):
    table, studies = evidence_grids([source(tmp_path, name) for name in FILES])
    assert table.header[6:-2] == ("never read", "4 copies", "50 copies")
    rows = {row[0]: row for row in table.rows}
    assert rows["adjacency"][6:] == (
        "0.00 (0.10-0.30)",
        "0.20 (0.10-0.30)",
        "",
        "models (Wilson)",
        "eval.power",
    )
    assert rows["permutation"][5] == NOT_MEASURED
    assert "sharded_t: t, 50 shards, 9 orders" in rows
    assert {"lira, online", "blind: length", "judge_local"} <= set(rows)
    assert len({len(row) for row in (table.header, *table.rows)}) == 1
    assert [row[0] for row in studies.rows] == [study for study, _ in FILES.values()]


def test_test_without_a_row_in_methods_is_shown_without_claims(tmp_path):
    document = POWER | {"power": [power("a new test", 4, 8)]}
    table, _ = evidence_grids([source(tmp_path, "power", document)])
    (row,) = (row for row in table.rows if row[0] == "a new test")
    assert row[1:5] == ("", "", "here 8.0 passes", "")


def test_missing_study_is_named_with_its_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source(tmp_path, "lira")
    document = Evidence(lira=tmp_path / "lira.json", out=tmp_path / "out").run()
    printed = capsys.readouterr()
    assert printed.out == (tmp_path / "out/evidence.md").read_text()
    assert "lira, online" in printed.out
    missing = "no runs/power/power.json: run `python -m eval.power`"
    assert missing in printed.err and "eval.lira" not in printed.err
    assert json.loads((tmp_path / "out/evidence.json").read_text()) == json.loads(
        json.dumps(document)
    )


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"power": 1, "rows": [1]}'])
def test_file_of_another_kind_is_refused(tmp_path, name, text):
    study, _ = FILES[name]
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a file of") as e:
        read_source(study, path, f"python -m {study}")
    assert e.value.hint == f"make it again: python -m {study}"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("membership", {"study": "rate"}, "it is the study 'rate', not 'copies'"),
        ("membership", {"command": ["eval.lira"]}, "it is of eval.lira"),
        ("lira", {"command": ["eval.power"]}, "it is of eval.power"),
        ("power", {"command": ["eval.membership"]}, "it is of eval.membership"),
        ("power", {"study": "lira"}, "it is the study 'lira', not 'power'"),
        ("replication", {"command": ["eval.power"]}, "it is of eval.power"),
    ],
)
def test_file_of_another_study_is_refused(tmp_path, name, change, message):
    with pytest.raises(InputError, match=message):
        source(tmp_path, name, FILES[name][1] | change)


@pytest.mark.parametrize(
    ("xs", "message"),
    [([0.001], "0.001 is no number"), ([4.0, 4], "4 copies stand there twice")],
)
def test_cells_that_are_not_of_one_number_of_copies_are_refused(tmp_path, xs, message):
    cells = [{"method": "min_k", "x": x, **RATES} for x in xs]
    with pytest.raises(InputError, match=message):
        source(tmp_path, "membership", MEMBERSHIP | {"cells": cells})


def test_file_without_numbers_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no numbers of eval\.power"):
        source(tmp_path, "power", POWER | {"power": []})


def test_power_is_that_of_whole_sets(tmp_path):
    rows = [
        power("adjacency", 4, 8, n_examples=60),
        power("adjacency", 4, 20, n_examples=240),
    ]
    (row,) = source(tmp_path, "power", POWER | {"power": rows}).rows
    assert row.found == {4: "0.50 (0.10-0.30)"}
