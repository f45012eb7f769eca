"""What the scores of a run of `books` say: from snippets and scores, without a model.

`books` calls it once the scores are there, `verify` with what `texts.jsonl` holds.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.commands.membership_judged import Table
from jaxcontam.commands.verify_membership import UNREADABLE, differences
from jaxcontam.commands.verify_texts import checked_rows
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.books import MEMBER, NONMEMBER
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.books import Shelf, judge_books
from jaxcontam.report.document import REPORT_NAME
from jaxcontam.report.texts import TEXTS_NAME, score_columns
from jaxcontam.results.books import BookRate, BookThreshold
from jaxcontam.results.membership import BlindBaseline, ScoreResult

# False-positive rate at which the paper reads off how many members are found.
_FPRS = (0.05,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedBooks:
    """What scores say of books.

    Attributes:
        thresholds: One a score.
        rates: One a book and score.
        results: One a score, on the snippets of the known books.
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
    values: np.ndarray,
    *,
    primary: str,
    seed: int,
) -> JudgedBooks:
    """Fit thresholds, rate books, and judge the scores on the known books.

    Args:
        shelf: All books.
        texts: N snippets.
        names: M scores.
        values: (N, M) float64, higher = more likely seen, NaN where there is none.
        primary: The score that decides.
        seed: Seeds folds, permutations and resamples.

    Raises:
        InputError: If no snippet of a known side has a score.
    """
    from jaxcontam.methods.membership.blind import blind_baselines
    from jaxcontam.methods.membership.judging import judge

    scored_N = np.isfinite(values).all(axis=1)
    for role in (MEMBER, NONMEMBER):
        if not (shelf.is_of(role) & scored_N).any():
            raise InputError(
                f"no snippet of a known {role} has a score", hint="use more --words"
            )
    thresholds, rates = judge_books(shelf, names, values, primary=primary)
    known_N = shelf.is_of(MEMBER) | shelf.is_of(NONMEMBER)
    known = [texts[i] for i in np.flatnonzero(known_N).tolist()]
    labels, documents = shelf.is_of(MEMBER)[known_N], shelf.book[known_N].tolist()
    blind = blind_baselines(known, labels, clusters=documents, seed=seed)
    results = judge(
        "known books",
        fingerprint(known),
        Table(tuple(names), values[known_N]),
        labels,
        texts=known,
        clusters=documents,
        blind=blind,
        primary=primary,
        fprs=_FPRS,
        seed=seed,
    )
    return JudgedBooks(
        thresholds=tuple(thresholds),
        rates=tuple(rates),
        results=tuple(results),
        blind=blind.rows,
    )


def verify_books(directory: Path, document: Mapping[str, Any]) -> tuple[list[str], int]:
    """Check digests, then judge the books again and compare every number.

    Returns:
        What differs, one line each, and the number of books that were judged again.

    Raises:
        InputError: If the folder has no readable texts.jsonl.
    """
    rows, faults = checked_rows(directory, document)
    try:
        # A book without words has no snippet, and stands in the report alone.
        books = [row for row in document["books"] if row["primary"]]
        shelf = Shelf(
            titles=tuple(row["title"] for row in books),
            roles=tuple(row["role"] for row in books),
            book=np.array([row["cluster"] for row in rows], np.int64),
        )
        faults += [
            f"{TEXTS_NAME}: text {row['id']}: not of the book that the report says"
            for row, b in zip(rows, shelf.book.tolist(), strict=True)
            if (row["source"], row["role"]) != (shelf.titles[b], shelf.roles[b])
        ]
        columns = score_columns(rows)
        (primary,) = (r["method"] for r in document["results"] if r["primary"])
        again = judged_books(
            shelf,
            [row["text"] for row in rows],
            tuple(columns),
            np.stack(list(columns.values()), axis=1),
            primary=primary,
            seed=document["seed"],
        )
        for name, key in (
            ("results", again.results),
            ("blind", again.blind),
            ("book_thresholds", again.thresholds),
            ("books", again.rates),
        ):
            faults += differences(name, document.get(name, []), key)
    except InputError as e:
        return [*faults, f"{TEXTS_NAME}: cannot be judged ({e})"], 0
    except UNREADABLE as e:
        return [*faults, f"{REPORT_NAME}: not a report of books ({e!r})"], 0
    return faults, len(books)
