"""Release of a benchmark in an order drawn with a secret seed, and its later proof.

Each record's sort key is a keyed hash of the record itself, so the order follows from
the seed and the set of records alone: whoever has the seed can check a released file
without the original, and the order in which the owner kept the records plays no part.
To a reader without the seed the order is random.
"""

import dataclasses
import hashlib
import hmac
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.benchmark import (
    content_digest,
    fingerprint,
    parse_records,
    read_text,
)
from jaxcontam.data.files import Commitment, check_file
from jaxcontam.data.templates import element_spans, rows_place
from jaxcontam.errors import InputError

METHOD = "hmac-sha256-sort"
METHOD_VERSION = 1
KIND = "jaxcontam release"
SEED_BYTES = 32
SEARCHABLE_BITS = 40.0
"""So few bits of order can be searched for a seed that gives an order of choice."""

_MARK = "\ufeff"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeedFile:
    """Content of a seed file, a secret until the proof.

    Attributes:
        seed: 256 random bits, hexadecimal.
        content_digest: SHA-256 of the records' digests, sorted.
        released_digest: The same digests in the released order.
        file_digest: SHA-256 of the released file's bytes.
        made: UTC.
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


def commitment(
    path: Path, *, made: str | None = None, bits: float | None = None
) -> Commitment:
    """The SHA-256 of a secret file: commits its owner without revealing it."""
    check_file(path, ())
    digest = sha256_of(path.read_bytes())
    return Commitment(file=str(path), sha256=digest, made=made, bits=bits)


def order_bits(records: Sequence[str]) -> float:
    """log2 of the number of different orders of the records."""
    nats = math.lgamma(len(records) + 1)
    nats -= sum(math.lgamma(n + 1) for n in Counter(records).values())
    return max(0.0, nats / math.log(2))


def search_warnings(commitments: Sequence[Commitment]) -> list[str]:
    """Warnings on the proof of a small file, a sentence for each seed."""
    return [
        f"{one.file} decides {one.bits:.0f} bits, so a seed that reproduces what was "
        "already public can be searched for: its proof is worth no more than the date "
        "of its commitment"
        for one in commitments
        if one.bits is not None and one.bits <= SEARCHABLE_BITS
    ]


def release_order(records: Sequence[str], seed: bytes) -> list[int]:
    """Indices of the records, ascending in HMAC-SHA256(seed, digest, count).

    Equal records differ by their count only, since their order cannot be seen. The seed
    is uniform secret bytes, so that every order of the records is equally likely.
    """
    seen: dict[str, int] = {}
    keys = []
    for record in records:
        count = seen[record] = seen.get(record, -1) + 1
        message = hashlib.sha256(record.encode()).digest() + count.to_bytes(8, "big")
        keys.append(hmac.digest(seed, message, "sha256"))
    return sorted(range(len(records)), key=keys.__getitem__)


def make_release(
    path: Path, *, seed: bytes, version: str, made: str, no_header: bool = False
) -> tuple[bytes, SeedFile]:
    """The released file and its seed file; writes nothing.

    With `no_header` the first row of a .csv or .tsv file is moved like the others.
    """
    file = read_records(path, no_header=no_header)
    if len(set(file.records)) < 2:
        raise InputError(
            f"{path}: fewer than two different examples",
            hint="give at least two: otherwise there is only one order",
        )
    if any(record.endswith("\r") for record in file.records):
        # Before another line end it would become part of that one.
        raise InputError(
            f"{path}: a record ends in a bare carriage return",
            hint="write every line end as a line feed",
        )
    data = file.encoded(release_order(file.records, seed))
    found = cut_records(path, data.decode(), no_header=no_header)
    assert sorted(found.records) == sorted(file.records)
    return data, SeedFile(
        seed=seed.hex(),
        n_examples=len(file.records),
        content_digest=content_digest(found.records),
        released_digest=fingerprint(found.records),
        file_digest=sha256_of(data),
        jaxcontam=version,
        made=made,
    )


def read_release(path: Path, *, kind: str = KIND, method: str = METHOD) -> SeedFile:
    """Read a seed file of a kind, which names the command that makes it."""
    try:
        fields = json.loads(path.read_bytes())
    except OSError as e:
        raise InputError(
            f"{path}: no seed file ({e.strerror})", hint=f"make one with {kind}"
        ) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not a seed file (not JSON)") from e
    known = {field.name: field.type for field in dataclasses.fields(SeedFile)}
    # What is wrong is named, never shown: the file is a secret.
    if not isinstance(fields, dict) or fields.get("kind") != kind:
        raise InputError(f"{path}: not a seed file of {kind}")
    if fields.keys() != known.keys() or not all(
        type(fields[name]) is kind for name, kind in known.items()
    ):
        raise InputError(f"{path}: fields are missing or of the wrong type")
    if (fields["method"], fields["method_version"]) != (method, METHOD_VERSION):
        raise InputError(
            f"{path}: unknown method {fields['method']!r} version "
            f"{fields['method_version']}",
            hint="try a newer jaxcontam",
        )
    if not re.fullmatch(f"[0-9a-f]{{{2 * SEED_BYTES}}}", fields["seed"]):
        raise InputError(f"{path}: the seed is not {SEED_BYTES} bytes in hexadecimal")
    return SeedFile(**fields)


def check_release(
    path: Path, seed_file: Path, *, no_header: bool = False
) -> Commitment:
    """Check that a file is the released one, in the order of its seed.

    With `no_header` all rows of a .csv or .tsv file are examples, and must be those
    that the seed moved: one that stood still would be taken for a drawn one.
    """
    release = read_release(seed_file)
    file = read_records(path, no_header=no_header)
    place = f"{path}: not the file that {seed_file} released"
    if content_digest(file.records) != release.content_digest:
        is_table = path.suffix.lower() in (".csv", ".tsv")
        raise InputError(
            f"{place} (its records differ)",
            hint="pass --no-header to both release and audit, or to neither"
            if is_table
            else "",
        )
    order = release_order(file.records, bytes.fromhex(release.seed))
    in_order = [file.records[i] for i in order]
    if list(file.records) != in_order:
        raise InputError(
            f"{place} (the same records in another order)",
            hint="test the file exactly as it was released",
        )
    if fingerprint(file.records) != release.released_digest:
        raise InputError(f"{seed_file}: its seed and its digests do not agree")
    if sha256_of(path.read_bytes()) != release.file_digest:
        raise InputError(
            f"{place} (records and order agree; other bytes differ)",
            hint="restore the file: a header or line ends were changed",
        )
    return commitment(seed_file, made=release.made, bits=order_bits(file.records))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordFile:
    """Text of a benchmark file, cut at its records; moving these changes nothing else.

    `gaps` stand before the first record, between records and after the last.
    """

    records: tuple[str, ...]
    gaps: tuple[str, ...]

    def encoded(self, order: Sequence[int] | None = None) -> bytes:
        """The file with its records in another order; by default its own bytes."""
        places = range(len(self.records)) if order is None else order
        parts = [self.gaps[0]]
        for place, gap in zip(places, self.gaps[1:], strict=True):
            parts += [self.records[place], gap]
        return "".join(parts).encode()


def read_records(path: Path, *, no_header: bool = False) -> RecordFile:
    """Cut a .jsonl, .json, .csv, .tsv or .txt file at its examples."""
    text = read_text(path)
    mark = _MARK if path.read_bytes().startswith(_MARK.encode()) else ""
    return cut_records(path, mark + text, no_header=no_header)


def cut_records(path: Path, text: str, *, no_header: bool = False) -> RecordFile:
    """Cut the text of a file, which may start with a byte order mark."""
    body = text.removeprefix(_MARK)
    n_mark = len(text) - len(body)
    if path.suffix.lower() == ".json":
        place, _ = rows_place(path, body)
        spans = [(start, end) for _, start, end in element_spans(body, place)]
    else:
        records = parse_records(path, body, no_header=no_header)
        spans = _spans(body, [raw for _, raw, _ in records])
    if not spans:
        raise InputError(f"{path}: no examples", hint="nothing to test in this file")
    starts = [start + n_mark for start, _ in spans]
    ends = [end + n_mark for _, end in spans]
    return RecordFile(
        records=tuple(text[a:b] for a, b in zip(starts, ends, strict=True)),
        gaps=tuple(
            text[a:b] for a, b in zip([0, *ends], [*starts, len(text)], strict=True)
        ),
    )


def _spans(text: str, raws: Sequence[str]) -> list[tuple[int, int]]:
    """Span of each raw record, from the last: a header may contain the first one."""
    spans, end = [], len(text)
    for raw in reversed(raws):
        start = text.rindex(raw, 0, end)
        spans.append((start, start + len(raw)))
        end = start
    return spans[::-1]


def sha256_of(data: bytes) -> str:
    """Digest of a file's bytes, as reports write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
