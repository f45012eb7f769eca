"""Flags, checks and words that commands share; those of models: `device_flags`."""

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from jaxcontam.analyses.flag_words import flag_of as flag_of
from jaxcontam.analyses.flag_words import words_of
from jaxcontam.errors import InputError

if TYPE_CHECKING:
    from jaxcontam.data.benchmark import Benchmark
    from jaxcontam.scoring.opened import OpenModel

STORE_DIR = "store"
"""Folder of scores under `--out`."""

# Fields that change what is printed, or where, and not what is computed.
_PRINTING = {"json", "shard", "overwrite"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """The end of every chain of checks; a class of flags checks its own, then asks up.

    No class of flags has slots, since two bases with slots cannot be joined.
    """

    def __post_init__(self) -> None:
        """Refuse values that would fail later, before anything slow."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags(Flags):
    """Flags of a command that writes a report."""

    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""
    out: Path | None = None
    """Folder for the report (default: runs/COMMAND/NAME-DIGEST)."""
    overwrite: bool = False
    """Replace the report of another run in --out; scores and answers are kept."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        super().__post_init__()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DtypeFlags(Flags):
    """How a model computes."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision; bfloat16 is faster but less accurate, on a GPU several times
    faster."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreFlags(DtypeFlags):
    """How scores are computed and kept."""

    batch_tokens: int | None = None
    """Tokens a batch (default: by device)."""
    store: Path | None = None
    """Folder of scores, from which a rerun resumes (default: beside the report)."""
    no_store: bool = False
    """Keep no scores."""

    def __post_init__(self) -> None:
        check_positive(self, "batch_tokens")
        check_store_flags(self.store, self.no_store)
        super().__post_init__()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags(Flags):
    """Which text each record of a file gives."""

    template: str | None = None
    r"""Text of a record, such as "Question: {question}\nAnswer: {answer}"."""
    text_field: str | None = None
    """Field that is the text (default: known names; .txt has lines)."""
    limit: int | None = None
    """Take the first N records of a file, never a sample."""

    def __post_init__(self) -> None:
        check_positive(self, "limit")
        super().__post_init__()


def check_shared_flags(seed: int, min_effect: float) -> None:
    """Refuse values that would fail later, before anything slow.

    Raises:
        InputError: If the seed is negative or the effect is no positive number.
    """
    check_seed(seed)
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise InputError(f"--min-effect must be positive, got {min_effect}")


def check_positive(command: Any, *names: str) -> None:
    """Refuse fields below 1, named as the flags that the user typed; None passes.

    Raises:
        InputError: Names the first such flag.
    """
    for name in names:
        value = getattr(command, name)
        if value is not None and value < 1:
            raise InputError(f"{flag_of(name)} must be at least 1, got {value}")


def check_seed(seed: int) -> None:
    """Refuse a negative seed.

    Raises:
        InputError: If it is negative.
    """
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")


def check_store_flags(store: Path | None, no_store: bool) -> None:
    """Refuse a folder of scores that cannot be one, before anything slow.

    Raises:
        InputError: If it is a file, or both flags are given.
    """
    if store is not None and no_store:
        raise InputError("--store and --no-store contradict each other")
    if store is not None and store.exists() and not store.is_dir():
        raise InputError(f"{store}: is a file", hint="--store names a folder")


def store_of(command: StoreFlags, out: Path, model: "OpenModel") -> Path | None:
    """Folder in which scores are kept, as the flags say; None keeps none."""
    if command.no_store:
        return None
    return command.store or out / model.store_name


def shared_store(
    command: StoreFlags, given: Path | None, out: Path, model: "OpenModel"
) -> Path | None:
    """`store_of`, for reports with a folder for each choice of flags.

    Where neither `--store` nor `--out` (`given`) is said, all of them share one.
    """
    if command.no_store or command.store is not None or given is not None:
        return store_of(command, out, model)
    return out.parent / f"{model.name}-store"


def report_name(
    model: str, benchmarks: Sequence["Benchmark"], decides: Sequence[str]
) -> str:
    """`MODEL-BENCHMARK-DIGEST`: equal names mean equal results.

    Args:
        model: The model's name.
        benchmarks: What it is asked about; the first lends its name.
        decides: Everything else that decides the result.
    """
    from jaxcontam.data.benchmark import fingerprint

    first = re.sub(r"[^\w.-]+", "_", benchmarks[0].name)[:60]
    more = f"-and-{len(benchmarks) - 1}" if len(benchmarks) > 1 else ""
    digest = fingerprint([*(one.fingerprint for one in benchmarks), *decides])
    return f"{model}-{first}{more}-{digest[7:15]}"


def report_folder(
    command: ReportFlags, name: str, model: "OpenModel", digest: str
) -> Path:
    """Make the folder of a report on what has this `sha256:` digest."""
    from jaxcontam.report.report_files import make_folder

    out = command.out or Path("runs") / name / f"{model.name}-{digest[7:15]}"
    make_folder(out)
    return out


def keep_other_report(name: str, command: Any) -> None:
    """Refuse to replace a report that other words made, before anything slow.

    Args:
        name: The command's.
        command: Parsed; without `--out` its folder's name already tells runs apart.

    Raises:
        InputError: If `--out` holds such a report and `--overwrite` was not given.
    """
    from jaxcontam.report.provenance import command_line
    from jaxcontam.report.report_files import REPORT_NAME, read_document

    out = getattr(command, "out", None)
    if out is None or getattr(command, "dry_run", False):
        return
    if getattr(command, "overwrite", True) or not (out / REPORT_NAME).is_file():
        return
    own = [name]
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if tyro.conf.Positional in getattr(field.type, "__metadata__", ()) and value:
            own += map(str, value if isinstance(value, tuple) else [value])
    own += flags_of(command)
    document = read_document(out / REPORT_NAME)
    found = list(map(str, document.get("command", ())))
    # A file that was refused has no result to lose.
    if document.get("results") and sorted(found) != sorted(own):
        raise InputError(
            f"{out}: holds the report of another run ({command_line(found)})",
            hint="--out names another folder; --overwrite replaces it",
        )


def flags_of(command: Any) -> tuple[str, ...]:
    """The flags that differ from their defaults, as they were typed."""
    return words_of(
        command,
        [
            field.name
            for field in dataclasses.fields(command)
            if tyro.conf.Positional not in getattr(field.type, "__metadata__", ())
            and field.name not in _PRINTING
        ],
    )
