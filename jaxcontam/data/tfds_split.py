"""Splits of data sets that TFDS prepared: `tfds:NAME[/CONFIG][:VERSION]/SPLIT`.

NAME may be the path of a prepared folder. Nothing is prepared or downloaded:
`tfds.builder` asks servers first and may wait for minutes where there is no network,
and it takes a builder that needs TensorFlow for one that does not exist. A prepared
folder says all that is needed.
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.files import TFDS_PREFIX, Provenance
from jaxcontam.data.tables import Record
from jaxcontam.errors import InputError, unknown_name

_WORD = re.compile(r"tfds:(?P<name>[^\[]+)/(?P<split>[^/]+)")
_AGAIN = "copy or prepare the data set again"
_BUILD = "tfds build {} --file_format=array_record"
# Rows that are held at once: small, as one row may be a book.
_ROWS = 256
# Features of TFDS that are no text, number or list of these.
_MEDIA = ("Audio", "Image", "Video")


def is_tfds_split(source: str | Path) -> bool:
    """Tell a split that TFDS prepared from a file."""
    return str(source).startswith(TFDS_PREFIX)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TfdsSplit:
    """A prepared split, of which no row is read yet.

    Attributes:
        name: Name in reports.
        fields: Names of the features, without those that are `media`.
        media: Names of images and sounds, which are not read.
        files: Files that hold the rows -> how many dataset_info.json says they hold.
        is_shuffled: The rows may be in another order than that of their source.
    """

    word: str
    name: str
    split: str
    fields: tuple[str, ...]
    media: tuple[str, ...]
    files: dict[Path, int]
    is_shuffled: bool
    builder: Any

    def rows(
        self, names: Sequence[str], *, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Fields of examples as TFDS decodes them, in their order.

        Raises:
            InputError: At the first one that cannot be read, or if a file has another
                number of them than dataset_info.json says.
        """
        import tensorflow_datasets as tfds
        from google.protobuf.message import DecodeError

        skipped = {name: tfds.decode.SkipDecoding() for name in self.media}
        number = 0
        try:
            for path, n_said in self.files.items():
                _check_count(path, n_said)
            source = self.builder.as_data_source(
                split=self.split, decoders=skipped or None
            )
            n = len(source) if limit is None else min(limit, len(source))
            for first in range(0, n, _ROWS):
                for row in source.__getitems__(range(first, min(first + _ROWS, n))):
                    yield {name: row[name] for name in names}
                    number += 1
        except InputError:
            raise
        except (OSError, RuntimeError, LookupError, ValueError, DecodeError) as e:
            reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
            raise InputError(
                f"{self.word}: example {number + 1}: not readable ({reason[:200]})",
                hint=_AGAIN,
            ) from e


def _check_count(path: Path, n_said: int) -> None:
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(str(path))
    n_held = reader.num_records()
    reader.close()
    if n_held != n_said:
        raise InputError(
            f"{path}: {n_held} records, not the {n_said} of dataset_info.json",
            hint=_AGAIN,
        )


def open_tfds(word: str) -> TfdsSplit:
    """Find a split, by the files of its folder.

    Splits may be sliced and added as TFDS does it, such as `train[:10%]`. Folders are
    of array_record, the one format whose rows TFDS gives at random and in order.
    """
    if (match := _WORD.fullmatch(word)) is None:
        raise InputError(
            f"{word}: not tfds:NAME/SPLIT", hint="such as tfds:ag_news/train"
        )
    builder, split = _prepared(match["name"]), match["split"]
    info: Any = builder.info
    if (form := getattr(info.file_format, "value", None)) != "array_record":
        raise InputError(
            f"{word}: prepared as {form}, which is not read",
            hint=_BUILD.format(info.name),
        )
    try:
        rows = info.splits[split].file_instructions
    except (KeyError, ValueError) as e:
        if split not in info.splits and "[" not in split:
            raise unknown_name("split", split, info.splits) from e
        raise InputError(f"{word}: {str(e).splitlines()[0]}") from e
    files = {Path(one.filename): one.examples_in_shard for one in rows}
    for path in files:
        if not path.is_file():
            raise InputError(f"{path}: no such file, though dataset_info.json names it")
    features = dict(info.features) if hasattr(info.features, "keys") else {}
    media = tuple(n for n, one in features.items() if type(one).__name__ in _MEDIA)
    return TfdsSplit(
        word=word,
        name=f"{info.full_name.replace('/', '-')}-{split}",
        split=split,
        # TFDS has no order of its own.
        fields=tuple(sorted(name for name in features if name not in media)),
        media=media,
        files=files,
        is_shuffled=not info.disable_shuffling,
        builder=builder,
    )


def read_tfds(
    word: str, limit: int | None
) -> tuple[str, list[Record], Provenance, tuple[str, ...]]:
    """Name of a split, its examples, where their order is from, and what is left out.

    An example without a chosen field is its row as JSON.
    """
    found = open_tfds(word)
    rows = list(found.rows(found.fields, limit=limit))
    left_out = list(found.media)
    columns: dict[str, list[Any]] = {}
    for name in found.fields:
        try:
            columns[name] = [_plain(row[name]) for row in rows]
        except UnicodeDecodeError:
            left_out.append(name)
    records: list[Record] = []
    for i in range(len(rows)):
        row = {name: values[i] for name, values in columns.items()}
        where = f"{word}: example {i + 1}"
        records.append((where, json.dumps(row, ensure_ascii=False), row))
    notes = ()
    if left_out:
        notes = (f"fields that are no text left out: {', '.join(left_out)}",)
    # Hashes of keys put them there, or whoever wrote the folder: nothing says which.
    provenance: Provenance = "unknown" if found.is_shuffled else "published"
    return found.name, records, provenance, notes


def _plain(value: Any) -> Any:
    """A decoded value as JSON has it, in one order; bytes are texts in UTF-8."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    is_nothing = isinstance(value, float) and not math.isfinite(value)
    return None if is_nothing else value


def _prepared(name: str) -> Any:
    """The builder of a prepared folder, or of a name below the data folder."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    word, _, version = name.partition(":")
    folder = Path(word, version)
    if (folder / "dataset_info.json").is_file():
        return tfds.builder_from_directory(folder)
    below = os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets"
    if folder.is_dir():
        # The folder of several versions.
        name, below = folder.name, folder.parent
    try:
        return builder_from_files(name, data_dir=below)
    except (tfds.core.DatasetNotFoundError, ValueError) as e:
        raise InputError(
            f"tfds:{name}: not prepared under {below}",
            hint=f"once, with a network: {_BUILD.format(name)}; or name the folder of "
            "the data sets in TFDS_DATA_DIR",
        ) from e
