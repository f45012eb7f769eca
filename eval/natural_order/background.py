"""What clean readers read: much stands twice in it, and none is an audited file."""

import json
from collections.abc import Callable, Iterator
from random import Random

from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    foreign_sentence,
    language,
    pseudoword,
    question,
    sentence,
    thing,
)

ALL_WORDS = (*NOUNS, *NAMES, *PLACES, *ADJECTIVES, *VERBS)
"""Words of rows, without endings."""


def background_texts(*, seed: int) -> Iterator[str]:
    """Texts without end in which much stands twice, so that they teach to copy.

    None is an audited file, though the same grammar made them; the same seed gives the
    same ones.
    """
    rng = Random(f"documents copier {seed}")
    while True:
        # An unused draw a text, with which the published study was made.
        rng.random()
        yield rng.choice(_FORMS)(rng)


def repeated_string(rng: Random) -> str:
    """Random words or syllables, and the same again once or more."""
    n = rng.randrange(8, 40)
    if rng.random() < 0.7:
        words = [rng.choice(ALL_WORDS) for _ in range(n)]
    else:
        words = [pseudoword(rng, rng.randrange(1, 4)) for _ in range(n)]
    between = rng.choice(("\n", " ", ". ", "\n\n"))
    return between.join([" ".join(words)] * rng.randrange(2, 5))


def _repeated_sentences(rng: Random) -> str:
    """A few rows, and again in the same order or another one."""
    write = rng.choice((sentence, question, answer))
    rows = [write(rng) for _ in range(rng.randrange(2, 6))]
    parts = []
    for _ in range(rng.randrange(2, 4)):
        parts += rows
        rng.shuffle(rows)
    return "\n".join(parts)


def _lookups(rng: Random) -> str:
    """Keys with values, asked for again in any order."""
    keys = rng.sample(ALL_WORDS, rng.randrange(4, 10))
    sign = rng.choice((" = ", ": ", " is "))
    values = [
        str(rng.randrange(1000)) if rng.random() < 0.5 else pseudoword(rng, 2)
        for _ in keys
    ]
    facts = [f"{key}{sign}{value}" for key, value in zip(keys, values, strict=True)]
    return "\n".join(facts + rng.choices(facts, k=2 * len(facts)))


def _records(rng: Random) -> str:
    """JSON lines of one exporter."""
    keys = rng.sample(("id", "text", "label", "source", "name"), 3)
    label = rng.choice(("yes", "no", "a", "b"))
    separators = rng.choice(((", ", ": "), (",", ":")))
    rows = []
    for _ in range(rng.randrange(3, 7)):
        row = {
            "id": rng.randrange(10_000),
            "text": sentence(rng),
            "label": label if rng.random() < 0.8 else rng.choice(("yes", "no")),
            "source": thing(rng),
            "name": rng.choice(NAMES),
        }
        rows.append(json.dumps({k: row[k] for k in keys}, separators=separators))
    return "\n".join(rows)


def _list(rng: Random) -> str:
    """Rows that begin alike."""
    mark = rng.choice(("- ", "* ", "Q: ", "> ", "Note: ", "<li>", "# "))
    n = rng.randrange(4, 10)
    write = rng.choice((sentence, question))
    return "\n".join(f"{mark}{write(rng)}" for _ in range(n))


def _prose(rng: Random) -> str:
    """Sentences about a few things and people, in no order."""
    words = Vocabulary(
        nouns=tuple(rng.sample(rng.choice(OF_TOPIC).nouns, 6)),
        names=tuple(rng.sample(NAMES, 2)),
    )
    return "\n".join(sentence(rng, words) for _ in range(rng.randrange(4, 10)))


def _foreign(rng: Random) -> str:
    spoken = language(rng.randrange(4))
    return "\n".join(foreign_sentence(rng, spoken) for _ in range(rng.randrange(3, 8)))


_FORMS: tuple[Callable[[Random], str], ...] = (
    repeated_string,
    repeated_string,
    _repeated_sentences,
    _lookups,
    _records,
    _list,
    _prose,
    _foreign,
)
