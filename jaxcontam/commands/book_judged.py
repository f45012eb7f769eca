"""What the scores of a run of `books` say: from snippets and scores, without a model.

`books` calls it once the scores are there, `verify` with what `texts.jsonl` holds.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.analyses.membership_judging import Table
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.books import MEMBER, NONMEMBER
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.books import Shelf, judge_books
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
