"""Result of a search: rules that each example meets, place and words."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxcontam.data.corpus import Document, Fault
from jaxcontam.data.files import Provenance
from jaxcontam.data.ngrams import (
    LONG,
    SHINGLE,
    SHORT,
    collapsed,
    joined_words,
    shingles,
    words_pattern,
)
from jaxcontam.overlap.counts import Counts, Hit
from jaxcontam.overlap.index import AROUND, ExampleIndex, Matched

RULES = {
    "exact": "the text, character for character except white space",
    "words": "all of its words in order, in any case and punctuation",
    "13-gram": "any 13 words in a row (GPT-3); all words of a shorter example",
    "near-duplicate": "80% of its 5-word shingles in one stretch of its length",
    "8-grams": "70% of its runs of 8 words, each anywhere (PaLM)",
}
"""Condition of each rule, the strongest first."""

# Rules that a frame cannot meet without the rest of its example.
_WHOLE = ("exact", "words")
# Compared as integers, so that a share of exactly 7 in 10 passes.
_SHARE = 7, 10
_CONTAINMENT = 8, 10


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
    unreadable: tuple[Fault, ...]
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
class SearchedTasks:
    """The documents that the tasks of a pipeline counted."""

    n_tasks: int
    n_documents: int
    n_words: int


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
    corpus: SearchedCorpus | SearchedIndex | SearchedTasks
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
        return text[: 2 * AROUND] + ("..." if len(text) > 2 * AROUND else "")
    start, end = found.span()
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    before, after = ("..." if low > 0 else ""), ("..." if high < len(text) else "")
    return f"{before}{text[low:start]}[{found[0]}]{text[end:high]}{after}"


def occurrences(
    index: ExampleIndex, counts: Counts, *, among: Collection[int] | None = None
) -> tuple[Occurrence, ...]:
    """Result of each example, in order; `among` are the forms that are asked for."""
    texts, n_found_F = index.texts, _short_found(index, counts)
    inverse = ["", *texts.vocabulary]
    best: dict[int, tuple[tuple[float, ...], Occurrence]] = {}
    for f in range(len(index)) if among is None else sorted(among):
        form, n_words = index.forms[f], int(texts.n_words[f])
        met = _met(index, counts, f, int(n_found_F[f]))
        rules, match, hit = met.rules, met.match, met.place
        n_short = n_words - SHORT + 1
        share = float(n_found_F[f] / n_short) if n_short > 0 else None
        rank = list(RULES).index(rules[0]) if rules else len(RULES)
        order = (-rank, met.containment or 0.0, share or 0.0)
        matched, n_documents = None, None
        if match is not None:
            ids = texts.ids[match.place : match.place + match.n].tolist()
            matched = joined_words([inverse[i] for i in ids])
            found, documents = counts.ngrams[match.n]
            n_documents = int(documents[np.searchsorted(found, match.ngram)])
        for i in form.examples:
            if i in best and best[i][0] >= order:
                continue
            best[i] = (
                order,
                Occurrence(
                    id=i,
                    rule=rules[0] if rules else None,
                    rules=rules,
                    form=form.kind,
                    n_words=n_words,
                    matched=matched,
                    matched_examples=match and match.n_examples,
                    matched_documents=n_documents,
                    share_8grams=share,
                    containment=met.containment,
                    file=hit and hit.file,
                    line=hit and hit.line,
                    boilerplate=met.is_frame,
                    example=in_context(form.text, matched) if rules else None,
                    corpus=in_context(hit.around, matched) if rules and hit else None,
                ),
            )
    return tuple(best[i][1] for i in sorted(best))


class _Met(NamedTuple):
    """Rules that a form meets, and by what."""

    rules: tuple[str, ...]
    match: Matched | None
    containment: float | None
    place: Hit | None
    is_frame: bool


def _met(index: ExampleIndex, counts: Counts, form: int, n_short_found: int) -> _Met:
    n_words = int(index.texts.n_words[form])
    stretch, hit = counts.stretches.get(form), counts.matches.get(form)
    match = None if hit is None else index.matched(int(hit.order[0]))
    n_shingles = n_wanted = level = 0
    if stretch is not None:
        n_shingles, level = (int(-order) for order in stretch.order)
        words = index.texts.words(form).tolist()
        n_wanted = len(set(shingles(words, SHINGLE)))
    is_long = n_words >= LONG
    met = {
        "exact": level == 2,
        "words": level >= 1,
        "13-gram": match is not None and match.n == min(LONG, n_words),
        "near-duplicate": is_long and _reaches(n_shingles, n_wanted, _CONTAINMENT),
        "8-grams": _reaches(n_short_found, n_words - SHORT + 1, _SHARE),
    }
    rules = tuple(rule for rule in RULES if met[rule])
    is_whole = any(rule in _WHOLE for rule in rules)
    is_own = match is not None and match.is_own
    return _Met(
        rules,
        match,
        n_shingles / max(1, n_wanted) if is_long else None,
        stretch or hit,
        bool(rules) and not is_whole and not is_own,
    )


def _short_found(index: ExampleIndex, counts: Counts) -> np.ndarray:
    """(F,) `SHORT`-grams of each text that were found, repeats included."""
    if SHORT not in counts.ngrams:
        return np.zeros(len(index), np.int64)
    table = index.texts.tables[SHORT]
    at, _ = table.held(counts.ngrams[SHORT][0])
    return np.bincount(index.texts.owner[table.starts[at]], minlength=len(index))


def found_in_each(
    index: ExampleIndex, documents: Sequence[Document]
) -> list[list[int]]:
    """Examples that are found in each document, by any rule, ascending."""
    found = []
    for counts in index.find_each(documents):
        n_short_F = _short_found(index, counts)
        met = {f: _met(index, counts, f, int(n_short_F[f])) for f in counts.matches}
        forms = [f for f, one in met.items() if one.rules and not one.is_frame]
        found.append(sorted({i for f in forms for i in index.forms[f].examples}))
    return found


def _reaches(part: int, whole: int, share: tuple[int, int]) -> bool:
    return whole > 0 and part * share[1] >= whole * share[0]
