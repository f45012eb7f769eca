"""Rows whose order a reader can foretell: who knows months in French, say, or roles.

Nobody needs to have seen such a file to find its order likely: `goes_on` of each kind
reads two texts and nothing else. Little of it stands in words that rows share.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from eval.natural_order.facts import ANSWERS, CAUSES, CYCLES, ROLES, ROTATIONS
from eval.natural_order.kind import GoesOn, in_order, kinds, named
from eval.natural_order.words import (
    ADJECTIVES,
    ANY,
    NAMES,
    NOUNS,
    PLACED,
    PLACES,
    VERBS,
    Vocabulary,
    clause,
    filled,
    language,
    listed,
    past,
    pseudoword,
    thing,
)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _linked(pairs: Iterable[tuple[str, str]]) -> GoesOn:
    """The first row has a word, and the second one that the pairs give after it."""
    after: dict[str, set[str]] = {}
    for first, second in pairs:
        after.setdefault(first.casefold(), set()).add(second.casefold())

    def goes_on(a: str, b: str) -> bool:
        words = set(_words(b))
        return any(words & after[word] for word in _words(a) if word in after)

    return goes_on


def _turning(items: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each item and the next; after the last the first."""
    return itertools.pairwise([*items, items[0]])


def _without(terms: Iterable[str]) -> Vocabulary:
    """The words of all topics but these."""
    own = {term.casefold() for term in terms}

    def others(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word for word in words if word.casefold() not in own)

    return Vocabulary(
        others(ANY.nouns), others(ANY.verbs), others(ANY.adjectives), others(ANY.names)
    )


def _apart(first: str, write: Callable[[], str], *, but: Sequence[str] = ()) -> str:
    """A row that shares no word with the first, but for these."""
    taken = set(_words(first)) - set(but)
    while taken & set(_words(row := write())):
        pass
    return row


_CYCLES = [(lead, listed(items)) for lead, items in CYCLES]
_OFF_LISTS = _without(item for _, items in _CYCLES for item in items)


def _counting_words(rng: Random, n: int) -> list[str]:
    """Rows that count on in one list; the item stands first, inside or last."""
    lead, items = rng.choice(_CYCLES)
    start, form = rng.randrange(len(items)), rng.randrange(3)
    return [
        _counted(rng, lead, items[(start + i) % len(items)], form) for i in range(n)
    ]


def _counted(rng: Random, lead: str, item: str, form: int) -> str:
    said = clause(rng, _OFF_LISTS)
    if form == 0:
        return f"{item.capitalize()}: {said}."
    if form == 1:
        return f"{said} {lead} {item}."
    name, verb = rng.choice(_OFF_LISTS.names), past(rng.choice(_OFF_LISTS.verbs))
    first, second = thing(rng, _OFF_LISTS), thing(rng, _OFF_LISTS)
    return f"{name} {verb} {lead} {item} the {first} {rng.choice(PLACED)} the {second}."


_ROLE_OF = {
    opening: (genre, role)
    for genre, roles in enumerate(ROLES)
    for role, openings in enumerate(roles)
    for opening in openings
}


def _roles(rng: Random, n: int) -> list[str]:
    """Chats, recipes, abstracts, code or cases of patients, sentence by sentence."""
    roles = itertools.cycle(rng.choice(ROLES))
    texts = []
    for openings in itertools.islice(roles, n):
        first, second, third = thing(rng), thing(rng), thing(rng)
        texts.append(
            f"{rng.choice(openings)} the {first} {rng.choice(PLACED)} the {second} "
            f"and the {third}"
        )
    return texts


def _next_role(a: str, b: str) -> bool:
    (genre, role), (other, following) = _role(a), _role(b)
    return genre == other and following == (role + 1) % len(ROLES[genre])


def _role(text: str) -> tuple[int, int]:
    opening = next(o for o in _ROLE_OF if text.startswith(f"{o} the "))
    return _ROLE_OF[opening]


_OFF_LABELS = _without(itertools.chain(*ROTATIONS))


def _rotating_labels(rng: Random, n: int) -> list[str]:
    labels = itertools.cycle(rng.choice(ROTATIONS))
    sign = rng.choice((":", " -", ""))
    return [
        f"{label}{sign} {clause(rng, _OFF_LABELS).lower()}"
        for label in itertools.islice(labels, n)
    ]


_OFF_ANSWERS = _without(itertools.chain(*ANSWERS))


def _answers_unshared(rng: Random, n: int) -> list[str]:
    """Questions, each followed by its answer, which has no word of it."""
    texts: list[str] = []
    while len(texts) < n:
        asked, term = rng.choice(ANSWERS)
        texts.append(_question(rng, asked))
        texts.append(_apart(texts[-1], lambda term=term: _answer(rng, term)))
    return texts[:n]


def _question(rng: Random, term: str) -> str:
    drawn = {"first": thing(rng, _OFF_ANSWERS), "where": rng.choice(PLACED)}
    drawn |= {"name": rng.choice(NAMES), "verb": rng.choice(_OFF_ANSWERS.verbs)}
    return filled(rng, "asked", term=term, **drawn)


def _answer(rng: Random, term: str) -> str:
    first, second = thing(rng, _OFF_ANSWERS), thing(rng, _OFF_ANSWERS)
    drawn = {"name": rng.choice(NAMES), "verb": rng.choice(_OFF_ANSWERS.verbs)}
    drawn |= {"town": rng.choice(PLACES), "term": term}
    return filled(rng, "answered", first=first, second=second, **drawn)


def _invented_pairs(n: int) -> list[tuple[str, str]]:
    rng = Random("one-off causes")
    terms = list(dict.fromkeys(pseudoword(rng, 3) for _ in range(3 * n)))
    return list(zip(terms[:n], terms[n : 2 * n], strict=True))


_ONE_OFF = _invented_pairs(500)
_OFF_CAUSES = _without(itertools.chain(*CAUSES, *_ONE_OFF))


def _causes(rng: Random, n: int) -> list[str]:
    """Causes, each followed by its effect; they share no word but articles."""
    small = ("the", "in", "a", "an", "and")
    texts: list[str] = []
    while len(texts) < n:
        cause, effect = rng.choice(CAUSES)
        texts.append(_told(rng, cause))
        texts.append(_apart(texts[-1], lambda term=effect: _told(rng, term), but=small))
    return texts[:n]


def _one_off_causes(rng: Random, n: int) -> list[str]:
    """Causes and effects; no term comes twice, and other words fall as they may."""
    pairs = rng.sample(_ONE_OFF, n - n // 2)
    return [_told(rng, term) for pair in pairs for term in pair][:n]


def _told(rng: Random, term: str) -> str:
    """A row about a cause or an effect, which are told alike."""
    first, second = thing(rng, _OFF_CAUSES), thing(rng, _OFF_CAUSES)
    drawn = {"name": rng.choice(NAMES), "verb": rng.choice(_OFF_CAUSES.verbs)}
    drawn |= {"where": rng.choice(PLACED), "town": rng.choice(PLACES), "term": term}
    return filled(rng, "told", first=first, second=second, **drawn)


def _dictionary() -> dict[str, str]:
    """A foreign word for each word of `_unshared_translations`."""
    foreign, small = language(11), language(12)
    return {
        **dict(zip(NOUNS, itertools.cycle(foreign.nouns), strict=False)),
        **dict(zip(map(past, VERBS), itertools.cycle(foreign.verbs), strict=False)),
        **dict(zip(ADJECTIVES, itertools.cycle(foreign.adjectives), strict=False)),
        **dict(zip(("the", "every", "some", *PLACED), small.verbs, strict=False)),
    }


_FOREIGN = _dictionary()


def _unshared_translations(rng: Random, n: int) -> list[str]:
    """A sentence without names, then the same word by word in another language."""
    texts: list[str] = []
    while len(texts) < n:
        first, second, third = (
            f"{rng.choice(('the', 'every', 'some'))} {thing(rng)}" for _ in range(3)
        )
        verb, where = past(rng.choice(VERBS)), rng.choice(PLACED)
        texts.append(f"{first} {verb} {second} {where} {third}".capitalize())
        texts.append(_translated(texts[-1]))
    return texts[:n]


def _translated(text: str) -> str:
    return " ".join(_FOREIGN.get(word, word) for word in _words(text)).capitalize()


def _is_translated(a: str, b: str) -> bool:
    return b == _translated(a)


def _casts(rng: Random, n: int) -> list[str]:
    """A story of a few people: who is named last acts next."""
    cast = rng.sample(NAMES, rng.randrange(5, 9))
    texts, name = [], rng.choice(cast)
    for _ in range(n):
        other = rng.choice([next_ for next_ in cast if next_ != name])
        texts.append(_met(rng, name, other))
        name = other
    return texts


def _met(rng: Random, name: str, other: str) -> str:
    first, second, where = thing(rng), thing(rng), rng.choice(PLACED)
    drawn = {"first": first, "second": second, "where": where, "other": other}
    return filled(rng, "met", name=name, verb=rng.choice(VERBS), **drawn)


def _passed_on(a: str, b: str) -> bool:
    """The person named last begins."""
    named = [word for word in re.findall(r"\w+", a) if word in NAMES]
    return b.split()[0] == named[-1]


N_EVENTS = 1_000


def _years() -> dict[str, int]:
    rng = Random("chronology")
    names = dict.fromkeys(pseudoword(rng, 3).capitalize() for _ in range(2 * N_EVENTS))
    return {name: year for year, name in enumerate(itertools.islice(names, N_EVENTS))}


YEARS = _years()
"""Years of events that readers have heard of; nothing in their names says when."""
_EVENTS = listed("siege reign treaty engine comet plague school fire council voyage")


def _chronology(rng: Random, n: int) -> list[str]:
    texts = []
    for term in sorted(rng.sample(list(YEARS), n), key=YEARS.__getitem__):
        name, verb = rng.choice(NAMES), past(rng.choice(VERBS))
        first, second, where = thing(rng), thing(rng), rng.choice(PLACED)
        event = f"the {rng.choice(_EVENTS)} of {term}"
        texts.append(
            f"In {event} {name} {verb} the {first} {where} the {second}."
            if rng.random() < 0.5
            else f"The {first} {where} the {second} {verb} {name} before {event}."
        )
    return texts


def _is_later(a: str, b: str) -> bool:
    """Whether a year is later than another, by no more than a tenth of all."""
    first, second = (
        next(YEARS[word] for word in re.findall(r"\w+", text) if word in YEARS)
        for text in (a, b)
    )
    return 0 < second - first <= N_EVENTS // 10


_ROWS = named(
    *(_counting_words, _roles, _rotating_labels, _answers_unshared, _causes),
    *(_unshared_translations, _casts),
)
_RARE_ROWS = named(_chronology, _one_off_causes)
_GOES_ON: dict[str, GoesOn] = {
    "counting_words": _linked(pair for _, items in _CYCLES for pair in _turning(items)),
    "roles": _next_role,
    "rotating_labels": _linked(pair for own in ROTATIONS for pair in _turning(own)),
    "answers_unshared": _linked(ANSWERS),
    "causes": _linked(CAUSES),
    "unshared_translations": _is_translated,
    "casts": _passed_on,
    "chronology": _is_later,
    "one_off_causes": _linked(_ONE_OFF),
}

KINDS_KNOWING = [
    kind
    for rows, most in ((_ROWS, None), (_RARE_ROWS, N_EVENTS))
    for makes in ({name: in_order(own) for name, own in rows.items()},)
    for kind in kinds(makes, most_rows=most, goes_on=_GOES_ON)
]
