"""Which texts are no independent ones: those of one document, and copies of one text.

Dimension key
    N  texts
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np


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
    codes_N = codes_of(clusters)
    parent = list(range(int(codes_N.max(initial=-1)) + 1))

    def root(code: int) -> int:
        while parent[code] != code:
            parent[code] = parent[parent[code]]
            code = parent[code]
        return code

    first: dict[str, int] = {}
    for text, code in zip(texts, codes_N.tolist(), strict=True):
        if text.strip():
            other, own = root(first.setdefault(text, code)), root(code)
            # The smaller code stays, so that codes keep their order.
            parent[max(other, own)] = min(other, own)
    return codes_of([root(code) for code in codes_N.tolist()])


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


def copies_warnings(
    texts: Sequence[str], clusters: Sequence[object] | None
) -> tuple[str, ...]:
    """One sentence where some texts are copies of others, else nothing."""
    n_distinct = len(set(texts))
    if n_distinct == len(texts):
        return ()
    join = "" if clusters is None else ", and join the documents that hold them"
    return (
        f"{len(texts):,} texts, {n_distinct:,} distinct: copies count as one text in "
        f"every p-value and interval{join}",
    )
