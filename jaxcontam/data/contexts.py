"""What stands around a hit in the corpus, read again from the files with hits."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
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
    wanted: dict[str, dict[int, list[int]]] = {}
    for i, row in enumerate(rows):
        if row.file is not None and row.line is not None and row.rule is not None:
            wanted.setdefault(row.file, {}).setdefault(row.line, []).append(i)
    found = list(rows)
    for file in files:
        if (places := wanted.get(file.name)) is None:
            continue
        for line, text in _texts_at(file.path, places, text_field):
            for i in places[line]:
                corpus = in_context(text, rows[i].matched)
                found[i] = dataclasses.replace(rows[i], corpus=corpus)
    return tuple(found)


def _texts_at(
    path: Path, lines: Collection[int], text_field: str
) -> Iterator[tuple[int, str]]:
    """Text of a document from each line on."""
    growing: dict[int, str] = {}
    left = set(lines)
    for item in read_segments(path, text_field=text_field):
        if not isinstance(item, Segment):
            continue
        whole = [n for n in growing if not item.joins or len(growing[n]) >= _MOST]
        yield from ((line, growing.pop(line)) for line in whole)
        if item.line in left:
            left.remove(item.line)
            growing[item.line] = ""
        if not (growing or left):
            return
        for line in growing:
            growing[line] += item.text
    yield from growing.items()
