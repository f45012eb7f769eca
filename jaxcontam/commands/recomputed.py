"""Whether recomputing the evidence gives what a report states.

Digests, comparison of values, and reports whose evidence is `texts.jsonl`; those of
order tests: `verify_orders`.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.analyses.inflation_judging import Comparison, judged_inflation
from jaxcontam.analyses.membership_judging import judged_again, rows_of, table_from_rows
from jaxcontam.analyses.replicate_judging import ARMS
from jaxcontam.analyses.replicate_rows import partition_from_rows
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.catalogue import COMPARISONS
from jaxcontam.report import inflation, membership, replication
from jaxcontam.report.archive import (
    ASKED,
    SCORED,
    TEXTS_NAME,
    read_text_rows,
    typed_rows,
)
from jaxcontam.report.report_files import (
    DAMAGE,
    PAGE_NAME,
    REPORT_NAME,
    SUMS_NAME,
    archive_digest,
    data_digest,
    is_sealed,
    read_sums,
    result_row,
)
from jaxcontam.report.table_csv import RESULTS_NAME
from jaxcontam.results.membership import MembershipStudy, TextScores
from jaxcontam.results.read import read_result

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
    """What the digests of a report contradict.

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
    """What is stated and does not follow, one line a value.

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
        checked: What agrees, and what was not checked.
        fields: What each row of `texts.jsonl` must have.
        skip: Words that follow from no number.
    """

    rebuild: Callable[[Row, list[dict[str, Any]]], Rebuilt]
    checked: str
    fields: Mapping[str, type] = dataclasses.field(default_factory=lambda: SCORED)
    skip: tuple[str, ...] = ("setting",)


def verify_texts(directory: Path, document: Row, kind: Kind) -> tuple[list[str], int]:
    """Check digests, rebuild a report and its texts' rows, and compare every value.

    Returns what differs, one line each, and the number of rows that were rebuilt.
    """
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
    """Overlaps, judges and tests of a replication report.

    Further methods and their answers are left as they are.
    """
    for i, row in enumerate(document["results"]):
        if (row.get("reference") and row["reference"].get("p_share") is None) or (
            row.get("n_groups") and row.get("n_shared") is None
        ):
            raise InputError(
                f"results[{i}] was judged by an earlier rule of references and "
                f"sources; version {document['jaxcontam']} as it made it, of "
                f"{document['started'][:10]}, verifies it"
            )
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
