"""`report.json`: results under the names of their fields, with digests.

The report carries a digest of the rest of its text, the digest of its evidence among
it, so that a digit that changed later is found even where it enters no p-value, or
where two texts stand for the same float. It finds accidents and is no signature:
whoever changes a report can compute it anew.
"""

import contextlib
import dataclasses
import glob
import hashlib
import html
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.reports.archive import ARCHIVE_NAME as ARCHIVE_NAME
from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.page import Page, render
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report import SCHEMA, Report
from jaxcontam.reports.table_csv import RESULTS_NAME, result_row, results_csv
from jaxcontam.terminal_text import json_text

REPORT_NAME = "report.json"
PAGE_NAME = "report.html"
SUMS_NAME = "SHA256SUMS"
"""Digests of all files of a report, written last; `sha256sum -c` reads it."""

# No file of a report takes so long to write.
_LEFT_SECONDS = 600.0

DAMAGE = (
    *(TypeError, ValueError, KeyError, IndexError, ArithmeticError),
    *(AttributeError, RecursionError),
)
"""Errors of readers of fields of another type or arrays of another shape."""

# Fields that stand in every report; others only where they hold something.
_ALWAYS = (
    *("schema", "jaxcontam", "command", "seed", "started", "wall_seconds", "model"),
    *("device", "versions", "min_effect", "results"),
)


def write_report(report: Report, data: Mapping[str, bytes], out: Path) -> Report:
    """Write report.json, results.csv and what the numbers follow from: all, or none.

    `data` is the name of a file beside `report.json` -> its bytes, for `jaxcontam
    verify`. Returns the report as written, with its digests.
    """
    from jaxcontam import __version__

    make_folder(out)
    digests = {name: data_digest(content) for name, content in data.items()}
    report = dataclasses.replace(report, jaxcontam=__version__, digests=digests)
    document = to_document(report)
    texts = {REPORT_NAME: sealed_text(document), RESULTS_NAME: results_csv(report)}
    files = {**data, **{name: text.encode() for name, text in texts.items()}}
    replace_files({out / name: content for name, content in files.items()})
    return dataclasses.replace(report, digest=document["digest"])


def to_document(report: Report) -> dict[str, Any]:
    """The report as JSON values; what holds nothing is left out."""
    fields = dataclasses.asdict(report)
    fields["results"] = [result_row(result) for result in report.results]
    fields["wall_seconds"] = round(report.wall_seconds, 3)
    fields = {name: value for name, value in fields.items() if value or name in _ALWAYS}
    for name in ("model", "reference"):
        # What is said of servers and of kernels only where there is one.
        for part in ("attention", "served"):
            if fields.get(name) and fields[name][part] is None:
                del fields[name][part]
    return json.loads(json.dumps(fields))


def read_report(path: Path) -> Report:
    """Read a report as the dataclasses that it was written from."""
    document = read_document(path)
    try:
        return read_result(kind_of(command_of(document)).report, document, "report")
    except InputError as e:
        raise InputError(
            f"{path}: {e}",
            hint="it is damaged, or of another version; jaxcontam verify shows what "
            "differs",
        ) from e


def read_document(path: Path) -> dict[str, Any]:
    """Read a report as JSON values; InputError if there is none of this schema."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(
            f"{path}: no report ({e.strerror})",
            hint="give the folder of a finished run",
        ) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not JSON ({e})") from e
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == SCHEMA:
        return document
    if type(schema) is not int:
        raise InputError(f"{path}: not a report of jaxcontam")
    raise InputError(
        f"{path}: a report of format {schema} (this version reads {SCHEMA})",
        hint=f"jaxcontam {document.get('jaxcontam', '')!s} wrote it and can read it; "
        "or run its command again",
    )


def command_of(document: Mapping[str, Any]) -> list[str]:
    """The command line of a report, as far as it says so."""
    words = document.get("command")
    given = words if isinstance(words, list) else []
    return [word for word in given if isinstance(word, str)]


def sealed_text(document: dict[str, Any]) -> str:
    """The text of a report; sets its digest, which is that of the text without it."""
    document["digest"] = ""
    document["digest"] = data_digest(_to_text(document).encode())
    return _to_text(document)


def is_sealed(text: bytes, digest: str) -> bool:
    """True if a report's text holds its digest once, and the rest has that digest."""
    seal = digest.encode(errors="surrogatepass")
    return text.count(seal) == 1 and data_digest(text.replace(seal, b"")) == digest


def _to_text(document: Mapping[str, Any]) -> str:
    return json_text(document, allow_nan=False) + "\n"


def write_sums(report: Report, directory: Path) -> None:
    """Write the digests of a report's files, once they are all there."""
    names = (REPORT_NAME, *report.digests, RESULTS_NAME, PAGE_NAME)
    paths = [path for name in names if (path := directory / name).is_file()]
    try:
        digests = {path.name: archive_digest(path) for path in paths}
    except OSError as e:
        raise InputError(f"{e.filename}: not readable ({e.strerror})") from e
    lines = [f"{d.removeprefix('sha256:')}  {name}\n" for name, d in digests.items()]
    replace_bytes(directory / SUMS_NAME, "".join(lines).encode())


def read_sums(directory: Path) -> dict[str, str]:
    """Digest of each file as `write_sums` wrote it; empty if nothing can be read."""
    try:
        lines = (directory / SUMS_NAME).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    pairs = [line.split("  ", 1) for line in lines if "  " in line]
    return {name: f"sha256:{digest}" for digest, name in pairs}


def archive_digest(path: Path) -> str:
    """SHA-256 of a file as the report carries it."""
    return data_digest(path.read_bytes())


def make_folder(out: Path) -> None:
    """Create the output folder; InputError if that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(
            f"{out}: cannot be made ({e.strerror})",
            hint="name a folder that you may write with --out",
        ) from e


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; InputError if that cannot be."""
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together, each whole; where one has no room, none.

    They take their names in this order; InputError if one cannot be written.
    """
    partials = {path: part_path(path) for path in files}
    path = None
    try:
        for path, data in files.items():
            sweep_parts(path)
            partials[path].write_bytes(data)
            # A power failure after the rename would leave an empty file.
            _sync(partials[path])
        for path, partial in partials.items():
            partial.replace(path)
        for folder in {path.parent for path in files}:
            _sync(folder)
    except OSError as e:
        raise InputError(
            f"{path}: cannot be written ({e.strerror})",
            hint="--out must name a place that can be written",
        ) from e
    finally:
        # A full disk and an interruption leave parts.
        for partial in partials.values():
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def replace_folder(partial: Path, folder: Path) -> None:
    """Give a folder that was written beside its place its name, with all it holds."""
    for path in (*partial.rglob("*"), partial):
        _sync(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    _sync(folder.parent)


def part_path(path: Path) -> Path:
    """Path at which this process writes a file before it takes its name."""
    return path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.partial")


def sweep_parts(path: Path) -> None:
    """Remove parts of a file, or of a folder, whose processes have ended.

    Whether a process of another host still writes is not known; no file of a report
    takes ten minutes, and a folder may.
    """
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(OSError):
            if left.is_dir():
                if _is_left(left):
                    shutil.rmtree(left, ignore_errors=True)
            elif _is_left(left) or time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()


def _is_left(part: Path) -> bool:
    """True if a part is that of a process of this host that has ended."""
    place, _, pid = part.name.removesuffix(".partial").rpartition(".")
    is_own = pid.isdecimal() and place.endswith(f".{socket.gethostname()}")
    # Elsewhere than on POSIX, `kill` ends what it asks for.
    if is_own and os.name == "posix":
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:
            pass  # another user's, which is running
    return False


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir():
        # Not every system opens folders, nor every file system syncs them.
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def data_digest(data: bytes) -> str:
    """SHA-256 of bytes as reports carry it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Writable:
    """Save and show any analysis that says how it is `written`."""

    __slots__ = ()

    def save(self, out: str | Path) -> Path:
        """Write report.json, its evidence, table and page; returns the page's path."""
        return self.written(Path(out))[1]

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The page that `save` writes, in a frame of a notebook."""
        with tempfile.TemporaryDirectory() as folder:
            page = self.save(folder).read_text(encoding="utf-8")
        return (
            f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600"></iframe>'
        )


def write_files(
    report: Report,
    data: Mapping[str, bytes],
    out: Path,
    page: Callable[[Report], Page] | None = None,
) -> tuple[dict[str, Any], Path]:
    """Write a report, what its numbers follow from, and its page.

    `data` is the name of a file -> its bytes, from which `page` is made if none is
    given. Returns report.json as a document, and the page's path.
    """
    written = write_report(report, data, out)
    made = None if page is None else page(written)
    return to_document(written), write_page(written, out, made)


def write_page(report: Report, directory: Path, page: Page | None = None) -> Path:
    """Write report.html and results.csv beside a report, then the digests of all."""
    if page is None:
        page = kind_of(report.command).page(report, directory)
    texts = {RESULTS_NAME: results_csv(report), PAGE_NAME: render(page)}
    replace_files({directory / name: text.encode() for name, text in texts.items()})
    write_sums(report, directory)
    return directory / PAGE_NAME


def write_new_files(files: Sequence[tuple[Path, bytes, int]]) -> None:
    """Write all files or none; a file that exists is never touched.

    Each is a path, content and mode, the most precious first. It is written whole
    beside its place and then linked to its name, which fails where the name is taken,
    even by a process that came in between. A mapping would lose one of two equal paths.
    """
    # Where links and `..` lead: one file may have two names.
    targets = [os.path.realpath(path) for path, _, _ in files]
    for i, (path, _, _) in enumerate(files):
        if targets[i] in targets[:i]:
            raise InputError(
                f"{path}: two outputs would go to this file",
                hint="give each a name of its own",
            )
    for path, _, _ in files:
        _refuse_existing(path)
    parts: list[tuple[Path, Path]] = []
    linked: list[Path] = []
    path = files[0][0]
    try:
        for path, data, mode in files:
            sweep_parts(path)
            part = part_path(path)
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            parts.append((part, path))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for part, path in parts:
            _link(part, path)
            linked.append(path)
    except BaseException as e:
        for done in linked:
            done.unlink()
        if isinstance(e, FileExistsError):
            raise _taken(Path(e.filename2 or e.filename)) from e
        if isinstance(e, OSError):
            # A write that fails does not say of which file.
            raise InputError(
                f"{path}: cannot be written ({e.strerror})",
                hint="nothing was written: free some space, or name another place",
            ) from e
        raise
    finally:
        for part, _ in parts:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


def _link(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: the look before is all that can be done.
        _refuse_existing(path)
        part.rename(path)


def _refuse_existing(path: Path) -> None:
    # A link to nowhere is a name that is taken, too.
    if os.path.lexists(path):
        raise _taken(path)


def _taken(path: Path) -> InputError:
    return InputError(
        f"{path}: exists, and is not overwritten", hint="give another name, or move it"
    )
