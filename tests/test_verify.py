"""Forgeries under a mended seal: what `verify` must find, and what it must not."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli import main
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.report.document import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
)

pytestmark = pytest.mark.unoptimised

DECIDING = {"adjacency", "direction"}


@pytest.fixture(scope="module")
def reports(pulse, tmp_path_factory):
    """Folders of honest reports of several commands."""
    folder = tmp_path_factory.mktemp("reports")
    lines = (pulse / "sets/pydocs-0a.txt").read_text().splitlines()
    rows = [{"text": line, "half": i // 15} for i, line in enumerate(lines)]
    grouped = folder / "grouped.jsonl"
    grouped.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ordered = folder / "ordered.txt"
    ordered.write_text("".join(f"{line}\n" for line in sorted(lines, key=len)))
    np.save(folder / "m.npy", np.random.default_rng(0).normal(size=(20, 5)))
    model = str(pulse / "model")
    plain = str(pulse / "sets/pydocs-50.txt")
    words = {
        "grouped": ["audit", model, str(grouped), "--group-field", "half"],
        "ordered": ["audit", model, str(ordered), "--score-anyway"],
        "quick": ["audit", model, plain, "--effort", "quick"],
        "reversal": ["audit", model, plain, "--tests", "reversal"],
        "thorough": ["audit", model, plain, "--effort", "thorough"],
        "prove": ["prove", str(folder / "m.npy"), "--min-effect", "0.25"],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    shutil.copytree(pulse, folder / "quickstart")
    return folder


@pytest.fixture
def forge(reports, tmp_path, capsys):
    """Change a report, mend its digests, verify it; returns what was printed."""

    def forged(name, change, arrays=None):
        for file in (REPORT_NAME, ARCHIVE_NAME):
            shutil.copy(reports / name / file, tmp_path / file)
        document = json.loads((tmp_path / REPORT_NAME).read_text())
        change(document)
        if arrays is not None:
            archive = tmp_path / ARCHIVE_NAME
            with np.load(archive) as file:
                content = {key: file[key] for key in file.files}
            arrays(content)
            np.savez_compressed(archive, **content)
            document["digests"][ARCHIVE_NAME] = archive_digest(archive)
        (tmp_path / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")
        capsys.readouterr()
        assert main(["verify", str(tmp_path)]) == 3
        return capsys.readouterr().out

    return forged


def first(document, *, primary=True):
    """The first test of a report that decides, or that does not."""
    return next(
        row
        for row in document["results"]
        if row["primary"] == primary and "log10_p" in row
    )


@pytest.mark.parametrize(
    "name",
    ["quickstart", "grouped", "ordered", "reversal", "thorough", "prove", "quick"],
)
def test_honest_report_is_verified(reports, name, capsys):
    assert verify_report(reports / name)[0] == []
    assert main(["verify", str(reports / name)]) == 0
    assert "need the benchmark and were not run again" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quickstart", "grouped", "thorough", "prove"])
@pytest.mark.parametrize("field", ["log10_p", "p_value", "pretests", "n_orders"])
def test_missing_field_is_a_fault_and_no_way_to_be_skipped(forge, name, field):
    said = forge(name, lambda document: first(document).pop(field))
    assert "not recomputable" in said


def test_test_that_is_renamed_to_a_ranking_is_found(forge):
    said = forge("quickstart", lambda d: first(d).update(method="min_k"))
    assert "fields are not those of a ranking" in said


def test_ranking_that_claims_a_verdict_is_found(forge):
    def claim(document):
        row = next(r for r in document["results"] if r["method"] == "min_k")
        row["verdict"] = "contaminated"

    assert "a ranking decides nothing" in forge("quickstart", claim)


@pytest.mark.parametrize(
    ("field", "value"),
    [("verdict", "contaminated"), ("verdict", "no evidence"), ("p_adjusted", 1e-9)],
)
def test_test_that_stands_beside_has_no_verdict(forge, field, value):
    said = forge("quickstart", lambda d: first(d, primary=False).update({field: value}))
    assert f"{field} is {value!r}, recomputed None" in said


def test_failed_pretest_cannot_be_called_passed(forge):
    def pass_all(document):
        for row in document["results"]:
            for test in row["pretests"]:
                test["passed"] = True
        first(document)["verdict"] = "inconclusive"

    assert "did not pass as their p-values say" in forge("ordered", pass_all)


def test_passed_pretest_cannot_be_called_failed(forge):
    def fail_one(document):
        row = first(document)
        row["pretests"][0]["passed"] = False
        row["verdict"] = "invalid design"

    assert "did not pass as their p-values say" in forge("grouped", fail_one)


@pytest.mark.parametrize("name", ["ordered", "reversal"])
def test_pretest_cannot_be_left_out(forge, name):
    def drop(document):
        for row in document["results"]:
            row["pretests"] = [
                test for test in row["pretests"] if test["name"] != "length_trend"
            ]

    assert "pre-tests are missing: length_trend" in forge(name, drop)


def test_blind_scorers_cannot_be_left_out(forge):
    def drop(document):
        for row in document["results"]:
            row["pretests"] = [
                test for test in row["pretests"] if not test["name"].startswith("blind")
            ]

    said = forge("quick", drop)
    assert "missing: blind_direction:characters, blind_direction:words" in said


def test_pretests_of_one_file_are_the_same_for_all_its_tests(forge):
    def change(document):
        row = first(document)
        assert row["method"] == "direction"
        row["pretests"][0]["p_value"] = 0.5

    assert "pre-tests are not those of adjacency" in forge("grouped", change)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("ordered", "null", "designed randomisation"),
        ("grouped", "null", "exchangeability"),
        ("grouped", "validity", "heuristic"),
        ("prove", "null", "designed randomisation"),
        ("prove", "validity", "heuristic"),
        ("thorough", "validity", "asymptotic"),
        ("ordered", "order_provenance", "released"),
        ("reversal", "order_provenance", "unknown"),
    ],
)
def test_words_that_verdicts_rest_on_are_those_of_the_test(forge, name, field, value):
    said = forge(name, lambda d: first(d).update({field: value}))
    assert f"{field} is {value!r}, not " in said


def test_order_of_a_task_may_be_unknown(forge):
    def change(document):
        document["command"][2] = "lm_eval:task"
        for row in document["results"]:
            row["order_provenance"] = "unknown"
        # So that there is a fault of another kind.
        first(document)["p_value"] = 0.5

    assert "order_provenance" not in forge("reversal", change)


def test_design_cannot_be_claimed_together_with_its_provenance(forge):
    def claim(document):
        for row in document["results"]:
            row |= {"order_provenance": "seeded", "null": "designed randomisation"}
        first(document)["verdict"] = "inconclusive"

    assert "order_provenance is 'seeded', not 'published'" in forge("ordered", claim)


def test_benchmark_has_one_test_that_decides(forge):
    said = forge("grouped", lambda d: first(d, primary=False).update(primary=True))
    assert "2 tests decide, not 1" in said
    said = forge("grouped", lambda d: first(d).update(primary=False))
    assert "0 tests decide, not 1" in said


def test_deciding_test_is_the_first_of_those_that_were_asked_for(forge):
    said = forge("reversal", lambda d: d["command"].extend(["--tests", "adjacency"]))
    assert "reversal decides, but the command's words say adjacency" in said


def test_what_is_known_of_an_order_says_which_test_decides(forge):
    def swap(document):
        for row in document["results"]:
            row["primary"] = not row["primary"]

    for name in ("grouped", "ordered"):
        said = forge(name, swap)
        assert "adjacency decides, but the command's words say direction" in said

    def swap_one(document):
        of_one = document["results"][0]["benchmark"]
        for row in document["results"]:
            if row["benchmark"] == of_one and row["method"] in DECIDING:
                row["primary"] = not row["primary"]

    said = forge("quickstart", swap_one)
    assert "different tests decide where the order is seeded: adjacency, dir" in said


def nothing(document):
    del document


def change_a_pair(arrays):
    arrays["0/pairs"][0, 0, 0, 1] += 9.0


def score_a_pair_more(arrays):
    pairs = arrays["0/pairs"]
    pairs[tuple(np.argwhere(np.isnan(pairs))[0])] = -3.0


def leave_out_a_pair(arrays):
    arrays["0/pairs"][0, 0, 1, 2] = np.nan


def turn_other_runs(arrays):
    arrays["0/runs"][0, :2] = arrays["0/runs"][0, ::-1][:2]


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        (change_a_pair, "p_value is"),
        (score_a_pair_more, "pairs are not those that tell the direction"),
        (leave_out_a_pair, "pairs are not those that tell the direction"),
        (turn_other_runs, "runs are not those of the file"),
    ],
)
def test_changed_evidence_of_direction_is_found(forge, arrays, fault):
    assert fault in forge("quick", nothing, arrays)


def test_shuffle_that_nobody_vouched_for_is_found(forge):
    def declare(document):
        for row in document["results"]:
            row["order_provenance"] = "declared"

    said = forge("quick", declare)
    assert "order_provenance is 'declared', not 'published'" in said


def test_pretest_that_counts_cannot_be_called_idle(forge):
    def idle(document):
        for row in document["results"]:
            for test in row["pretests"]:
                if not test["passed"]:
                    test |= {"applicable": False, "passed": True}

    assert "not applicable at p = 0.0002" in forge("ordered", idle)


@pytest.mark.parametrize("name", ["grouped", "reversal", "thorough", "prove"])
@pytest.mark.parametrize("field", ["n_orders", "n_strata"])
@pytest.mark.parametrize("more", [1, 10**13])
def test_counts_are_those_of_the_evidence(forge, name, field, more):
    def change(document):
        row = first(document)
        row[field] += more

    said = forge(name, change)
    assert "are stated" in said or f"{field} is" in said


def test_effect_that_was_asked_for_is_the_one_that_counts(forge):
    for name, expected in (("prove", 0.25), ("grouped", 0.5)):
        said = forge(name, lambda document: document.update(min_effect=9.0))
        assert f"min_effect is 9.0, the command's is {expected}" in said


@pytest.mark.parametrize(
    ("field", "value"), [("seed", None), ("seed", -1), ("command", None)]
)
def test_report_without_seed_or_command_is_found_without_a_traceback(
    forge, field, value
):
    assert f"{field} is" in forge("prove", lambda d: d.update({field: value}))


def test_unknown_test_is_found(forge):
    said = forge("prove", lambda document: first(document).update(method="guess"))
    assert "not recomputable" in said
