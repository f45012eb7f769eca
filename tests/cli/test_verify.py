"""Changes under a mended seal: what does not follow from the evidence is found."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
)

pytestmark = pytest.mark.unoptimised


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
        "quick": ["audit", model, plain, "--tests", "direction"],
        "reversal": ["audit", model, plain, "--tests", "reversal"],
        "combined": [
            "audit",
            model,
            plain,
            "--tests",
            "direction,adjacency,stratified",
        ],
        "prove": ["prove", str(folder / "m.npy"), "--min-effect", "0.25"],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    shutil.copytree(pulse, folder / "quickstart")
    return folder


@pytest.fixture
def forge(reports, tmp_path, capsys):
    """Change a report, mend its digests, verify it; returns what was printed."""

    def forged(name, change, arrays=None, *, flags=()):
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
        assert main(["verify", str(tmp_path), *flags]) == 3
        return capsys.readouterr().out

    return forged


def first(document, *, primary=True):
    """The first test of a report that decides, or that does not."""
    return next(
        row
        for row in document["results"]
        if row["primary"] == primary and "log10_p" in row
    )


def nothing(document):
    del document


@pytest.mark.parametrize(
    "name",
    ["quickstart", "grouped", "ordered", "reversal", "combined", "prove", "quick"],
)
def test_honest_report_is_verified(reports, name, capsys):
    assert main(["verify", str(reports / name)]) == 0
    is_audit = name not in ("prove", "quickstart")
    again = "pre-tests were run again" if is_audit else "not run again (a report of"
    assert again in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quick", "prove"])
@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("p_value", "small", "p_value: expected a finite number, got 'small'"),
        ("p_value", 10**400, "p_value: expected a finite number"),
        ("p_value", -0.5, "p_value is -0.5, recomputed"),
        ("n_orders", 0.5, "n_orders: expected a whole number, got 0.5"),
        ("guess", 1, "unknown field 'guess'"),
        ("method", "guess", "not recomputable (unknown test 'guess')"),
        ("method", "min_k", "not recomputable (unknown test 'min_k')"),
    ],
)
def test_impossible_value_is_a_fault_and_no_traceback(forge, name, field, value, fault):
    said = forge(name, lambda document: first(document).update({field: value}))
    assert fault in said


@pytest.mark.parametrize("field", ["log10_p", "p_value", "n_orders"])
def test_missing_field_is_a_fault_and_no_way_to_be_skipped(forge, field):
    said = forge("quick", lambda document: first(document).pop(field))
    assert f"report.json.results[0]: no {field}" in said


def test_test_that_is_left_out_at_the_end_is_found(forge):
    said = forge("grouped", lambda document: document["results"].pop())
    assert "'1/codes' belongs to no result" in said


def test_tests_that_changed_places_are_found(forge):
    said = forge("quickstart", lambda document: document["results"].reverse())
    assert "not recomputable" in said


def test_ranking_that_claims_a_verdict_is_found(forge):
    claim = {"verdict": "contaminated"}

    def change(document):
        next(r for r in document["results"] if r["method"] == "min_k").update(claim)

    assert "verdict: expected null, got 'contaminated'" in forge("quickstart", change)


@pytest.mark.parametrize(
    ("field", "value"), [("verdict", "contaminated"), ("p_adjusted", 1e-9)]
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

    assert "passed is True, recomputed False" in forge("ordered", pass_all)


@pytest.mark.parametrize("name", ["grouped", "reversal"])
def test_passed_pretest_cannot_be_called_failed(forge, name):
    def fail_one(document):
        row = first(document)
        max(row["pretests"], key=lambda test: test["p_value"])["passed"] = False
        row["verdict"] = "invalid design"

    assert "passed is False, recomputed True" in forge(name, fail_one)


def change_a_pair(arrays):
    arrays["0/pairs"][0, 0, 1] += 9.0


def raise_all_pairs(arrays):
    """Nothing that follows from a pair test is another number."""
    for name, pairs in arrays.items():
        if name.endswith("pairs"):
            arrays[name] = np.where(pairs == 0, 0, pairs + 1)


def score_a_pair_more(arrays):
    pairs = arrays["0/pairs"]
    pairs[tuple(np.argwhere(np.isnan(pairs))[0])] = -3.0


def leave_out_a_pair(arrays):
    arrays["0/pairs"][0, 1, 2] = np.nan


def turn_other_runs(arrays):
    arrays["0/runs"][0, :2] = arrays["0/runs"][0, ::-1][:2]


def make_a_group(arrays):
    arrays["0/codes"][0, 0] = 1


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        (change_a_pair, "p_value is"),
        (score_a_pair_more, "pairs are not those that tell the direction"),
        (leave_out_a_pair, "pairs are not those that tell the direction"),
        (turn_other_runs, "runs: not what the seed and the file draw"),
        (make_a_group, "codes: not what the seed and the file draw"),
    ],
)
def test_changed_evidence_is_found(forge, arrays, fault):
    assert fault in forge("quick", nothing, arrays)


@pytest.mark.parametrize("name", ["grouped", "reversal", "combined", "prove"])
@pytest.mark.parametrize("field", ["n_orders", "n_strata"])
def test_counts_are_those_of_the_evidence(forge, name, field):
    def change(document):
        # Nothing is drawn so often.
        first(document)[field] += 10**13

    assert f"{field} is 1000" in forge(name, change)


def test_pretest_that_the_file_does_not_have_is_found(forge):
    def change(document):
        for row in document["results"]:
            row["pretests"][0]["p_value"] = 0.987

    assert "pydocs-50: pre-tests[0].p_value is 0.987, recomputed" in forge(
        "quick", change
    )


def test_pretests_of_a_file_that_is_not_at_hand_are_said_not_to_be_run(
    reports, tmp_path, capsys
):
    for file in (REPORT_NAME, ARCHIVE_NAME):
        shutil.copy(reports / "quick" / file, tmp_path / file)
    document = json.loads((tmp_path / REPORT_NAME).read_text())
    wrong = tmp_path / "pydocs-50.txt"
    document["command"][2] = str(wrong)
    (tmp_path / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")
    capsys.readouterr()
    assert main(["verify", str(tmp_path)]) == 0
    line = f"pre-tests were not run again ({wrong}: no such file)"
    assert line in capsys.readouterr().out
    # Tasks run code, and servers get keys: a report's word for them is not followed.
    document["command"][2] = "lm_eval:gsm8k"
    (tmp_path / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")
    assert main(["verify", str(tmp_path)]) == 0
    assert "not run again (lm_eval:gsm8k: no such file" in capsys.readouterr().out
    wrong.write_text("one\ntwo\nthree\n")
    assert main(["verify", str(tmp_path), "--benchmark", str(wrong)]) == 2
    assert "pydocs-50: not the file of the report" in capsys.readouterr().err


def test_a_model_that_is_asked_again_agrees(reports, pulse, capsys):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]
    for name in ("quick", "reversal", "combined"):
        assert main(["verify", str(reports / name), *flags]) == 0
        assert "random rows again" in capsys.readouterr().out


def test_scores_that_the_model_does_not_give_are_found(forge, pulse):
    flags = ["--rescore", "3", "--model", str(pulse / "model")]
    found = forge("quick", nothing, raise_all_pairs, flags=flags)
    assert "direction: pairs: " in found
    assert "scores differ from the model's, by up to 1 nats" in found


def test_another_name_of_the_model_is_found_by_asking_it(forge, pulse):
    def change(document):
        document["model"]["name"] = "another"

    flags = ["--rescore", "1", "--model", str(pulse / "model")]
    said = forge("quick", change, flags=flags)
    assert "model_name is 'another', the model's is" in said
