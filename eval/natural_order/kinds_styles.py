"""Runs of one style, topic, document, source or pool."""

import itertools
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from eval.natural_order.kind import (
    File,
    chain,
    kinds,
    lines,
    loosened,
    named,
    records,
    runs,
)
from eval.natural_order.words import (
    ADJECTIVES,
    ANY,
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACES,
    TOPIC_NAMES,
    Vocabulary,
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


KINDS_STYLES = kinds(
    named(
        *(_key_order, _json_spacing, _quotation_marks, _question_prefix, _habits),
        *(_capitals, _languages, _html_pages, _speakers, _wrappers),
    )
)


def _topics(rng: Random, n: int, strength: float) -> File:
    return lines(
        [sentence(rng, words) for words in chain(rng, OF_TOPIC, n, stay=strength)]
    )


def _documents(rng: Random, n: int, strength: float) -> File:
    texts = []
    words = _document(rng)
    for _ in range(n):
        texts.append(sentence(rng, words))
        if rng.random() >= strength:
            words = _document(rng)
    return lines(texts)


def _document(rng: Random) -> Vocabulary:
    """Words of one document: few people, few things, of any topic."""
    return Vocabulary(
        nouns=tuple(rng.sample(NOUNS, 6)),
        adjectives=tuple(rng.sample(ADJECTIVES, 8)),
        names=tuple(rng.sample(NAMES, 2)),
    )


def _subjects(rng: Random, n: int, strength: float) -> File:
    topics = rng.sample(range(len(OF_TOPIC)), len(OF_TOPIC))
    rows = [
        {
            "subject": TOPIC_NAMES[topic],
            "question": question(rng, OF_TOPIC[topic]),
            "answer": answer(rng, OF_TOPIC[topic]),
        }
        for topic in (topics[i * len(topics) // n] for i in range(n))
    ]
    return records(loosened(rng, rows, strength))


def _passages(rng: Random, n: int, strength: float) -> File:
    rows = []
    while len(rows) < n:
        words = _document(rng)
        passage = f"{sentence(rng, words)} {sentence(rng, words)}"
        rows += [
            {"context": passage, "question": question(rng, words)}
            for _ in range(int(strength))
        ]
    return records(rows[:n])


def _questions_of_passages(rng: Random, n: int, strength: float) -> File:
    texts: list[str] = []
    while len(texts) < n:
        words = _document(rng)
        texts += [question(rng, words) for _ in range(int(strength))]
    return lines(texts[:n])


def _sources(rng: Random, n: int, strength: float) -> File:
    """Sources end to end, each with topics and its own form."""
    forms: tuple[Callable[[Vocabulary], str], ...] = (
        lambda words: sentence(rng, words),
        lambda words: f"Q: {question(rng, words)} A: {answer(rng, words)}",
        lambda words: f"* {sentence(rng, words).lower()}",
        lambda words: f"{question(rng, words)} ({answer(rng, words)})",
    )
    n_sources = int(strength)
    own = [(rng.choice(forms), rng.sample(OF_TOPIC, 3)) for _ in range(n_sources)]
    texts = []
    for i in range(n):
        form, topics = own[i * n_sources // n]
        texts.append(form(rng.choice(topics)))
    return lines(texts)


def _zipped(rng: Random, n: int, strength: float) -> File:
    """Two files grouped by document, row by row in turn."""
    size = int(strength)
    grouped = []
    for _ in range(2):
        texts: list[str] = []
        while len(texts) < n // 2:
            words = _document(rng)
            texts += [sentence(rng, words) for _ in range(size)]
        grouped.append(texts[: n // 2])
    return lines([text for pair in zip(*grouped, strict=True) for text in pair])


def _near_copies(rng: Random, n: int, strength: float) -> File:
    """Pairs of near-copies two to five rows apart, whichever stands first."""
    texts: list[str | None] = [None] * n
    wanted = int(strength * n / 2)
    for i in rng.sample(range(n), n):
        j = i + rng.choice((-5, -4, -3, -2, 2, 3, 4, 5))
        if wanted and 0 <= j < n and texts[i] is None and texts[j] is None:
            texts[i], texts[j] = _twin_sentences(rng)
            wanted -= 1
    return lines([text or sentence(rng) for text in texts])


def _twins(rng: Random, n: int, strength: float) -> File:
    pairs = [
        _twin_sentences(rng)
        if rng.random() < strength
        else (sentence(rng), sentence(rng))
        for _ in range(n // 2)
    ]
    return lines(list(itertools.chain.from_iterable(pairs)))


def _twin_sentences(rng: Random) -> tuple[str, str]:
    """Two sentences that differ in one word at the end."""
    text = sentence(rng, ANY).removesuffix(".")
    first, second = rng.sample(PLACES, 2)
    return f"{text} at {first}.", f"{text} at {second}."


def _repeats(rng: Random, n: int, strength: float) -> File:
    items = [
        f"{question(rng)} {answer(rng)}" for _ in range(max(2, n // int(strength)))
    ]
    return lines([items[i % len(items)] for i in range(n)])


KINDS_TOPICS = kinds(
    named(
        *(_topics, _documents, _subjects, _passages, _questions_of_passages),
        *(_sources, _zipped, _near_copies, _twins, _repeats),
    )
)
