"""A secret seed puts a benchmark in order, and later proves that it did.

Each record's sort key is a keyed hash of the record itself, so the order follows from
the seed and the set of records alone: whoever has the seed can check a released file
without the original, and the order in which the owner kept the records plays no part.
To a reader without the seed the order is random.
"""

import dataclasses
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.benchmark import content_digest, fingerprint
from jaxcontam.data.layout import Layout, layout_of, read_layout
from jaxcontam.errors import InputError

METHOD = "hmac-sha256-sort"
METHOD_VERSION = 1
KIND = "jaxcontam release"
SEED_BYTES = 32


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeedFile:
    """What a seed file holds: a secret until the proof.

    Attributes:
        kind: `jaxcontam release`, so that no other file passes for one.
        method: How the seed gives the order; never changes its meaning.
        method_version: Of the method.
        seed: 256 random bits, hexadecimal.
        n_examples: Records of the file.
        content_digest: SHA-256 of the records' digests, sorted.
        released_digest: The same digests in the released order.
        file_digest: SHA-256 of the released file's bytes.
        jaxcontam: Version that made it.
        made: When, UTC.
    """

    kind: str = KIND
    method: str = METHOD
    method_version: int = METHOD_VERSION
    seed: str = dataclasses.field(repr=False)
    n_examples: int
    content_digest: str
    released_digest: str
    file_digest: str
    jaxcontam: str
    made: str

    def to_bytes(self) -> bytes:
        """The content of the seed file."""
        return (json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode()


def commitment(seed_file: bytes) -> str:
    """SHA-256 of a seed file: binds its owner, and tells nobody the seed."""
    return _sha256(seed_file)


def release_order(records: Sequence[str], seed: bytes) -> list[int]:
    """Indices of the records in released order.

    Args:
        records: Source texts; equal ones are told apart by their count alone, since
            nobody can see which of them stands where.
        seed: Secret bytes, uniform: then every order of the records is equally
            likely, and no other property of the method matters.

    Returns:
        Indices into `records`, ascending in HMAC-SHA256(seed, digest, count).
    """
    seen: dict[str, int] = {}
    keys = []
    for record in records:
        count = seen[record] = seen.get(record, -1) + 1
        message = hashlib.sha256(record.encode()).digest() + count.to_bytes(8, "big")
        keys.append(hmac.digest(seed, message, "sha256"))
    return sorted(range(len(records)), key=keys.__getitem__)


def make_release(
    path: Path, *, seed: bytes, version: str, made: str
) -> tuple[bytes, SeedFile]:
    """The released file and its seed file; writes nothing.

    Args:
        path: The benchmark.
        seed: 32 secret random bytes.
        version: Of the package.
        made: When.

    Raises:
        InputError: If the file cannot be read, has fewer than two different records,
            or has line ends that do not survive another order.
    """
    layout = read_layout(path)
    if len(set(layout.records)) < 2:
        raise InputError(
            f"{path}: fewer than two different examples", hint="they have one order"
        )
    if any(record.endswith("\r") for record in layout.records):
        # Before another line end it would become part of that one.
        raise InputError(
            f"{path}: a record ends in a carriage return of its own",
            hint="write every line end as a line feed",
        )
    data = layout.encoded(release_order(layout.records, seed))
    found = layout_of(path, data.decode())
    assert sorted(found.records) == sorted(layout.records)
    return data, SeedFile(
        seed=seed.hex(),
        n_examples=len(layout.records),
        content_digest=content_digest(found.records),
        released_digest=fingerprint(found.records),
        file_digest=_sha256(data),
        jaxcontam=version,
        made=made,
    )


def read_release(path: Path) -> SeedFile:
    """Read a seed file.

    Raises:
        InputError: If it is missing, or no seed file of a method that is known here.
    """
    try:
        fields = json.loads(path.read_bytes())
    except OSError as e:
        raise InputError(
            f"{path}: no seed file ({e.strerror})", hint="jaxcontam release makes one"
        ) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: no seed file (not JSON)") from e
    known = {field.name: field.type for field in dataclasses.fields(SeedFile)}
    # What is wrong is named, never shown: the file is a secret.
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise InputError(f"{path}: no seed file of jaxcontam release")
    if fields.keys() != known.keys() or not all(
        type(fields[name]) is kind for name, kind in known.items()
    ):
        raise InputError(f"{path}: fields are missing or of the wrong type")
    if (fields["method"], fields["method_version"]) != (METHOD, METHOD_VERSION):
        raise InputError(
            f"{path}: unknown method {fields['method']!r} version "
            f"{fields['method_version']}",
            hint="a newer jaxcontam may know it",
        )
    if not re.fullmatch(f"[0-9a-f]{{{2 * SEED_BYTES}}}", fields["seed"]):
        raise InputError(f"{path}: the seed is not {SEED_BYTES} bytes in hexadecimal")
    return SeedFile(**fields)


def check_release(path: Path, seed_file: Path) -> SeedFile:
    """Check that a file is the released one, in the order of its seed.

    Raises:
        InputError: Says whether records, their order or other bytes differ.
    """
    release = read_release(seed_file)
    layout: Layout = read_layout(path)
    place = f"{path}: not the file that {seed_file} released"
    if content_digest(layout.records) != release.content_digest:
        raise InputError(f"{place} (its records differ)")
    order = release_order(layout.records, bytes.fromhex(release.seed))
    in_order = [layout.records[i] for i in order]
    if list(layout.records) != in_order:
        raise InputError(
            f"{place} (the same records in another order)",
            hint="test the file exactly as it was released",
        )
    if fingerprint(layout.records) != release.released_digest:
        raise InputError(f"{seed_file}: its seed and its digests do not agree")
    if _sha256(path.read_bytes()) != release.file_digest:
        raise InputError(
            f"{place} (records and order agree; other bytes differ)",
            hint="a header or line ends were changed since",
        )
    return release


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
