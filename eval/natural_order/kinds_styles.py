"""How rows are written down: exporters, annotators, pages and languages, in runs."""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from eval.natural_order.kind import File, Kind, lines, records, runs
from eval.natural_order.words import (
    NAMES,
    answer,
    foreign_sentence,
    language,
    pseudoword,
    question,
    sentence,
)


def _key_order(rng: Random, n: int, strength: float) -> File:
    keys = (("question", "answer", "source"), ("source", "answer", "question"))
    rows = []
    for order in runs(rng, keys, n, mean=strength):
        row = _record(rng)
        rows.append({key: row[key] for key in order})
    return records(rows)


def _json_spacing(rng: Random, n: int, strength: float) -> File:
    rows = [_record(rng) for _ in range(n)]
    separators = ((", ", ": "), (",", ":"))
    texts = [
        json.dumps(row, separators=form)
        for row, form in zip(rows, runs(rng, separators, n, mean=strength), strict=True)
    ]
    return File(tuple(texts), tuple(rows))


def _record(rng: Random) -> dict[str, object]:
    return {
        "question": question(rng),
        "answer": answer(rng),
        "source": rng.choice("AB"),
    }


def _quotation_marks(rng: Random, n: int, strength: float) -> File:
    marks = runs(rng, (('"', '"'), ("\u201c", "\u201d")), n, mean=strength)
    return lines(
        [
            f"{rng.choice(NAMES)} said {left}{sentence(rng)}{right} and left."
            for left, right in marks
        ]
    )


def _question_prefix(rng: Random, n: int, strength: float) -> File:
    heads = runs(rng, (("Q:", "A:"), ("Question:", "Answer:")), n, mean=strength)
    return lines([f"{q} {question(rng)} {a} {answer(rng)}" for q, a in heads])


def _habits(rng: Random, n: int, strength: float) -> File:
    habits: tuple[Callable[[str], str], ...] = (
        lambda text: text,
        lambda text: text[0].lower() + text[1:],
        lambda text: text.removesuffix("."),
        lambda text: text.replace(" ", "  ", 2),
        lambda text: text[0].lower() + text[1:].removesuffix("."),
    )
    return lines(
        [habit(sentence(rng)) for habit in runs(rng, habits, n, mean=strength)]
    )


def _capitals(rng: Random, n: int, strength: float) -> File:
    forms: tuple[Callable[[str], str], ...] = (str, str.title, str.upper)
    return lines([form(sentence(rng)) for form in runs(rng, forms, n, mean=strength)])


def _languages(rng: Random, n: int, strength: float) -> File:
    spoken = [language(number) for number in range(4)]
    return lines(
        [foreign_sentence(rng, words) for words in runs(rng, spoken, n, mean=strength)]
    )


def _html_pages(rng: Random, n: int, strength: float) -> File:
    texts: list[str] = []
    while len(texts) < n:
        page, style = pseudoword(rng, 3), pseudoword(rng, 2)
        tag = rng.choice(("p", "li", "td", "div"))
        for _ in range(_run_length(rng, strength)):
            body = f'<a href="/{page}/{rng.randrange(100)}">{sentence(rng)}</a>'
            texts.append(f'<{tag} class="{style}">{body}</{tag}>')
    return lines(_middle(rng, texts, n))


def _speakers(rng: Random, n: int, strength: float) -> File:
    texts: list[str] = []
    while len(texts) < n:
        pair = rng.sample(NAMES, 2)
        for _ in range(_run_length(rng, strength)):
            texts.append(f"{rng.choice(pair).upper()}: {sentence(rng)}")
    return lines(_middle(rng, texts, n))


def _wrappers(rng: Random, n: int, strength: float) -> File:
    writers: tuple[Callable[[Mapping[str, Any]], str], ...] = (
        lambda row: f"<s>[INST] {row['question']} [/INST] {row['answer']} </s>",
        lambda row: f"### Instruction: {row['question']} ### Response: {row['answer']}",
        lambda row: f"Human: {row['question']} Assistant: {row['answer']}",
    )
    return lines(
        [write(_record(rng)) for write in runs(rng, writers, n, mean=strength)]
    )


def _run_length(rng: Random, mean: float) -> int:
    """Geometric, at least 1."""
    length = 1
    while rng.random() >= 1 / mean:
        length += 1
    return length


def _middle(rng: Random, texts: list[str], n: int) -> list[str]:
    """N rows of a few more: first and last run are cut alike."""
    start = rng.randrange(len(texts) - n + 1)
    return texts[start : start + n]


_KINDS = {
    "key_order": _key_order,
    "json_spacing": _json_spacing,
    "quotation_marks": _quotation_marks,
    "question_prefix": _question_prefix,
    "habits": _habits,
    "capitals": _capitals,
    "languages": _languages,
    "html_pages": _html_pages,
    "speakers": _speakers,
    "wrappers": _wrappers,
}

KINDS = tuple(
    Kind(
        name=name,
        family="styles",
        law="reversible",
        strengths=(3.0, 8.0),
        strength_is="mean run of one style, rows",
        make=make,
    )
    for name, make in _KINDS.items()
)
