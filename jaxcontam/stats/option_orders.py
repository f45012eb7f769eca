"""Counterfactual orders of the options of an item, and checks of the published one.

Authors like to sort options: by number, by alphabet, by length. Items in such an order
are left out, and such orders among the counterfactuals: among those that remain, the
published one is as likely as any other.

Authors also keep a house order for options that they use again, and items stand twice
in a file: one choice and not many, so of the items that share two options or more one
takes part, chosen before sorted items are left out.

Dimension key
    K  items
    M  orders per item, M = m + 1
    S  options of the largest item
    R  orders that are looked at
"""

import collections
import dataclasses
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.stats.multiple import holm
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.pretests.battery import LEVEL, N_PERMUTATIONS, sorted_ranks
from jaxcontam.stats.result import Pretest

# Why items are left out, in words that follow their number.
REPEATED, PLACED, NUMERIC = "repeat an option", "refer to places", "are numbers"
SHARED, SORTED = "share two options with another item", "are sorted"
ONE_ORDER = "have one order only"

# Orders of up to so many options are listed. More options have so many orders that so
# many tries for each that is wanted find them.
LISTED, _TRIES = 5, 20
# More counterfactuals than these gain next to nothing.
MOST = 99
_NUMBER = re.compile(r"[-+\u2212]?\d[\d,.]*")
_PLACE = re.compile(
    r"\b(all|none|neither|both|any|either|some)\b.*"
    r"\b(above|below|these|those|options?|answers?|choices?|others?|them)\b"
    r"|\b(option|answer|choice)s?\s+\(?[A-Ea-e1-5]\b"
    r"|^(all|none|both|neither|either)\.?$",
    re.IGNORECASE,
)
# Capitals only: "a and b" may be variables.
_LETTERS = re.compile(r"\(?\b[A-E]\)?\s*(,|and|or|nor|&|but not)\s*\(?[A-E]\b")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OptionDesign:
    """Orders to score, of the (K,) `items` that take part.

    `orders` has for each (m + 1, n_options), which published option stands at each
    place; the first row is the published order itself.
    """

    items: np.ndarray
    orders: tuple[np.ndarray, ...]
    left_out: dict[str, int]


def draw_option_orders(
    options: Sequence[Sequence[str]],
    n_orders: int,
    *,
    seed: int,
    content_digest: str,
    fixed: Sequence[int | None] | None = None,
    digests: Sequence[str] | None = None,
) -> OptionDesign:
    """Draw up to m different orders for each item, none of them the published one.

    Items with the same set of options count once, see `one_of_each_set`.

    The generator of item k is seeded by (seed, content digest, k) and draws orders of
    the options in alphabetical sequence, so the draws know nothing of the published
    order except that it is skipped. `fixed` is the place of each item's option that
    stays where it is. Without `digests` the seed alone tells items with the same
    options apart.
    """
    reasons = list(map(_reason_in_any_order, options))
    # One generator past those of the items.
    rng = row_generator(seed, content_digest, len(options))
    candidates = [k for k, reason in enumerate(reasons) if reason is None]
    known = digests or [""] * len(options)
    chosen = one_of_each_set(
        [options[k] for k in candidates], [known[k] for k in candidates], rng
    )
    orders: dict[int, np.ndarray] = {}
    for k, is_chosen in zip(candidates, chosen.tolist(), strict=True):
        if not is_chosen or is_sorted(options[k]):
            reasons[k] = SORTED if is_chosen else SHARED
            continue
        rng = row_generator(seed, content_digest, k)
        place = None if fixed is None else fixed[k]
        found = orders_of(options[k], n_orders, rng, place)
        if len(found) < 2:
            reasons[k] = ONE_ORDER
        else:
            orders[k] = found
    left_out = collections.Counter(reason for reason in reasons if reason)
    items = np.array(list(orders), np.int64)
    return OptionDesign(items, tuple(orders.values()), dict(left_out))


def one_of_each_set(
    options: Sequence[Sequence[str]], digests: Sequence[str], rng: np.random.Generator
) -> np.ndarray:
    """(K,) bool: items of which no two share two options or more.

    Options are compared without capitals, width of characters, spaces and last full
    stops. The item with the smallest digest is chosen first, then each that shares no
    two options with those before. Items of one digest may differ in their published
    order: chance decides between them, and their places do not.
    """
    tickets = rng.permutation(len(options)).tolist()
    chosen = np.zeros(len(options), bool)
    taken: set[tuple[str, str]] = set()
    for _, _, k in sorted(zip(digests, tickets, range(len(options)), strict=True)):
        own = set(itertools.combinations(sorted(set(map(_plain, options[k]))), 2))
        if own.isdisjoint(taken):
            chosen[k] = True
            taken |= own
    return chosen


def _plain(text: str) -> str:
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(words).rstrip(" .")


def _reason_in_any_order(options: Sequence[str]) -> str | None:
    if len(set(options)) < len(options):
        return REPEATED
    if any(_PLACE.search(text) or _LETTERS.search(text) for text in options):
        return PLACED
    # The same but for numbers: authors sort such options.
    is_numeric = all(map(_NUMBER.search, options))
    frames = {_NUMBER.sub("#", text).strip().casefold() for text in options}
    return NUMERIC if is_numeric and len(frames) == 1 else None


def is_sorted(options: Sequence[str]) -> bool:
    """By alphabet or by length, either way; two options are always sorted somehow."""
    if len(options) < 3:
        return False
    return not _may_stand(options, np.arange(len(options))[None], None)[0]


def orders_of(
    texts: Sequence[str], n_orders: int, rng: np.random.Generator, fixed: int | None
) -> np.ndarray:
    """At most m + 1 orders of an item's options, the published one first; all if fewer.

    `fixed` is the place of an option that stays where it is.
    """
    n = len(texts)
    published = np.arange(n)
    # A random sequence of orders of the alphabetical list, of which the first m that
    # may stand and are not the published one are taken.
    alphabetical = np.array(
        sorted(range(n), key=lambda i: (texts[i].casefold(), texts[i]))
    )
    if n <= LISTED:
        drawn = alphabetical[_permutations(n)]
        drawn = drawn[rng.permutation(len(drawn))]
    else:
        tries = np.tile(alphabetical, (_TRIES * min(n_orders, MOST), 1))
        drawn = rng.permuted(tries, axis=1)
        if fixed is not None:
            drawn = _put_back(drawn, fixed)
    others = drawn[_may_stand(texts, drawn, fixed) & (drawn != published).any(axis=1)]
    _, first = np.unique(others, axis=0, return_index=True)
    return np.vstack([published, others[np.sort(first)][:n_orders]])


@functools.cache
def _permutations(n: int) -> np.ndarray:
    return np.array(list(itertools.permutations(range(n))))


def _may_stand(
    texts: Sequence[str], orders_RS: np.ndarray, fixed: int | None
) -> np.ndarray:
    """(R,) bool: orders that are not sorted and leave the fixed option where it is."""
    stands = np.ones(len(orders_RS), bool)
    if fixed is not None:
        stands &= orders_RS[:, fixed] == fixed
    if len(texts) < 3:
        return stands
    folded = [text.casefold() for text in texts]
    rank = {text: i for i, text in enumerate(sorted(set(folded)))}
    for keys in ([rank[text] for text in folded], [len(text) for text in texts]):
        steps = np.diff(np.array(keys)[orders_RS], axis=1)
        stands &= ~((steps > 0).all(axis=1) | (steps < 0).all(axis=1))
    return stands


def _put_back(orders_RS: np.ndarray, fixed: int) -> np.ndarray:
    """Swap an option to its own place: the others stay uniformly random."""
    swapped, rows = orders_RS.copy(), np.arange(len(orders_RS))
    at = (orders_RS == fixed).argmax(axis=1)
    swapped[rows, at] = orders_RS[:, fixed]
    swapped[:, fixed] = fixed
    return swapped


PLACE_KEYS: Mapping[str, Callable[[str], Any]] = {
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
    """Check that places have nothing to do with what options say.

    Looks at: the share of each place among the right answers (chi-square); and the
    correlation of an option's place with its length and with its alphabetical rank.
    Two-sided by random orders of each item, Holm-corrected at 0.01. The place of an
    option that is `fixed` is not looked at. An answer is None where no field tells it.
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
    key: Callable[[str], Any],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Mean correlation of place and rank, and its p by orders that may stand."""
    totals_R, observed, scale = np.zeros(N_PERMUTATIONS), 0.0, 0.0
    for k, texts in enumerate(options):
        ranks = sorted_ranks([key(text) for text in texts])
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
