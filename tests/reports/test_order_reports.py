# ruff: noqa: F811  (a fixture of another file is an argument here)
"""Local evidence, groups and screening, as a report shows and `verify` checks them."""

import dataclasses
import json

import numpy as np
import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.proof.verdict import decide, screen
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
    write_files,
)
from tests.orders.test_order_path import (
    memoriser,
    random_bigrams,
    run,
    tokenizer,  # noqa: F401
    write_lines,
)
from tests.support.verified import verified

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def reported(tmp_path, tokenizer):
    """Report of stub models: `seen` knows its file's order, `new` knows nothing."""

    def write(*names, test, **kwargs):
        results, evidence = [], []
        for name in names:
            path, model = tmp_path / f"{name}.txt", random_bigrams(5)
            separator = "" if name.startswith("seen") else "\n"
            if name == "grouped":
                path = tmp_path / "grouped.jsonl"
                rows = [f'{{"t": "{i * i}", "half": {i // 2 % 2}}}' for i in range(90)]
                path.write_text("\n".join(rows))
            elif name.startswith("seen"):
                model = memorised_file(path, tokenizer, seed=len(results))
            else:
                write_lines(path, np.random.default_rng(5))
            result, found, _ = run(
                path, tokenizer, model, test, separator=separator, **kwargs
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
        document, _ = write_files(
            report, {ARCHIVE_NAME: archive_bytes(evidence)}, tmp_path / "out"
        )
        return tmp_path / "out", document

    return write


def memorised_file(path, tokenizer, seed):
    """Write a file, and return a stub model that knows nothing but its neighbours."""
    letters = [chr(33 + i) for i in range(88)]
    order = np.random.default_rng(seed).permutation(88)
    path.write_text("".join(f"{letters[i]}~{letters[i]}\n" for i in order))
    texts = load_benchmark(path).texts
    return memoriser(encode_examples(tokenizer, texts, separator="").ids)


def rewritten(folder, change=None, arrays=None):
    """Change a report, or arrays of its archive, as somebody would who can seal it."""
    document = json.loads((folder / REPORT_NAME).read_text())
    if change is not None:
        change(document)
    if arrays is not None:
        with np.load(folder / ARCHIVE_NAME) as archive:
            content = {name: archive[name] for name in archive.files}
        arrays(content)
        np.savez_compressed(folder / ARCHIVE_NAME, **content)
    document["digests"][ARCHIVE_NAME] = archive_digest(folder / ARCHIVE_NAME)
    (folder / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")


def test_orders_within_groups_are_verified(reported):
    out, document = reported("grouped", test="stratified", group_field="half")
    assert document["results"][0]["null"] == "within-group exchangeability"
    assert verified(out) == ([], 1)


def test_several_benchmarks_are_screened_and_the_page_says_which(reported):
    out, document = reported("seen", "new", "seen-too", test="stratified")
    rows = {row["benchmark"]: row for row in document["screening"]}
    assert list(rows) == ["seen", "new", "seen-too"]
    assert max(rows["seen"]["by"], rows["seen"]["e_bh"]) <= 0.05
    assert min(rows["new"]["by"], rows["new"]["e_bh"]) > 0.05
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Worth a closer look among these 3" in page
    assert verified(out) == ([], 3)

    def brighten(changed):
        changed["screening"][1]["by"] = 0.01

    rewritten(out, brighten)
    assert any("screening[1].by is 0.01" in fault for fault in verified(out)[0])


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
    assert any("local.last_example is" in fault for fault in verified(out)[0])
