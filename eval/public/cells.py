"""Cells of the table: one audit each, finished ones kept, failures named."""

import contextlib
import dataclasses
import hashlib
import io
import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.public.entries import Entry, Flags
from jaxcontam.cli import parse
from jaxcontam.commands.audit import Audit
from jaxcontam.commands.device_flags import open_for
from jaxcontam.errors import InputError
from jaxcontam.models.fingerprint import file_state
from jaxcontam.report.document import (
    REPORT_NAME,
    make_folder,
    read_document,
    replace_bytes,
)

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel

KEY_NAME = "cell.json"
"""What a finished cell follows from, beside its report."""

# They stop as soon as p = 0.001 is reached, which Holm over a table takes back.
_STOPPING = ("sequential", "permutation_sequential")
_MODEL_FILES = (".json", ".safetensors", ".model", ".txt")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One model and one benchmark.

    Attributes:
        model: Its row.
        benchmark: Its column.
        words: The command that audits it, without `--out`.
        audit: That command.
    """

    model: Entry
    benchmark: Entry
    words: tuple[str, ...]
    audit: Audit

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.model.name} x {self.benchmark.name}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of a cell: a report, a file that is not scored, or what failed.

    Attributes:
        cell: The cell.
        report: Its report.json; None without one.
        refused: The file whose own order failed its checks; None if it passed them.
        error: One line; "" if it did not fail.
        hint: What to do about it, if anything is known.
        kept: Whether an earlier run had finished it.
        cpu_seconds: That its audit took, in whichever run.
    """

    cell: Cell
    report: Mapping[str, Any] | None
    refused: Mapping[str, Any] | None = None
    error: str = ""
    hint: str = ""
    kept: bool = False
    cpu_seconds: float = 0.0

    @property
    def deciding(self) -> Mapping[str, Any]:
        """The row of the test that decides."""
        assert self.report is not None
        return next(row for row in self.report["results"] if row["primary"])


def plan_cell(model: Entry, benchmark: Entry, shared: Flags, out: Path) -> Cell:
    """The audit of one cell; its flags are read as those of `jaxcontam audit` are.

    Args:
        model: Its row.
        benchmark: Its column.
        shared: Flags of all cells; those of a row or column come before them.
        out: Folder of the table.

    Raises:
        InputError: If a flag does not fit, or the deciding test stops by itself.
    """
    flags = dict(shared)
    if "effort" in benchmark.flags:
        # It is a choice of tests, which --tests would silently overrule.
        flags.pop("tests", None)
    words = [model.word, benchmark.word]
    for name, value in (flags | model.flags | benchmark.flags).items():
        words += _typed(name, value)
    folder = out / "cells" / model.name / benchmark.name
    try:
        audit = parse(Audit, [*words, f"--out={folder}"], prog="jaxcontam audit")
    except InputError as e:
        raise InputError(f"{model.place}, {benchmark.place}: {e}", hint=e.hint) from e
    if audit.test_names[0] in _STOPPING:
        raise InputError(
            f"{benchmark.place}: {audit.test_names[0]} stops at p = 0.001, which the "
            "correction over a table undoes",
            hint="let another test decide",
        )
    return Cell(model, benchmark, tuple(words), audit)


def _typed(name: str, value: object) -> list[str]:
    """A flag as it is typed; one that is off is left out."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [f"{flag}={value}"]


def open_once(audit: Audit) -> Callable[[], "OpenModel"]:
    """Opens the model of an audit when first called, and refuses again what it did.

    A large model is loaded once for all its benchmarks, and one that cannot be had is
    asked for once.
    """
    kept: list[OpenModel | InputError] = []

    def opened() -> "OpenModel":
        if not kept:
            try:
                kept.append(open_for(audit, audit.model))
            except InputError as e:
                kept.append(e)
        if isinstance(kept[0], InputError):
            raise kept[0]
        return kept[0]

    return opened


def finished(cell: Cell, code: str | None) -> Outcome | None:
    """The outcome of an earlier run, if nothing that it follows from has changed.

    Args:
        cell: The cell.
        code: Version of the code; None, where nothing tells it, takes no cell.
    """
    folder = cell.audit.out
    assert folder is not None
    try:
        known = json.loads((folder / KEY_NAME).read_text(encoding="utf-8"))
        key, seconds = known["key"], float(known["cpu_seconds"])
        report = read_document(folder / REPORT_NAME)
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None
    if code is None or key != cell_key(cell, code):
        return None
    return Outcome(cell, report, kept=True, cpu_seconds=seconds)


def run_cell(
    cell: Cell, opened: Callable[[], "OpenModel"], code: str | None
) -> Outcome:
    """Audit one cell; what goes wrong is its outcome and costs no other cell.

    Args:
        cell: The cell.
        opened: Gives its model.
        code: Version of the code.
    """
    folder = cell.audit.out
    assert folder is not None
    began = time.process_time()
    try:
        make_folder(folder)
        (folder / KEY_NAME).unlink(missing_ok=True)
        # Before the audit: a file that changes meanwhile is audited again.
        key = cell_key(cell, code)
        # What it prints stands in its report.
        with contextlib.redirect_stdout(io.StringIO()):
            report = cell.audit.run_on(opened)
        if not report["results"]:
            (refused,) = report["unscored"]
            return Outcome(cell, None, refused=refused)
        seconds = round(time.process_time() - began, 2)
        known = {"key": key, "cpu_seconds": seconds}
        replace_bytes(folder / KEY_NAME, json.dumps(known).encode())
    except InputError as e:
        return Outcome(cell, None, error=str(e), hint=e.hint)
    except Exception as e:  # memory of a device, or a bug: named, and not hidden
        traceback.print_exc()
        line = (str(e).strip().splitlines() or [""])[0][:200]
        return Outcome(cell, None, error=f"{type(e).__name__}: {line}")
    return Outcome(cell, report, cpu_seconds=seconds)


def cell_key(cell: Cell, code: str | None) -> str:
    """Digest of all that a cell's report follows from, but for the machine.

    What is neither a file nor a folder here, such as a name on the hub, is the same as
    long as it is called the same.
    """
    audit = cell.audit
    texts = [Path(cell.benchmark.word), *audit.seed_file]
    folders = [Path(cell.model.word), *filter(None, [audit.tokenizer])]
    states = [_states(folder) for folder in folders]
    digests = [_digest(path) for path in texts]
    key = json.dumps([cell.words, code, states, digests])
    return hashlib.sha256(key.encode()).hexdigest()


def _states(folder: Path) -> list[str] | None:
    if not folder.is_dir():
        return None
    files = (path for path in folder.iterdir() if path.suffix in _MODEL_FILES)
    return [file_state(path) for path in sorted(files)]


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
