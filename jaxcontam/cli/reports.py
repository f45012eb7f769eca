"""`jaxcontam verify` and `report`: a report again from its evidence; no JAX."""

from pathlib import Path

from jaxcontam.amounts import counted
from jaxcontam.arguments import path_word
from jaxcontam.cli.flags import Report, Verify
from jaxcontam.errors import InputError
from jaxcontam.reports.archive import P_VALUES_NAME, TEXTS_NAME
from jaxcontam.reports.kinds import Asked, kind_of
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    DAMAGE,
    PAGE_NAME,
    REPORT_NAME,
    RESULTS_NAME,
    SUMS_NAME,
    command_of,
    read_document,
    read_report,
    read_sums,
    write_page,
)
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable, shell_line

_EVIDENCE = (ARCHIVE_NAME, P_VALUES_NAME, TEXTS_NAME)
_OF_SUMS = (PAGE_NAME, RESULTS_NAME)
_FILES = (REPORT_NAME, *_EVIDENCE, *_OF_SUMS, SUMS_NAME)


def _folder(place: Path) -> Path:
    """The folder of a report, where one of its files is named."""
    return place.parent if place.name in _FILES and not place.is_dir() else place


def verify(command: Verify) -> int:
    """Print what was checked; 0 if all agrees, 3 if anything does not."""
    console, directory = Terminal(), _folder(command.directory)
    _check_whole(directory)
    document = read_document(directory / REPORT_NAME)
    asked = Asked(
        benchmarks=command.benchmark, rescore=command.rescore, model=command.model
    )
    found = kind_of(command_of(document)).check(directory, document, asked)
    for fault in found.faults:
        console.tell(f"differs: {printable(fault)}")
    name = printable(directory)
    if found.faults:
        n_faults = counted(len(found.faults), "difference")
        console.tell(f"{name}: NOT verified, {n_faults}")
        return 3
    n = counted(found.n, found.unit)
    console.tell(f"{name}: verified, {n} {found.words}")
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


def render(command: Report) -> None:
    """Write page and table beside the report."""
    import jinja2

    directory = _folder(command.directory)
    report = read_report(directory / REPORT_NAME)
    try:
        print(printable(write_page(report, directory)))
    except (*DAMAGE, jinja2.TemplateError) as e:
        raise InputError(
            f"{directory}: the report cannot be rendered ({e!r})",
            hint="it is damaged, or of another version; jaxcontam verify shows "
            "what differs",
        ) from e
