"""Streaming search of a corpus for the texts of an `OverlapIndex`.

The corpus is read in batches. The state is one count and one place per n-gram, and the
closest stretch to each text. A batch repeats the end of an unfinished document, so that
the result does not depend on where batches are cut, nor on where a search is taken up.
"""

import dataclasses
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.data.corpus import CorpusFile, Fault, Segment, read_segments
from jaxcontam.data.ngrams import (
    LONG,
    SHINGLE,
    SHORT,
    NgramTable,
    OverlapIndex,
    collapsed,
    ngram_hashes,
    shingles,
    word_ids,
    words_of,
)
from jaxcontam.data.records import Place
from jaxcontam.errors import InputError
from jaxcontam.reports.archive import DAMAGED_ARRAY
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report_files import replace_bytes

if TYPE_CHECKING:
    from jaxcontam.overlap.nearest import NearestSearch

STATE_NAME = "search.npz"

_BATCH_CHARACTERS = 1 << 20
_SAVE_SECONDS = 10.0
_NAMED_FAULTS = 20
# So many records without one text mean that a flag is wrong, not the records.
_HOPELESS = 1000
# Most occurrences in the texts of a SHORT-gram that starts a comparison. More frequent
# ones are the frame around a benchmark's examples, or one word repeated.
_MAX_HELD = 100
# Most pairs of a place of the corpus and a place of a text in memory.
_PAIRS = 1 << 18
# Least words of a text for an exact comparison; shorter ones occur everywhere.
_MIN_COMPARED = 5


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFault:
    """A part of the corpus that was skipped."""

    file: str
    line: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """Where a search stands.

    Attributes:
        place: Where in that file; None where it begins.
        finished: Digest of the result, once there is one.
    """

    file: int = 0
    place: Place | None = None
    n_faults: int = 0
    faults: tuple[NamedFault, ...] = ()
    finished: str | None = None


def search_files(
    search: "OverlapSearch",
    nearest: "NearestSearch | None",
    files: list[CorpusFile],
    *,
    text_field: str,
    reached: Reached,
    save: Callable[[Reached], None],
    progress: Callable[[int, int], None],
    batch_characters: int = _BATCH_CHARACTERS,
) -> Reached:
    """Read a corpus from where a search stands to its end.

    `save` is called every so often with a place to go on from, `progress` with bytes
    done and in all. `batch_characters` is text searched at a time; never less than four
    times the longest text that is looked for, since a batch repeats twice as much.
    """
    done = sum(file.size for file in files[: reached.file])
    in_all = sum(file.size for file in files)
    longest = max(map(len, search.index.texts), default=0)
    batch_characters = max(batch_characters, 4 * longest)
    batch: list[tuple[int, Segment]] = []
    n_characters, saved = 0, time.monotonic()
    for number in range(reached.file, len(files)):
        file = files[number]
        start = reached.place if number == reached.file else None
        found = read_segments(file.path, text_field=text_field, start=start)
        for item in found:
            if isinstance(item, Fault):
                reached = _with_fault(reached, file.name, item)
                if reached.n_faults >= _HOPELESS and not (search.n_documents or batch):
                    raise without_text(file.name, reached)
            else:
                batch.append((number, item))
                n_characters += len(item.text)
            # Many blank or damaged records fill no batch but take time as well.
            if n_characters + 64 * len(batch) < batch_characters and isinstance(
                item, Segment
            ):
                continue
            _add(batch, search, nearest)
            batch, n_characters = [], 0
            place = item.after
            if isinstance(item, Fault) and place is None:
                reached = dataclasses.replace(reached, file=number + 1, place=None)
                continue
            if place is None:
                continue
            progress(done + place.stored, in_all)
            reached = dataclasses.replace(reached, file=number, place=place)
            if time.monotonic() - saved >= _SAVE_SECONDS:
                save(reached)
                saved = time.monotonic()
        done += file.size
    _add(batch, search, nearest)
    progress(in_all, in_all)
    return dataclasses.replace(reached, file=len(files), place=None)


def _add(
    batch: list[tuple[int, Segment]],
    search: "OverlapSearch",
    nearest: "NearestSearch | None",
) -> None:
    search.add(batch)
    if nearest is not None:
        for file, segment in batch:
            nearest.add(file, segment)


def _with_fault(reached: Reached, file: str, fault: Fault) -> Reached:
    named = reached.faults
    if len(named) < _NAMED_FAULTS:
        named = (*named, NamedFault(file, fault.line, fault.reason))
    return dataclasses.replace(reached, n_faults=reached.n_faults + 1, faults=named)


def without_text(name: str, reached: Reached) -> InputError:
    """The refusal of a corpus in which no text was met."""
    if not reached.faults:
        return InputError(f"{name}: no text", hint="nothing to search in this corpus")
    first = reached.faults[0]
    return InputError(
        f"{first.file}:{first.line}: {first.reason}; no text in "
        f"{reached.n_faults} records",
        hint="--text-field names the field of the corpus that is its text",
    )


def save_state(
    out: Path,
    key: str,
    reached: Reached,
    search: "OverlapSearch | None",
    nearest: "NearestSearch | None" = None,
) -> None:
    """Write the state, whole or not at all; no search once the result is written."""
    about = {"key": key, "reached": dataclasses.asdict(reached)}
    arrays: dict[str, np.ndarray] = {}
    if search is not None:
        about["search"] = {
            "n_documents": search.n_documents,
            "n_words": search.n_words,
            "carried": search.carried(),
        }
        if nearest is not None:
            about["stretches"] = nearest.stretches
        arrays = _arrays(search, nearest)
    buffer = io.BytesIO()
    # No text in another encoding: unpaired surrogate of a damaged record is escaped.
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    replace_bytes(out / STATE_NAME, buffer.getvalue())


def load_state(
    out: Path, key: str, search: "OverlapSearch", nearest: "NearestSearch | None" = None
) -> Reached:
    """Take up the search of the same key in `search`; a new one starts at the top.

    A state that is damaged or belongs to another search counts as none.
    """
    try:
        with open(out / STATE_NAME, "rb") as file, np.load(file) as saved:
            about = json.loads(saved["about"].tobytes())
            if about["key"] != key:
                return Reached()
            reached = read_result(Reached, about["reached"], STATE_NAME)
            if reached.finished is not None:
                return reached
            arrays = {name: saved[name] for name in _arrays(search, nearest)}
            stretches = about["stretches"] if nearest is not None else []
    except (OSError, KeyError, RecursionError, InputError, *DAMAGED_ARRAY):
        return Reached()
    for name, array in _arrays(search, nearest).items():
        array[...] = arrays[name]
    if nearest is not None:
        nearest.stretches[:] = stretches
    search.n_documents = about["search"]["n_documents"]
    search.n_words = about["search"]["n_words"]
    search.resume(about["search"]["carried"])
    return reached


def _arrays(
    search: "OverlapSearch", nearest: "NearestSearch | None"
) -> dict[str, np.ndarray]:
    marks = {f"ngrams_{n}": marks for n, marks in search.ngrams.items()}
    kept = marks | {"texts": search.texts}
    if nearest is not None:
        kept |= {"nearest": nearest.marks}
    return {
        f"{name}_{field.name}": getattr(one, field.name)
        for name, one in kept.items()
        for field in dataclasses.fields(one)
    }


@dataclasses.dataclass(slots=True, eq=False)
class NgramMarks:
    """Occurrences of the G n-grams of one table.

    Attributes:
        n_documents: (G,) int64, documents that contain each; 0 if none does.
        last_document: (G,) int64, the last such document, counted from 1.
        file: (G,) int32, file of its first occurrence.
        line: (G,) int64, line of its first occurrence.
    """

    n_documents: np.ndarray
    last_document: np.ndarray
    file: np.ndarray
    line: np.ndarray

    @classmethod
    def of(cls, n: int) -> "NgramMarks":
        """Marks of n-grams that were not met yet."""
        zeros = np.zeros(n, np.int64)
        return cls(zeros, zeros.copy(), np.full(n, -1, np.int32), zeros.copy())


@dataclasses.dataclass(slots=True, eq=False)
class TextMarks:
    """Closest stretch to each of F texts.

    Attributes:
        n_shingles: (F,) int64, distinct shingles of the text in that stretch.
        level: (F,) int8, 2 if the stretch contains the text up to white space, 1 if it
            contains all its words in order, else 0.
        file: (F,) int32, file of the stretch.
        line: (F,) int64, line where the stretch begins.
    """

    n_shingles: np.ndarray
    level: np.ndarray
    file: np.ndarray
    line: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A segment with its words and its document's number, from 1."""

    file: int
    segment: Segment
    ids: np.ndarray
    document: int
    word: int  # words of the document before it


class OverlapSearch:
    """State of the search through one corpus, fed in the corpus's order.

    `ngrams` holds, by n, the occurrences of the n-grams, `texts` the closest stretches.
    """

    def __init__(self, index: OverlapIndex):
        self.index = index
        self.ngrams = {n: NgramMarks.of(len(one)) for n, one in index.tables.items()}
        n_texts = len(index.texts)
        self.texts = TextMarks(
            np.zeros(n_texts, np.int64),
            np.zeros(n_texts, np.int8),
            np.full(n_texts, -1, np.int32),
            np.zeros(n_texts, np.int64),
        )
        self.n_documents = 0
        self.n_words = 0
        # A stretch is at most 1.625 times its text: twice holds it whole.
        self._carry_words = 2 * int(index.n_words.max(initial=0)) + LONG
        self._carry_characters = max(map(len, index.texts), default=0)
        self._carried: list[_Part] = []

    def add(self, segments: Sequence[tuple[int, Segment]]) -> None:
        """Search the next segments, given with the number of their file."""
        if not segments:
            return
        parts = list(self._carried)
        for file, segment in segments:
            parts.append(self._part(file, segment, parts[-1] if parts else None))
        # What is carried is searched again only if its document goes on.
        n_carried = len(self._carried)
        if not parts[n_carried].segment.joins:
            parts = parts[n_carried:]
        self._search(_Batch(parts))
        self._carried = self._tail(parts)

    def carried(self) -> list[tuple[int, str, int, int, int]]:
        """End of the last document, for `resume`."""
        return [
            (part.file, part.segment.text, part.segment.line, part.document, part.word)
            for part in self._carried
        ]

    def resume(self, carried: Sequence[tuple[int, str, int, int, int]]) -> None:
        """Continue a search from its `carried` state."""
        self._carried = [
            _Part(file, Segment(text, line, True, None), self._ids(text), number, word)
            for file, text, line, number, word in carried
        ]

    def _ids(self, text: str) -> np.ndarray:
        return word_ids(words_of(text), self.index.vocabulary)

    def _part(self, file: int, segment: Segment, before: _Part | None) -> _Part:
        ids = self._ids(segment.text)
        self.n_words += len(ids)
        if segment.joins and before is not None:
            word = before.word + len(before.ids)
            return _Part(file, segment, ids, before.document, word)
        self.n_documents += 1
        return _Part(file, segment, ids, self.n_documents, 0)

    def _tail(self, parts: list[_Part]) -> list[_Part]:
        """Last parts of the last document that a stretch or a text can overlap."""
        kept, n_words, n_characters = len(parts), 0, 0
        while kept and parts[kept - 1].document == parts[-1].document:
            if n_words >= self._carry_words and n_characters >= self._carry_characters:
                break
            kept -= 1
            n_words += len(parts[kept].ids)
            n_characters += len(collapsed(parts[kept].segment.text))
        return parts[kept:]

    def _search(self, batch: "_Batch") -> None:
        hashes = ngram_hashes(self.index.keys[batch.ids], self.index.tables)
        for n, table in self.index.tables.items():
            places, ngrams = table.find(hashes[n], batch.ids)
            if not len(places):
                continue
            self._mark(n, batch, places, ngrams)
            if n < LONG:
                self._mark_whole(table, batch, places, ngrams)
            if n == SHORT:
                self._compare(table, batch, places, ngrams)

    def _mark(
        self, n: int, batch: "_Batch", places: np.ndarray, ngrams: np.ndarray
    ) -> None:
        marks = self.ngrams[n]
        parts = batch.part_at(places)
        found, earliest = np.unique(ngrams, return_index=True)
        is_new = marks.n_documents[found] == 0
        new, at = found[is_new], parts[earliest[is_new]]
        marks.file[new] = batch.file[at]
        marks.line[new] = batch.line[at]
        # Each n-gram once a document; documents ascend, so only the one that an
        # earlier batch ended in can have been counted before.
        pairs, documents = _unique_pairs(ngrams, batch.document[parts])
        is_new = documents > marks.last_document[pairs]
        np.add.at(marks.n_documents, pairs[is_new], 1)
        np.maximum.at(marks.last_document, pairs, documents)

    def _mark_whole(
        self,
        table: NgramTable,
        batch: "_Batch",
        places: np.ndarray,
        ngrams: np.ndarray,
    ) -> None:
        """Check texts that are one n-gram for an exact occurrence."""
        index, marks = self.index, self.texts
        held_at, rows = table.held_at(ngrams)
        texts = index.owner[held_at].astype(np.int64)
        limit = 2 if table.n >= _MIN_COMPARED else 1
        is_whole = (index.n_words[texts] == table.n) & (marks.level[texts] < limit)
        places, texts = places[rows[is_whole]], texts[is_whole]
        if not len(places):
            return
        parts = batch.part_at(places)
        _, firsts = np.unique(_pair_keys(parts, texts), return_index=True)
        for i in firsts.tolist():
            text, place = int(texts[i]), int(places[i])
            is_exact = table.n >= _MIN_COMPARED and (
                index.texts[text] in batch.text_around(place, place + table.n)
            )
            self._keep(text, (0, 2 if is_exact else 1), batch, int(parts[i]))

    def _compare(
        self,
        table: NgramTable,
        batch: "_Batch",
        places: np.ndarray,
        ngrams: np.ndarray,
    ) -> None:
        """Compare texts with the stretches around what they share with the corpus."""
        n_held = np.diff(table.bounds)[ngrams]
        is_rare = n_held <= _MAX_HELD
        places, ngrams = places[is_rare], ngrams[is_rare]
        slices = np.cumsum(n_held[is_rare]) // _PAIRS
        for cut in np.split(
            np.arange(len(places)), np.flatnonzero(np.diff(slices)) + 1
        ):
            held_at, rows = table.held_at(ngrams[cut])
            self._compare_pairs(batch, places[cut][rows], held_at)

    def _compare_pairs(
        self, batch: "_Batch", places: np.ndarray, held_at: np.ndarray
    ) -> None:
        """Compare at pairs of a place in the batch and a place in the texts."""
        texts = self.index.owner[held_at].astype(np.int64)
        is_open = (self.index.n_words[texts] >= LONG) & (self.texts.level[texts] < 2)
        places, held_at, texts = places[is_open], held_at[is_open], texts[is_open]
        if not len(places):
            return
        numbers = batch.word_at(places)
        begins = numbers - (held_at - self.index.first[texts])
        # Nearby alignments share one stretch: it is their first on a grid of the
        # document, which no cut of batches moves.
        steps = np.maximum(1, self.index.n_words[texts] // 8)
        begins = begins // steps * steps
        documents = batch.document[batch.part_at(places)]
        pairs = _pair_keys(documents - batch.document[0], texts)
        # Places count from the batch's beginning, so that three numbers fit one key.
        keys = _pair_keys(pairs, begins - numbers + places)
        _, firsts = np.unique(keys, return_index=True)
        for i in firsts.tolist():
            self._compare_stretch(
                batch, int(documents[i]), int(texts[i]), int(begins[i])
            )

    def _compare_stretch(
        self, batch: "_Batch", document: int, text: int, begin: int
    ) -> None:
        if self.texts.level[text] == 2:
            return
        words = self.index.words(text)
        wanted = set(shingles(words.tolist(), SHINGLE))
        n = len(words)
        low, high = batch.stretch(
            document, begin - n // 4, begin + max(1, n // 8) + n + n // 4
        )
        stretch = batch.ids[low:high]
        seen = shingles(stretch.tolist(), SHINGLE)
        common = wanted.intersection(seen)
        level = 0
        if len(common) == len(wanted) and _contains(stretch, words):
            is_exact = self.index.texts[text] in batch.text_around(low, high)
            level = 2 if is_exact else 1
        found = len(common), level
        start = low + next(i for i, one in enumerate(seen) if one in wanted)
        part = int(batch.part_at(np.array([start]))[0])
        self._keep(text, found, batch, part)

    def _keep(
        self, text: int, found: tuple[int, int], batch: "_Batch", part: int
    ) -> None:
        """Keep the closest stretch; of equals the first in the corpus's order."""
        marks = self.texts
        file, line = int(batch.file[part]), int(batch.line[part])
        best = int(marks.n_shingles[text]), int(marks.level[text])
        is_earlier = (file, line) < (int(marks.file[text]), int(marks.line[text]))
        if found > best or (found == best and is_earlier):
            marks.n_shingles[text], marks.level[text] = found
            marks.file[text], marks.line[text] = file, line


class _Batch:
    """P parts side by side, documents ascending, a gap between two; W `ids`."""

    def __init__(self, parts: list[_Part]):
        self._parts = parts
        self.file = np.array([part.file for part in parts], np.int32)
        self.line = np.array([part.segment.line for part in parts], np.int64)
        self.document = np.array([part.document for part in parts], np.int64)
        gap = np.zeros(1, np.int32)
        is_new = np.diff(self.document, prepend=-1) != 0
        pieces: list[np.ndarray] = []
        for part, opens in zip(parts, is_new, strict=True):
            pieces += [gap, part.ids] if opens else [part.ids]
        self.ids = np.concatenate(pieces)
        sizes = np.array([len(part.ids) for part in parts])
        self._ends = np.cumsum(sizes + is_new)
        self._begins = self._ends - sizes
        # Word number within the document = place in `ids` + this.
        self._offset = np.array([part.word for part in parts]) - self._begins
        self._around = (0, 0), ""

    def part_at(self, places: np.ndarray) -> np.ndarray:
        """Number of the part of each place of `ids`."""
        return np.searchsorted(self._ends, places, side="right")

    def word_at(self, places: np.ndarray) -> np.ndarray:
        """Number of the word at each place within its document."""
        return places + self._offset[self.part_at(places)]

    def stretch(self, document: int, begin: int, end: int) -> tuple[int, int]:
        """Places of words `begin` to `end` of a document, as far as they are here."""
        first, last = self._range(document)
        low = max(int(self._begins[first]), begin - int(self._offset[first]))
        return low, min(int(self._ends[last - 1]), end - int(self._offset[first]))

    def text_around(self, low: int, high: int) -> str:
        """Text of the parts that hold some places, and of one part on each side."""
        first, last = self.part_at(np.array([low, high - 1])).tolist()
        begin, end = self._range(int(self.document[first]))
        around = max(begin, first - 1), min(end, last + 2)
        # Stretches of one document come one after the other.
        if self._around[0] != around:
            parts = self._parts[slice(*around)]
            text = collapsed("".join(part.segment.text for part in parts))
            self._around = around, text
        return self._around[1]

    def _range(self, document: int) -> tuple[int, int]:
        first, last = np.searchsorted(self.document, [document, document + 1])
        return int(first), int(last)


def _unique_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, firsts = np.unique(_pair_keys(left, right), return_index=True)
    return left[firsts], right[firsts]


def _pair_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """One int64 for each pair, in the pairs' order; of one batch, so it fits."""
    low = right.min()
    return left * (right.max() - low + 1) + (right - low)


def _contains(stretch: np.ndarray, words: np.ndarray) -> bool:
    """True if the stretch contains the words consecutively."""
    whole, part, size = stretch.tobytes(), words.tobytes(), words.itemsize
    at = whole.find(part)
    while at >= 0 and at % size:
        at = whole.find(part, at + 1)
    return at >= 0
