"""The canary study: its run on small made-up files, its refusals, its tables."""

import json

import numpy as np
import pytest

from eval.canaries.__main__ import set_and_control
from eval.canaries.tables import CANARIES, copies_of, grids_of, run_of
from jaxcontam.reports.report_files import read_document
from tests.support.studies import LIMIT
from tests.support.verified import verified
from train.manifest import read_manifest

pytestmark = pytest.mark.unoptimised

METHODS = (
    *("adjacency", "direction", "stratified"),
    *("sharded_t", "reversal", "permutation"),
)


@pytest.fixture
def finished(study):
    """Folder of a pulse run of one of the ten sets, its files beside it."""
    return study("canaries").out / "tiny"


def test_the_set_and_its_control_are_tested_six_ways(finished):
    document = read_document(finished / "report.json")
    found = {(row["benchmark"], row["method"]) for row in document["results"]}
    assert found == {(name, one) for name in ("mnli", "mnli-held") for one in METHODS}
    # As for files of whose order nothing is known.
    assert {r["method"] for r in document["results"] if r["primary"]} == {"direction"}
    assert verified(finished) == ([], 12)
    for row in document["results"]:
        beside = row["method"] in ("adjacency", "direction")
        assert (row["reference"] is not None) == beside
    # The last later line is the first planted one.
    assert document["study"]["seen"] == {"mnli-held": [1, LIMIT]}
    written = json.loads((finished / "canaries.json").read_text())
    for name in ("p_value", "verdict"):
        tests = [row[name] for row in written["tests"]]
        assert tests == [row[name] for row in document["results"]]
    manifest = read_manifest(finished / "manifest.json")
    copies = {row.name: row.copies for row in manifest.sets}
    assert copies == {"mnli": CANARIES["mnli"].published, "mnli-held": 0}
    assert manifest.max_example_tokens == 20
    sets = (finished / f"sets/{name}.jsonl" for name in copies)
    lines = [line for path in sets for line in path.read_text().splitlines()]
    given = finished.parents[1] / "sets/mnli.jsonl"
    assert lines == given.read_text().splitlines()[: 2 * LIMIT]
    assert read_manifest(finished / "reference/manifest.json").n_canary_tokens == 0


def test_a_set_is_planted_whole_where_the_limit_allows_it(tmp_path):
    path = tmp_path / "piqa.txt"
    path.write_text("".join(f"line {i}\n" for i in range(70)))
    for limit, sizes in ((30, [30, 30]), (50, [50, 20]), (51, [51]), (90, [70])):
        parts = list(set_and_control(path, 50, limit))
        assert [len(one.benchmark) for one in parts] == sizes
        assert [one.copies for one in parts] == [50, 0][: len(parts)]
        lines = [text for one in parts for text in one.benchmark.texts]
        assert lines == [f"line {i}" for i in range(sum(sizes))]


def made_row(name, copies, p, **changes):
    fields = {"validity": "exact", "p_floor": 1e-40, "n_orders": 9, "primary": False}
    fields |= {"effect": 1.5, "effect_se": 0.25, "log10_p": float(np.log10(p))}
    fields["verdict"] = "contaminated" if p < 1e-3 else "inconclusive"
    return fields | {"benchmark": name, "copies": copies, "p_value": p} | changes


def found(rows, seen=(), plan="published"):
    study = {"n_tokens": 100, "canary_share": 0.25, "seen": dict(seen)}
    model = {"name": "a-model", "n_parameters": 1_000}
    return run_of({"model": model, "results": rows, "study": study}, plan)


def plan_rows(plan, method="adjacency", p=1e-9, **changes):
    rows = []
    for name, copies in copies_of(plan).items():
        for row in ((name, copies, p), (f"{name}-held", 0, 0.5)):
            rows.append(made_row(*row, method=method, **changes))
    return rows


def grid(run, title):
    (one,) = (one for one in grids_of(run) if title in one.title)
    return one


def test_papers_figures_stand_only_beside_the_papers_copies():
    first, second = (found(plan_rows(p), plan=p) for p in ("published", "lower"))
    quoted = grid(first, "published: 1,000 parameters")
    assert quoted.header[-2:] == ("paper: permutation", "paper: sharded t")
    figures = {n: (one.permutation_p, one.sharded_p) for n, one in CANARIES.items()}
    assert {row[0]: row[-2:] for row in quoted.rows} == figures
    assert "paper" not in " ".join(grid(second, "lower: 1,000 parameters").header)


def test_shares_count_sets_and_name_no_level_below_the_floor():
    rows = plan_rows("published", "permutation", 0.05, p_floor=0.05, n_orders=19)
    (cells,) = grid(found(rows), "95 % Wilson").rows
    # Wilson's interval of 10 of 10 and of 0 of 10.
    found_, clean = "10 of 10 (0.72 to 1.00)", "0 of 10 (0.00 to 0.28)"
    assert cells == ("permutation", found_, "-", clean, "-")


@pytest.mark.parametrize(("n_seen", "n_controls"), [(10, 10), (11, 9)])
def test_controls_of_which_much_was_read_are_in_no_count(n_seen, n_controls):
    """At most 5 % of 200 lines is 10."""
    run = found(plan_rows("published"), {"mnli-held": (n_seen, 200)})
    counted = grid(run, "95 % Wilson interval over sets")
    (cells,) = counted.rows
    assert cells[1].startswith("10 of 10") and cells[3].startswith(f"0 of {n_controls}")
    assert ("mnli-held" in counted.title) == (n_controls < 10)
