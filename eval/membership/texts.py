"""Text that every machine has, and the multiple-choice tasks made of it.

Documents are the documentation inside the Python installation and its source code
without docstrings and comments. Docstrings that questions are made from stand in
neither. The text of an item of a task is its question with the right option after it,
so that the text of each other option differs from it at the end alone.
"""

import ast
import dataclasses
import functools
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from eval.python_docs import (
    DOCUMENT_CHARACTERS,
    SKIPPED,
    Question,
    joined,
    normalised,
    read_python_docs,
)
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.chunks import consecutive_chunks, count_words
from jaxcontam.data.options import read_items
from jaxcontam.errors import InputError


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """What the studies draw from.

    Attributes:
        documents: Background texts.
        questions: No sentence of theirs stands in a document.
    """

    documents: tuple[str, ...]
    questions: tuple[Question, ...]


def read_pool() -> Pool:
    """Documentation and code of this Python installation; the same each time.

    Raises:
        InputError: If the installation has no source files.
    """
    docs = read_python_docs()
    root = Path(sysconfig.get_paths()["stdlib"])
    code = [
        document
        for path in sorted(root.rglob("*.py"))
        if SKIPPED.isdisjoint(path.relative_to(root).parts)
        for document in joined(list(_statements(path)))
    ]
    everything = normalised(" ".join(code))
    return Pool(
        (*docs.documents, *code),
        tuple(q for q in docs.questions if q.sentence not in everything),
    )


def drawn(items: Sequence, n: int, *, seed: int, what: str) -> list:
    """`n` of the items at random, without repeats.

    Raises:
        InputError: If there are not so many.
    """
    if len(items) < n:
        raise InputError(
            f"the corpus gives {len(items):,} {what}, {n:,} needed",
            hint="a larger --corpus",
        )
    order = np.random.default_rng([seed, 41]).permutation(len(items))[:n]
    return [items[i] for i in order.tolist()]


@functools.lru_cache(maxsize=4)
def pieces(documents: tuple[str, ...], n_words: int) -> list[str]:
    """Documents cut into texts of so many words each, no two alike.

    What is left at the end of a document is dropped.
    """
    found = (
        piece
        for document in documents
        for piece in consecutive_chunks(document, n_words)
    )
    return [piece for piece in dict.fromkeys(found) if count_words(piece) == n_words]


def without(
    documents: tuple[str, ...], texts: Sequence[str], n_words: int
) -> list[str]:
    """Documents from which none of the texts was cut by `pieces`."""
    chosen = set(texts)
    return [
        document
        for document in documents
        if chosen.isdisjoint(consecutive_chunks(document, n_words))
    ]


def _statements(path: Path) -> Iterator[str]:
    """Top-level statements of a module, without docstrings and comments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    for node in tree.body:
        text = ast.unparse(node)
        for begin in range(0, len(text), DOCUMENT_CHARACTERS):
            yield text[begin : begin + DOCUMENT_CHARACTERS]


_N_OPTIONS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One example of a task.

    Attributes:
        versions: Its text with each option in turn, no two alike.
        answer: Place of the right one.
    """

    versions: tuple[str, ...]
    answer: int

    @property
    def text(self) -> str:
        """As it is planted: with the right option."""
        return self.versions[self.answer]


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Items of one form."""

    name: str
    items: tuple[Item, ...]


Make = Callable[[np.random.Generator, Question, Sequence[Question]], Item]


def python_tasks(questions: Sequence[Question], *, seed: int) -> tuple[Task, ...]:
    """Three tasks about documented functions; each question is asked in one of them.

    `names`: whose description is this? `sentences`: what does this do? Four options
    each, three of them drawn from the other questions. `truth`: a description, right
    or wrong with equal chances, to be answered by yes or no.
    """
    rng = np.random.default_rng([seed, 43])
    order = rng.permutation(len(questions)).tolist()
    makers: dict[str, Make] = {
        "names": _name_item,
        "sentences": _sentence_item,
        "truth": _truth_item,
    }
    return tuple(
        Task(
            name,
            tuple(
                make(rng, questions[i], questions) for i in order[number :: len(makers)]
            ),
        )
        for number, (name, make) in enumerate(makers.items())
    )


def read_task(path: Path, *, question_field: str) -> Task:
    """A file of multiple-choice records.

    Raises:
        InputError: If it has no options, or a record no answer or no question.
    """
    benchmark = load_benchmark(path)
    items = []
    for item in read_items(benchmark):
        row = benchmark.rows[item.number - 1]
        place = f"{path}: example {item.number}"
        question = None if row is None else row.get(question_field)
        if not isinstance(question, str):
            raise InputError(
                f"{place}: no text in the field {question_field!r}",
                hint="--question-field names the field of the question",
            )
        if item.answer is None:
            raise InputError(f"{place}: no field tells the right option")
        versions = tuple(f"{question} {option}" for option in item.options)
        if len(set(versions)) == len(versions):
            items.append(Item(versions, item.answer))
    return Task(benchmark.name, tuple(items))


def _name_item(
    rng: np.random.Generator, question: Question, others: Sequence[Question]
) -> Item:
    wrong = _others(rng, others, question)
    options = [question.answer, *(other.answer for other in wrong)]
    return _shuffled(rng, [f"Q: {question.sentence}? A: {name}" for name in options])


def _sentence_item(
    rng: np.random.Generator, question: Question, others: Sequence[Question]
) -> Item:
    wrong = _others(rng, others, question)
    options = [question.sentence, *(other.sentence for other in wrong)]
    return _shuffled(rng, [f"{question.answer} does this: {text}." for text in options])


def _truth_item(
    rng: np.random.Generator, question: Question, others: Sequence[Question]
) -> Item:
    is_true = bool(rng.integers(2))
    sentence = question.sentence
    if not is_true:
        sentence = _others(rng, others, question)[0].sentence
    asked = f"{sentence}. Is this about {question.answer}?"
    return Item((f"{asked} yes", f"{asked} no"), 0 if is_true else 1)


def _others(
    rng: np.random.Generator, questions: Sequence[Question], own: Question
) -> list[Question]:
    """Questions with other answers and sentences than this one and one another."""
    found = [own]
    while len(found) < _N_OPTIONS:
        other = questions[int(rng.integers(len(questions)))]
        if all(
            other.answer != one.answer and other.sentence != one.sentence
            for one in found
        ):
            found.append(other)
    return found[1:]


def _shuffled(rng: np.random.Generator, versions: Sequence[str]) -> Item:
    """The first of the versions is the right one."""
    order: list[int] = rng.permutation(len(versions)).tolist()
    return Item(tuple(versions[i] for i in order), order.index(0))
