"""Kinds of natural order by name, and random orders beside them.

`kinds.toml` has them all, with forms of their rows; what a form cannot say is here.
Nobody needs to have seen a file to find its order likely who knows months in French,
say: `GOES_ON` of a kind reads two texts and nothing else.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeVar

from eval.natural_order.words import (
    ADJECTIVES,
    ANY,
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACED,
    Row,
    Vocabulary,
    clause,
    draw,
    fill,
    listed,
    pseudoword,
    question,
    said,
    sentence,
    thing,
)
from eval.study import data_file
from jaxcontam.data.benchmark import Benchmark

_Value = TypeVar("_Value")
GoesOn = Callable[[str, str], bool]
"""(a row, another) -> whether a reader of any such file expects the second next."""
Make = Callable[[Random, int, float], Sequence[Row]]
"""(random state, rows, strength) -> the rows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of natural order.

    Attributes:
        law: `exchangeable`: every order is equally likely, the null of `adjacency`;
            `reversible`: the file is as likely backwards, the null of `direction`;
            `forward`: neither holds.
        strengths: Ascending: how strong the order is; `kinds.toml` says of what.
        goes_on: Whether the second row is a natural sequel of the first, by the two
            texts alone; None if no simple rule says so.
    """

    name: str
    law: Literal["exchangeable", "reversible", "forward"]
    strengths: Sequence[float]
    make: Make
    goes_on: GoesOn | None = None

    def file(self, *, n: int, strength: float, seed: int) -> Benchmark:
        """A file of n rows; the same arguments give the same bytes."""
        rows = self.make(Random(f"{self.name} {n} {strength} {seed}"), n, strength)
        return Benchmark(
            f"{self.name}-{seed}",
            tuple(row if isinstance(row, str) else json.dumps(row) for row in rows),
            tuple(None if isinstance(row, str) else dict(row) for row in rows),
        )


def chain(
    rng: Random, values: Sequence[_Value], n: int, *, stay: float
) -> Iterator[_Value]:
    """A reversible Markov chain: stays with this probability, else any other value.

    It is symmetric and starts anywhere, so it has the same law backwards.
    """
    now = rng.randrange(len(values))
    for _ in range(n):
        yield values[now]
        if rng.random() >= stay:
            now = (now + rng.randrange(1, len(values))) % len(values)


def loosened(rng: Random, rows: Sequence[_Value], share: float) -> list[_Value]:
    """Rows of which this share keeps its place; the others trade places at random."""
    moved = [i for i in range(len(rows)) if rng.random() >= share]
    targets = rng.sample(moved, len(moved))
    found = list(rows)
    for here, there in zip(moved, targets, strict=True):
        found[there] = rows[here]
    return found


def _in_chain(forms: list[Row], rng: Random, n: int, stay: float) -> list[Row]:
    return [fill(rng, form) for form in chain(rng, forms, n, stay=stay)]


def _counted(form: Row, rng: Random, n: int, share: float) -> list[Row]:
    """Rows with numbers, as of a part of a longer file."""
    first = rng.randrange(1, 3000)
    numbers = range(first, first + n)
    return loosened(rng, [fill(rng, form, number=i) for i in numbers], share)


_ORDERS: Mapping[str, Callable[[Any, Random, int, float], Sequence[Row]]] = {
    "drawn": lambda form, rng, n, _: [fill(rng, form) for _ in range(n)],
    "repeats": _in_chain,
    "alternates": lambda forms, rng, n, turn: _in_chain(forms, rng, n, 1 - turn),
    "runs": lambda forms, rng, n, mean: _in_chain(forms, rng, n, 1 - 1 / mean),
    "sorted": lambda form, rng, n, share: loosened(
        rng, sorted(fill(rng, form) for _ in range(n)), share
    ),
    "counted": _counted,
}
"""Orders of rows that have a form, or one of several."""


def _in_order(rows: Callable[[Random, int], Sequence[Row]]) -> Make:
    """Rows of a full order, of which a share keeps its place: see `loosened`."""

    @functools.wraps(rows)
    def make(rng: Random, n: int, strength: float) -> Sequence[Row]:
        return loosened(rng, rows(rng, n), strength)

    return make


def _blocks(n: int, block: Callable[[], Sequence[_Value]]) -> list[_Value]:
    """As many rows, block after block; the last one may be cut short."""
    rows: list[_Value] = []
    while len(rows) < n:
        rows += block()
    return rows[:n]


def _key_order(rng: Random, n: int, strength: float) -> list[Row]:
    form = {"question": "{question}", "answer": "{answer}", "source": "{A|B}"}
    keys = (tuple(form), tuple(reversed(form)))
    rows = []
    for order in chain(rng, keys, n, stay=1 - 1 / strength):
        row = fill(rng, form)
        rows.append({key: row[key] for key in order})
    return rows


def _topics(rng: Random, n: int, strength: float) -> list[str]:
    topics = chain(rng, OF_TOPIC, n, stay=strength)
    return [sentence(rng, words) for words in topics]


def _document(rng: Random) -> Vocabulary:
    """Words of one document: few people, few things, of any topic."""
    return Vocabulary(
        nouns=tuple(rng.sample(NOUNS, 6)),
        adjectives=tuple(rng.sample(ADJECTIVES, 8)),
        names=tuple(rng.sample(NAMES, 2)),
    )


def _documents(rng: Random, n: int, strength: float) -> list[str]:
    texts, words = [], _document(rng)
    for _ in range(n):
        texts.append(sentence(rng, words))
        if rng.random() >= strength:
            words = _document(rng)
    return texts


def _passages(rng: Random, n: int, strength: float) -> list[Row]:
    def passage() -> list[Row]:
        words = _document(rng)
        text = fill(rng, "{sentence} {sentence}", words)
        form = {"context": text, "question": "{question}"}
        return [fill(rng, form, words) for _ in range(int(strength))]

    return _blocks(n, passage)


def _sources(rng: Random, n: int, strength: float) -> list[str]:
    """Sources end to end, each with topics and its own form."""
    forms = ("{sentence}", "Q: {question} A: {answer}", "* {sentence:lower}")
    forms += ("{question} ({answer})",)
    n_sources = int(strength)
    own = [(rng.choice(forms), rng.sample(OF_TOPIC, 3)) for _ in range(n_sources)]
    placed = (own[i * n_sources // n] for i in range(n))
    return [fill(rng, form, rng.choice(topics)) for form, topics in placed]


def _readings(rng: Random, n: int, strength: float) -> list[str]:
    """A stationary Gaussian series, which has the same law backwards."""
    level, texts = rng.gauss(0, 1), []
    form = "The gauge at {place} showed {shown} when {clause:lower}."
    for _ in range(n):
        texts.append(fill(rng, form, shown=500 + round(120 * level)))
        level = strength * level + math.sqrt(1 - strength**2) * rng.gauss(0, 1)
    return texts


@_in_order
def _length(rng: Random, n: int) -> list[str]:
    sizes = (rng.choice((1, 1, 1, 2, 2, 3)) for _ in range(n))
    parts = ([clause(rng) for _ in range(size)] for size in sizes)
    return sorted((f"{', and '.join(own)}." for own in parts), key=len)


@_in_order
def _dates(rng: Random, n: int) -> list[str]:
    days = sorted(rng.randrange(365 * 80) for _ in range(n))
    first = datetime.date(1840, 1, 1)
    return [
        f"On {first + datetime.timedelta(day):%-d %B %Y} {sentence(rng).lower()}"
        for day in days
    ]


def _chained_sums(rng: Random, n: int, strength: float) -> list[str]:
    texts, total = [], rng.randrange(100)
    for _ in range(n):
        # Small sums start again, as exercises do.
        if rng.random() >= strength or total > 9000:
            total = rng.randrange(100)
        more = rng.randrange(1, 100)
        texts.append(f"{total} plus {more} makes {total + more}.")
        total += more
    return texts


def _running_names(rng: Random, n: int, strength: float) -> list[str]:
    texts, name = [], rng.choice(NAMES)
    for _ in range(n):
        other = rng.choice([next_ for next_ in NAMES if next_ != name])
        texts.append(said(rng, "called", name=name, other=other))
        name = other if rng.random() < strength else rng.choice(NAMES)
    return texts


def _evolved(rng: Random, n: int, strength: float) -> list[str]:
    """Instructions, each the one before with a demand more."""
    texts = [question(rng)]
    while len(texts) < n:
        grows = rng.random() < strength and len(texts[-1]) < 160
        more = f" Mention the {thing(rng)}."
        texts.append(texts[-1] + more if grows else question(rng))
    return texts


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


_FACTS = data_file(__file__, "facts")
# Lists that begin again at their end: the words before an item, and the items.
_CYCLES = [(lead, listed(items)) for lead, items in _FACTS["cycles"].items()]
# Labels that templates repeat.
_ROTATIONS = [listed(labels) for labels in _FACTS["rotations"]]
# Genres: their roles in order, and how a row of each role may begin.
_ROLES = [genre["openings"] for genre in _FACTS["roles"]]
# What is asked for and its answer; a cause and its effect.
_ANSWERS, _CAUSES = (_pairs(listed(_FACTS[name])) for name in ("answers", "causes"))


def _invented(seed: str) -> list[str]:
    """A thousand words of no language."""
    rng = Random(seed)
    return list(dict.fromkeys(pseudoword(rng, 3) for _ in range(2_000)))[:1_000]


_CAUSED = _invented("one-off causes")
_ONE_OFF = list(zip(_CAUSED[:500], _CAUSED[500:], strict=True))
# Years of events that readers have heard of; nothing in their names says when.
_YEARS = {name.capitalize(): year for year, name in enumerate(_invented("chronology"))}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _without(terms: Iterable[str]) -> Vocabulary:
    """The words of all topics but these."""
    own = {term.casefold() for term in terms}
    parts = (ANY.nouns, ANY.verbs, ANY.adjectives, ANY.names)
    return Vocabulary(*(tuple(w for w in part if w not in own) for part in parts))


_OFF_LISTS = _without(item for _, items in _CYCLES for item in items)
_OFF_LABELS = _without(itertools.chain(*_ROTATIONS))
_OFF_ANSWERS = _without(itertools.chain(*_ANSWERS))
_OFF_CAUSES = _without(itertools.chain(*_CAUSES))


@_in_order
def _counting_words(rng: Random, n: int) -> list[str]:
    """Rows that count on in one list; the item stands first, inside or last."""
    lead, items = rng.choice(_CYCLES)
    start, form = rng.randrange(len(items)), rng.randrange(3)
    texts = []
    for i in range(start, start + n):
        item, text = items[i % len(items)], clause(rng, _OFF_LISTS)
        if form == 0:
            text = f"{item.capitalize()}: {text}."
        elif form == 1:
            text = f"{text} {lead} {item}."
        else:
            text = said(rng, "counted", _OFF_LISTS, lead=lead, item=item)
        texts.append(text)
    return texts


@_in_order
def _roles(rng: Random, n: int) -> list[str]:
    """Chats, recipes, abstracts, code or cases of patients, sentence by sentence."""
    roles = rng.choice(_ROLES)
    texts = []
    for i in range(n):
        first, second, third = thing(rng), thing(rng), thing(rng)
        opening, where = rng.choice(roles[i % len(roles)]), rng.choice(PLACED)
        texts.append(f"{opening} the {first} {where} the {second} and the {third}")
    return texts


@_in_order
def _rotating_labels(rng: Random, n: int) -> list[str]:
    labels = itertools.cycle(rng.choice(_ROTATIONS))
    sign = rng.choice((":", " -", ""))
    return [
        f"{label}{sign} {clause(rng, _OFF_LABELS).lower()}"
        for label in itertools.islice(labels, n)
    ]


def _apart(first: str, write: Callable[[], str], *, but: str = "") -> list[str]:
    """A row, and one that shares no word with it, but for these."""
    taken = set(_words(first)) - set(but.split())
    while taken & set(_words(row := write())):
        pass
    return [first, row]


@_in_order
def _answers_unshared(rng: Random, n: int) -> list[str]:
    """Questions, each followed by its answer, which has no word of it."""

    def pair() -> list[str]:
        term, answer = rng.choice(_ANSWERS)
        asked = said(rng, "asked", _OFF_ANSWERS, term=term)
        return _apart(asked, lambda: said(rng, "answered", _OFF_ANSWERS, term=answer))

    return _blocks(n, pair)


@_in_order
def _causes(rng: Random, n: int) -> list[str]:
    """Causes, each followed by its effect; they share no word but articles."""

    def pair() -> list[str]:
        cause, effect = (
            functools.partial(said, rng, "told", _OFF_CAUSES, term=term)
            for term in rng.choice(_CAUSES)
        )
        return _apart(cause(), effect, but="the in a an and")

    return _blocks(n, pair)


@_in_order
def _one_off_causes(rng: Random, n: int) -> list[str]:
    """Causes and effects; no term comes twice, and other words fall as they may."""
    terms = itertools.chain(*rng.sample(_ONE_OFF, n - n // 2))
    return [said(rng, "told", _OFF_CAUSES, term=term) for term in terms][:n]


@_in_order
def _chronology(rng: Random, n: int) -> list[str]:
    events = "siege|reign|treaty|engine|comet|plague|school|fire|council|voyage"
    texts = []
    for term in sorted(rng.sample(list(_YEARS), n), key=_YEARS.__getitem__):
        fields = ("name", "verb", "first", "second", "where")
        drawn = {field: draw(rng, field) for field in fields}
        event = fill(rng, f"the {{{events}}} of {term}")
        form = "The {first} {where} the {second} {verb:past} {name} before {event}."
        if rng.random() < 0.5:
            form = "In {event} {name} {verb:past} the {first} {where} the {second}."
        texts.append(fill(rng, form, event=event, **drawn))
    return texts


def _random_topics(rng: Random, n: int, _: float) -> list[str]:
    return [sentence(rng, rng.choice(OF_TOPIC)) for _ in range(n)]


def _random_long_tailed(rng: Random, n: int, _: float) -> list[str]:
    """Lengths over more than a decade, as in most files."""
    sizes = (min(12, 1 + int(rng.expovariate(0.7))) for _ in range(n))
    return [f"{'; '.join(clause(rng) for _ in range(size))}." for size in sizes]


def _random_resampled(rng: Random, n: int, _: float) -> list[str]:
    """Drawn with replacement: a third of the rows repeat another one."""
    return rng.choices([sentence(rng) for _ in range(n)], k=n)


def _random_counter(rng: Random, n: int, _: float) -> list[str]:
    """Rows numbered before they were shuffled."""
    texts = [f"{i}. {sentence(rng)}" for i in range(1, n + 1)]
    rng.shuffle(texts)
    return texts


def _linked(pairs: Iterable[tuple[str, str]]) -> GoesOn:
    """The first row has a word, and the second one that the pairs give after it."""
    after: dict[str, set[str]] = {}
    for first, second in pairs:
        after.setdefault(first.casefold(), set()).add(second.casefold())

    def goes_on(a: str, b: str) -> bool:
        words = set(_words(b))
        return any(words & after[word] for word in _words(a) if word in after)

    return goes_on


def _turning(lists: Iterable[Sequence[str]]) -> GoesOn:
    """The second row has the next item of a list; after the last comes the first."""
    turns = (itertools.pairwise([*items, items[0]]) for items in lists)
    return _linked(itertools.chain(*turns))


_ROLE_OF = {
    f"{opening} the ": (genre, role)
    for genre, roles in enumerate(_ROLES)
    for role, openings in enumerate(roles)
    for opening in openings
}


def _next_role(a: str, b: str) -> bool:
    (genre, role), (other, following) = (
        next(_ROLE_OF[start] for start in _ROLE_OF if text.startswith(start))
        for text in (a, b)
    )
    return genre == other and following == (role + 1) % len(_ROLES[genre])


def _takes_up(a: str, b: str) -> bool:
    """The last word of the first row begins the second."""
    return b.split()[0] == a.split()[-1].removesuffix(".")


def _is_later(a: str, b: str) -> bool:
    """True if a year is later than another by at most a tenth of the range."""
    first, second = (
        next(_YEARS[word] for word in re.findall(r"\w+", text) if word in _YEARS)
        for text in (a, b)
    )
    return 0 < second - first <= len(_YEARS) // 10


GOES_ON: Mapping[str, GoesOn] = {
    "chained_sums": _takes_up,
    "running_names": _takes_up,
    "counting_words": _turning(items for _, items in _CYCLES),
    "roles": _next_role,
    "rotating_labels": _turning(_ROTATIONS),
    "answers_unshared": _linked(_ANSWERS),
    "causes": _linked(_CAUSES),
    "chronology": _is_later,
    "one_off_causes": _linked(_ONE_OFF),
}
"""Tests of whether a row naturally follows another, by kind."""

_MADE: dict[str, Make] = {
    make.__name__.removeprefix("_"): make
    for make in (
        *(_key_order, _topics, _documents, _passages, _sources, _readings),
        *(_length, _dates, _evolved, _chained_sums, _running_names),
        *(_counting_words, _roles, _rotating_labels, _answers_unshared, _causes),
        *(_one_off_causes, _chronology, _random_topics, _random_long_tailed),
        *(_random_resampled, _random_counter),
    )
}


def _kinds() -> Iterator[Kind]:
    for group in data_file(__file__)["kinds"]:
        order, forms = group.pop("order", ""), group.pop("forms", {})
        makes = {name: _MADE[name] for name in group.pop("names", ())}
        for name, form in forms.items():
            makes[name] = functools.partial(_ORDERS[order], form)
        for name, make in makes.items():
            yield Kind(name=name, make=make, goes_on=GOES_ON.get(name), **group)


KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _kinds()}
