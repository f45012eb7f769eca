"""The examples to look for as one index: `find` counts them in documents.

An index pickles, and counts merge in any order into those of all documents: a loop, a
pool of processes or an engine such as Spark finds the same.
"""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.corpus import Document
from jaxcontam.data.ngrams import (
    LONG,
    SHINGLE,
    SHORT,
    NgramTable,
    OverlapIndex,
    collapsed,
    joined_words,
    last_break,
    ngram_hashes,
    overlap_index,
    shingles,
    word_ids,
    words_of,
    words_pattern,
)
from jaxcontam.data.templates import RecordText
from jaxcontam.overlap.counts import Counts, Hit, Tally

SHARED = 10
"""Examples from which words that they share are the frame around them."""

AROUND = 80
"""Characters of a text that are shown on each side of what was found."""

_T = TypeVar("_T", bound=Any)

BATCH = 1 << 20
"""Characters that are searched at a time."""

_PIECE = 1 << 16
# A document takes as much time as so many characters, beside its own.
COST = 64
# Most occurrences in the texts of a SHORT-gram that starts a comparison. More frequent
# ones are the frame around a benchmark's examples, or one word repeated.
_MAX_HELD = 100
# Most pairs of a place of the corpus and a place of a text in memory.
_PAIRS = 1 << 18
# Characters that are kept of what stands around a hit.
_MOST_AROUND = 1 << 14
# Least words of a text for an exact comparison; shorter ones occur everywhere.
_MIN_COMPARED = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A text to search for, with the examples (from 0) that it belongs to.

    `kind` is `text` (a plain line, template or field), `line` (a record as published)
    or `strings` (a record's string values, one per line).
    """

    text: str
    kind: str
    examples: tuple[int, ...]


def read_examples(
    benchmark: str | Path,
    *,
    text: str | None = None,
    limit: int | None = None,
) -> tuple[Benchmark, tuple[Form, ...]]:
    """A file of examples, and the texts to search for; arguments as of `overlap`."""
    form = RecordText(text=text)
    read = load_benchmark(
        benchmark,
        template=form.template,
        text_field=form.text_field,
        limit=limit,
        # An id is the number of its record in the file.
        null_text="",
    )
    return read, forms_of(read, is_chosen=text is not None)


def forms_of(benchmark: Benchmark, *, is_chosen: bool) -> tuple[Form, ...]:
    """Distinct texts to search for.

    A record is searched for as its published line and as the text in its fields: a
    corpus may contain the file, or pages that the file was made from.
    """
    examples: dict[tuple[str, str], list[int]] = {}
    for i, (text, row) in enumerate(zip(benchmark.texts, benchmark.rows, strict=True)):
        kinds = {"text": text}
        if row is not None and not is_chosen:
            kinds = {"line": text, "strings": "\n".join(_strings(row))}
        for kind, form in kinds.items():
            examples.setdefault((kind, collapsed(form)), []).append(i)
    return tuple(
        Form(text, kind, tuple(numbers)) for (kind, text), numbers in examples.items()
    )


def _strings(value: object) -> list[str]:
    """All string values inside a JSON value, in its order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in _strings(one)]
    return []


class Matched(NamedTuple):
    """An n-gram of a text.

    Attributes:
        place: Index of its first word in `OverlapIndex.ids`.
        ngram: Its number in the table of n.
        n_examples: Examples that contain it.
        is_own: `SHORT` words of it are no frame.
    """

    n: int
    place: int
    ngram: int
    n_examples: int
    is_own: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ExampleIndex:
    """Examples of a benchmark, to be found in documents; it pickles.

    Attributes:
        texts: N-grams of the forms.
        rank: By n: (starts,) int64, a number for each occurrence of `NgramTable.starts`
            in a text, the smallest for what says most of it: a run of `LONG` words, or
            else all of a shorter text, or else `SHORT` words; no frame before frames;
            then what the fewest examples contain.
        ranked: (R, 5) fields of `Matched` by `rank`.
    """

    forms: tuple[Form, ...] = dataclasses.field(repr=False)
    texts: OverlapIndex = dataclasses.field(repr=False)
    rank: Mapping[int, np.ndarray] = dataclasses.field(repr=False)
    ranked: np.ndarray = dataclasses.field(repr=False)

    def __len__(self) -> int:
        return len(self.forms)

    @property
    def fingerprint(self) -> str:
        """Digest of what is looked for: counts of another index do not merge."""
        forms = [dataclasses.astuple(form) for form in self.forms]
        return hashlib.sha256(json.dumps(forms).encode()).hexdigest()

    def matched(self, rank: int) -> Matched:
        """The n-gram of a rank."""
        n, place, ngram, n_examples, is_own = self.ranked[rank].tolist()
        return Matched(n, place, ngram, n_examples, bool(is_own))

    def fits(self, counts: Counts) -> bool:
        """True if counts, read from a file, can be those of all of some documents."""
        if not counts.ngrams.keys() <= self.texts.tables.keys():
            return False
        no_rank = len(self.ranked)
        best_F = np.full(len(self), no_rank)
        for n, (ngrams, n_documents) in counts.ngrams.items():
            table = self.texts.tables[n]
            is_known = (ngrams >= 0) & (ngrams < len(table))
            is_counted = (n_documents > 0) & (n_documents <= counts.n_documents)
            if not (is_known & is_counted).all():
                return False
            at, _ = table.held(ngrams)
            np.minimum.at(best_F, self.texts.owner[table.starts[at]], self.rank[n][at])
        best = {f: (int(best_F[f]),) for f in np.flatnonzero(best_F < no_rank).tolist()}
        return (
            best == {f: hit.order for f, hit in counts.matches.items()}
            and all(
                f in best
                and len(hit.order) == 2
                and -self.texts.n_words[f] <= hit.order[0] <= 0
                and hit.order[1] in (0, -1, -2)
                for f, hit in counts.stretches.items()
            )
            and all(
                0 <= f < len(self) and len(hit.order) == 1
                for f, hit in counts.nearest.items()
            )
        )

    def find(self, documents: Iterable[Document]) -> Counts:
        """Count the examples in documents, in memory that does not grow with them.

        Of equal places the first is kept if documents come by file and line.
        """
        search, tally = Search(self), Tally()
        for group in grouped(documents):
            tally.add(search.add(group))
        return tally.total()

    def find_each(self, documents: Sequence[Document]) -> list[Counts]:
        """Counts of each document by itself, without the text around hits."""
        holding: set[int] = set()
        for batch in _windows(self.texts, documents):
            for n, hashes in batch.hashes(self.texts).items():
                places, _ = self.texts.tables[n].find(hashes, batch.ids)
                holding |= set(batch.document[batch.part_at(places)].tolist())
        return [
            Search(self, shows=False).add([document]) if i in holding else Counts()
            for i, document in enumerate(documents)
        ]


def example_index(forms: Sequence[Form]) -> ExampleIndex:
    """Index of the texts of some forms."""
    texts = overlap_index([form.text for form in forms])
    n_own = _words_outside_frames(texts, forms)
    columns = []
    for n, table in texts.tables.items():
        _, rows = table.held(np.arange(len(table)))
        places = table.starts
        owners = texts.owner[places].astype(np.int64)
        n_examples = _examples_holding(owners, rows, len(table), forms)[rows]
        is_own = n_own[places + n] - n_own[places] >= min(SHORT, n)
        is_whole = texts.n_words[owners] == n
        kind = np.where(n == LONG, 0, np.where(is_whole, 1, 2))
        columns.append((np.full(len(rows), n), places, rows, n_examples, is_own, kind))
    n_R, place_R, ngram_R, n_examples_R, is_own_R, kind_R = (
        np.concatenate(columns, axis=1) if columns else np.zeros((6, 0), np.int64)
    )
    order = np.lexsort((place_R, n_examples_R, 1 - is_own_R, kind_R))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    ends = np.cumsum([len(table.starts) for table in texts.tables.values()])
    split = np.split(ranks, ends[:-1]) if len(ends) else []
    return ExampleIndex(
        tuple(forms),
        texts,
        dict(zip(texts.tables, split, strict=True)),
        np.stack([n_R, place_R, ngram_R, n_examples_R, is_own_R], axis=1)[order],
    )


def _words_outside_frames(texts: OverlapIndex, forms: Sequence[Form]) -> np.ndarray:
    """(P + 1,) words before each place in no run that `SHARED` examples share."""
    steps = np.zeros(len(texts.ids) + 1, np.int64)
    if (short := texts.tables.get(SHORT)) is not None:
        _, rows = short.held(np.arange(len(short)))
        owners = texts.owner[short.starts].astype(np.int64)
        n_examples = _examples_holding(owners, rows, len(short), forms)
        frames = short.starts[n_examples[rows] >= SHARED]
        steps[frames] += 1
        steps[frames + SHORT] -= 1
    is_own = np.cumsum(steps)[:-1] == 0
    return np.concatenate([[0], np.cumsum(is_own)])


def _examples_holding(
    texts: np.ndarray, rows: np.ndarray, n_rows: int, forms: Sequence[Form]
) -> np.ndarray:
    """Distinct examples among the texts of each row; (n_rows,)."""
    counts = np.array([len(form.examples) for form in forms])
    examples = np.array([i for form in forms for i in form.examples], np.int64)
    begins, repeats = np.cumsum(counts) - counts, counts[texts]
    spread = np.repeat(np.arange(len(texts)), repeats)
    within = np.arange(len(spread)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    numbers = examples[begins[texts[spread]] + within]
    n_numbers = examples.max(initial=0) + 1
    pairs = np.unique(rows[spread] * n_numbers + numbers)
    return np.bincount(pairs // n_numbers, minlength=n_rows)


def grouped(documents: Iterable[_T]) -> Iterator[list[_T]]:
    """Documents, or others with a `text`, in lists of some `BATCH` characters."""
    group: list[_T] = []
    n_characters = 0
    for document in documents:
        group.append(document)
        n_characters += len(document.text) + COST
        if n_characters >= BATCH:
            yield group
            group, n_characters = [], 0
    if group:
        yield group


class Search:
    """A search of one group of documents after the other.

    `shows` says if hits have the text around them.
    """

    def __init__(self, index: ExampleIndex, *, shows: bool = True):
        self.index = index
        self._shows = shows
        self._words = ["", *index.texts.vocabulary] if shows else []
        self._best_rank = np.full(len(index), np.iinfo(np.int64).max)
        self._level = np.zeros(len(index), np.int8)
        self._matches: dict[int, Hit] = {}
        self._stretches: dict[int, Hit] = {}
        self._better: tuple[set[int], set[int]] = set(), set()

    def add(self, documents: Sequence[Document]) -> Counts:
        """Counts of these documents, without hits no better than those before."""
        texts = self.index.texts
        n_words = 0
        pairs: dict[int, list[np.ndarray]] = {n: [] for n in texts.tables}
        self._better = matches, stretches = set(), set()
        for batch in _windows(texts, documents):
            n_words += batch.n_new_words
            for n, hashes in batch.hashes(texts).items():
                table = texts.tables[n]
                places, ngrams = table.find(hashes, batch.ids)
                if not len(places):
                    continue
                numbers = batch.document[batch.part_at(places)]
                pairs[n].append(np.unique(ngrams * len(documents) + numbers))
                self._match(table, batch, places, ngrams)
                if n < LONG:
                    self._match_whole(table, batch, places, ngrams)
                if n == SHORT:
                    self._compare(table, batch, places, ngrams)
        return Counts(
            n_documents=len(documents),
            n_words=n_words,
            ngrams={
                n: np.stack(
                    np.unique(
                        np.unique(np.concatenate(found)) // len(documents),
                        return_counts=True,
                    )
                )
                for n, found in pairs.items()
                if found
            },
            stretches={text: self._stretches[text] for text in stretches},
            matches={text: self._matches[text] for text in matches},
        )

    def _match(
        self,
        table: NgramTable,
        batch: "_Window",
        places: np.ndarray,
        ngrams: np.ndarray,
    ) -> None:
        """Keep the n-gram that says most of each text."""
        found, earliest = np.unique(ngrams, return_index=True)
        at, rows = table.held(found)
        ranks = self.index.rank[table.n][at]
        texts = self.index.texts.owner[table.starts[at]]
        order = np.lexsort((ranks, texts))
        texts, firsts = np.unique(texts[order], return_index=True)
        best = order[firsts]
        is_open = ranks[best] <= self._best_rank[texts]
        for text, i in zip(texts[is_open].tolist(), best[is_open], strict=True):
            rank, place = int(ranks[i]), int(places[earliest[rows[i]]])
            hit = Hit((rank,), *batch.place(place), "")
            if text in self._matches and hit[:3] >= self._matches[text][:3]:
                continue
            around = self._around(batch, place, table.n, place + table.n, 0)
            self._best_rank[text] = rank
            self._matches[text] = hit._replace(around=around)
            self._better[0].add(text)

    def _match_whole(
        self,
        table: NgramTable,
        batch: "_Window",
        places: np.ndarray,
        ngrams: np.ndarray,
    ) -> None:
        """Check texts that are one n-gram for an exact occurrence."""
        texts = self.index.texts
        at, rows = table.held(ngrams)
        owners = texts.owner[table.starts[at]].astype(np.int64)
        limit = 2 if table.n >= _MIN_COMPARED else 1
        is_open = (texts.n_words[owners] == table.n) & (self._level[owners] < limit)
        places, owners = places[rows[is_open]], owners[is_open]
        if not len(places):
            return
        parts = batch.part_at(places)
        _, firsts = np.unique(_pair_keys(parts, owners), return_index=True)
        for i in firsts.tolist():
            text, place = int(owners[i]), int(places[i])
            is_exact = table.n >= _MIN_COMPARED and (
                texts.texts[text] in batch.text_around(place, place + table.n)
            )
            span = place, table.n, place + table.n
            self._keep(text, 0, 2 if is_exact else 1, batch, span)

    def _compare(
        self,
        table: NgramTable,
        batch: "_Window",
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
            at, rows = table.held(ngrams[cut])
            self._compare_pairs(batch, places[cut][rows], table.starts[at])

    def _compare_pairs(
        self, batch: "_Window", places: np.ndarray, held_at: np.ndarray
    ) -> None:
        """Compare at pairs of a place in the batch and a place in the texts."""
        index = self.index.texts
        texts = index.owner[held_at].astype(np.int64)
        is_open = (index.n_words[texts] >= LONG) & (self._level[texts] < 2)
        places, held_at, texts = places[is_open], held_at[is_open], texts[is_open]
        if not len(places):
            return
        numbers = batch.word_at(places)
        begins = numbers - (held_at - index.first[texts])
        # Nearby alignments share one stretch: it is their first on a grid of the
        # document, which no cut of windows moves.
        steps = np.maximum(1, index.n_words[texts] // 8)
        begins = begins // steps * steps
        documents = batch.document[batch.part_at(places)]
        pairs = _pair_keys(documents - batch.document[0], texts)
        # Places count from the window's beginning, so that three numbers fit one key.
        keys = _pair_keys(pairs, begins - numbers + places)
        _, firsts = np.unique(keys, return_index=True)
        for i in firsts.tolist():
            self._compare_stretch(
                batch, int(documents[i]), int(texts[i]), int(begins[i])
            )

    def _compare_stretch(
        self, batch: "_Window", document: int, text: int, begin: int
    ) -> None:
        if self._level[text] == 2:
            return
        words = self.index.texts.words(text)
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
            is_exact = self.index.texts.texts[text] in batch.text_around(low, high)
            level = 2 if is_exact else 1
        start = low + next(i for i, one in enumerate(seen) if one in wanted)
        self._keep(text, len(common), level, batch, (start, SHINGLE, high))

    def _keep(
        self,
        text: int,
        n_shingles: int,
        level: int,
        batch: "_Window",
        span: tuple[int, int, int],
    ) -> None:
        """Keep the closest stretch: its first place, known words there, and its end."""
        place, n, end = span
        hit = Hit((-n_shingles, -level), *batch.place(place), "")
        if text in self._stretches and hit[:3] >= self._stretches[text][:3]:
            return
        self._level[text] = level
        longest = 2 * len(self.index.texts.texts[text])
        around = self._around(batch, place, n, end, longest)
        self._stretches[text] = hit._replace(around=around)
        self._better[1].add(text)

    def _around(
        self, batch: "_Window", place: int, n: int, end: int, longest: int
    ) -> str:
        """Text around n known words, and what follows up to a place or a length."""
        if not self._shows:
            return ""
        # Many texts have the same frame.
        if (key := (place, n, end, longest)) not in batch.shown:
            words = joined_words([self._words[i] for i in batch.ids[place : place + n]])
            text = batch.text_around(place, end)
            found = re.search(words_pattern(words), text, re.IGNORECASE)
            begin, stop = found.span() if found else (0, 0)
            # One more than is shown: that it goes on is shown too.
            low, high = begin - AROUND - 1, max(stop, begin + longest) + AROUND + 1
            batch.shown[key] = text[max(0, low) : min(high, begin + _MOST_AROUND)]
        return batch.shown[key]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A stretch of a document that ends between two words."""

    document: int
    file: str
    line: int
    text: str
    ids: np.ndarray
    word: int  # words of the document before it


def _parts(texts: OverlapIndex, documents: Sequence[Document]) -> Iterator[_Part]:
    for number, document in enumerate(documents):
        word = 0
        for line, text in pieces(document):
            ids = word_ids(words_of(text), texts.vocabulary)
            yield _Part(number, document.file, line, text, ids, word)
            word += len(ids)


def pieces(document: Document) -> Iterator[tuple[int, str]]:
    """Line and text of stretches of at most `_PIECE` characters, cut between words."""
    wholes = [document.text]
    if document.has_lines:
        wholes = io.StringIO(document.text, newline="\n")
    for line, text in enumerate(wholes, document.line):
        begin = 0
        while len(text) - begin > _PIECE:
            end = last_break(text, begin, begin + _PIECE)
            yield line, text[begin:end]
            begin = end
        yield line, text[begin:]


def _windows(texts: OverlapIndex, documents: Sequence[Document]) -> Iterator["_Window"]:
    """Windows of bounded size; those of one document overlap by a stretch of it."""
    # A stretch is at most 1.625 times its text: twice holds it whole.
    n_words = 2 * int(texts.n_words.max(initial=0)) + LONG
    n_characters = max(map(len, texts.texts), default=0)
    most = least = max(2 * BATCH, 4 * n_characters)
    held: list[_Part] = []
    n_held = n_carried = 0
    for part in _parts(texts, documents):
        if n_held >= most:
            yield _Window(held, n_carried)
            held = _tail(held, part.document, n_words, n_characters)
            n_held = sum(len(one.text) + COST for one in held)
            # At least as much is new, however long a stretch without words is.
            most, n_carried = max(least, 2 * n_held), len(held)
        held.append(part)
        n_held += len(part.text) + COST
    if held:
        yield _Window(held, n_carried)


def _tail(
    parts: list[_Part], document: int, n_words: int, n_characters: int
) -> list[_Part]:
    """Last parts that a stretch of the document that goes on can reach into."""
    kept = len(parts)
    while kept and parts[kept - 1].document == document:
        if n_words <= 0 and n_characters <= 0:
            break
        kept -= 1
        n_words -= len(parts[kept].ids)
        n_characters -= len(collapsed(parts[kept].text))
    tail: list[_Part] = []
    for has_words, some in groupby(parts[kept:], lambda part: len(part.ids) > 0):
        run = list(some)
        if not has_words:
            # Millions of blank lines are three parts: `text_around` reads one beside
            # the words.
            text = "".join(part.text for part in run[1:-1])
            run[1:-1] = [dataclasses.replace(part, text=text) for part in run[1:-1][:1]]
        tail += run
    return tail


class _Window:
    """P parts side by side, documents ascending, a gap between two; W `ids`."""

    def __init__(self, parts: list[_Part], n_carried: int):
        self._parts = parts
        self.n_new_words = sum(len(part.ids) for part in parts[n_carried:])
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
        self.shown: dict[tuple[int, ...], str] = {}

    def hashes(self, texts: OverlapIndex) -> dict[int, np.ndarray]:
        """Rolling hashes of its n-grams, by n."""
        return ngram_hashes(texts.keys[self.ids], texts.tables)

    def part_at(self, places: np.ndarray) -> np.ndarray:
        """Number of the part of each place of `ids`."""
        return np.searchsorted(self._ends, places, side="right")

    def place(self, at: int) -> tuple[str, int]:
        """File and line of a place of `ids`."""
        part = self._parts[int(self.part_at(np.array([at]))[0])]
        return part.file, part.line

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
            self._around = around, collapsed("".join(part.text for part in parts))
        return self._around[1]

    def _range(self, document: int) -> tuple[int, int]:
        first, last = np.searchsorted(self.document, [document, document + 1])
        return int(first), int(last)


def _pair_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """One int64 for each pair, in the pairs' order; of one window, so it fits."""
    low = right.min()
    return left * (right.max() - low + 1) + (right - low)


def _contains(stretch: np.ndarray, words: np.ndarray) -> bool:
    """True if the stretch contains the words consecutively."""
    whole, part, size = stretch.tobytes(), words.tobytes(), words.itemsize
    at = whole.find(part)
    while at >= 0 and at % size:
        at = whole.find(part, at + 1)
    return at >= 0
