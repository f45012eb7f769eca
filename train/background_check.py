"""Does what is trained on hold the test sets already? A search before training.

A control proves that a test does not cry wolf, if no training text holds it; and a
set planted ten times stood there ten times only if the background does not hold it
too. The rules are those of `jaxcontam overlap`.
"""

import bisect
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from jaxcontam.data.corpus import Document
from jaxcontam.data.ngrams import SHORT, collapsed, words_of
from jaxcontam.errors import InputError
from jaxcontam.overlap.counts import Counts
from jaxcontam.overlap.index import ExampleIndex, Form, example_index, forms_of
from jaxcontam.overlap.occurrences import RULES, Occurrence, occurrences
from train.manifest import SetOverlap
from train.plant import PlannedSet

# Characters after which progress is told.
_TOLD_EVERY = 1 << 20
# Words shared by this many examples may be the frame around them: the names of a
# record's fields, or an instruction.
_SHARED = 10
# Examples of a control that one line names.
_TOLD = 20
# Rules that ask for most of an example, not for a few words in a row.
_WHOLE = frozenset({"exact", "words", "near-duplicate", "8-grams"})


_Rows = tuple[Occurrence, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """What to look for on behalf of all sets; examples count through all of them."""

    index: ExampleIndex
    begins: tuple[int, ...]
    set_of: np.ndarray
    n_compared: tuple[int, ...]


def check_background(
    documents: Iterable[str],
    sets: Sequence[PlannedSet],
    *,
    allow_overlap: bool = False,
    n_documents: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, SetOverlap]:
    """Search the background and the other sets for the examples of every set.

    A hit is an example of at least 8 words that meets a rule in other words than
    those that 10 or more examples share. Sets are looked for as they are published
    and as they are planted. Gives the counts of each set, by its name.

    Raises:
        InputError: If examples of a control stand in the background or in a planted
            set; names the set, how many, and where the first one stands.
    """
    if n_documents is None and isinstance(documents, Sequence):
        n_documents = len(documents)
    wanted = _wanted(sets)
    found = _search(wanted, documents, progress, n_documents)
    background = _by_set(wanted, found, range(len(sets)))
    in_sets: list[dict[int, _Rows]] = [{} for _ in sets]
    for number, one in enumerate(sets):
        found = _search(wanted, one.planted if one.copies else one.benchmark.texts)
        others = [other for other in range(len(sets)) if other != number]
        for other, rows in _by_set(wanted, found, others).items():
            if hits := _hits(rows):
                in_sets[other][number] = hits
    if not allow_overlap:
        _refuse(sets, background, in_sets)
    return {
        one.name: SetOverlap(
            n_compared=wanted.n_compared[number],
            background={
                rule: sum(rule in row.rules for row in _hits(background[number]))
                for rule in RULES
            },
            n_background=len(_hits(background[number])),
            n_frame=sum(row.rule is not None for row in background[number])
            - len(_hits(background[number])),
            sets={sets[i].name: len(rows) for i, rows in in_sets[number].items()},
        )
        for number, one in enumerate(sets)
    }


def found_in(one: PlannedSet, planted: PlannedSet) -> tuple[int, ...]:
    """Numbers of a set's examples that stand in what is planted of another set."""
    wanted = _wanted([one, planted])
    found = _by_set(wanted, _search(wanted, planted.planted), [0])
    return tuple(row.id for row in _hits(found[0]))


def _wanted(sets: Sequence[PlannedSet]) -> _Wanted:
    begins = np.cumsum([0, *(len(one.benchmark) for one in sets)]).tolist()
    forms, set_of, n_compared = [], [], []
    for number, one in enumerate(sets):
        own = list(forms_of(one.benchmark, is_chosen=one.template is not None))
        if one.texts_planted is not None:
            own += [
                Form(collapsed(text), "planted", (i,))
                for i, text in enumerate(one.texts_planted)
            ]
        own = [form for form in own if len(words_of(form.text)) >= SHORT]
        n_compared.append(len({i for form in own for i in form.examples}))
        set_of += [number] * len(own)
        forms += [
            dataclasses.replace(
                form, examples=tuple(begins[number] + i for i in form.examples)
            )
            for form in own
        ]
    return _Wanted(
        example_index(forms),
        tuple(begins),
        np.array(set_of, np.int64),
        tuple(n_compared),
    )


def _search(
    wanted: _Wanted,
    documents: Iterable[str],
    progress: Callable[[int, int], None] | None = None,
    n_documents: int | None = None,
) -> Counts:
    """Search documents, numbered from 1."""

    def numbered() -> Iterator[Document]:
        number = n_characters = 0
        for number, document in enumerate(documents if len(wanted.index) else (), 1):
            yield Document(document, line=number)
            n_characters += len(document)
            if progress is not None and n_characters >= _TOLD_EVERY:
                progress(number, n_documents or number)
                n_characters = 0
        if progress is not None and number:
            progress(number, number)

    return wanted.index.find(numbered())


def _by_set(wanted: _Wanted, found: Counts, sets: Iterable[int]) -> dict[int, _Rows]:
    """What was found of some sets, by set; examples count from 0 in each."""
    numbers = list(sets)
    asked = [f for f in found.matches if wanted.set_of[f] in numbers]
    by_set: dict[int, list[Occurrence]] = {number: [] for number in numbers}
    for row in occurrences(wanted.index, found, among=asked):
        number = bisect.bisect_right(wanted.begins, row.id) - 1
        by_set[number].append(
            dataclasses.replace(row, id=row.id - wanted.begins[number])
        )
    return {number: tuple(rows) for number, rows in by_set.items()}


def _hits(rows: _Rows) -> _Rows:
    """Those that meet a rule in words of their own."""
    return tuple(
        row
        for row in rows
        if not _WHOLE.isdisjoint(row.rules)
        or (row.rule is not None and (row.matched_examples or 0) < _SHARED)
    )


def _refuse(
    sets: Sequence[PlannedSet],
    background: Mapping[int, _Rows],
    in_sets: Sequence[Mapping[int, _Rows]],
) -> None:
    """Stop if a control stands in what is trained on."""
    faults = []
    for number, control in enumerate(sets):
        if control.copies:
            continue
        found = {
            "the background: example {} in document {}": _hits(background[number])
        } | {
            f"the planted set {sets[i].name!r}: example {{}} in its example {{}}": rows
            for i, rows in in_sets[number].items()
            if sets[i].copies
        }
        for where, rows in found.items():
            if not rows:
                continue
            first, *others = rows
            # Which others, as many as a line takes.
            told = ", ".join(str(row.id + 1) for row in others[:_TOLD])
            more = ", ..." if len(others) > _TOLD else ""
            faults.append(
                f"control {control.name!r}: {len(rows)} of {len(control.benchmark)} "
                f"examples stand in {where.format(first.id + 1, first.line)} "
                f"({first.rule}: {first.matched}){told and '; also '}{told}{more}"
            )
    if faults:
        more = f"; likewise {len(faults) - 1} more places" if len(faults) > 1 else ""
        raise InputError(
            faults[0] + more,
            hint="leave these examples out or take another control; --allow-overlap "
            "trains all the same and puts the counts into the manifest",
        )
