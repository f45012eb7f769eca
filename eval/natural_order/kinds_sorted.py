"""Files sorted by something that the rows show: numbers, dates, length, difficulty."""

import datetime
import math
from random import Random

from eval.natural_order.kind import File, Kind, lines, loosened, partly, records
from eval.natural_order.words import (
    NOUNS,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    clause,
    past,
    sentence,
    thing,
)

_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def _length(rng: Random, n: int, strength: float) -> File:
    texts = []
    for _ in range(n):
        parts = [clause(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        texts.append(f"{', and '.join(parts)}.")
    return lines(loosened(rng, sorted(texts, key=len), strength))


def _alphabetical(rng: Random, n: int, strength: float) -> File:
    texts = sorted(f"{thing(rng).capitalize()}: {sentence(rng)}" for _ in range(n))
    return lines(loosened(rng, texts, strength))


def _dates(rng: Random, n: int, strength: float) -> File:
    days = sorted(rng.randrange(365 * 80) for _ in range(n))
    first = datetime.date(1840, 1, 1)
    texts = [
        f"On {first + datetime.timedelta(day):%-d %B %Y} {sentence(rng).lower()}"
        for day in days
    ]
    return lines(loosened(rng, texts, strength))


def _timestamps(rng: Random, n: int, strength: float) -> File:
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
    return lines(loosened(rng, texts, strength))


def _counter_first(rng: Random, n: int, strength: float) -> File:
    texts = [f"{number}. {sentence(rng)}" for number in _counted(rng, n)]
    return lines(loosened(rng, texts, strength))


def _counter_second(rng: Random, n: int, strength: float) -> File:
    texts = [
        f"In {rng.randrange(1000)} {rng.choice(NOUNS)} reports, no. {number}: "
        f"{sentence(rng)}"
        for number in _counted(rng, n)
    ]
    return lines(loosened(rng, texts, strength))


def _nested_ids(rng: Random, n: int, strength: float) -> File:
    rows = [
        {"text": sentence(rng), "meta": {"ref": {"id": f"tr-{number:05x}"}}}
        for number in _counted(rng, n)
    ]
    return records(loosened(rng, rows, strength))


def _counted(rng: Random, n: int) -> range:
    """Numbers of n rows of a longer file."""
    first = rng.randrange(1, 3000)
    return range(first, first + n)


def _ordinals(rng: Random, n: int, strength: float) -> File:
    texts = [f"Entry {spelled(number)}: {sentence(rng)}" for number in _counted(rng, n)]
    return lines(loosened(rng, texts, strength))


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


def _releases(rng: Random, n: int, strength: float) -> File:
    """A change log, the newest release first."""
    version, texts = [1, 0, 0], []
    for _ in range(n):
        part = rng.choices((0, 1, 2), weights=(1, 6, 30))[0]
        version = [*version[:part], version[part] + 1, *[0] * (2 - part)]
        texts.append(f"{'.'.join(map(str, version))}: {sentence(rng)}")
    return lines(loosened(rng, texts[::-1], strength))


def _difficulty(rng: Random, n: int, strength: float) -> File:
    texts = []
    for i in range(n):
        digits = 1 + 4 * i / n
        numbers = [int(10 ** rng.uniform(digits - 1, digits)) for _ in range(2)]
        asked = rng.choice(("Compute", "Find", "What is"))
        texts.append(f"{asked} {numbers[0]} + {numbers[1]}: {sum(numbers)}")
    return lines(loosened(rng, texts, strength))


def _curriculum(rng: Random, n: int, strength: float) -> File:
    """Lessons: each new noun is taught after the ones before it."""
    nouns = rng.sample(NOUNS, len(NOUNS))
    texts = []
    for i in range(n):
        known = 6 + (len(nouns) - 6) * i // n
        # Mostly what was taught last.
        words = Vocabulary(nouns=tuple(nouns[max(0, known - 12) : known]))
        texts.append(sentence(rng, words))
    return lines(loosened(rng, texts, strength))


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


def _catalogue(rng: Random, n: int, strength: float) -> File:
    """Templated rows in the order of their names."""
    names = sorted({_catalogued(rng) for _ in range(n + n // 8)})
    while len(names) < n:
        names = sorted({*names, _catalogued(rng)})
    chosen = sorted(rng.sample(names, n))
    return lines(
        loosened(
            rng, [f"What is the price of the {name}?" for name in chosen], strength
        )
    )


def _catalogued(rng: Random) -> str:
    return f"{thing(rng)} of {answer(rng).removeprefix('the ')}"


_KINDS = {
    "length": _length,
    "alphabetical": _alphabetical,
    "dates": _dates,
    "timestamps": _timestamps,
    "counter_first": _counter_first,
    "counter_second": _counter_second,
    "nested_ids": _nested_ids,
    "ordinals": _ordinals,
    "releases": _releases,
    "difficulty": _difficulty,
    "curriculum": _curriculum,
    "catalogue": _catalogue,
}

KINDS = (
    *(
        Kind(name=name, family="sorted", law="forward", make=make, **partly())
        for name, make in _KINDS.items()
    ),
    Kind(
        name="readings",
        family="sorted",
        law="reversible",
        strengths=(0.7, 0.99),
        strength_is="autocorrelation of the number",
        make=_readings,
    ),
)
