"""Background text by name: files, folders, prepared TFDS splits, data sets of the hub.

A corpus is a row of parts, one a file; each says what it is, so that a cache made of it
knows when it changed, and yields its documents in their order.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxcontam.data.corpus import list_corpus
from jaxcontam.data.hub_splits import download_split, is_hub_split, parse_hub_split
from jaxcontam.errors import InputError, unknown_name
from train.readers import (
    BINARY_SUFFIXES,
    KINDS,
    Part,
    array_records,
    file_part,
    parquet_column,
    read_texts,
    text_of,
    tf_records,
)

TFDS_PREFIX = "tfds:"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in their order, from one part after another.

    Attributes:
        parts: Files and splits, in the order of the names that were given.
        passed_over: Files of the folders that are of no kind that is read.
    """

    parts: tuple[Part, ...]
    passed_over: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """SHA-256 over what its parts are, all of whose documents are taken."""
        known = [[part.identity for part in self.parts], None]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(part.read() for part in self.parts)


def open_corpus(
    names: Sequence[str | Path],
    *,
    text_field: str = "text",
    leave_out: Path | None = None,
) -> Corpus:
    """Find the parts of a corpus; no text is read yet.

    Args:
        names: Each a file (those of `jaxcontam.data.corpus`, and .array_record), a
            folder of such files with the folders in it,
            `tfds:NAME[:VERSION]/SPLIT`, or `hf:NAME[:CONFIG]:SPLIT`.
        text_field: Field of a record, or column, that is its text.
        leave_out: A folder that is not searched: sets that an earlier run wrote there
            are no background of the next.

    Raises:
        InputError: If a name leads nowhere, or two names lead to the same part.
    """
    if not names:
        raise InputError("no corpus is given", hint="name a file or a folder of text")
    parts: list[Part] = []
    passed_over: list[str] = []
    for name in map(str, names):
        if name.startswith(TFDS_PREFIX):
            parts += tfds_parts(name, text_field)
        elif is_hub_split(name):
            paths = download_split(parse_hub_split(name))
            parts += [_text_part(path, text_field) for path in paths]
        else:
            path = Path(name)
            if not path.exists():
                raise InputError(
                    f"{path}: no such file or folder",
                    hint=f"a corpus is a file ({', '.join(KINDS)}), a folder, "
                    "tfds:NAME/SPLIT or hf:NAME:SPLIT",
                )
            files, others = list_corpus(path, leave_out=leave_out, also=BINARY_SUFFIXES)
            parts += [_text_part(file.path, text_field) for file in files]
            passed_over += [str(path / other) for other in others]
    seen: set[str] = set()
    for part in parts:
        if part.identity in seen:
            raise InputError(
                f"{part.name}: twice in the corpus", hint="name each file once"
            )
        seen.add(part.identity)
    return Corpus(tuple(parts), tuple(passed_over))


def read_documents(
    names: Sequence[str | Path], *, text_field: str = "text"
) -> list[str]:
    """All documents of a corpus that fits into memory; see `open_corpus`."""
    return list(open_corpus(names, text_field=text_field))


def corpus_digest(documents: Iterable[str]) -> str:
    """SHA-256 over the documents' digests in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(hashlib.sha256(document.encode("utf-8")).digest())
    return f"sha256:{digest.hexdigest()}"


def _text_part(path: Path, text_field: str) -> Part:
    return file_part(path, lambda: read_texts(path, text_field), taken=[text_field])


_TFDS_WORD = re.compile(r"tfds:(?P<name>.+)/(?P<split>[^/\[]+(\[.*\])?)")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def tfds_parts(word: str, text_field: str) -> list[Part]:
    """Files of `tfds:NAME[/CONFIG][:VERSION]/SPLIT`, or of a prepared folder.

    Nothing is prepared or downloaded: the library asks servers first and may wait for
    minutes where there is no network, and it takes a builder that needs TensorFlow for
    one that does not exist. The folder of a prepared data set says all that is needed.

    Splits may be sliced and added as TFDS does it, such as `train[:10%]`; only the
    rows asked for are read, whatever the format of the files.

    Raises:
        InputError: If it is not prepared here, or there is no such split or field.
    """
    if (match := _TFDS_WORD.fullmatch(word)) is None:
        raise InputError(
            f"{word}: not tfds:NAME/SPLIT", hint="such as tfds:ag_news/train"
        )
    folder = _prepared_folder(match["name"])
    import tensorflow_datasets as tfds

    info = tfds.builder_from_directory(folder).info
    features: Any = info.features
    names = list(features) if hasattr(features, "keys") else []
    if text_field not in names:
        raise InputError(
            f"{word}: no field {text_field!r} (it has: {', '.join(names) or 'none'})",
            hint="name the field with --text-field",
        )
    file_format = getattr(info.file_format, "value", str(info.file_format))
    if file_format not in _FORMATS:
        raise InputError(
            f"{word}: prepared as {file_format}, which is not read",
            hint="prepare it with file_format='array_record'",
        )
    try:
        instructions = info.splits[match["split"]].file_instructions
    except (KeyError, ValueError) as e:
        if match["split"] not in info.splits and "[" not in match["split"]:
            raise unknown_name("split", match["split"], info.splits) from e
        raise InputError(f"{word}: {str(e).splitlines()[0]}") from e
    return [
        _tfds_part(features, file_format, text_field, rows) for rows in instructions
    ]


def _tfds_part(features: Any, file_format: str, text_field: str, rows: Any) -> Part:
    path, skip, n_stored = Path(rows.filename), rows.skip, rows.examples_in_shard
    n_taken = n_stored - skip if rows.take < 0 else rows.take

    def texts() -> Iterator[str]:
        number = 0
        for number, record in enumerate(_FORMATS[file_format](path), 1):
            if skip < number <= skip + n_taken:
                where = f"{path}:{number}"
                yield text_of(_example(features, record, where)[text_field], where)
        if number != n_stored:
            raise InputError(
                f"{path}: {number} records, not the {n_stored} of dataset_info.json",
                hint="copy or prepare the data set again",
            )

    if not path.is_file():
        raise InputError(f"{path}: no such file, though dataset_info.json names it")
    return file_part(path, texts, taken=[text_field, skip, n_taken])


_FORMATS = {
    "array_record": array_records,
    "parquet": lambda path: parquet_column(path, "data"),
    "tfrecord": tf_records,
}


def _example(features: Any, record: bytes, where: str) -> dict[str, Any]:
    from google.protobuf.message import DecodeError

    try:
        return features.deserialize_example_np(record)
    except (DecodeError, KeyError, ValueError) as e:
        raise InputError(
            f"{where}: no example of this data set ({type(e).__name__})",
            hint="copy or prepare the data set again",
        ) from e


def _prepared_folder(name: str) -> Path:
    """The folder of a version: of a path, or below the data folder; latest first."""
    name, _, version = name.partition(":")
    data_folder = Path(
        os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets"
    )
    for folder in (Path(name), data_folder / name):
        if version:
            folder = folder / version
        if (folder / "dataset_info.json").is_file():
            return folder
        versions = [
            path.parent
            for path in folder.glob("*/dataset_info.json")
            if _VERSION.fullmatch(path.parent.name)
        ]
        if versions:
            return max(versions, key=lambda path: [*map(int, path.name.split("."))])
    plain = name.split("/")[0]
    raise InputError(
        f"tfds:{name}{version and ':'}{version}: not prepared under {data_folder}",
        hint='once, with a network: python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('{name}', file_format='array_record').download_and_prepare()\"; "
        "or name the folder of the data sets in TFDS_DATA_DIR"
        + _configs_hint(data_folder / plain),
    )


def _configs_hint(folder: Path) -> str:
    found = sorted(
        {path.parent.parent.name for path in folder.glob("*/*/dataset_info.json")}
    )
    return f"; prepared configs: {', '.join(found)}" if found else ""
