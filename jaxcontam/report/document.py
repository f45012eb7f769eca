"""`report.json`: results under the names of their fields, with digests.

The report carries a digest of the rest of its text, the digest of its evidence among
it, so that a digit that changed later is found even where it enters no p-value, or
where two texts stand for the same float. It finds accidents and is no signature:
whoever changes a report can compute it anew.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.report.archive import archive_bytes
from jaxcontam.report.table_csv import RESULTS_NAME, results_csv
from jaxcontam.results import (
    Evidence,
    MembershipResult,
    ModelInfo,
    OrderResult,
    Report,
)
from jaxcontam.results.calibration import CalibrationResult
from jaxcontam.results.membership import ScoreResult, SetResult

SCHEMA = 1
REPORT_NAME = "report.json"
ARCHIVE_NAME = "orders.npz"

DAMAGE = (
    *(TypeError, ValueError, KeyError, IndexError, ArithmeticError),
    *(AttributeError, RecursionError),
)
"""What fields of another type or arrays of another shape make readers raise."""


def write_report(
    report: Report, evidence: Sequence[Evidence | None], out: Path
) -> dict[str, Any]:
    """Write `orders.npz` and then `report.json`, each whole or not at all.

    Args:
        report: What was found.
        evidence: One a result, None where a result has no orders.
        out: Folder, created if missing.

    Returns:
        The document as written.
    """
    make_folder(out)
    archive = archive_bytes(evidence)
    document = to_document(report)
    save_document(document, ARCHIVE_NAME, archive, out)
    return document


def save_document(document: dict[str, Any], name: str, data: bytes, out: Path) -> None:
    """Seal a document with the data that it was found from, and write both.

    Args:
        document: Rows and provenance; takes the digest of `data`, then its own.
        name: File of the data beside `report.json`.
        data: What `jaxcontam verify` reads.
        out: Folder that is there; takes these two files and `results.csv`.
    """
    document["digests"] = {name: data_digest(data)}
    files = {
        name: data,
        REPORT_NAME: sealed_text(document).encode(),
        RESULTS_NAME: results_csv(document).encode(),
    }
    replace_files({out / file: content for file, content in files.items()})


def to_document(report: Report) -> dict[str, Any]:
    """The report as JSON values, before digests."""
    from jaxcontam import __version__

    model, device = report.model, report.device
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "jaxcontam": __version__,
        "command": list(report.command),
        "seed": report.seed,
        "started": report.started,
        "wall_seconds": round(report.wall_seconds, 3),
        "model": None if model is None else _model_fields(model),
        "device": None if device is None else dataclasses.asdict(device),
        "versions": report.versions,
        "min_effect": report.min_effect,
        "results": [result_row(result) for result in report.results],
    }
    if report.screening:
        document["screening"] = [dataclasses.asdict(row) for row in report.screening]
    for name in ("blind", "thresholds"):
        if rows := getattr(report, name):
            document[name] = [dataclasses.asdict(row) for row in rows]
    if report.study is not None:
        document["study"] = report.study
    if report.unscored:
        document["unscored"] = [dataclasses.asdict(file) for file in report.unscored]
    if report.reference is not None:
        document["reference"] = _model_fields(report.reference)
    return document


def _model_fields(model: ModelInfo) -> dict[str, Any]:
    """Its fields; what is said of servers and of kernels only where there is one."""
    fields = dataclasses.asdict(model)
    for name in ("attention", "served"):
        if fields[name] is None:
            del fields[name]
    return fields


def result_row(
    result: OrderResult
    | MembershipResult
    | CalibrationResult
    | ScoreResult
    | SetResult,
) -> dict[str, Any]:
    """One row of `results`: fields flat, tuples as lists; `read_result` undoes it."""
    fields = dataclasses.asdict(result)
    numbers = fields.pop("numbers", {})
    return json.loads(json.dumps(fields | numbers))


def read_document(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        InputError: If there is none, or it is not a report of this schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(
            f"{path}: no report ({e.strerror})",
            hint="give the folder of a finished run",
        ) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not JSON ({e})") from e
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path}: not a report of schema {SCHEMA}")
    return document


def is_report_of(document: Mapping[str, Any], command: str) -> bool:
    """Whether a report was made by a command, as far as it says so."""
    words = document.get("command")
    return isinstance(words, list) and words[:1] == [command]


def sealed_text(document: dict[str, Any]) -> str:
    """The text of a report; sets its digest, which is that of the text without it."""
    document["digest"] = ""
    document["digest"] = data_digest(_to_text(document).encode())
    return _to_text(document)


def is_sealed(text: bytes, digest: str) -> bool:
    """Whether a report's text holds its digest once, and the rest has that digest."""
    seal = digest.encode()
    return text.count(seal) == 1 and data_digest(text.replace(seal, b"")) == digest


def _to_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def archive_digest(path: Path) -> str:
    """SHA-256 of a file as the report carries it."""
    return data_digest(path.read_bytes())


def make_folder(out: Path) -> None:
    """Create the output folder.

    Raises:
        InputError: If something else stands there, or it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(
            f"{out}: cannot be made ({e.strerror})", hint="--out names a folder"
        ) from e


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        InputError: If it cannot be written.
    """
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together, each whole; where one has no room, none.

    Args:
        files: Content of each path; they take their names in this order.

    Raises:
        InputError: If one cannot be written.
    """
    # Of this process alone: two runs in one folder do not mix their bytes.
    partials = {
        path: path.with_name(f"{path.name}.{os.getpid()}.partial") for path in files
    }
    path = None
    try:
        for path, data in files.items():
            partials[path].write_bytes(data)
        for path, partial in partials.items():
            partial.replace(path)
    except OSError as e:
        raise InputError(
            f"{path}: cannot be written ({e.strerror})",
            hint="--out must lead to a place that can be written",
        ) from e
    finally:
        # A full disk and an interruption leave parts.
        for partial in partials.values():
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def data_digest(data: bytes) -> str:
    """SHA-256 of bytes as reports carry it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
