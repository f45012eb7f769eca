# ruff: noqa: F811  (a fixture of another file is an argument here)
"""Sequential tests, local evidence and screening, as commands show and check them."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from jaxcontam.analyses.saved import write_files
from jaxcontam.cli import main
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.report.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
)
from jaxcontam.results import Report
from jaxcontam.stats.effect import LEVEL
from jaxcontam.verdict import decide, screen
from tests.test_order_path import random_bigrams, tokenizer, write_lines  # noqa: F401
from tests.test_sequential_path import memorised_file, run

pytestmark = pytest.mark.unoptimised

METHODS = ["sequential", "permutation_sequential", "permutation_besag_clifford"]


@pytest.fixture
def reported(tmp_path, tokenizer):
    """Report of stub models: `seen` knows its file's order, `new` knows nothing."""

    def write(*names, test, **kwargs):
        results, evidence = [], []
        for name in names:
            path = tmp_path / f"{name}.txt"
            if name == "grouped":
                path = tmp_path / "grouped.jsonl"
                rows = [f'{{"t": "{i * i}", "half": {i // 2 % 2}}}' for i in range(90)]
                path.write_text("\n".join(rows))
                model = random_bigrams(5)
            elif name.startswith("seen"):
                model = memorised_file(path, tokenizer, seed=len(results))
            else:
                write_lines(path, np.random.default_rng(5))
                model = random_bigrams(5)
            result, found, _ = run(
                path,
                tokenizer,
                model,
                test,
                separator="",
                level=LEVEL / len(names),
                **kwargs,
            )
            # As with --shuffled: the user knows that the order is random.
            results.append(dataclasses.replace(result, order_provenance="declared"))
            evidence.append(found)
        decided = decide(results, min_effect=0.5)
        report = Report(
            command=("audit", "stub", "--tests", test, "--shuffled"),
            seed=0,
            started="2026-01-01T00:00:00Z",
            wall_seconds=1.0,
            model=None,
            device=None,
            versions={},
            min_effect=0.5,
            results=tuple(decided),
            screening=screen(decided),
        )
        out = tmp_path / "out"
        document, _ = write_files(report, evidence, out)
        return out, document

    return write


@pytest.fixture
def audited(pulse, tmp_path):
    """Run an audit of a set by the small model; returns its folder and its report."""

    def audit(*words, out="out"):
        path = pulse / "sets/pydocs-0a.txt"
        command = ["audit", str(pulse / "model"), str(path), "--tests", *words]
        assert main([*command, "--out", str(tmp_path / out)]) == 0
        return tmp_path / out, json.loads((tmp_path / out / REPORT_NAME).read_text())

    return audit


def rewritten(folder, change, arrays=None):
    """Change a report, and arrays of its archive, as somebody would who can seal it."""
    document = json.loads((folder / REPORT_NAME).read_text())
    change(document)
    if arrays is not None:
        with np.load(folder / ARCHIVE_NAME) as archive:
            content = {name: archive[name] for name in archive.files}
        arrays(content)
        np.savez_compressed(folder / ARCHIVE_NAME, **content)
    document["digests"][ARCHIVE_NAME] = archive_digest(folder / ARCHIVE_NAME)
    (folder / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")


def nothing(document):
    del document


def test_report_of_a_file_that_was_seen_says_when_the_test_stopped(reported):
    out, document = reported("seen", test="sequential")
    (row,) = document["results"]
    assert row["verdict"] == "contaminated"
    assert row["stop"] == "rejected"
    assert row["n_used"] < row["n_strata"]
    assert row["p_value"] <= 0.001
    assert verify_report(out) == ([], 1)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"It looked at {row['n_used']} of {row['n_strata']} strata" in page
    assert "when the evidence had reached the level that was set before" in page


@pytest.mark.parametrize("name", METHODS)
def test_rerun_with_the_same_store_scores_nothing_again(audited, name):
    flags = ["--n-orders", "40"] if name != "sequential" else []
    _, first = audited(name, *flags)
    out, again = audited(name, *flags)
    before, after = first["results"][0], again["results"][0]
    assert after["tokens_scored"] == 0
    assert after["cached_tokens"] == before["tokens_scored"] + before["cached_tokens"]
    for field in ("p_value", "statistic", "n_used", "stop", "e_value"):
        assert before[field] == after[field]
    assert verify_report(out) == ([], 1)


def test_interrupted_sequential_audit_goes_on(audited, pulse, tmp_path, monkeypatch):
    from jaxcontam.scoring.store import ScoreStore

    _, whole = audited("sequential", out="whole")
    commit, calls = ScoreStore.commit, []

    def interrupt(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return commit(*args)

    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-0a.txt")]
    words += ["--tests", "sequential", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(ScoreStore, "commit", interrupt)
        assert main(words) == 130
    _, resumed = audited("sequential")
    before, after = whole["results"][0], resumed["results"][0]
    assert 0 < after["cached_tokens"] < before["tokens_scored"]
    assert {**before, "tokens_scored": 0, "cached_tokens": 0} == {
        **after,
        "tokens_scored": 0,
        "cached_tokens": 0,
    }


def test_several_benchmarks_lower_the_level_so_that_holm_still_finds_them(reported):
    out, document = reported("seen", "seen-too", test="sequential")
    for row in document["results"]:
        assert row["p_value"] <= 0.0005
        assert row["verdict"] == "contaminated"
    assert verify_report(out) == ([], 2)
    with np.load(out / ARCHIVE_NAME) as archive:
        assert archive["0/rule"][0] == 0.0005


def test_level_or_order_that_was_chosen_later_is_found(reported):
    out, _ = reported("new", test="sequential")
    shutil.copytree(out, out / "other")

    def raise_level(arrays):
        arrays["0/rule"] = np.array([0.5, arrays["0/rule"][1]])

    rewritten(out, nothing, raise_level)
    assert any(
        "rule: not what the seed and the file draw" in f for f in verify_report(out)[0]
    )

    def swap_turns(arrays):
        for name in ("0/scores", "0/orders", "0/place"):
            arrays[name] = np.concatenate([arrays[name][1::-1], arrays[name][2:]])

    rewritten(out / "other", nothing, swap_turns)
    faults, _ = verify_report(out / "other")
    assert any(
        "orders: not what the seed and the file draw" in fault for fault in faults
    )


@pytest.mark.parametrize("name", METHODS)
def test_report_of_a_grouped_file_is_verified(reported, name):
    out, document = reported("grouped", test=name, group_field="half", n_orders=20)
    assert document["results"][0]["null"] == "within-group exchangeability"
    assert verify_report(out) == ([], 1)


def test_strata_left_out_at_the_end_are_found(reported):
    out, _ = reported("new", test="sequential")

    def stop_before(arrays):
        for name in ("0/scores", "0/orders", "0/place"):
            arrays[name] = arrays[name][:9]

    rewritten(
        out, lambda document: document["results"][0].update(n_used=9), stop_before
    )
    assert any(
        "stop is 'exhausted', recomputed None" in f for f in verify_report(out)[0]
    )


def test_several_benchmarks_are_screened_and_the_page_says_which(reported):
    out, document = reported("seen", "new", "seen-too", test="stratified")
    rows = {row["benchmark"]: row for row in document["screening"]}
    assert list(rows) == ["seen", "new", "seen-too"]
    assert max(rows["seen"]["by"], rows["seen"]["e_bh"]) <= 0.05
    assert min(rows["new"]["by"], rows["new"]["e_bh"]) > 0.05
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Worth a closer look among these 3" in page
    assert verify_report(out) == ([], 3)

    def brighten(changed):
        changed["screening"][1]["by"] = 0.01

    rewritten(out, brighten)
    assert any("screening[1].by is 0.01" in fault for fault in verify_report(out)[0])


def test_one_benchmark_is_not_screened(reported):
    _, document = reported("new", test="stratified")
    assert "screening" not in document


@pytest.mark.parametrize("name", ["stratified", "reversal"])
def test_local_evidence_is_in_the_report_and_checked(reported, name):
    out, document = reported("seen", test=name)
    (row,) = document["results"]
    local = row["local"]
    assert 1 <= local["first_example"] <= local["last_example"] <= row["n_examples"]
    assert local["p_value"] <= 0.001
    assert "<p>Where: " in (out / "report.html").read_text(encoding="utf-8")

    def move(changed):
        changed["results"][0]["local"]["last_example"] -= 1

    rewritten(out, move)
    assert any("local.last_example is" in fault for fault in verify_report(out)[0])


def test_dry_run_says_that_a_test_may_stop(pulse, capsys):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-0a.txt")]
    assert main([*words, "--tests", "permutation_sequential", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the most for permutation_sequential: it may stop long before" in said
    # No number is cut short by the length of the test's name.
    assert re.search(r" [\d,]{7,} 1e-3 ", said)
