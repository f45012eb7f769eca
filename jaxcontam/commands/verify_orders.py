"""A report of order tests against its `orders.npz`: rebuilt, without a model.

Also the words that its verdicts rest on: null, provenance, pre-tests, who decides.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.analyses.audit_design import chosen_tests
from jaxcontam.analyses.prove import prove
from jaxcontam.commands.recomputed import UNREADABLE, differences, digest_faults
from jaxcontam.data.lm_eval_tasks import TASK_PREFIX
from jaxcontam.data.release import commitment
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS, canary, options, reported_method, two_min
from jaxcontam.methods.method import SingleTest, TestRow
from jaxcontam.methods.order_test import EFFECT_UNIT
from jaxcontam.methods.pair_method import reference_result
from jaxcontam.methods.two_min import combined_results
from jaxcontam.report import calibration
from jaxcontam.report.archive import read_archive
from jaxcontam.report.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    is_report_of,
    read_document,
    read_report,
)
from jaxcontam.results import (
    DECLARED,
    RELEASED,
    Evidence,
    OrderResult,
    ReferenceResult,
    Report,
)
from jaxcontam.results.order import MATRIX
from jaxcontam.results.read import read_result
from jaxcontam.results.terms import Provenance
from jaxcontam.stats.pretests import gate, is_directional
from jaxcontam.stats.rows import padded
from jaxcontam.verdict import MIN_EFFECT, decide, screen

# Only these can be differences of large numbers near 0; they have their own scale.
_SIGNED = (
    *("statistic", "effect", "difference", "loglik_gap"),
    *("symmetry", "lag_profile", "neighbours"),
)
# What rounding may leave of sums of scores, as a share of all of them.
_ROUNDING = 1e-12


def verify_report(directory: Path) -> tuple[list[str], int]:
    """Check digests, draw the orders again, rebuild all rows and compare them.

    Returns what differs, one line each, and the number of tests that were rebuilt.
    """
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
        rows = [row for row in report.results if isinstance(row, OrderResult)]
        faults += report_faults(report, rows)
    except UNREADABLE as e:
        return [*faults, str(e)], 0
    again: dict[int, OrderResult] = {}
    for r, (row, found) in enumerate(zip(report.results, evidence, strict=True)):
        where = f"result {r} ({row.benchmark}, {row.method})"
        if not isinstance(row, OrderResult):
            if found is not None or getattr(row, "primary", True):
                faults.append(f"{where}: a ranking decides nothing")
            continue
        try:
            wrong = pretest_faults(row, scored=report.model is not None)
            faults += [f"{where}: {fault}" for fault in wrong]
            one = _rebuilt(row, found, report, list(again.values()))
            wrong = _evidence_faults(one, found, report.seed)
            wrong += _deal_faults(one, evidence, report.seed)
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
    """Compare commitments with the files that they name, where these are at hand.

    Returns differences, and sentences on what was and was not checked.
    """
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
    before: Sequence[OrderResult],
) -> OrderResult:
    """A row with all that follows from its evidence, before verdicts are given."""
    if stated.method == two_min.METHOD.name:
        parts = [row for row in before if row.benchmark == stated.benchmark]
        return combined_results(parts, primary=stated.primary)[0]
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
        with_premises(stated, report.command),
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
    method: SingleTest, stated: OrderResult, evidence: Evidence, report: Report
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
    """Whether what was scored is what the seed and the file draw."""
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
    if result.group_field is not None and evidence.orders is not None:
        faults += _permutation_faults(evidence.orders)
    return faults


def _permutation_faults(orders_KMS: np.ndarray) -> list[str]:
    """Whether rows are disjoint runs of the file, and columns permute their run."""
    published_KS = orders_KMS[:, 0]
    in_order = published_KS[published_KS >= 0]
    is_run = np.diff(published_KS, axis=1) == 1
    if not (is_run | (published_KS[:, 1:] < 0)).all() or (np.diff(in_order) < 1).any():
        return ["published orders are not disjoint runs of the file"]
    if (np.sort(orders_KMS, axis=2) != np.sort(published_KS, axis=1)[:, None]).any():
        return ["a column is no permutation of its stratum"]
    return []


def _deal_faults(
    joint: OrderResult, evidence: Sequence[Evidence | None], seed: int
) -> list[str]:
    """Whether held-out sequences were dealt to the secrets as the seed says."""
    if joint.method != canary.METHOD.name:
        return []
    scores = [found.scores for found in evidence if found is not None]
    alone = [found[0] for found in scores[1:] if found is not None and len(found)]
    if len(alone) != joint.n_strata:
        # A single secret alone is the joint test.
        return [] if joint.n_strata == 1 else ["not one row for each secret alone"]
    dealt = canary.canary_rows(
        np.array([row[0] for row in alone]),
        alone[0][1:],
        seed=seed,
        content_digest=joint.content_digest,
    )
    drawn = [padded(dealt.joint), *(row[None] for row in dealt.alone)]
    if not all(
        found is not None and np.array_equal(found, one, equal_nan=True)
        for found, one in zip(scores, drawn, strict=True)
    ):
        return ["held-out sequences are not dealt as the seed says"]
    return []


def _noise(evidence: Evidence | None) -> float:
    """What rounding may leave of a difference of sums of the scores."""
    if evidence is None:
        return 0.0
    arrays = (
        *(evidence.scores, evidence.reference_scores),
        *(evidence.pairs, evidence.reference_pairs),
    )
    return _ROUNDING * sum(
        float(np.nansum(np.abs(scores))) for scores in arrays if scores is not None
    )


def with_premises(stated: OrderResult, command: Sequence[str]) -> OrderResult:
    """A row with the provenance, null and validity that method and flags give."""
    method, origin = reported_method(stated.method), stated.order_provenance
    # Studies of known orders say their provenance themselves.
    if list(command[:1]) == ["audit"]:
        origin = _audited_order(origin, command, of_options=not method.is_of_order)
    stated = dataclasses.replace(stated, order_provenance=origin)
    null, validity = method.premises(stated, command)
    return dataclasses.replace(stated, null=null, validity=validity)


def _audited_order(
    stated: Provenance, command: Sequence[str], *, of_options: bool
) -> Provenance:
    """Provenance of the order of a file that was audited, or of its options."""
    if "--seed-file" in command and not of_options:
        return RELEASED
    # The user's word is of the order that decides.
    decides = _asked_to_decide(command) == options.METHOD.name
    if "--shuffled" in command and decides == of_options:
        return DECLARED
    # A task whose code made its documents has an order that nobody knows.
    has_task = any(word.startswith(TASK_PREFIX) for word in command[2:])
    return "unknown" if has_task and stated == "unknown" else "published"


def pretest_faults(stated: OrderResult, *, scored: bool) -> list[str]:
    """Whether the pre-tests that are always made are there, each with a p-value.

    Files were checked before a report that names a model (`scored`).
    """
    names = {test.name for test in stated.pretests}
    made = getattr(METHODS.get(stated.method), "always_checked", ())
    missing = {*made} - names if scored else set()
    faults = [f"pre-tests are missing: {', '.join(sorted(missing))}"] * bool(missing)
    if len(names) < len(stated.pretests):
        faults.append("a pre-test stands twice")
    faults += [
        f"pre-test {test.name}: directional is {test.directional}"
        for test in stated.pretests
        if _has_battery(stated.method) and test.directional != is_directional(test.name)
    ]
    return faults + [
        f"pre-test {test.name}: p_value is {test.p_value!r}"
        for test in stated.pretests
        if not 0 < test.p_value <= 1 or (test.p_value < 1 and not test.applicable)
    ]


def report_faults(report: Report, rows: Sequence[OrderResult]) -> list[str]:
    """Whether one test of each benchmark decides, by the effect that was asked for."""
    faults = []
    if len({(row.benchmark, row.method) for row in rows}) < len(rows):
        faults.append("a test stands twice")
    of_file = {row.benchmark: row.pretests for row in rows if _has_battery(row.method)}
    faults += [
        f"{row.benchmark}: its tests state different pre-tests"
        for row in rows
        if _has_battery(row.method) and row.pretests != of_file[row.benchmark]
    ]
    # Each secret alone has its own name, and the joint test decides.
    deciding = {row.benchmark: 0 for row in rows if row.method != canary.ALONE.name}
    deciding |= Counter(row.benchmark for row in rows if row.primary)
    faults += [
        f"{name}: {n} tests decide, not 1" for name, n in deciding.items() if n != 1
    ]
    # What is known of an order says who decides, and nothing else does.
    asked = _asked_to_decide(report.command)
    of_order: dict[str, str] = {}
    for row in rows:
        if row.primary:
            known = of_order.setdefault(row.order_provenance, asked or row.method)
            if row.method != known:
                faults.append(f"{row.benchmark}: {row.method} decides, not {known}")
    expected = _least_effect(report.command, rows)
    if expected not in (None, report.min_effect):
        words = f"min_effect is {report.min_effect!r}"
        faults.append(f"{words}, the command's is {expected!r}")
    return faults


def _asked_to_decide(command: Sequence[str]) -> str | None:
    """The test that decides by the command's words; None where they do not say it."""
    tests = _word_after("--tests", command)
    if tests is None and list(command[:1]) != ["audit"]:
        return None
    known = not {"--shuffled", "--seed-file"}.isdisjoint(command)
    return chosen_tests(tests, known=known)[0]


def _least_effect(command: Sequence[str], rows: Sequence[OrderResult]) -> float | None:
    """Effect that was asked for; None where neither words nor a test say it."""
    if (word := _word_after("--min-effect", command)) is not None:
        return float(word)
    if list(command[:1]) in (["audit"], ["prove"]):
        return MIN_EFFECT
    for row in rows:
        method = METHODS.get(row.method)
        if isinstance(method, TestRow) and [method.command] == list(command[:1]):
            return method.least_effect(row.effect_unit)
    return None


def _word_after(flag: str, command: Sequence[str]) -> str | None:
    """Value of a flag; flags stand at the end, behind names of files."""
    places = [i for i, word in enumerate(command[:-1]) if word == flag]
    return command[places[-1] + 1] if places else None


def _has_battery(method: str) -> bool:
    """Whether rows of a test hold the checks of the order of their file."""
    return getattr(METHODS.get(method), "is_of_order", False)
