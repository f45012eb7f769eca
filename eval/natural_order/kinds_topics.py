"""Rows of one topic, document, source or pool that stand near each other."""

import itertools
from collections.abc import Callable
from random import Random

from eval.natural_order.kind import File, Kind, chain, lines, loosened, partly, records
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
    question,
    sentence,
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
    """Sources end to end, each with topics and a form of its own."""
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


def _rows_of(what: str, strengths: tuple[float, float]) -> dict:
    return {"strengths": strengths, "strength_is": what}


KINDS = tuple(
    Kind(name=name, family="topics", law="reversible", make=make, **how)
    for name, make, how in (
        ("topics", _topics, _rows_of("P(same topic as the row before)", (0.3, 0.95))),
        (
            "documents",
            _documents,
            _rows_of("P(same document as the row before)", (0.02, 0.2)),
        ),
        ("subjects", _subjects, partly()),
        ("passages", _passages, _rows_of("rows a passage", (2.0, 5.0))),
        (
            "questions_of_passages",
            _questions_of_passages,
            _rows_of("questions a passage", (2.0, 5.0)),
        ),
        ("sources", _sources, _rows_of("sources end to end", (2.0, 6.0))),
        ("zipped", _zipped, _rows_of("rows a document", (2.0, 8.0))),
        (
            "near_copies",
            _near_copies,
            _rows_of("share of rows with a near-copy 2 to 5 rows away", (0.1, 0.4)),
        ),
        ("twins", _twins, _rows_of("share of rows in pairs of twins", (0.1, 1.0))),
        (
            "repeats",
            _repeats,
            _rows_of("times that the same items follow each other", (4.0, 12.0)),
        ),
    )
)
