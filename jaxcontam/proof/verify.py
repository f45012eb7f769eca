"""Recompute from the evidence what a report states, and compare.

Digests, comparison of values, reports with `texts.jsonl`, then order tests.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.release import commitment
from jaxcontam.errors import InputError
from jaxcontam.members import page as membership
from jaxcontam.members.judged import judged_again, rows_of, table_from_rows
from jaxcontam.members.result import MembershipStudy, TextScores
from jaxcontam.orders import calibration_page as calibration
from jaxcontam.orders.method import TestRow
from jaxcontam.orders.methods import reported_method
from jaxcontam.orders.order_test import EFFECT_UNIT
from jaxcontam.orders.pair_method import reference_result
from jaxcontam.proof.prove import prove
from jaxcontam.proof.result import MATRIX, Evidence, OrderResult, ReferenceResult
from jaxcontam.proof.verdict import decide, screen
from jaxcontam.replication import page as replication
from jaxcontam.replication.catalogue import COMPARISONS
from jaxcontam.replication.judging import ARMS, partition_from_rows
from jaxcontam.reports.archive import (
    ASKED,
    SCORED,
    TEXTS_NAME,
    read_archive,
    read_text_rows,
    typed_rows,
)
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    DAMAGE,
    PAGE_NAME,
    REPORT_NAME,
    SUMS_NAME,
    archive_digest,
    data_digest,
    is_report_of,
    is_sealed,
    read_document,
    read_report,
    read_sums,
    result_row,
)
from jaxcontam.reports.table_csv import RESULTS_NAME
from jaxcontam.score_gap import page as inflation
from jaxcontam.score_gap.judging import Comparison, judged_inflation
from jaxcontam.stats.pretests import gate

# Sums in another version of NumPy may differ in the last digits.
_RTOL = 1e-6

UNREADABLE = (*DAMAGE, InputError)
"""What fields of another type, or arrays of another shape, make a reader raise."""


Row = Mapping[str, Any]
Rebuilt = Mapping[str, Any]
"""Parts of a report by their names, and the rows of `texts.jsonl` by its name."""
# Sums in another version of NumPy, and trees and regressions in another one of
# scikit-learn, may differ in the last digits; a difference of AUCs may be near 0.
_NOISE = 1e-9


def digest_faults(
    directory: Path, document: Mapping[str, Any], evidence: str
) -> list[str]:
    """Contradictions between a report's digests and its files.

    They find what changed by accident: a flipped bit, a file of another run. They are
    no signature: whoever changes a report can write new ones.
    """
    faults = []
    text = (directory / REPORT_NAME).read_bytes()
    digest, digests = document.get("digest"), document.get("digests")
    if not isinstance(digest, str) or not is_sealed(text, digest):
        faults.append(f"{REPORT_NAME}: its digest is not that of its content")
    found = archive_digest(directory / evidence)
    if not isinstance(digests, Mapping) or digests.get(evidence) != found:
        faults.append(f"{evidence}: its digest is not the one in {REPORT_NAME}")
    # Who gives away only the report and its evidence has no page to vouch for.
    sums = read_sums(directory)
    for name in (PAGE_NAME, RESULTS_NAME):
        path = directory / name
        if path.is_file() and sums.get(name) != archive_digest(path):
            faults.append(
                f"{name}: its digest is not the one in {SUMS_NAME} "
                "(jaxcontam report writes page, table and digests again)"
            )
    if sums and sums.get(REPORT_NAME) != data_digest(text):
        faults.append(f"{REPORT_NAME}: its digest is not the one in {SUMS_NAME}")
    return faults


def differences(
    where: str,
    stated: Any,
    again: Any,
    *,
    noise: float = 0.0,
    noisy: Collection[str] | None = None,
    skip: Collection[str] = (),
) -> list[str]:
    """Stated values that do not follow, one line each.

    Args:
        where: Place in the report; names follow a full stop, or its own last space.
        stated: JSON value; where a dataclass was rebuilt, a row of that kind.
        again: What the evidence gives: dataclasses, lists, objects and plain values.
        noise: Absolute difference of two numbers that is no fault.
        noisy: Fields for which it is none, with all below them; None: all.
        skip: Fields that follow from no number.
    """
    if dataclasses.is_dataclass(again):
        made: Any = again
        try:
            read = read_result(type(made), stated, where.rstrip(": "))
        except InputError as e:
            return [str(e)]
        stated, again = result_row(read), result_row(made)
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        dot = "" if where.endswith(" ") else "."
        pairs = [
            (f"{where}{dot}{name}", name, stated.get(name), again.get(name))
            for name in dict.fromkeys([*again, *stated])
            if name not in skip
        ]
    elif isinstance(stated, list | tuple) and isinstance(again, list | tuple):
        if len(stated) != len(again):
            return [f"{where}: {len(stated)} of them, recomputed {len(again)}"]
        pairs = [
            (f"{where}[{i}]", None, *both)
            for i, both in enumerate(zip(stated, again, strict=True))
        ]
    elif _same(stated, again, noise if noisy is None else 0.0):
        return []
    else:
        return [f"{where} is {stated!r}, recomputed {again!r}"]
    return [
        fault
        for place, name, a, b in pairs
        for fault in differences(
            place,
            a,
            b,
            noise=noise,
            noisy=None if noisy is None or name in noisy else noisy,
            skip=skip,
        )
    ]


def _same(stated: object, again: object, noise: float) -> bool:
    if isinstance(again, float) and isinstance(stated, int | float):
        return math.isclose(stated, again, rel_tol=_RTOL, abs_tol=noise)
    return type(stated) is type(again) and stated == again


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of report whose evidence is `texts.jsonl`.

    Attributes:
        rebuild: (report, rows of `texts.jsonl`) -> what they should be.
    """

    rebuild: Callable[[Row, list[dict[str, Any]]], Rebuilt]
    checked: str
    fields: Mapping[str, type] = dataclasses.field(default_factory=lambda: SCORED)
    skip: tuple[str, ...] = ("setting",)


def verify_texts(directory: Path, document: Row, kind: Kind) -> tuple[list[str], int]:
    """Check digests, rebuild all; what differs, and how many rows were rebuilt."""
    rows = read_text_rows(directory, kind.fields)
    faults = digest_faults(directory, document, TEXTS_NAME)
    stated = {**document, TEXTS_NAME: rows}
    try:
        again = kind.rebuild(document, rows)
        for name, parts in again.items():
            faults += differences(
                name, stated.get(name, []), parts, noise=_NOISE, skip=kind.skip
            )
    except UNREADABLE as e:
        return [*faults, f"{REPORT_NAME}: not recomputable ({e})"], 0
    return faults, len(again["results"])


def membership_again(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Rankings, blind baselines, thresholds and p-values of a membership report."""
    texts = typed_rows(rows, TextScores)
    study = read_result(MembershipStudy, document["study"], "report.study")
    run, again = judged_again(study, texts, seed=document["seed"])
    return {
        "study": again.study,
        "results": again.results,
        "blind": again.blind,
        "thresholds": again.thresholds,
        TEXTS_NAME: rows_of(
            run,
            table_from_rows(texts),
            n_tokens=np.array([text.n_tokens for text in texts]),
            left_out=np.array([text.left_out for text in texts]),
            found=again,
        ),
    }


def inflation_again(document: Row, rows: list[dict[str, Any]]) -> Rebuilt:
    """Accuracies, estimates and the verdict of a report of inflation."""
    (stated,) = document["results"]
    names = ("benchmark", "against", "metric", "chance")
    asked = Comparison.said(
        document["command"],
        seed=document["seed"],
        **{name: stated[name] for name in names},
    )
    models = [row["model"] for row in stated["accuracies"]]
    return {"results": [judged_inflation(rows, models, asked)]}


def replication_again(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Overlaps, judges and tests of a replication report; further methods stay."""
    others = [row for row in document["results"] if row["method"] in COMPARISONS]
    stated = [row for row in document["results"] if row not in others]
    partition = partition_from_rows(stated, rows)
    answers = [row for row in rows if row["arm"] not in ARMS]
    return {
        "results": [*partition.results(seed=document["seed"]), *others],
        TEXTS_NAME: [*partition.rows(), *answers],
    }


KINDS: Mapping[str, Kind] = {
    membership.COMMAND: Kind(
        membership_again,
        f"judged again from {TEXTS_NAME}: AUCs, rates, p-values, blind baselines, "
        "thresholds, verdicts and digests agree; the scores themselves need the model "
        "and were not computed again",
    ),
    inflation.COMMAND: Kind(
        inflation_again,
        f"judged again from {TEXTS_NAME}: accuracies, estimates, intervals, the "
        "verdict and digests agree; the scores themselves need the models and were not "
        "computed again",
        skip=("warnings",),
    ),
    replication.COMMAND: Kind(
        replication_again,
        f"judged again from {TEXTS_NAME}: ROUGE-L, the local judge, counts, p-values, "
        "verdicts and digests agree; other measures, other judges and further methods "
        "need their models and were not asked again",
        fields=ASKED,
        skip=("warnings",),
    ),
}
"""By the command that writes them."""


# Only these can be differences of large numbers near 0; they have their own scale.
_SIGNED = (
    *("statistic", "effect", "difference", "loglik_gap"),
    *("symmetry", "lag_profile", "neighbours"),
)
# What rounding may leave of sums of scores, as a share of all of them.
_ROUNDING = 1e-12


def verify_report(directory: Path) -> tuple[list[str], int]:
    """Check digests, draw again, rebuild; what differs, and how many tests."""
    document = read_document(directory / REPORT_NAME)
    if is_report_of(document, calibration.COMMAND):
        raise InputError(
            f"{directory}: a calibration, whose orders were not kept",
            hint="run it again: the same seed gives the same p-values",
        )
    archive = directory / ARCHIVE_NAME
    if not archive.is_file():
        raise InputError(f"{archive}: no such file", hint="it stands beside the report")
    faults = digest_faults(directory, document, ARCHIVE_NAME)
    if any(fault.startswith(ARCHIVE_NAME) for fault in faults):
        # A damaged archive can fail in many ways: it is not opened.
        return faults, 0
    try:
        report = read_result(Report, document, REPORT_NAME, more=True)
        evidence = read_archive(archive, len(report.results))
    except UNREADABLE as e:
        return [*faults, str(e)], 0
    again: dict[int, OrderResult] = {}
    for r, (row, found) in enumerate(zip(report.results, evidence, strict=True)):
        where = f"result {r} ({row.benchmark}, {row.method})"
        if not isinstance(row, OrderResult):
            continue
        try:
            one = _rebuilt(row, found, report)
            wrong = _evidence_faults(one, found, report.seed)
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
    stated = {
        one.file: one
        for row in report.results
        if isinstance(row, OrderResult)
        for one in row.commitments
    }
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
) -> OrderResult:
    if evidence is None:
        raise ValueError(f"no scores in {ARCHIVE_NAME}")
    if stated.method == MATRIX:
        has_unit = stated.effect_unit == EFFECT_UNIT
        proved = prove(
            evidence.scores,
            boundaries=evidence.boundaries if has_unit else None,
            scores=stated.numbers.scores,  # pyright: ignore[reportArgumentType]
            seed=report.seed,
            name=stated.benchmark,
        )
        return proved.results[0]
    method = reported_method(stated.method)
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
    result: OrderResult, evidence: Evidence | None, seed: int
) -> list[str]:
    if evidence is None or result.method == MATRIX:
        return []
    method = reported_method(result.method)
    drawn = method.redrawn(result, evidence, seed=seed)
    faults = [
        f"{field.name}: not what the seed and the file draw"
        for field in dataclasses.fields(Evidence)
        if (known := getattr(drawn, field.name)) is not None
        and not np.array_equal(getattr(evidence, field.name), known)
    ]
    return faults


def _noise(evidence: Evidence | None) -> float:
    """Most that rounding leaves of a difference of sums of the scores."""
    if evidence is None:
        return 0.0
    arrays = (
        *(evidence.scores, evidence.reference_scores),
        *(evidence.pairs, evidence.reference_pairs),
    )
    return _ROUNDING * sum(
        float(np.nansum(np.abs(scores))) for scores in arrays if scores is not None
    )
