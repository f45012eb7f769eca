"""Benchmarks: examples in published order, with digests of content and of order.

An example is the raw line as published unless a template or a text field is given; a
row of a .parquet file, which has no line, is written as a line of JSON.
Nothing here shuffles or samples: with another order than the published one every
p-value would silently be uniform.
"""

import codecs
import contextlib
import dataclasses
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from jaxcontam.arguments import public
from jaxcontam.data.files import (
    HUB_PREFIX,
    TASK_PREFIX,
    TFDS_PREFIX,
    Commitment,
    Provenance,
    bounded_memory,
    check_file,
)
from jaxcontam.data.model_files import GGUF
from jaxcontam.data.tables import SUFFIX as TABLE_SUFFIX
from jaxcontam.data.tables import CsvTable, Record, is_table, read_table
from jaxcontam.data.templates import (
    check_template,
    element_spans,
    field_of,
    fill_template,
    holds_rows,
    is_missing,
    json_fault,
    null_words,
    rows_place,
    text_if_any,
)
from jaxcontam.errors import InputError
from jaxcontam.terminal_text import printable

_GZIP = b"\x1f\x8b"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt")
"""Suffixes of text files."""
# Bytes of a file of text, and characters of an example, which no context holds.
_MOST_BYTES, _MOST_CHARACTERS = 1 << 29, 4_000_000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """A test set as published.

    Attributes:
        name: The file's name without its suffix, or the dataset's with its split.
        rows: The parsed record of each example; None for plain lines.
        order_provenance: `unknown` where a task's code made the order, or TFDS
            may have shuffled it.
        left_out: Phrases on what of the file is no example, or named by its place, on
            the key under which rows stand, and on rows that are read whole.
    """

    name: str
    texts: tuple[str, ...]
    rows: tuple[dict[str, object] | None, ...]
    order_provenance: Provenance = "published"
    left_out: tuple[str, ...] = ()
    commitments: tuple[Commitment, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def fingerprint(self) -> str:
        """Digest of the examples in their order."""
        return fingerprint(self.texts)

    @property
    def content_digest(self) -> str:
        """Digest of the examples whatever their order."""
        return content_digest(self.texts)

    def groups(self, field: str, *, flag: str = "--group-field") -> list[object]:
        """The value of `field` in each example."""
        hint = f"{flag} must name a field of every record"
        values = []
        for number, row in enumerate(self.rows, 1):
            where = f"{self.name}: example {number}"
            values.append(field_of(row, field, where, hint=hint))
            if is_missing(values[-1]):
                raise InputError(
                    f"{where}: {field} is null",
                    hint="give each row a value; a row without a group takes its own",
                )
        return [v if isinstance(v, str | int) else json.dumps(v) for v in values]


@public
def load_benchmark(
    path: str | Path,
    *,
    template: str | None = None,
    text_field: str | None = None,
    limit: int | None = None,
    check_fields: bool = False,
    no_header: bool = False,
    null_text: str | None = None,
) -> Benchmark:
    """Read a benchmark file in its published order.

    Args:
        path: A .jsonl, .json (an array, or an object that holds one), .csv, .tsv (with
            header), .parquet or .txt file, all but .parquet also as .gz;
            `hf:ORG/NAME[@REVISION][:CONFIG]:SPLIT`; `tfds:NAME/SPLIT`, see
            `jaxcontam.data.tfds_split`; or a task of lm-evaluation-harness, see
            `read_task`.
        template: Text of an example with fields in braces.
        text_field: Or the one field that is the text.
        limit: Most examples, from the start, never a sample.
        check_fields: Refuse an unpaired surrogate in any field, for callers that read
            fields; raw JSON lines keep it as an escape.
        no_header: The first row of a .csv or .tsv file is an example.
        null_text: Text of a record whose `text_field` is null; None leaves it out.

    Raises:
        InputError: If the file is missing, empty, not UTF-8 (names the byte), not
            JSON (names the line), or lacks a field (names those that exist), or a field
            of the template is null; or the hub has no such split.
    """
    path = Path(path)
    check_template(template, text_field)
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, got {limit}")
    if no_header and _suffix(path) not in _DELIMITERS:
        raise InputError(
            f"{path}: --no-header is for {' and '.join(_DELIMITERS)}",
            hint="leave it out",
        )
    provenance: Provenance = "published"
    left_out: tuple[str, ...] = ()
    if str(path).startswith(TASK_PREFIX):
        from jaxcontam.data.lm_eval_tasks import read_task

        name, records, provenance = read_task(str(path))
    elif str(path).startswith(TFDS_PREFIX):
        from jaxcontam.data.tfds_split import read_tfds

        name, records, provenance, left_out = read_tfds(str(path), limit)
    elif str(path).startswith(HUB_PREFIX):
        name, records, left_out = _hub_records(str(path), limit)
    else:
        name = printable(Path(path.stem).stem if _is_packed(path) else path.stem)
        records, left_out = _file_records(path, limit, no_header=no_header)
    records = records[:limit]
    if not records:
        raise InputError(f"{path}: no examples", hint="nothing to test in this file")
    if check_fields:
        check_characters(records)
    texts, rows = [], []
    n_null = 0
    for where, raw, row in records:
        if template is not None:
            raw = fill_template(template, row, where)
        elif text_field is not None:
            found = text_if_any(text_field, row, where)
            raw = null_text if found is None else found
            if raw is None:
                n_null += 1
                continue
        check_text(raw, where)
        if len(raw) > _MOST_CHARACTERS:
            raise _too_long(where, f"an example of {len(raw):,} characters")
        texts.append(raw)
        rows.append(row)
    left_out += null_words(n_null, text_field)
    if not texts:
        raise InputError(f"{path}: no examples ({left_out[-1]})")
    return Benchmark(name, tuple(texts), tuple(rows), provenance, left_out)


def _hub_records(
    word: str, limit: int | None
) -> tuple[str, list[Record], tuple[str, ...]]:
    """Name and examples of a split on the hub, its files one after the other."""
    from jaxcontam.data.hub_splits import download_split, parse_hub_split

    wanted = parse_hub_split(word)
    records: list[Record] = []
    left_out: tuple[str, ...] = ()
    for path in download_split(wanted):
        found, words = _file_records(path, limit, lines_in_json=True)
        records, left_out = records + found, left_out + words
        if limit is not None and len(records) >= limit:
            break
    return wanted.name, records, left_out


def _file_records(
    path: Path,
    limit: int | None,
    *,
    lines_in_json: bool = False,
    no_header: bool = False,
) -> tuple[list[Record], tuple[str, ...]]:
    """Examples of a file, and what of it is none."""
    with bounded_memory(path):
        if is_table(path):
            found: list[Record] = [
                (f"{path}: row {number}", json.dumps(row, ensure_ascii=False), row)
                for number, row in enumerate(read_table(path, limit=limit), 1)
            ]
            return found, ()
        if path.is_file():
            _check_lengths(path)
        text = read_text(path, suffixes=(*SUFFIXES, TABLE_SUFFIX), packed=True)
        suffix = _suffix(path)
        if lines_in_json and suffix == ".json" and not holds_rows(text):
            suffix = ".jsonl"
        left_out: tuple[str, ...] = ()
        if suffix in _DELIMITERS:
            table = CsvTable(path, text, _DELIMITERS[suffix], no_header=no_header)
            records = list(itertools.islice(table.rows(), limit))
            blank = table.n_blank
            left_out = table.notes
            if no_header:
                left_out += (f"columns are named by position, {table.span}",)
        elif suffix == ".json":
            place, left_out = rows_place(path, text)
            records = list(itertools.islice(_elements(path, text, place), limit))
            blank = 0
        else:
            records = parse_records(path, text, suffix=suffix, limit=limit)
            # What ends the file is no line that somebody misses.
            lines = _lines(text.rstrip()) if suffix in (".jsonl", ".txt") else []
            blank = sum(not line.strip() for line in lines)
        if blank:
            left_out += (f"{blank} blank line{'s' if blank > 1 else ''} left out",)
        return records, left_out


def _check_lengths(path: Path) -> None:
    """Refuse a file, and a line of it, before more than one line is in memory."""
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise _too_large(path, f"{size:,} bytes, over")
    if _suffix(path) not in (".jsonl", ".txt"):
        return
    most, n_bytes = 4 * _MOST_CHARACTERS, 0
    with _opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), 1):
            if len(line) > most:
                raise _too_long(f"{path}:{number}", f"a line of over {most:,} bytes")
            if (n_bytes := n_bytes + len(line)) > _MOST_BYTES:
                raise _too_large(path, "unpacked to over")


def _too_large(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: {found} the {_MOST_BYTES:,} bytes that a file of examples may have",
        hint="split it, or keep its first rows",
    )


def _too_long(where: str, found: str) -> InputError:
    """The refusal of an example that would fill the memory of tests and tokenizers."""
    return InputError(
        f"{where}: {found} (at most {_MOST_CHARACTERS:,} characters)",
        hint="split it, or leave it out",
    )


def check_characters(records: Sequence[Record]) -> None:
    """Refuse an unpaired surrogate, from a JSON escape, in any field of the records."""
    for where, _, row in records:
        if row is not None:
            check_text(json.dumps(row, ensure_ascii=False), where)


def check_text(text: str, where: str) -> None:
    """Refuse an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise InputError(f"{where}: unpaired surrogate ({text[e.start]!a})") from e


def fingerprint(texts: Sequence[str]) -> str:
    """SHA-256 over the examples' digests in their order."""
    return _digest_of(_digests(texts))


def content_digest(texts: Sequence[str]) -> str:
    """SHA-256 over the sorted digests of the examples: blind to their order."""
    return _digest_of(sorted(_digests(texts)))


def _digests(texts: Sequence[str]) -> list[bytes]:
    return [
        hashlib.sha256(text.encode(errors="surrogatepass")).digest() for text in texts
    ]


def _digest_of(digests: Sequence[bytes]) -> str:
    return "sha256:" + hashlib.sha256(b"".join(digests)).hexdigest()


def read_text(
    path: Path, *, suffixes: Sequence[str] = SUFFIXES, packed: bool = False
) -> str:
    """Read the text of a benchmark file, without a byte order mark.

    `packed` takes a .gz, too.
    """
    if str(path).startswith((HUB_PREFIX, TFDS_PREFIX)):
        raise InputError(
            f"{path}: only files are read here",
            hint=f"export it as one of {', '.join(SUFFIXES)}",
        )
    check_file(path, suffixes)
    if _suffix(path) not in SUFFIXES or (_is_packed(path) and not packed):
        is_model = path.suffix == GGUF
        raise InputError(
            f"{path}: unknown suffix {path.suffix!r}",
            hint="this is a model: the model comes first, then the file of examples"
            if is_model
            else f"one of {', '.join(suffixes)}",
        )
    with _opened(path) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise _too_large(path, "unpacked to over")
    try:
        # Not utf-8-sig, which counts bytes from after the mark.
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        hint = f"run iconv -f {_encoding(data)} -t utf-8 FILE > NEW, with its actual "
        hint += "encoding"
        if data.startswith(_GZIP):
            hint = f"it is compressed: name it {path.name}.gz"
        raise InputError(
            f"{path}: byte {e.start}: not UTF-8 ({data[e.start]:#04x})", hint=hint
        ) from e


def _encoding(data: bytes) -> str:
    """The likely encoding of what is no UTF-8."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_wide else "latin1"


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _suffix(path: Path) -> str:
    """The suffix, of a .gz that of what is packed."""
    return Path(path.stem if _is_packed(path) else path.name).suffix.lower()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path) if _is_packed(path) else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        is_plain = isinstance(e, gzip.BadGzipFile)
        raise InputError(
            f"{path}: no whole .gz file ({e})",
            hint=f"if it is not compressed, name it {path.stem}"
            if is_plain
            else "copy or download it again",
        ) from e


def parse_records(
    path: Path,
    text: str,
    *,
    suffix: str | None = None,
    limit: int | None = None,
    no_header: bool = False,
) -> list[Record]:
    """Examples of a file in their order."""
    suffix = suffix or _suffix(path)
    if suffix == ".jsonl":
        found = _json_lines(path, text)
    elif suffix == ".json":
        found = _elements(path, text, rows_place(path, text)[0])
    elif suffix in _DELIMITERS:
        table = CsvTable(path, text, _DELIMITERS[suffix], no_header=no_header)
        found = table.rows()
    else:
        found = (
            (f"{path}:{number}", line, None)
            for number, line in enumerate(_lines(text), 1)
            if line.strip()
        )
    return list(itertools.islice(found, limit))


def _lines(text: str) -> list[str]:
    """Lines, split at line feeds only: an example may contain U+2028."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _json_lines(path: Path, text: str) -> Iterator[Record]:
    is_one = "\n" not in text.strip()
    for number, line in enumerate(_lines(text), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise InputError(
                f"{where}: not JSON ({json_fault(e)})",
                hint=_json_hint(path, text, e),
            ) from e
        if isinstance(value, list) and is_one:
            raise InputError(
                f"{where}: one JSON array, not one value per line",
                hint="name the file .json: each value of the array is then an example",
            )
        yield where, line, value if isinstance(value, dict) else None


def _json_hint(path: Path, text: str, fault: Exception) -> str:
    """What a .jsonl with a line that is no JSON may be in truth."""
    if text.lstrip().startswith("[") and text.rstrip().endswith("]"):
        return f"if the file is one array, name it {path.stem}.json"
    if isinstance(fault, json.JSONDecodeError) and (
        fault.pos == len(fault.doc) or fault.msg.startswith("Unterminated")
    ):
        return "the line is cut short: copy or download the file again, or mend it"
    return "write one JSON value per line, or use .txt for any text"


def _elements(path: Path, text: str, place: int) -> Iterator[Record]:
    """Elements of an array: an object as its source text, a string as its value."""
    for number, (value, start, end) in enumerate(element_spans(text, place), 1):
        yield (
            f"{path}: element {number}",
            value if isinstance(value, str) else text[start:end],
            value if isinstance(value, dict) else None,
        )


def without_repeats(benchmark: Benchmark) -> Benchmark:
    """A benchmark with one copy of each text, in published order.

    Copies put the same order into many strata, which are then not independent. In a
    file of 2, 4, 8, ... copies the first ones stand sorted by number of copies, however
    well it was shuffled, so the copy that stays is drawn, afresh for each order of the
    rows. Where the rows were equally likely to stand in any order, in any within
    groups, or backwards, so are those that are left. A file that was written several
    times, one whole after the other, is read once.
    """
    places: dict[str, list[int]] = {}
    for i, text in enumerate(benchmark.texts):
        places.setdefault(text, []).append(i)
    n_all, n_kept = len(benchmark), len(places)
    if n_kept == n_all:
        return benchmark
    stays, kept = "the first", list(range(n_kept))
    if benchmark.texts != benchmark.texts[:n_kept] * (n_all // n_kept):
        rng = np.random.default_rng(_order_entropy(benchmark))
        kept, stays = (
            [own[rng.integers(len(own))] for own in places.values()],
            "a random",
        )
    left_out = (
        f"{n_all - n_kept} of {n_all} examples repeat another one and are left out: "
        f"{stays} copy of each text is kept"
    )
    return dataclasses.replace(
        benchmark,
        left_out=(*benchmark.left_out, left_out),
        texts=tuple(benchmark.texts[i] for i in sorted(kept)),
        rows=tuple(benchmark.rows[i] for i in sorted(kept)),
    )


def _order_entropy(benchmark: Benchmark) -> int:
    """SHA-256 of all rows in their published order."""
    digest = hashlib.sha256()
    for text, row in zip(benchmark.texts, benchmark.rows, strict=True):
        digest.update(json.dumps([text, row], default=repr).encode() + b"\n")
    return int.from_bytes(digest.digest())


def drawn_places(keys: Sequence[str], n: int | None) -> list[int]:
    """Places of at most n items, ascending, drawn by the SHA-256 of what they hold.

    The first n of a file that is sorted by length, date or difficulty are of one kind,
    and of two files of unequal length of two kinds. Copies are drawn each by itself:
    what is drawn is as a smaller file of the same source.
    """
    if n is not None and n < 1:
        raise InputError(f"--limit must be at least 1, got {n}")
    seen: dict[str, int] = {}
    digests = []
    for key in keys:
        seen[key] = count = seen.get(key, -1) + 1
        words = json.dumps([key, count]).encode()
        digests.append(hashlib.sha256(words).digest())
    return sorted(sorted(range(len(keys)), key=digests.__getitem__)[:n])
