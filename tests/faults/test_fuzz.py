"""Malformed inputs by the thousand: one clear line or a result, and nothing changed.

Hypothesis draws them without chance, so that every run has the same ones. A few of each
kind are tried by default, 10,000 with `pytest -m slow`.
"""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from jaxcontam.cli import main
from tests.faults.folders import contents, said
from tests.faults.fuzzed import RECORDED, table, targets
from tests.faults.fuzzed_reports import (
    archive_target,
    comparison_targets,
    report_targets,
)
from tests.faults.mutations import CHUNKS

pytestmark = pytest.mark.unoptimised

FEW, MANY = 3, 100
"""Inputs for each hundredth of a target's share."""
TARGETS = targets()


def fuzz(target, a_hundredth):
    """Run a target on new inputs; returns how many there were."""
    n_inputs = 0

    @settings(
        max_examples=target.share * a_hundredth,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases)
    def law(case):
        nonlocal n_inputs
        n_inputs += 1
        with tempfile.TemporaryDirectory() as folder:
            target.run(Path(folder), case)

    law()
    return n_inputs


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Folders of finished runs that no model was needed for."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "m.csv").write_text("3,1,2\n5,4,1\n2,2,0\n1,0,3\n")
    (folder / "r.csv").write_bytes(table([RECORDED] * 4))
    words = {
        "prove": ["prove", str(folder / "m.csv")],
        "replicate": ["replicate", "--recorded", str(folder / "r.csv")],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    return {name: folder / name for name in words}


@pytest.mark.parametrize("name", TARGETS)
def test_a_malformed_input_is_refused_or_read_and_changes_no_file(name):
    assert fuzz(TARGETS[name], FEW) >= 1


@pytest.mark.parametrize("name", [n for n in TARGETS if TARGETS[n].is_bytes])
def test_a_file_that_is_nothing_but_a_fault_is_refused_or_read(name, tmp_path):
    for chunk in (*CHUNKS, b"[" * 10**6, b"{" * 10**6, b'[{"a":' * 10**5, bytes(999)):
        TARGETS[name].run(tmp_path, chunk)


def test_a_malformed_report_is_refused_or_differs_and_changes_no_file(reports):
    for target in [*report_targets(reports).values(), *comparison_targets().values()]:
        fuzz(target, FEW)
    fuzz(archive_target(reports["prove"]), FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_of_10_000_malformed_inputs_none_ends_in_a_traceback(name):
    target = TARGETS[name]
    assert fuzz(target, MANY) >= target.share * MANY


@pytest.mark.slow
def test_of_many_malformed_reports_none_ends_in_a_traceback(reports, pulse):
    found = report_targets({**reports, "audit": pulse})
    archive = archive_target(reports["prove"])
    for target in [*found.values(), *comparison_targets().values(), archive]:
        fuzz(target, MANY)


def test_the_slow_suite_has_10_000_inputs():
    assert MANY * sum(target.share for target in TARGETS.values()) >= 10_000


@pytest.mark.parametrize(
    ("name", "value"), [("versions", None), ("results", [1]), ("command", 7)]
)
def test_a_report_with_a_field_of_another_kind_is_one_line(
    reports, tmp_path, capsys, name, value
):
    for file in ("report.json", "orders.npz"):
        shutil.copy(reports["prove"] / file, tmp_path)
    document = json.loads((tmp_path / "report.json").read_text())
    document[name] = value
    (tmp_path / "report.json").write_text(json.dumps(document))
    words = said(["report", tmp_path], capsys)
    assert f"report.{name}" in words
    assert "it is damaged, or not of this version" in words


def test_a_damaged_report_keeps_the_page_that_stands_beside_it(reports, tmp_path):
    before = contents(reports["prove"])
    for name in before:
        (tmp_path / name).write_bytes((reports["prove"] / name).read_bytes())
    (tmp_path / "report.json").write_text("{}")
    spoilt = contents(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert contents(tmp_path) == spoilt
