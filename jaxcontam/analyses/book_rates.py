"""Books: the snippets that a run scores, and what their scores say.

`judged_books` needs no model: `books` calls it once scores exist, `verify` with
what `texts.jsonl` holds.

Dimension key
    N  snippets of all books
    M  scores
    B  books
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.book_files import MEMBER, NONMEMBER, TESTED, Book, snippets_of
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.score import Scores
from jaxcontam.results.books import BookRate, BookThreshold
from jaxcontam.results.membership import BlindBaseline, ScoreResult
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.roc import best_threshold

# Snippets and books of a side below which a threshold is not worth its name.
_FEWEST, _FEWEST_BOOKS = 10, 2
# False-positive rate at which the paper reads off how many members are found.
_FPRS = (0.05,)


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


def without_copies(books: Sequence[Book]) -> tuple[list[Book], list[str]]:
    """Each known book once a side: copies are no further evidence.

    Books are the same if they hold the same words, however these are laid out. Books
    in question keep their copies, since each gets its own rate.

    Returns:
        The books, and one sentence for each side that had copies.
    """
    seen: set[tuple[str, str]] = set()
    kept = []
    n_copies = {MEMBER: 0, NONMEMBER: 0}
    for book in books:
        words = " ".join(word for piece in book.pieces for word in piece.split())
        digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
        if book.role == TESTED or (book.role, digest) not in seen:
            kept.append(book)
        else:
            n_copies[book.role] += 1
        seen.add((book.role, digest))
    return kept, [
        f"copies of known {role}s, which were left out: {n}"
        for role, n in n_copies.items()
        if n
    ]


def shelve(
    books: Sequence[Book], *, n_snippets: int, n_words: int, seed: int
) -> tuple[Shelf, list[str]]:
    """Draw the snippets of all books.

    Raises:
        InputError: If a book stands on both sides, or a side has too few snippets.
    """
    sides: dict[str, Book] = {}
    for book in books:
        if book.role == TESTED:
            continue
        other = sides.setdefault(book.digest, book)
        if other.role != book.role:
            raise InputError(
                f"{book.title}: the same text is known as a member ({other.title}) and "
                "as a non-member"
            )
    texts: list[str] = []
    owners: list[int] = []
    for b, book in enumerate(books):
        drawn = snippets_of(book, n_snippets=n_snippets, n_words=n_words, seed=seed)
        texts += drawn
        owners += [b] * len(drawn)
    shelf = Shelf(
        titles=tuple(book.title for book in books),
        roles=tuple(book.role for book in books),
        book=np.array(owners, np.int64),
    )
    for role, flag in ((MEMBER, "members"), (NONMEMBER, "nonmembers")):
        n_found = int(shelf.is_of(role).sum())
        if n_found < _FEWEST or shelf.roles.count(role) < _FEWEST_BOOKS:
            raise InputError(
                f"{shelf.roles.count(role)} known {flag} with {n_found} snippets, too "
                "few for a threshold",
                hint=f"at least {_FEWEST_BOOKS} books and {_FEWEST} snippets a side, "
                "copies counted once; --words makes snippets shorter",
            )
    if not shelf.is_of(TESTED).any():
        raise InputError("no snippet of a book in question", hint="are they empty?")
    return shelf, texts


def book_warnings(books: Sequence[Book], shelf: Shelf, n_snippets: int) -> list[str]:
    """What the reader should know of the books themselves, one sentence each."""
    known = {book.digest: book for book in books if book.role != TESTED}
    counts = np.bincount(shelf.book, minlength=len(books))
    asked = [b for b, book in enumerate(books) if book.role == TESTED]
    warnings = [
        f"{books[b].title} is also a known book: its rate is part of what the "
        "threshold was fitted on"
        for b in asked
        if books[b].digest in known
    ]
    if n_empty := sum(counts[b] == 0 for b in asked):
        warnings.append(f"books in question without words, and so no rate: {n_empty}")
    if n_short := sum(0 < count < n_snippets for count in counts.tolist()):
        warnings.append(
            f"books too short for {n_snippets} snippets, which have fewer: {n_short} "
            f"of {len(books)}"
        )
    return warnings


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedBooks:
    """What scores say of books.

    Attributes:
        thresholds: One per score.
        rates: One a book and score.
        results: One per score, on the snippets of the known books.
        blind: Baselines that read these snippets alone.
    """

    thresholds: tuple[BookThreshold, ...]
    rates: tuple[BookRate, ...]
    results: tuple[ScoreResult, ...]
    blind: tuple[BlindBaseline, ...]


def judged_books(
    shelf: Shelf,
    texts: Sequence[str],
    names: Sequence[str],
    values_NM: np.ndarray,
    *,
    primary: str,
    seed: int,
) -> JudgedBooks:
    """Fit thresholds, rate books, and judge the scores on the known books.

    Args:
        shelf: All books.
        texts: N snippets.
        names: M scores.
        values_NM: (N, M) float64, higher = more likely seen, NaN where there is none.
        primary: The score that decides.
        seed: Seeds folds, permutations and resamples.

    Raises:
        InputError: If no snippet of a known side has a score.
    """
    from jaxcontam.methods.membership.judging import judge

    scored_N = np.isfinite(values_NM).all(axis=1)
    for role in (MEMBER, NONMEMBER):
        if not (shelf.is_of(role) & scored_N).any():
            raise InputError(
                f"no snippet of a known {role} has a score", hint="use more --words"
            )
    thresholds, rates = judge_books(shelf, names, values_NM, primary=primary)
    known_N = shelf.is_of(MEMBER) | shelf.is_of(NONMEMBER)
    known = [texts[i] for i in np.flatnonzero(known_N).tolist()]
    labels, documents = shelf.is_of(MEMBER)[known_N], shelf.book[known_N].tolist()
    ranking = judge(
        "known books",
        fingerprint(known),
        Scores(tuple(names), values_NM[known_N]),
        labels,
        texts=known,
        clusters=documents,
        primary=primary,
        fprs=_FPRS,
        seed=seed,
    )
    return JudgedBooks(
        thresholds=tuple(thresholds),
        rates=tuple(rates),
        results=ranking.results,
        blind=ranking.blind.rows,
    )


def judge_books(
    shelf: Shelf, names: Sequence[str], values_NM: np.ndarray, *, primary: str
) -> tuple[list[BookThreshold], list[BookRate]]:
    """Thresholds from the known books, and the rate of every book by each score.

    Args:
        shelf: All books, known ones and those in question.
        names: (M,) scores.
        values_NM: (N, M) float64, higher = more likely seen, NaN where a snippet has no
            score.
        primary: The score that decides.

    Returns:
        One threshold a score, and one rate a book and score.

    Raises:
        ValueError: If no snippet of a known member, or of a known non-member, has a
            score.

    Source:
        Shi et al., arXiv:2310.16789, section 5. Departures: the accuracy that the
        threshold maximises weighs members and non-members the same, which is the
        paper's where there are as many of both; known books are judged by the threshold
        of the other known books as well, since that of all was chosen on them.
    """
    thresholds, rates = [], []
    for name, scores_N in zip(names, np.asarray(values_NM, np.float64).T, strict=True):
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
