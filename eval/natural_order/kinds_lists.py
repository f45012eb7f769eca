"""Templated rows from lists and tables, one of which the world knows by heart."""

import itertools
from random import Random

from eval.natural_order.kind import File, Kind, lines, loosened, partly
from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACES,
    pseudoword,
    question,
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


def _known_list(rng: Random, n: int, strength: float) -> File:
    texts = [f"What is the weight of {metal}?" for metal in METALS[:n]]
    return lines(loosened(rng, texts, strength))


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


def _regions(rng: Random, n: int, strength: float) -> File:
    """Capitals, region by region; regions and countries in no order."""
    regions = [pseudoword(rng, 3).capitalize() for _ in range(max(2, n // 25))]
    texts = []
    for i in range(n):
        country, town = (pseudoword(rng, 3).capitalize() for _ in range(2))
        region = regions[i * len(regions) // n]
        texts.append(f"The capital of {country} in {region} is {town}.")
    return lines(loosened(rng, texts, strength))


def _grid(rng: Random, n: int, strength: float) -> File:
    """Every combination of four lists, the last one varying fastest."""
    side = 2
    while side**4 < n:
        side += 1
    lists = [rng.sample(of, side) for of in (NAMES, ADJECTIVES, NOUNS, PLACES)]
    cells = list(itertools.islice(itertools.product(*lists), n))
    texts = [f"Did {a} see the {b} {c} at {d}?" for a, b, c, d in cells]
    return lines(loosened(rng, texts, strength))


KINDS = (
    Kind(
        name="known_list",
        family="lists",
        law="forward",
        make=_known_list,
        most_rows=N_METALS,
        **partly(),
    ),
    Kind(
        name="known_list_thinned",
        family="lists",
        law="forward",
        strengths=(0.3, 0.7),
        strength_is="share of rows from the list",
        make=_known_list_thinned,
        most_rows=N_METALS,
    ),
    Kind(name="regions", family="lists", law="reversible", make=_regions, **partly()),
    Kind(name="grid", family="lists", law="reversible", make=_grid, **partly()),
)
