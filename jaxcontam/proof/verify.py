"""Recompute from the evidence what a report of tests states, and compare."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.release import commitment
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.proof.prove import prove
from jaxcontam.proof.result import (
    EFFECT_UNIT,
    MATRIX,
    Evidence,
    OrderReport,
    OrderResult,
    ReferenceResult,
)
from jaxcontam.proof.test_row import TestRow, reference_result
from jaxcontam.proof.verdict import decide, screen
from jaxcontam.reports.archive import ARCHIVE_NAME, read_arrays
from jaxcontam.reports.read import read_result
from jaxcontam.reports.recompute import UNREADABLE, differences, digest_faults
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import REPORT_NAME, read_report
from jaxcontam.stats.pretests import gate

# Only these can be differences of large numbers near 0; they have their own scale.
_SIGNED = (
    *("statistic", "effect", "difference", "loglik_gap"),
    *("symmetry", "lag_profile", "neighbours"),
)
# What rounding may leave of sums of scores, as a share of all of them.
_ROUNDING = 1e-12


def verify_report(
    directory: Path, document: Mapping[str, Any], tests: Mapping[str, TestRow]
) -> tuple[list[str], int]:
    """Check digests, draw again, rebuild; what differs, and how many tests."""
    archive = directory / ARCHIVE_NAME
    if not archive.is_file():
        raise InputError(f"{archive}: no such file", hint="it stands beside the report")
    faults = digest_faults(directory, document, ARCHIVE_NAME)
    if any(fault.startswith(ARCHIVE_NAME) for fault in faults):
        # A damaged archive can fail in many ways: it is not opened.
        return faults, 0
    try:
        report = read_result(OrderReport, document, REPORT_NAME, more=True)
        evidence = read_arrays(archive, len(report.results), Evidence)
    except UNREADABLE as e:
        return [*faults, str(e)], 0
    again: dict[int, OrderResult] = {}
    for r, (row, found) in enumerate(zip(report.results, evidence, strict=True)):
        where = f"result {r} ({row.benchmark}, {row.method})"
        if not isinstance(row, OrderResult):
            continue
        try:
            one = _rebuilt(row, found, report, tests)
            wrong = _evidence_faults(one, found, report.seed, tests)
            faults += [f"{where}: {fault}" for fault in wrong]
            again[r] = one
        except UNREADABLE as e:
            faults.append(f"{where}: not recomputable ({e})")
    if report.min_effect is None:
        return [*faults, f"{REPORT_NAME}: no min_effect"], len(again)
    decided = decide(list(again.values()), min_effect=report.min_effect)
    for r, row in zip(again, decided, strict=True):
        faults += differences(
            f"result {r} ({row.benchmark}, {row.method}): ",
            document["results"][r],
            row,
            noise=_noise(evidence[r]),
            noisy=_SIGNED,
        )
    if report.screening:
        faults += differences("screening", document["screening"], screen(decided))
    return faults, len(again)


def commitment_faults(directory: Path) -> tuple[list[str], list[str]]:
    """Compare commitments with files at hand; differences, and what was checked."""
    report = read_report(directory / REPORT_NAME)
    tests = (row for row in report.results if isinstance(row, OrderResult))
    stated = {one.file: one for row in tests for one in row.commitments}
    faults, notes = [], []
    for file, one in stated.items():
        try:
            found = commitment(Path(file))
        except InputError as e:
            notes.append(f"a commitment was not checked ({e})")
            continue
        if found.sha256 == one.sha256:
            notes.append(f"{file} has the digest of its commitment")
            continue
        faults.append(
            f"{file}: {found.sha256}, the report says {one.sha256}: another file of "
            "that name, unless one was changed"
        )
    return faults, notes


def _rebuilt(
    stated: OrderResult,
    evidence: Evidence | None,
    report: Report,
    tests: Mapping[str, TestRow],
) -> OrderResult:
    if evidence is None:
        raise ValueError(f"no scores in {ARCHIVE_NAME}")
    if stated.method == MATRIX:
        has_unit = stated.effect_unit == EFFECT_UNIT
        proved = prove(
            evidence.scores,
            boundaries=evidence.boundaries if has_unit else None,
            statistic=stated.numbers.scores,  # pyright: ignore[reportArgumentType]
            seed=report.seed,
            name=stated.benchmark,
        )
        return proved.results[0]
    method = _test(tests, stated.method)
    n_strata, n_orders = method.counts(evidence)
    cut = evidence.cut
    return dataclasses.replace(
        stated,
        n_examples=stated.n_examples if cut is None else len(cut),
        n_cut=0 if cut is None else int(np.count_nonzero(cut)),
        n_strata=n_strata,
        n_orders=n_orders,
        numbers=method.numbers(
            evidence,
            grouped=stated.group_field is not None,
            seed=report.seed,
            content_digest=stated.content_digest,
        ),
        pretests=gate(stated.pretests),
        reference=_reference(method, stated, evidence, report),
        p_adjusted=None,
        mde_adjusted=None,
        verdict=None,
    )


def _reference(
    method: TestRow, stated: OrderResult, evidence: Evidence, report: Report
) -> ReferenceResult | None:
    if not method.words.takes_reference:
        return None
    stored = (evidence.reference_pairs, evidence.reference_scores)
    if "--reference" not in report.command and all(one is None for one in stored):
        return None
    if report.reference is None:
        raise ValueError("no reference model in the report")
    return reference_result(
        method,
        evidence,
        name=report.reference.name,
        fingerprint=report.reference.fingerprint,
        seed=report.seed,
        content_digest=stated.content_digest,
    )


def _evidence_faults(
    result: OrderResult,
    evidence: Evidence | None,
    seed: int,
    tests: Mapping[str, TestRow],
) -> list[str]:
    if evidence is None or result.method == MATRIX:
        return []
    method = _test(tests, result.method)
    drawn = method.redrawn(result, evidence, seed=seed)
    return [
        f"{field.name}: not what the seed and the file draw"
        for field in dataclasses.fields(Evidence)
        if (known := getattr(drawn, field.name)) is not None
        and not np.array_equal(getattr(evidence, field.name), known)
    ]


def _test(tests: Mapping[str, TestRow], name: str) -> TestRow:
    if name not in tests:
        raise unknown_name("test", name, tests)
    return tests[name]


def _noise(evidence: Evidence | None) -> float:
    """Most that rounding leaves of a difference of sums of the scores."""
    if evidence is None:
        return 0.0
    own, theirs = (evidence.scores, evidence.pairs), evidence.reference_scores
    arrays = (*own, theirs, evidence.reference_pairs)
    sums = (float(np.nansum(np.abs(one))) for one in arrays if one is not None)
    return _ROUNDING * sum(sums)
