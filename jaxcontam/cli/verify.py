"""`jaxcontam verify`: rebuild a report from its evidence; no model, no JAX."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.arguments import path_word
from jaxcontam.errors import InputError
from jaxcontam.progress import log_of_large
from jaxcontam.proof.verify import KINDS, commitment_faults, verify_report, verify_texts
from jaxcontam.reports.archive import P_VALUES_NAME, TEXTS_NAME
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    PAGE_NAME,
    REPORT_NAME,
    RESULTS_NAME,
    SUMS_NAME,
    is_report_of,
    read_document,
    read_sums,
)
from jaxcontam.terminal import Terminal, printable, shell_line

_EVIDENCE = (ARCHIVE_NAME, P_VALUES_NAME, TEXTS_NAME)
_OF_SUMS = (PAGE_NAME, RESULTS_NAME)
_FILES = (REPORT_NAME, *_EVIDENCE, *_OF_SUMS, SUMS_NAME)
_OF_ORDERS = (
    "recomputed from {name}: p-values, effects, verdicts and digests agree; {more}"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Recompute every p-value and verdict of a report; exit 3 if one differs.

    Pre-tests of an audit run again where its files are at hand.

    Examples:
        # every number again, without the model
        jaxcontam verify FOLDER
        # ask the model for 100 random rows of each test again
        jaxcontam verify FOLDER --rescore 100 --model MODEL_DIR
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder with report.json, and orders.npz or texts.jsonl beside it."""

    benchmark: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Files that were audited (default: where the report's command found them)."""
    rescore: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Random rows of each test of an audit that --model scores again."""
    model: str | None = None
    """The model of the report, or its reference, for --rescore."""

    def __post_init__(self) -> None:
        if self.rescore < 0 or (self.rescore > 0) != (self.model is not None):
            raise InputError("--rescore N, at least 1, and --model go together")

    def run(self) -> int:
        """Print what was checked; 0 if all agrees, 3 if anything does not."""
        console = Terminal(soft_wrap=True)
        _check_whole(self.directory)
        document = read_document(self.directory / REPORT_NAME)
        for command, kind in KINDS.items():
            if is_report_of(document, command):
                faults, n = verify_texts(self.directory, document, kind)
                unit, what = "result", kind.checked
                break
        else:
            # The command that audits is imported once it is clear that it is needed.
            from jaxcontam.orders.ask_again import ask_again

            archive = self.directory / ARCHIVE_NAME
            with log_of_large(archive, f"recomputing from {ARCHIVE_NAME}"):
                faults, n = verify_report(self.directory)
            more = "other differences come first"
            if not faults:
                faults, sealed = commitment_faults(self.directory)
                again, notes = ask_again(
                    self.directory,
                    benchmarks=self.benchmark,
                    rescore=self.rescore,
                    model=self.model,
                )
                faults += again
                more = "; ".join([*sealed, *notes])
            unit, what = "test", _OF_ORDERS.format(name=ARCHIVE_NAME, more=more)
        for fault in faults:
            console.print(f"differs: {printable(fault)}")
        name = printable(self.directory)
        if faults:
            n_faults = _count(len(faults), "difference")
            console.print(f"{name}: NOT verified, {n_faults}")
            return 3
        console.print(f"{name}: verified, {_count(n, unit)} {what}")
        return 0


def _check_whole(directory: Path) -> None:
    """Refuse a part of a report, as a kill or half a copy leaves it.

    Who gives away the report and its evidence alone leaves SHA256SUMS out, too.
    """
    there = {name for name in _FILES if (directory / name).is_file()}
    wanted = [*read_sums(directory)]
    if there & set(_EVIDENCE):
        wanted.append(REPORT_NAME)
    if REPORT_NAME in there:
        digests = read_document(directory / REPORT_NAME).get("digests")
        wanted += [name for name in _EVIDENCE if name in (digests or ())]
    if there & set(_OF_SUMS):
        wanted.append(SUMS_NAME)
    missing = [name for name in wanted if not (directory / name).is_file()]
    if not missing:
        return
    again = shell_line(["jaxcontam", "report", path_word(directory)])
    written = set(missing) <= {*_OF_SUMS, SUMS_NAME}
    raise InputError(
        f"{directory}: not whole, missing: {', '.join(dict.fromkeys(missing))}",
        hint=f"{again} writes them again"
        if written
        else "copy the whole folder, or run its command again: scores are kept",
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
