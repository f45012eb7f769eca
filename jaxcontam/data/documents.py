"""Texts that are not independent: those of one document, and copies of one text.

Dimension key
    N  texts
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, overload

import numpy as np

# Distinct texts that all stand equally often before a file is taken for one that was
# written so often.
_FEWEST_WRITTEN = 10

LABELLED, ASKED = ("members", "non-members"), ("texts in question", "non-members")
"""The two sides of a comparison: of labelled texts, of those of unknown membership."""


def codes_of(clusters: Sequence[object] | np.ndarray) -> np.ndarray:
    """(N,) int64 codes of documents, in the order in which they first occur."""
    names = [str(name) for name in clusters]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] for name in names], np.int64)


@overload
def rows_of(given: Sequence[Any], kept_N: np.ndarray) -> list[Any]: ...
@overload
def rows_of(given: None, kept_N: np.ndarray) -> None: ...
def rows_of(given: Sequence[Any] | None, kept_N: np.ndarray) -> list[Any] | None:
    """Some of N texts, or of their documents; None where none are given."""
    if given is None:
        return None
    return [given[i] for i in np.flatnonzero(kept_N).tolist()]


def joined_codes(labels: Sequence[Sequence[Hashable]]) -> np.ndarray:
    """Codes of units, which have labels: equal where a chain of shared ones joins."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(labels)
    codes: dict[Hashable, int] = {}
    edges = [
        (i, n + codes.setdefault(label, len(codes)))
        for i, own in enumerate(labels)
        for label in own
    ]
    rows, columns = np.array(edges, np.int64).reshape(-1, 2).T
    size = n + len(codes)
    graph = coo_array((np.ones(len(edges), bool), (rows, columns)), (size, size))
    _, joined = connected_components(graph, directed=False)
    _, joined = np.unique(joined[:n], return_inverse=True)
    return joined


def document_codes(
    texts: Sequence[str], clusters: Sequence[object] | None
) -> np.ndarray:
    """(N,) int64 codes of documents; equal texts have equal codes.

    Without documents each distinct text is one. Given documents that share a text, be
    it by way of a third one, count as one document: what a model makes of the text, it
    makes of all of them. Texts without words join nothing.
    """
    if clusters is None:
        return codes_of(texts)
    labels = [
        [(True, str(cluster)), *([(False, text)] if text.strip() else [])]
        for text, cluster in zip(texts, clusters, strict=True)
    ]
    return codes_of(joined_codes(labels).tolist())


def independent_codes(
    texts: Sequence[str] | None, clusters: Sequence[object] | None
) -> np.ndarray | None:
    """`document_codes`, or None where each text is its own document."""
    if texts is None:
        return None if clusters is None else codes_of(clusters)
    codes_N = document_codes(texts, clusters)
    if clusters is None and len(np.unique(codes_N)) == len(codes_N):
        return None
    return codes_N


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparedTexts:
    """Texts of two sides that can be compared.

    `kept` (N,) has one copy of each text that takes part, or all of its document; `why`
    (N,) says why a text takes no part, None where it or a copy does.
    """

    kept: np.ndarray
    why: tuple[str | None, ...]
    warnings: tuple[str, ...]


def compared(
    texts: Sequence[str],
    is_first_N: np.ndarray,
    clusters: Sequence[object] | None,
    sides: tuple[str, str],
) -> ComparedTexts:
    """Texts that stand once on both sides together, or in one document of either.

    Of two draws from one source the larger holds more of its frequent texts, and these
    are likelier to any model: a text that stands m times lies on one side of sizes P
    and Q with odds of (P / Q)^m. Given which texts stand once, each of these is on
    either side with the same odds. So what stands on both sides, or more than once,
    takes no part. Where every text of a side stands k times, as in a file that was
    written k times, one copy stands for them. With documents, whose copies of a text
    move with them, a text counts that stands in one document alone; what documents are
    left with is as exchangeable as they were, whatever they share. `sides` are words
    for the first side and the other.
    """
    first_N = np.asarray(is_first_N, bool).tolist()
    units = range(len(texts)) if clusters is None else map(str, clusters)
    places = dict.fromkeys(zip(texts, first_N, units, strict=True))
    # Rows of a text on each side, or documents that hold it.
    stands = Counter((text, side) for text, side, _ in places)
    times = {
        side: 1
        if clusters is not None
        else _times_written([n for (_, own), n in stands.items() if own == side])
        for side in (True, False)
    }
    shared = {text for text, side in stands if (text, not side) in stands}
    alone = {text for (text, side), n in stands.items() if n == times[side]} - shared
    firsts = {text: i for i, text in reversed([*enumerate(texts)])}
    kept_N = [
        text in alone and (clusters is not None or firsts[text] == i)
        for i, text in enumerate(texts)
    ]
    more = "more than once" if clusters is None else "in more than one document"
    why = tuple(
        None
        if text in alone
        else f"stands among the {sides[is_first]}"
        if text in shared
        else f"stands {more}"
        for text, is_first in zip(texts, first_N, strict=True)
    )
    warnings = [
        f"each text among the {name} stands {times[side]} times and counts once"
        for name, side in zip(sides, (True, False), strict=True)
        if times[side] > 1
    ]
    if n := len(shared):
        warnings.append(
            f"{n:,} distinct {'text stands' if n == 1 else 'texts stand'} among the "
            f"{sides[0]} and among the {sides[1]}: no p-value and no number counts "
            f"{'it' if n == 1 else 'them'}"
        )
    if n := len(firsts) - len(shared) - len(alone):
        warnings.append(
            f"{n:,} distinct {'text stands' if n == 1 else 'texts stand'} {more}: no "
            f"p-value and no number counts {'it' if n == 1 else 'them'}, since what is "
            "frequent is likelier to any model"
        )
    return ComparedTexts(np.array(kept_N, bool), why, tuple(warnings))


def _times_written(counts: Sequence[int]) -> int:
    """Copies of each text, if at least ten texts all have equally many; else 1."""
    is_written = len(set(counts)) == 1 and len(counts) >= _FEWEST_WRITTEN
    return counts[0] if is_written else 1
