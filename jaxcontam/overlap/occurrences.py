"""Result of a search: rules that each example meets, place and words."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import CorpusFile, Segment, read_segments
from jaxcontam.data.files import Provenance
from jaxcontam.data.ngrams import (
    LONG,
    SHINGLE,
    SHORT,
    OverlapIndex,
    collapsed,
    joined_words,
    shingles,
    words_pattern,
)
from jaxcontam.overlap.search import NamedFault, OverlapSearch

RULES = {
    "exact": "the text, character for character but for white space",
    "words": "all of its words in order, whatever case and punctuation",
    "13-gram": "any 13 words in a row (GPT-3); all words of a shorter example",
    "near-duplicate": "80 % of its 5-word shingles in one stretch of its length",
    "8-grams": "70 % of its runs of 8 words, each anywhere (PaLM)",
}
"""Condition of each rule, the strongest first."""

SHARED = 10
"""Examples from which words that they share are the frame around them."""

# Rules that a frame cannot meet without the rest of its example.
_WHOLE = ("exact", "words")
# Characters of a text that are shown on each side of what was found.
_AROUND = 80
# Characters behind the place of a hit that its words are looked for in.
_MOST_AROUND = 1 << 14
# Compared as integers, so that a share of exactly 7 in 10 passes.
_SHARE = 7, 10
_CONTAINMENT = 8, 10


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A text to search for, with the examples (from 0) that it belongs to.

    `kind` is `text` (a plain line, template or field), `line` (a record as published)
    or `strings` (a record's string values, one per line).
    """

    text: str
    kind: str
    examples: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The stretch of a corpus that is nearest to an example in meaning.

    `example` is the text that was compared, `corpus` to be read beside it.
    """

    cosine: float
    file: str
    line: int
    example: str
    corpus: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Search result of one example, `id`, counted from 0.

    Its `rules` stand the strongest first, which is `rule`. A text without words is not
    searched for.

    Attributes:
        form: `Form.kind` of the text that the fields below describe.
        matched: Consecutive words found: a 13-gram, all of a shorter text, or an
            8-gram; the one that the fewest examples contain.
        share_8grams: Share of its 8-grams that occur anywhere; None below 8 words.
        containment: Largest share of its distinct shingles within one stretch of the
            corpus; None below 13 words.
        file: File of the closest stretch, or else of the matched words.
        line: Line, row or element there, from 1.
        boilerplate: Nothing was found of it but frame: it is neither there whole, nor a
            run of which `SHORT` words are outside runs of as many that `SHARED`
            examples share; or what is there is everywhere in the corpus. It does not
            count as found.
        nearest: The nearest stretch in meaning, if asked for; it makes none found.
    """

    id: int
    rule: str | None
    rules: tuple[str, ...]
    form: str
    n_words: int
    matched: str | None
    matched_examples: int | None
    matched_documents: int | None
    share_8grams: float | None
    containment: float | None
    file: str | None
    line: int | None
    boilerplate: bool = False
    example: str | None = None
    corpus: str | None = None
    nearest: Nearest | None = None

    @property
    def is_found(self) -> bool:
        """True if it meets a rule, and not by boilerplate alone."""
        return self.rule is not None and not self.boilerplate


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedBenchmark:
    """The examples that were looked for."""

    name: str
    fingerprint: str
    order_provenance: Provenance
    n_examples: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCorpus:
    """The files that were searched.

    `unreadable` holds the first few of the `n_unreadable` parts that were skipped,
    `not_read` files of other kinds.
    """

    n_files: int
    n_bytes: int
    n_documents: int
    n_words: int
    n_unreadable: int
    unreadable: tuple[NamedFault, ...]
    not_read: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedIndex:
    """The index that was asked for `n_runs` runs of words.

    Too many examples share `n_shared_runs` to ask for them; `n_unasked` have no run.
    """

    index: str
    url: str
    n_runs: int
    n_shared_runs: int
    n_unasked: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSearchResult:
    """Result of one search; nothing of the clock, so that reruns agree.

    `meaning` says what the numbers show and what they do not, `rules` how an example
    meets each rule.
    """

    schema: int
    jaxcontam: str
    command: tuple[str, ...]
    meaning: str
    rules: dict[str, str]
    benchmark: SearchedBenchmark
    corpus: SearchedCorpus | SearchedIndex
    totals: dict[str, int]
    examples: tuple[Occurrence, ...]


def totals(rows: tuple[Occurrence, ...], rules: Iterable[str]) -> dict[str, int]:
    """Examples that meet each rule, that meet any, and that deserve a second look."""
    found = [row for row in rows if row.is_found]
    return {
        **{rule: sum(rule in row.rules for row in found) for rule in rules},
        "found": len(found),
        "not_found": sum(not row.is_found and row.n_words > 0 for row in rows),
        "without_words": sum(row.n_words == 0 for row in rows),
        "found_below_8_words": sum(row.n_words < SHORT for row in found),
        "boilerplate": sum(row.boilerplate for row in rows),
    }


def in_context(text: str | None, words: str | None) -> str | None:
    """Words of a text in brackets with what stands around them, in one line.

    Without words, or where they are not there, it is the text's start.
    """
    if text is None:
        return None
    text = collapsed(text)
    found = re.search(words_pattern(words), text, re.IGNORECASE) if words else None
    if found is None:
        return text[: 2 * _AROUND] + "..." * (len(text) > 2 * _AROUND)
    start, end = found.span()
    low, high = max(0, start - _AROUND), min(len(text), end + _AROUND)
    before, after = "..." * (low > 0), "..." * (high < len(text))
    return f"{before}{text[low:start]}[{found[0]}]{text[end:high]}{after}"


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
        whole = [
            n for n in growing if not item.joins or len(growing[n]) >= _MOST_AROUND
        ]
        yield from ((line, growing.pop(line)) for line in whole)
        if item.line in left:
            left.remove(item.line)
            growing[item.line] = ""
        if not (growing or left):
            return
        for line in growing:
            growing[line] += item.text
    yield from growing.items()


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


def occurrences(
    forms: Sequence[Form],
    search: OverlapSearch,
    *,
    files: Sequence[str],
    among: Collection[int] | None = None,
) -> tuple[Occurrence, ...]:
    """Result of each example, in order."""
    index = search.index
    n_found, n_all = _counts_of_found(search)
    n_own = _words_outside_frames(index, forms)
    matched: dict[int, _Matched] = {}
    # Later entries win: an 8-gram is shown only if nothing longer was found.
    whole = [(n, True) for n in index.tables if n != LONG]
    for n, is_whole in [(SHORT, False), *whole, (LONG, False)]:
        if n in index.tables:
            matched |= _matched(search, n, forms, n_own, whole=is_whole)
    inverse = ["", *index.vocabulary]
    best: dict[int, tuple[tuple[float, ...], Occurrence]] = {}
    for f, form in enumerate(forms):
        if among is not None and f not in among:
            continue
        words = index.words(f).tolist()
        n_words, match, texts = len(words), matched.get(f), search.texts
        n_shingles, level = int(texts.n_shingles[f]), int(texts.level[f])
        n_wanted = len(set(shingles(words, SHINGLE)))
        is_long = n_words >= LONG
        met = {
            "exact": level == 2,
            "words": level >= 1,
            "13-gram": match is not None and match.n == min(LONG, n_words),
            "near-duplicate": is_long and _reaches(n_shingles, n_wanted, _CONTAINMENT),
            "8-grams": _reaches(int(n_found[f]), int(n_all[f]), _SHARE),
        }
        rules = tuple(rule for rule in RULES if met[rule])
        share = n_found[f] / n_all[f] if n_all[f] else None
        containment = n_shingles / n_wanted if is_long else None
        file, line = int(texts.file[f]), int(texts.line[f])
        if file < 0 and match is not None:
            file, line = match.file, match.line
        rank = list(RULES).index(rules[0]) if rules else len(RULES)
        order = (-rank, containment or 0.0, share or 0.0)
        for i in form.examples:
            if i in best and best[i][0] >= order:
                continue
            is_whole = any(rule in _WHOLE for rule in rules)
            is_frame = bool(rules) and not is_whole and not (match and match.is_own)
            matched_words = match and joined_words([inverse[i] for i in match.words])
            best[i] = (
                order,
                Occurrence(
                    id=i,
                    rule=rules[0] if rules else None,
                    rules=rules,
                    form=form.kind,
                    n_words=n_words,
                    matched=matched_words,
                    matched_examples=match and match.n_examples,
                    matched_documents=match and match.n_documents,
                    share_8grams=None if share is None else float(share),
                    containment=containment,
                    file=files[file] if file >= 0 else None,
                    line=line if file >= 0 else None,
                    boilerplate=is_frame,
                    example=in_context(form.text, matched_words) if rules else None,
                ),
            )
    return tuple(best[i][1] for i in sorted(best))


@dataclasses.dataclass(frozen=True, slots=True)
class _Matched:
    """An n-gram of a text that was found."""

    n: int
    words: list[int]
    n_examples: int
    n_documents: int
    file: int
    line: int
    is_own: bool  # SHORT words of it are no frame


def _strings(value: object) -> list[str]:
    """All string values inside a JSON value, in its order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in _strings(one)]
    return []


def _counts_of_found(search: OverlapSearch) -> tuple[np.ndarray, np.ndarray]:
    """(F,) SHORT-grams found of each text, and in all, repeats included."""
    index = search.index
    n_texts = len(index.texts)
    if (table := index.tables.get(SHORT)) is None:
        return np.zeros(n_texts, np.int64), np.zeros(n_texts, np.int64)
    marks = search.ngrams[SHORT]
    is_found = np.repeat(marks.n_documents > 0, np.diff(table.bounds))
    owners = index.owner[table.starts]
    return (
        np.bincount(owners[is_found], minlength=n_texts),
        np.bincount(owners, minlength=n_texts),
    )


def _reaches(part: int, whole: int, share: tuple[int, int]) -> bool:
    return whole > 0 and part * share[1] >= whole * share[0]


def _matched(
    search: OverlapSearch,
    n: int,
    forms: Sequence[Form],
    n_own: np.ndarray,
    *,
    whole: bool,
) -> dict[int, _Matched]:
    """The found n-gram of each text: no frame, then of the fewest examples, first."""
    index, marks = search.index, search.ngrams[n]
    table = index.tables[n]
    found = np.flatnonzero(marks.n_documents > 0)
    held_at, rows = table.held_at(found)
    texts = index.owner[held_at]
    if whole:
        is_whole = index.n_words[texts] == table.n
        held_at, rows, texts = held_at[is_whole], rows[is_whole], texts[is_whole]
    n_examples = _examples_holding(texts, rows, len(found), forms)
    is_own = n_own[held_at + table.n] - n_own[held_at] >= min(SHORT, table.n)
    order = np.lexsort((held_at, n_examples[rows], ~is_own, texts))
    _, firsts = np.unique(texts[order], return_index=True)
    chosen = {}
    for at in order[firsts].tolist():
        ngram, place = int(found[rows[at]]), int(held_at[at])
        chosen[int(texts[at])] = _Matched(
            table.n,
            index.ids[place : place + table.n].tolist(),
            int(n_examples[rows[at]]),
            int(marks.n_documents[ngram]),
            int(marks.file[ngram]),
            int(marks.line[ngram]),
            bool(is_own[at]),
        )
    return chosen


def _words_outside_frames(index: OverlapIndex, forms: Sequence[Form]) -> np.ndarray:
    """(W + 1,) words before each place in no run that `SHARED` examples share."""
    steps = np.zeros(len(index.ids) + 1, np.int64)
    if (short := index.tables.get(SHORT)) is not None:
        held_at, rows = short.held_at(np.arange(len(short)))
        texts = index.owner[held_at].astype(np.int64)
        n_examples = _examples_holding(texts, rows, len(short), forms)
        frames = held_at[n_examples[rows] >= SHARED]
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
