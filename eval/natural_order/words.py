"""Word lists and a small grammar: English-like text that no one has published.

Everything is drawn from a `random.Random`, whose single draws are ten times faster
than those of a NumPy generator; the same state gives the same text.
"""

import dataclasses
from collections.abc import Callable
from random import Random

from eval.study import data_file


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


_WORDS = data_file(__file__)
NAMES, PLACES, ADJECTIVES, VERBS, PLACED, _SYLLABLES = (
    listed(_WORDS[name])
    for name in ("names", "places", "adjectives", "verbs", "placed", "syllables")
)
TOPICS = tuple(map(listed, _WORDS["topics"].values()))
"""Nouns of each topic."""
TOPIC_NAMES = tuple(_WORDS["topics"])
NOUNS = tuple(noun for nouns in TOPICS for noun in nouns)


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """What sentences are made of.

    Attributes:
        nouns: Nouns of one topic, of all of them, or of another language.
        verbs: In the present.
        adjectives: Any.
        names: Names of people.
    """

    nouns: tuple[str, ...] = NOUNS
    verbs: tuple[str, ...] = VERBS
    adjectives: tuple[str, ...] = ADJECTIVES
    names: tuple[str, ...] = NAMES


ANY = Vocabulary()
"""Words of all topics."""
OF_TOPIC = tuple(Vocabulary(nouns=nouns) for nouns in TOPICS)
"""Words of one topic each."""


def past(verb: str) -> str:
    """Simple past of a regular verb."""
    if verb.endswith("e"):
        return f"{verb}d"
    return (
        f"{verb[:-1]}ied"
        if verb.endswith("y") and verb[-2] not in "aeiou"
        else (f"{verb}ed")
    )


def one(noun: str) -> str:
    """With its article: `an old boat`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def thing(rng: Random, words: Vocabulary = ANY) -> str:
    """A noun, mostly with an adjective: `old boat`."""
    noun = rng.choice(words.nouns)
    return f"{rng.choice(words.adjectives)} {noun}" if rng.random() < 0.6 else noun


def sentence(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement of 9 to 18 words with a full stop."""
    return f"{clause(rng, words)}."


class Word(str):
    """A noun or a verb, which a format writes as it stands there.

    `{thing:a}` is with its article, `{thing:A}` the same with a capital,
    `{thing:capital}` has that alone, `{verb:past}` in the simple past.
    """

    def __format__(self, how: str) -> str:
        """Write it: see the class."""
        return _WAYS[how](str(self))


_WAYS: dict[str, Callable[[str], str]] = {
    "": str,
    "a": one,
    "A": lambda word: one(word).capitalize(),
    "capital": str.capitalize,
    "past": past,
}


def filled(rng: Random, form_of: str, **words: str) -> str:
    """One of the forms of a row, with these words; `{place}` is drawn at need."""
    form = rng.choice(_WORDS["forms"][form_of])
    if "{place}" in form:
        words["place"] = rng.choice(PLACES)
    return form.format(**{key: Word(word) for key, word in words.items()})


def clause(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement without its full stop."""
    verb, other = rng.choice(words.verbs), rng.choice(words.verbs)
    first, second, third = (thing(rng, words) for _ in range(3))
    drawn = {"name": rng.choice(words.names), "where": rng.choice(PLACED)}
    drawn |= {"first": first, "second": second, "third": third}
    return filled(rng, "clause", verb=verb, other=other, **drawn)


def question(rng: Random, words: Vocabulary = ANY) -> str:
    """A question of 8 to 14 words."""
    verb = rng.choice(words.verbs)
    first, second = thing(rng, words), thing(rng, words)
    drawn = {"name": rng.choice(words.names), "where": rng.choice(PLACED)}
    return filled(rng, "question", verb=verb, first=first, second=second, **drawn)


def answer(rng: Random, words: Vocabulary = ANY) -> str:
    """A few words: `the old boat near Hollin`."""
    return f"the {thing(rng, words)} {rng.choice(PLACED)} {rng.choice(PLACES)}"


def pseudoword(rng: Random, n_syllables: int) -> str:
    """A word of no language."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(n_syllables))


def language(number: int) -> Vocabulary:
    """Words of an invented language; the same number gives the same language."""
    rng = Random(f"language {number}")

    def words(n: int, ending: str) -> tuple[str, ...]:
        return tuple(
            pseudoword(rng, rng.choice((1, 2, 2, 3))) + ending for _ in range(n)
        )

    ends = [pseudoword(rng, 1)[-2:] for _ in range(3)]
    return Vocabulary(
        nouns=words(90, ends[0]),
        verbs=words(40, ends[1]),
        adjectives=words(40, ends[2]),
    )


def foreign_sentence(rng: Random, words: Vocabulary) -> str:
    """A sentence that has no English word in it."""
    nouns = [rng.choice(words.nouns) for _ in range(3)]
    adjectives = [rng.choice(words.adjectives) for _ in range(2)]
    verb = rng.choice(words.verbs)
    parts = [adjectives[0], nouns[0], verb, nouns[1], adjectives[1], nouns[2]]
    if rng.random() < 0.5:
        parts.insert(3, rng.choice(words.verbs))
    return " ".join(parts).capitalize() + "."
