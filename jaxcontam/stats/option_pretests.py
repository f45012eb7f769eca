"""Whether the places of answer options say something before any model is asked.

Dimension key
    K  items
    R  random redraws
    S  options of an item
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.multiple import holm
from jaxcontam.stats.option_orders import LISTED, MOST, orders_of
from jaxcontam.stats.pretests.battery import LEVEL, N_PERMUTATIONS

PLACE_KEYS: Mapping[str, Callable[[str], object]] = {
    "option_length": len,
    "option_alphabet": str.casefold,
}
"""Pre-test -> what of an option its place must have nothing to do with."""


def option_pretests(
    options: Sequence[Sequence[str]],
    answers: Sequence[int | None],
    *,
    seed: int,
    fixed: bool = False,
) -> tuple[Pretest, ...]:
    """Whether places have nothing to do with what options say.

    Looks at: the share of each place among the right answers (chi-square); and the
    correlation of an option's place with its length and with its alphabetical rank.
    Two-sided by random orders of each item, Holm-corrected at 0.01.

    Args:
        options: Options of each item that takes part, in published order.
        answers: Place of the right one; None where no field tells it.
        seed: Seeds the redraws.
        fixed: The right option keeps its place in all orders, so that its place may
            be anything: it is not looked at.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    found: dict[str, tuple[float, float]] = {}
    for name, key in PLACE_KEYS.items():
        found[name] = _trend(options, answers if fixed else None, key, rng)
    if not fixed and all(answer is not None for answer in answers):
        places = np.array(answers, np.int64)
        found["answer_place"] = _uniformity(places, options, rng)
    adjusted = holm(np.array([p for _, p in found.values()]))
    return tuple(
        Pretest(name, statistic, p, bool(q > LEVEL))
        for (name, (statistic, p)), q in zip(found.items(), adjusted, strict=True)
    )


def _trend(
    options: Sequence[Sequence[str]],
    fixed: Sequence[int | None] | None,
    key: Callable[[str], object],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Mean correlation of place and rank, and its p by orders that may stand."""
    totals_R, observed, scale = np.zeros(N_PERMUTATIONS), 0.0, 0.0
    for k, texts in enumerate(options):
        values = [key(text) for text in texts]
        ranks = np.array([_mid_rank(value, values) for value in values])
        ranks -= ranks.mean()
        places = np.arange(len(texts)) - (len(texts) - 1) / 2
        place = None if fixed is None else fixed[k]
        orders = _all_or_some(texts, place, rng)
        sums = ranks[orders] @ places
        observed += float(ranks @ places)
        scale += math.sqrt(float(ranks @ ranks) * float(places @ places))
        totals_R += sums[rng.integers(len(sums), size=N_PERMUTATIONS)]
    tie = 1e-9 * max(1.0, scale)
    centre = float(totals_R.mean())
    n_as_far = np.count_nonzero(abs(totals_R - centre) >= abs(observed - centre) - tie)
    return observed / max(scale, 1e-300), float(1 + n_as_far) / (1 + N_PERMUTATIONS)


def _all_or_some(
    texts: Sequence[str], fixed: int | None, rng: np.random.Generator
) -> np.ndarray:
    n_orders = MOST if len(texts) > LISTED else math.factorial(LISTED)
    return orders_of(texts, n_orders, rng, fixed)


def _mid_rank(value: Any, values: Sequence[Any]) -> float:
    return (
        sum(other < value for other in values)
        + sum(other == value for other in values) / 2
    )


def _uniformity(
    places_K: np.ndarray, options: Sequence[Sequence[str]], rng: np.random.Generator
) -> tuple[float, float]:
    """Chi-square of answer places, items of each size apart, by drawn orders."""
    statistic, drawn_R = 0.0, np.zeros(N_PERMUTATIONS)
    sizes_K = np.array([len(texts) for texts in options])
    for size in np.unique(sizes_K).tolist():
        members = np.flatnonzero(sizes_K == size).tolist()
        counts = np.bincount(places_K[members], minlength=size)
        counts_RS = np.zeros((N_PERMUTATIONS, size))
        for k in members:
            orders = _all_or_some(options[k], None, rng)
            places = np.flatnonzero(orders.ravel() == places_K[k]) % size
            drawn = places[rng.integers(len(places), size=N_PERMUTATIONS)]
            counts_RS[np.arange(N_PERMUTATIONS), drawn] += 1
        expected_S = np.maximum(counts_RS.mean(axis=0), 1e-9)
        statistic += float(((counts - expected_S) ** 2 / expected_S).sum())
        drawn_R += ((counts_RS - expected_S) ** 2 / expected_S).sum(axis=1)
    n_as_large = np.count_nonzero(drawn_R >= statistic - 1e-9 * max(1.0, statistic))
    return statistic, float(1 + n_as_large) / (1 + N_PERMUTATIONS)
