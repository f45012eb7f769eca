"""Compare what a report states with what its evidence gives."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.reports.archive import SCORED, TEXTS_NAME, read_text_rows
from jaxcontam.reports.kinds import Asked, Checked, Kind
from jaxcontam.reports.methods import Words
from jaxcontam.reports.page import Page
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import (
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
from jaxcontam.reports.table_csv import RESULTS_NAME

# Sums in another version of NumPy may differ in the last digits.
_RTOL = 1e-6

UNREADABLE = (*DAMAGE, InputError)
"""Errors of a reader of fields of another type, or arrays of another shape."""


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
    else:
        same = type(stated) is type(again) and stated == again
        if isinstance(again, float) and isinstance(stated, int | float):
            near = noise if noisy is None else 0.0
            same = math.isclose(stated, again, rel_tol=_RTOL, abs_tol=near)
        return [] if same else [f"{where} is {stated!r}, recomputed {again!r}"]
    faults = []
    for place, name, a, b in pairs:
        below = None if noisy is None or name in noisy else noisy
        faults += differences(place, a, b, noise=noise, noisy=below, skip=skip)
    return faults


def kind_of_texts(
    *,
    report: type[Report],
    words: Callable[[Report], Words],
    page: Callable[[Report, Path], Page],
    rebuild: Callable[[Row, list[dict[str, Any]]], Rebuilt],
    checked: str,
    fields: Mapping[str, type] = SCORED,
    skip: tuple[str, ...] = (),
) -> Kind:
    """The kind of a report whose evidence is `texts.jsonl`.

    Args:
        report: Its dataclass; see `Kind`, also for `words` and `page`.
        words: Words for its methods.
        page: Its page.
        rebuild: (report, rows of `texts.jsonl`) -> what they should be.
        checked: What agrees, and what was not asked again.
        fields: Fields of each row.
        skip: Fields of results that follow from no number.
    """

    def check(directory: Path, document: dict[str, Any], asked: Asked) -> Checked:
        asked.refuse()
        rows = read_text_rows(directory, fields)
        faults, n = digest_faults(directory, document, TEXTS_NAME), 0
        stated = {**document, TEXTS_NAME: rows}
        try:
            again = rebuild(document, rows)
            for name, parts in again.items():
                faults += differences(
                    name, stated.get(name, []), parts, noise=_NOISE, skip=skip
                )
            n = len(again["results"])
        except UNREADABLE as e:
            faults.append(f"{REPORT_NAME}: not recomputable ({e})")
        said = f"recomputed from {TEXTS_NAME}: {checked}"
        return Checked(faults=faults, n=n, unit="result", words=said)

    return Kind(report=report, words=words, page=page, check=check)
