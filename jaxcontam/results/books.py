"""Result dataclasses of `jaxcontam books`: rows of its `report.json`.

A missing number is None, and a warning says why.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BookThreshold:
    """The cut that tells snippets of known books apart: a row of `book_thresholds`.

    Attributes:
        method: The score.
        primary: True for the score that the rates are shown for.
        threshold: Snippets that score at or above it count as seen.
        accuracy: Mean of the shares of seen and of unseen snippets that it gets right,
            on the snippets that it was chosen on.
        accuracy_held_out: The same where each book is judged by the cut that all other
            known books give; None with a single book on a side.
        tpr_held_out: Its part of seen snippets.
        fpr_held_out: Share of unseen snippets that it calls seen: what a book that the
            model never saw may show.
        n_member_books: Known books that the model was trained on.
        n_nonmember_books: Known books that it was not.
        n_members: Their snippets with a score.
        n_nonmembers: Likewise.
    """

    method: str
    primary: bool
    threshold: float
    accuracy: float
    accuracy_held_out: float | None
    tpr_held_out: float | None
    fpr_held_out: float | None
    n_member_books: int
    n_nonmember_books: int
    n_members: int
    n_nonmembers: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BookRate:
    """How much of a book looks seen by one score: a row of `books`.

    Attributes:
        title: The book.
        role: `text` for a book in question, `member` or `nonmember` for a known one.
        method: The score.
        primary: True for the score that the rates are shown for.
        n_snippets: Snippets of the book.
        n_scored: Those with a score.
        n_above: Those at or above the threshold.
        rate: `n_above` of `n_scored`, the contamination rate; None without a score, or
            for a known book that no other book of its side stands in for.
        rate_low: Lower end of its 95 % interval (Wilson), as if snippets were
            independent.
        rate_high: Upper end.
        threshold: Threshold fitted on the other known books, for a known book.
    """

    title: str
    role: str
    method: str
    primary: bool
    n_snippets: int
    n_scored: int
    n_above: int | None
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    threshold: float | None
