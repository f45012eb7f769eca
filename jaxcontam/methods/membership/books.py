"""How much of each book looks seen: snippets above a threshold from known books.

Dimension key
    N  snippets of all books
    M  scores
    B  books

Source: Shi et al., arXiv:2310.16789, section 5. Departures: the accuracy that the
threshold maximises weighs members and non-members the same, which is the paper's where
there are as many of both; known books are judged by the threshold of the other known
books as well, since that of all was chosen on them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.books import MEMBER, NONMEMBER, TESTED
from jaxcontam.results.books import BookRate, BookThreshold
from jaxcontam.stats.shares import wilson_interval
from jaxcontam.stats.threshold import best_threshold


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shelf:
    """Books, and which snippet comes from which.

    Attributes:
        titles: (B,) titles; two books may share one.
        roles: (B,) `TESTED`, `MEMBER` or `NONMEMBER`.
        book: (N,) the book of each snippet.
    """

    titles: tuple[str, ...]
    roles: tuple[str, ...]
    book: np.ndarray

    def is_of(self, role: str) -> np.ndarray:
        """(N,) bool: snippets of the books of a role."""
        return np.array([one == role for one in self.roles], bool)[self.book]


def judge_books(
    shelf: Shelf, names: Sequence[str], values: np.ndarray, *, primary: str
) -> tuple[list[BookThreshold], list[BookRate]]:
    """Thresholds from the known books, and the rate of every book by each score.

    Args:
        shelf: All books, known ones and those in question.
        names: (M,) scores.
        values: (N, M) float64, higher = more likely seen, NaN where a snippet has no
            score.
        primary: The score that decides.

    Returns:
        One threshold a score, and one rate a book and score.

    Raises:
        ValueError: If no snippet of a known member, or of a known non-member, has a
            score.
    """
    thresholds, rates = [], []
    for name, scores_N in zip(names, np.asarray(values, np.float64).T, strict=True):
        held_out = _held_out(shelf, scores_N)
        threshold = _fitted(shelf, scores_N, held_out, name, name == primary)
        thresholds.append(threshold)
        rates += [
            _rate(
                shelf,
                b,
                scores_N,
                threshold.threshold if shelf.roles[b] == TESTED else held_out[b],
                method=name,
                primary=name == primary,
            )
            for b in range(len(shelf.titles))
        ]
    return thresholds, rates


def _held_out(shelf: Shelf, scores_N: np.ndarray) -> dict[int, float | None]:
    """For each known book the threshold of all others, None if a side is then empty."""
    scored_N = np.isfinite(scores_N)
    member_N, other_N = (shelf.is_of(role) & scored_N for role in (MEMBER, NONMEMBER))
    found: dict[int, float | None] = {}
    for b, role in enumerate(shelf.roles):
        if role == TESTED:
            continue
        rest_N = shelf.book != b
        sides = scores_N[member_N & rest_N], scores_N[other_N & rest_N]
        found[b] = best_threshold(*sides).value if min(map(len, sides)) else None
    return found


def _fitted(
    shelf: Shelf,
    scores_N: np.ndarray,
    held_out: dict[int, float | None],
    method: str,
    primary: bool,
) -> BookThreshold:
    scored_N = np.isfinite(scores_N)
    sides = [scores_N[shelf.is_of(role) & scored_N] for role in (MEMBER, NONMEMBER)]
    cut = best_threshold(*sides)
    shares: list[float | None] = []
    for role, side in zip((MEMBER, NONMEMBER), sides, strict=True):
        n_above, is_complete = 0, True
        for b, threshold in held_out.items():
            if shelf.roles[b] != role:
                continue
            of_book = scores_N[(shelf.book == b) & scored_N]
            is_complete &= threshold is not None or not len(of_book)
            if threshold is not None:
                n_above += int((of_book >= threshold).sum())
        shares.append(n_above / len(side) if is_complete else None)
    tpr, fpr = shares
    return BookThreshold(
        method=method,
        primary=primary,
        threshold=cut.value,
        accuracy=cut.accuracy,
        accuracy_held_out=None if tpr is None or fpr is None else (tpr + 1 - fpr) / 2,
        tpr_held_out=tpr,
        fpr_held_out=fpr,
        n_member_books=shelf.roles.count(MEMBER),
        n_nonmember_books=shelf.roles.count(NONMEMBER),
        n_members=len(sides[0]),
        n_nonmembers=len(sides[1]),
    )


def _rate(
    shelf: Shelf,
    b: int,
    scores_N: np.ndarray,
    threshold: float | None,
    *,
    method: str,
    primary: bool,
) -> BookRate:
    own = scores_N[shelf.book == b]
    scored = own[np.isfinite(own)]
    n_above = rate = None
    low = high = None
    if threshold is not None and len(scored):
        n_above = int((scored >= threshold).sum())
        rate = n_above / len(scored)
        low, high = wilson_interval(n_above, len(scored))
    return BookRate(
        title=shelf.titles[b],
        role=shelf.roles[b],
        method=method,
        primary=primary,
        n_snippets=len(own),
        n_scored=len(scored),
        n_above=n_above,
        rate=rate,
        rate_low=low,
        rate_high=high,
        threshold=threshold,
    )
