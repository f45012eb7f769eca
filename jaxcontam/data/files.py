"""Checks of files that a user names, and the provenance of what is in them."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxcontam.errors import InputError

# Shared part of two names, above which one may be a misspelling of the other.
_SPELLING = 0.8
# Bytes of memory: a million lines with their records take 8 times their file.
_MEMORY, _MEMORY_A_BYTE = 1 << 30, 12
MOST_TEXT = 64 << 20
"""Bytes of a file that describes a model; the largest tokenizer of today has 34 MB."""
# Values of such a file: as a parser holds them they take far more memory.
_MOST_VALUES = 1 << 22


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse what is no readable file; the hint suggests the nearest name."""
    scheme, slash, rest = str(path).partition(":/")
    if slash and scheme in ("http", "https"):
        raise InputError(
            f"{scheme}://{rest}: an address, not a file",
            hint=f"download it first: curl -LO {scheme}://{rest}",
        )
    try:
        if path.is_dir():
            hint = "name one file"
            if (path / "config.json").is_file():
                hint = "MODEL comes first, then the files: this is a model"
            raise InputError(f"{path}: is a folder", hint=hint)
        if not path.is_file():
            if path.exists():
                raise InputError(
                    f"{path}: a pipe or a device, not a file",
                    hint="write its output to a file",
                )
            raise InputError(
                f"{path}: no such file",
                hint=similar_path(path, lambda p: p.suffix in suffixes),
            )
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e


@contextlib.contextmanager
def bounded_memory(
    path: Path, hint: str = "keep fewer or shorter examples"
) -> Iterator[None]:
    """Refuse a file whose reading takes more than 1 GiB and 12 times its size."""
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    most = _MEMORY + _MEMORY_A_BYTE * size
    try:
        with limited_memory(most):
            yield
    except MemoryError as e:
        raise InputError(
            f"{path}: {size:,} bytes that take more than {most >> 20:,} MiB of memory",
            hint=hint,
        ) from e


@contextlib.contextmanager
def limited_memory(n_bytes: int) -> Iterator[None]:
    """Let this process take so many bytes more, on Linux alone, or a MemoryError."""
    try:
        import resource

        status = Path("/proc/self/status").read_text()
    except (ImportError, OSError):
        yield
        return
    taken = int(status.partition("VmData:")[2].split()[0]) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([taken + n_bytes, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Refuse a place that cannot be written, also where a library in Rust says so."""
    try:
        yield
    except OSError as e:
        raise InputError(f"{place}: cannot be written ({e.strerror})") from e
    except Exception as e:
        # tokenizers and safetensors raise no OSError, but name one.
        if (reason := re.search(r"[^:]+ \(os error \d+\)", str(e))) is None:
            raise
        words = reason[0].strip()
        raise InputError(f"{place}: cannot be written ({words})") from e


def read_limited(path: Path) -> bytes:
    """Content of a plain file of a model, of at most `MOST_TEXT` bytes."""
    check_file(path, ())
    try:
        size = path.stat().st_size
        if size > MOST_TEXT:
            raise InputError(
                f"{path}: {size:,} bytes (such a file of a model has at most "
                f"{MOST_TEXT:,})"
            )
        # No more than that: some files of /proc have no size and no end.
        with path.open("rb") as file:
            return file.read(size)
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e


def read_json(path: Path, **options: Any) -> Any:
    """Value of a JSON file of a model; `options` are those of `json.loads`."""
    return parse_json(read_limited(path), path, **options)


def parse_json(data: bytes, path: Path, **options: Any) -> Any:
    """Value of the JSON in a file of a model, which has at most 4 million values."""
    n_values = sum(map(data.count, (b",", b"[", b"{")))
    if n_values > _MOST_VALUES:
        raise InputError(
            f"{path}: {n_values:,} values (such a file of a model has at most "
            f"{_MOST_VALUES:,})"
        )
    try:
        return json.loads(data.decode("utf-8"), **options)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not JSON ({e})") from e


def read_json_object(path: Path) -> dict[str, Any]:
    """Fields of a JSON file of a model that holds one object."""
    fields = read_json(path)
    if not isinstance(fields, dict):
        raise InputError(f"{path}: expected an object, got {type(fields).__name__}")
    return fields


def similar_path(path: Path, could_be: Callable[[Path], bool]) -> str:
    """Hint with a name in the folder that a missing path may misspell; "" for none.

    Names with other digits are other files, and no other spellings.
    """
    import difflib

    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    digits = re.findall(r"\d+", path.name)
    names = [
        p.name
        for p in path.parent.iterdir()
        if could_be(p) and re.findall(r"\d+", p.name) == digits
    ]
    close = [name for name in names if Path(name).stem == path.name]
    close += difflib.get_close_matches(path.name, names, n=1, cutoff=_SPELLING)
    return f"did you mean {str(path.parent / close[0])!r}?" if close else ""


HUB_PREFIX, TFDS_PREFIX, TASK_PREFIX = "hf:", "tfds:", "lm_eval:"
"""What a word begins with, in a file's place: a split of the hub or of TFDS, a task."""

Provenance = Literal["published", "seeded", "released", "declared", "unknown"]
"""Origin of the order of a file; see `OrderResult`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A file whose digest its owner published before models could be trained.

    Attributes:
        sha256: Digest of its bytes, `sha256:...`: the commitment.
        made: Time that the file states; None where it states none.
        bits: log2 of the orders, or values, to choose from; None where there is no
            seed.
    """

    file: str
    sha256: str
    made: str | None = None
    bits: float | None = None
