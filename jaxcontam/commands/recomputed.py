"""Whether recomputing the evidence gives what a report states."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
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
from jaxcontam.results.read import read_result

# Sums in another version of NumPy may differ in the last digits.
_RTOL = 1e-6

UNREADABLE = (*DAMAGE, InputError)
"""What fields of another type, or arrays of another shape, make a reader raise."""


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
    if dataclasses.is_dataclass(again) and not isinstance(again, type):
        try:
            read: Any = read_result(type(again), stated, where.rstrip(": "))
        except InputError as e:
            return [str(e)]
        made: Any = again
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
