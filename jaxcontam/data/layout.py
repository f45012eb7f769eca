"""A benchmark file as its records and the bytes around them.

Whoever moves records must not touch anything else: quotes, escapes, spaces, line
ends, a header and a byte order mark stay as published.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.benchmark import json_elements, parse_records, read_text
from jaxcontam.errors import InputError

_MARK = "\ufeff"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The text of a file, cut at its records.

    Attributes:
        records: Source text of each example, in the order of the file.
        gaps: What stands before the first record, between records and after the
            last one: one more than records.
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


def read_layout(path: Path) -> Layout:
    """Cut a .jsonl, .json, .csv, .tsv or .txt file at its examples.

    Raises:
        InputError: As `load_benchmark`, or if the file holds no example.
    """
    text = read_text(path)
    mark = _MARK if path.read_bytes().startswith(_MARK.encode()) else ""
    return layout_of(path, mark + text)


def layout_of(path: Path, text: str) -> Layout:
    """Cut the text of a file, which may start with a byte order mark.

    Args:
        path: Its suffix names the format.
        text: Its content.

    Raises:
        InputError: If the text is not of that format or holds no example.
    """
    body = text.removeprefix(_MARK)
    n_mark = len(text) - len(body)
    if path.suffix.lower() == ".json":
        spans = [(start, end) for _, start, end in json_elements(path, body)]
    else:
        spans = _spans(body, [raw for _, raw, _ in parse_records(path, body)])
    if not spans:
        raise InputError(f"{path}: no examples", hint="nothing to test in this file")
    starts = [start + n_mark for start, _ in spans]
    ends = [end + n_mark for _, end in spans]
    return Layout(
        records=tuple(text[a:b] for a, b in zip(starts, ends, strict=True)),
        gaps=tuple(
            text[a:b] for a, b in zip([0, *ends], [*starts, len(text)], strict=True)
        ),
    )


def _spans(text: str, raws: Sequence[str]) -> list[tuple[int, int]]:
    """Where each raw record stands, from the last one back.

    Only line ends and blank lines stand between records, so the nearest occurrence
    is the record itself. A header may hold the text of the first record, so the
    search goes backwards.
    """
    spans, end = [], len(text)
    for raw in reversed(raws):
        start = text.rindex(raw, 0, end)
        spans.append((start, start + len(raw)))
        end = start
    return spans[::-1]
