"""What stands around a hit in the corpus, read again from the files with hits."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.corpus import CorpusFile, Segment, read_segments
from jaxcontam.data.occurrences import Occurrence, in_context

# Characters behind the place of a hit that its words are looked for in.
_MOST = 1 << 14


def with_contexts(
    rows: Sequence[Occurrence], files: Sequence[CorpusFile], *, text_field: str
) -> tuple[Occurrence, ...]:
    """Rows with `corpus`: the matched words at their place, with what is around them.

    A file is read up to its last hit, and a file without one not at all.
    """
    lines: dict[str, set[int]] = {}
    for row in rows:
        if row.file is not None and row.line is not None and row.rule is not None:
            lines.setdefault(row.file, set()).add(row.line)
    texts = {
        (file.name, line): text
        for file in files
        if file.name in lines
        for line, text in _texts_at(file.path, lines[file.name], text_field).items()
    }
    return tuple(
        dataclasses.replace(
            row,
            corpus=in_context(texts.get((row.file or "", row.line or 0)), row.matched),
        )
        for row in rows
    )


def _texts_at(path: Path, lines: set[int], text_field: str) -> dict[int, str]:
    """Text of a document from each line on."""
    texts: dict[int, str] = {}
    growing: list[int] = []
    for item in read_segments(path, text_field=text_field):
        if not isinstance(item, Segment):
            continue
        growing = [line for line in growing if item.joins and len(texts[line]) < _MOST]
        if item.line in lines and item.line not in texts:
            texts[item.line] = ""
            growing.append(item.line)
        for line in growing:
            texts[line] += item.text
        if not growing and item.line > max(lines):
            break
    return texts
