"""Files sorted by something that the rows show, and files in random order.

No audit should refuse or accuse the random ones.
"""

import datetime
import json
import math
from collections.abc import Callable
from random import Random

from eval.natural_order.kind import File, in_order, kinds, lines, named, records
from eval.natural_order.words import (
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    clause,
    foreign_sentence,
    language,
    listed,
    past,
    pseudoword,
    question,
    sentence,
    thing,
)

_ONES = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")


def _length(rng: Random, n: int) -> list[str]:
    texts = []
    for _ in range(n):
        parts = [clause(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        texts.append(f"{', and '.join(parts)}.")
    return sorted(texts, key=len)


def _alphabetical(rng: Random, n: int) -> list[str]:
    texts = sorted(f"{thing(rng).capitalize()}: {sentence(rng)}" for _ in range(n))
    return texts


def _dates(rng: Random, n: int) -> list[str]:
    days = sorted(rng.randrange(365 * 80) for _ in range(n))
    first = datetime.date(1840, 1, 1)
    return [
        f"On {first + datetime.timedelta(day):%-d %B %Y} {sentence(rng).lower()}"
        for day in days
    ]


def _timestamps(rng: Random, n: int) -> list[str]:
    now = datetime.datetime(2031, 1, 1) + datetime.timedelta(rng.randrange(300))
    texts = []
    for _ in range(n):
        now += datetime.timedelta(seconds=rng.expovariate(1 / 40))
        level = rng.choice(("INFO", "WARN", "DEBUG"))
        noun, verb = rng.choice(NOUNS), past(rng.choice(VERBS))
        texts.append(
            f"{now:%Y-%m-%dT%H:%M:%S} {level} {noun}.{rng.choice(NOUNS)} "
            f"{verb} {rng.randrange(1000)} {rng.choice(NOUNS)}"
        )
    return texts


def _counter_first(rng: Random, n: int) -> list[str]:
    return [f"{number}. {sentence(rng)}" for number in _counted(rng, n)]


def _counter_second(rng: Random, n: int) -> list[str]:
    return [
        f"In {rng.randrange(1000)} {rng.choice(NOUNS)} reports, no. {number}: "
        f"{sentence(rng)}"
        for number in _counted(rng, n)
    ]


def _nested_ids(rng: Random, n: int) -> list[dict[str, object]]:
    return [
        {"text": sentence(rng), "meta": {"ref": {"id": f"tr-{number:05x}"}}}
        for number in _counted(rng, n)
    ]


def _counted(rng: Random, n: int) -> range:
    """Numbers of n rows of a longer file."""
    first = rng.randrange(1, 3000)
    return range(first, first + n)


def _ordinals(rng: Random, n: int) -> list[str]:
    return [f"Entry {spelled(number)}: {sentence(rng)}" for number in _counted(rng, n)]


def spelled(number: int) -> str:
    """A number below a million in words: `four hundred and two`."""
    if number >= 1000:
        rest = f" {spelled(number % 1000)}" if number % 1000 else ""
        return f"{spelled(number // 1000)} thousand{rest}"
    if number >= 100:
        rest = f" and {spelled(number % 100)}" if number % 100 else ""
        return f"{_ONES[number // 100]} hundred{rest}"
    if number < 20:
        return _ONES[number]
    rest = f"-{_ONES[number % 10]}" if number % 10 else ""
    return f"{_TENS[number // 10 - 2]}{rest}"


def _releases(rng: Random, n: int) -> list[str]:
    """A change log, the newest release first."""
    version, texts = [1, 0, 0], []
    for _ in range(n):
        part = rng.choices((0, 1, 2), weights=(1, 6, 30))[0]
        version = [*version[:part], version[part] + 1, *[0] * (2 - part)]
        texts.append(f"{'.'.join(map(str, version))}: {sentence(rng)}")
    return texts[::-1]


def _difficulty(rng: Random, n: int) -> list[str]:
    texts = []
    for i in range(n):
        digits = 1 + 4 * i / n
        numbers = [int(10 ** rng.uniform(digits - 1, digits)) for _ in range(2)]
        asked = rng.choice(("Compute", "Find", "What is"))
        texts.append(f"{asked} {numbers[0]} + {numbers[1]}: {sum(numbers)}")
    return texts


def _curriculum(rng: Random, n: int) -> list[str]:
    """Lessons: each new noun is taught after the ones before it."""
    nouns = rng.sample(NOUNS, len(NOUNS))
    texts = []
    for i in range(n):
        known = 6 + (len(nouns) - 6) * i // n
        # Mostly what was taught last.
        words = Vocabulary(nouns=tuple(nouns[max(0, known - 12) : known]))
        texts.append(sentence(rng, words))
    return texts


def _readings(rng: Random, n: int, strength: float) -> File:
    """A stationary Gaussian series, which has the same law backwards."""
    level, texts = rng.gauss(0, 1), []
    for _ in range(n):
        texts.append(
            f"The gauge at {rng.choice(PLACES)} showed {500 + round(120 * level)} "
            f"when {clause(rng).lower()}."
        )
        level = strength * level + math.sqrt(1 - strength**2) * rng.gauss(0, 1)
    return lines(texts)


def _catalogue(rng: Random, n: int) -> list[str]:
    """Templated rows in the order of their names."""
    names = sorted({_catalogued(rng) for _ in range(n + n // 8)})
    while len(names) < n:
        names = sorted({*names, _catalogued(rng)})
    chosen = sorted(rng.sample(names, n))
    return [f"What is the price of the {name}?" for name in chosen]


def _catalogued(rng: Random) -> str:
    return f"{thing(rng)} of {answer(rng).removeprefix('the ')}"


_IN_ORDER = named(
    *(_length, _alphabetical, _dates, _timestamps, _counter_first, _counter_second),
    *(_nested_ids, _ordinals, _releases, _difficulty, _curriculum, _catalogue),
)

KINDS_SORTED = kinds(
    {name: in_order(rows) for name, rows in _IN_ORDER.items()} | named(_readings)
)


def _sums(rng: Random) -> str:
    first, second = rng.randrange(1000), rng.randrange(1000)
    return f"What is {first} + {second}? It is {first + second}."


def _long_tailed(rng: Random) -> str:
    """Lengths over more than a decade, as in most files."""
    n_clauses = min(12, 1 + int(rng.expovariate(0.7)))
    return f"{'; '.join(clause(rng) for _ in range(n_clauses))}."


def _code(rng: Random) -> str:
    name, value = pseudoword(rng, 2), rng.randrange(100)
    return f"def {name}(x): return {pseudoword(rng, 2)}(x) + {value}"


def _html(rng: Random) -> str:
    tag, style = rng.choice(("p", "li", "td")), pseudoword(rng, 2)
    return f'<{tag} class="{style}">{sentence(rng)}</{tag}>'


_SPOKEN = tuple(language(number) for number in range(4))

_LINES: dict[str, Callable[[Random], str]] = {
    "sentences": sentence,
    "questions": lambda rng: f"Q: {question(rng)} A: {answer(rng)}",
    "labelled": lambda rng: (
        f"{sentence(rng)} Label: {rng.choices(('yes', 'no'), (0.8, 0.2))[0]}"
    ),
    "numbered": lambda rng: f"[{rng.randrange(10**6):06d}] {sentence(rng)}",
    "sums": _sums,
    "languages": lambda rng: foreign_sentence(rng, _SPOKEN[rng.randrange(4)]),
    "topics": lambda rng: sentence(rng, rng.choice(OF_TOPIC)),
    "long_tailed": _long_tailed,
    "template": lambda rng: (
        f"What is the price of the {thing(rng)} in {rng.choice(PLACES)}?"
    ),
    "code": _code,
    "html": _html,
}


def _independent(row: Callable[[Random], str]) -> Callable[[Random, int, float], File]:
    """Rows drawn one by one from one law."""
    return lambda rng, n, strength: lines([row(rng) for _ in range(n)])


def _json_records(rng: Random, n: int, strength: float) -> File:
    rows = [
        {
            "id": f"{rng.randrange(16**6):06x}",
            "question": question(rng),
            "label": rng.choice(("a", "b", "c")),
        }
        for _ in range(n)
    ]
    return records(rows)


def _exporters(rng: Random, n: int, strength: float) -> File:
    rows, texts = [], []
    for _ in range(n):
        row = {"name": rng.choice(NAMES), "text": sentence(rng)}
        if rng.random() < 0.5:
            row = dict(reversed(row.items()))
        rows.append(row)
        form = ((", ", ": "), (",", ":"))[rng.randrange(2)]
        texts.append(json.dumps(row, separators=form))
    return File(tuple(texts), tuple(rows))


def _resampled(rng: Random, n: int, strength: float) -> File:
    """Drawn with replacement: a third of the rows repeat another one."""
    pool = [sentence(rng) for _ in range(n)]
    return lines(rng.choices(pool, k=n))


def _shuffled_passages(rng: Random, n: int, strength: float) -> File:
    """Groups of rows about one thing, well shuffled."""
    rows = []
    while len(rows) < n:
        subject = f"the {thing(rng)} of {rng.choice(PLACES)}"
        rows += [
            {"title": subject, "question": f"{question(rng)[:-1]} with {subject}?"}
            for _ in range(4)
        ]
    rows = rows[:n]
    rng.shuffle(rows)
    return records(rows)


def _shuffled_counter(rng: Random, n: int, strength: float) -> File:
    """Rows numbered before they were shuffled."""
    texts = [f"{i}. {sentence(rng)}" for i in range(1, n + 1)]
    rng.shuffle(texts)
    return lines(texts)


_FILES: dict[str, Callable[[Random, int, float], File]] = {
    **{name: _independent(row) for name, row in _LINES.items()},
    "json_records": _json_records,
    "exporters": _exporters,
    "resampled": _resampled,
    "passages": _shuffled_passages,
    "counter": _shuffled_counter,
}

KINDS_RANDOM = kinds({f"random_{name}": make for name, make in _FILES.items()})
