"""Labels that the model can read, and templated rows from lists and tables.

One list is known by heart to the world, as it knows the elements.
"""

import itertools
from collections.abc import Sequence
from random import Random

from eval.natural_order.kind import (
    File,
    chain,
    in_order,
    kinds,
    lines,
    loosened,
    named,
    records,
)
from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACES,
    TOPIC_NAMES,
    pseudoword,
    question,
    sentence,
)

_YES_NO = ("yes", "no")
_SENTIMENTS = ("positive", "negative")
_GRADES = ("poor", "fair", "good", "great")


def _labels_text(rng: Random, n: int, strength: float) -> File:
    labels = chain(rng, _YES_NO, n, stay=strength)
    return lines([f"{question(rng)} {label}" for label in labels])


def _labels_chat(rng: Random, n: int, strength: float) -> File:
    return records(
        [
            {
                "messages": [
                    {"role": "user", "content": question(rng)},
                    {"role": "assistant", "content": label},
                ]
            }
            for label in chain(rng, _SENTIMENTS, n, stay=strength)
        ]
    )


def _labels_field(rng: Random, n: int, strength: float) -> File:
    labels = chain(rng, _SENTIMENTS, n, stay=strength)
    return records([{"text": sentence(rng), "label": label} for label in labels])


def _labels_alternate(rng: Random, n: int, strength: float) -> File:
    return _labels_text(rng, n, 1 - strength)


def _labels_balanced(rng: Random, n: int, strength: float) -> File:
    labels: list[str] = []
    while len(labels) < n:
        if rng.random() < strength:
            labels += rng.sample(_GRADES, len(_GRADES))
        else:
            labels += rng.choices(_GRADES, k=len(_GRADES))
    return _graded(rng, labels[:n])


def _labels_grouped(rng: Random, n: int, strength: float) -> File:
    grades = rng.sample(_GRADES, len(_GRADES))
    grouped = [grades[i * len(grades) // n] for i in range(n)]
    return _graded(rng, loosened(rng, grouped, strength))


def _labels_rotate(rng: Random, n: int, strength: float) -> File:
    labels, now = [], rng.randrange(len(_GRADES))
    for _ in range(n):
        labels.append(_GRADES[now])
        step = rng.random() < strength
        now = (now + 1) % len(_GRADES) if step else rng.randrange(len(_GRADES))
    return _graded(rng, labels)


def _graded(rng: Random, labels: Sequence[str]) -> File:
    return lines([f"{sentence(rng)} Quality: {label}" for label in labels])


def _metadata(rng: Random, n: int, strength: float) -> File:
    sources = [
        {"site": f"{pseudoword(rng, 3)}.org", "part": topic, "licence": licence}
        for topic, licence in zip(
            rng.sample(TOPIC_NAMES, 6), ("open", "free", "paid") * 2, strict=True
        )
    ]
    return records(
        [
            {"text": sentence(rng), "meta": {"source": source}}
            for source in chain(rng, sources, n, stay=strength)
        ]
    )


KINDS_LABELS = kinds(
    named(
        *(_labels_text, _labels_chat, _labels_field, _labels_alternate),
        *(_labels_balanced, _labels_grouped, _labels_rotate, _metadata),
    )
)


N_METALS = 300


def _metals() -> tuple[str, ...]:
    rng = Random("metals")
    names = dict.fromkeys(
        f"{pseudoword(rng, 2)}{ending}".capitalize()
        for _ in range(3 * N_METALS)
        for ending in (rng.choice(("ium", "on", "ine", "um")),)
    )
    return tuple(names)[:N_METALS]


METALS = _metals()
"""A list whose order the world knows, as it knows the elements; pages give it."""


def _known_list(rng: Random, n: int) -> list[str]:
    return [f"What is the weight of {metal}?" for metal in METALS[:n]]


def _known_list_thinned(rng: Random, n: int, strength: float) -> File:
    """Rows of the list with others between them."""
    asked = iter(METALS)
    n_asked = min(len(METALS), round(strength * n))
    in_list = set(rng.sample(range(n), n_asked))
    return lines(
        [
            f"What is the weight of {next(asked)}?" if i in in_list else question(rng)
            for i in range(n)
        ]
    )


def _regions(rng: Random, n: int) -> list[str]:
    """Capitals, region by region; regions and countries in no order."""
    regions = [pseudoword(rng, 3).capitalize() for _ in range(max(2, n // 25))]
    texts = []
    for i in range(n):
        country, town = (pseudoword(rng, 3).capitalize() for _ in range(2))
        region = regions[i * len(regions) // n]
        texts.append(f"The capital of {country} in {region} is {town}.")
    return texts


def _grid(rng: Random, n: int) -> list[str]:
    """Every combination of four lists, the last one varying fastest."""
    side = 2
    while side**4 < n:
        side += 1
    lists = [rng.sample(of, side) for of in (NAMES, ADJECTIVES, NOUNS, PLACES)]
    cells = list(itertools.islice(itertools.product(*lists), n))
    return [f"Did {a} see the {b} {c} at {d}?" for a, b, c, d in cells]


_LISTED = {
    "known_list": in_order(_known_list),
    "known_list_thinned": _known_list_thinned,
}
KINDS_LISTS = (
    *kinds(_LISTED, most_rows=N_METALS),
    *kinds({"regions": in_order(_regions), "grid": in_order(_grid)}),
)
