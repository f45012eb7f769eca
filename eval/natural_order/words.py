"""Word lists and a small grammar: English-like text that no one has published.

Everything is drawn from a `random.Random`, whose single draws are ten times faster
than those of a NumPy generator; the same state gives the same text.
"""

import dataclasses
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from eval.study import data_file


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


_WORDS = data_file(__file__)
NAMES, PLACES, ADJECTIVES, VERBS, PLACED, _SYLLABLES = (
    listed(_WORDS[name])
    for name in ("names", "places", "adjectives", "verbs", "placed", "syllables")
)
NOUNS = tuple(" ".join(_WORDS["topics"].values()).split())


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of sentences, verbs in the present; names are of people."""

    nouns: tuple[str, ...] = NOUNS
    verbs: tuple[str, ...] = VERBS
    adjectives: tuple[str, ...] = ADJECTIVES
    names: tuple[str, ...] = NAMES


ANY = Vocabulary()
"""Words of all topics."""
OF_TOPIC = tuple(Vocabulary(listed(nouns)) for nouns in _WORDS["topics"].values())
"""Words of one topic each."""

Row = str | Mapping[str, Any]
"""A text or a record, or a form of one; see `fill`."""


class Word(str):
    """A text that a form writes in another way where a colon says so.

    `{thing:a}` is with its article, `{verb:past}` in the simple past.
    """

    def __format__(self, how: str) -> str:
        """Write it: see the class."""
        return _WAYS[how](str(self))


def past(verb: str) -> str:
    """Simple past of a regular verb."""
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}ed"


def one(noun: str) -> str:
    """With its article: `an old boat`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _uncapitalised(text: str) -> str:
    return text[0].lower() + text[1:]


_WAYS: dict[str, Callable[[str], str]] = {
    "": str,
    "a": one,
    "A": lambda word: one(word).capitalize(),
    "capital": str.capitalize,
    "lower": str.lower,
    "past": past,
    "small": _uncapitalised,
    "open": lambda text: text.removesuffix("."),
    "small open": lambda text: _uncapitalised(text).removesuffix("."),
    "wide": lambda text: text.replace(" ", "  ", 2),
}


class _Fields(dict[str, Any]):
    """Words of a row: those that are given, and others each time that it has them."""

    def __init__(self, rng: Random, words: Vocabulary, given: Mapping[str, Any]):
        super().__init__(given)
        self.drawn_from = rng, words

    def __getitem__(self, field: str) -> Any:
        rng, words = self.drawn_from
        found = self.get(field)
        found = draw(rng, field, words) if found is None else found
        return Word(found) if isinstance(found, str) else found


def fill(rng: Random, form: Any, words: Vocabulary = ANY, **given: Any) -> Any:
    """A row of a form, whose fields are drawn from left to right.

    `{thing}` is drawn by its name, `{below 100}` with a number, `{p|li|td}` from these.
    After a colon stands how it is written: see `Word`.
    """
    if isinstance(form, str):
        return form.format_map(_Fields(rng, words, given))
    return {key: fill(rng, part, words, **given) for key, part in form.items()}


def draw(rng: Random, field: str, words: Vocabulary = ANY) -> Any:
    """Draw the words of a form's field."""
    if "|" in field:
        return rng.choice(field.split("|"))
    name, _, number = field.partition(" ")
    return _NUMBERED[name](rng, int(number)) if number else _DRAWN[name](rng, words)


def said(rng: Random, what: str, words: Vocabulary = ANY, **given: Any) -> str:
    """A row of one of the forms of `what`, whose words are drawn before the form is."""
    forms = _WORDS["forms"][what]
    for field in forms["draws"].split():
        given[field] = draw(rng, field, words)
    rows = forms["rows"]
    return fill(rng, rng.choice(rows) if len(rows) > 1 else rows[0], words, **given)


def thing(rng: Random, words: Vocabulary = ANY) -> str:
    """A noun, mostly with an adjective: `old boat`."""
    noun = rng.choice(words.nouns)
    return f"{rng.choice(words.adjectives)} {noun}" if rng.random() < 0.6 else noun


def clause(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement of 9 to 18 words without its full stop."""
    return said(rng, "clause", words)


def sentence(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement with a full stop."""
    return f"{clause(rng, words)}."


def question(rng: Random, words: Vocabulary = ANY) -> str:
    """A question of 8 to 14 words."""
    return said(rng, "question", words)


def answer(rng: Random, words: Vocabulary = ANY) -> str:
    """A few words: `the old boat near Hollin`."""
    return fill(rng, "the {thing} {where} {place}", words)


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


_NUMBERED: dict[str, Callable[[Random, int], Any]] = {
    "below": lambda rng, number: rng.randrange(number),
    "made": pseudoword,
}
_DRAWN: dict[str, Callable[[Random, Vocabulary], str]] = {
    "noun": lambda rng, words: rng.choice(words.nouns),
    "adjective": lambda rng, words: rng.choice(words.adjectives),
    "verb": lambda rng, words: rng.choice(words.verbs),
    "name": lambda rng, words: rng.choice(words.names),
    "where": lambda rng, _: rng.choice(PLACED),
    "place": lambda rng, _: rng.choice(PLACES),
    **{fun.__name__: fun for fun in (thing, clause, sentence, question, answer)},
}
_DRAWN |= dict.fromkeys(("first", "second", "third"), thing)
_DRAWN |= {"other": _DRAWN["verb"], "town": _DRAWN["place"]}
