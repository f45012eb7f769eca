"""What deduplication of a training corpus leaves of each form."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.blind_spots.forms import FormSet
from jaxcontam.data.ngrams import shingles, words_of

# As is common for web text: word 5-grams, near from this Jaccard similarity on (Lee et
# al., arXiv:2107.06499, take 0.8 with an edit distance after it).
_SHINGLE = 5
NEAR = 0.8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Copies of an example that are left, on average.

    Attributes:
        form: Name.
        copies: Before.
        exact: After equal documents are removed but one.
        near: After documents that share `NEAR` of their word 5-grams are, too.
        lines: After equal lines are.
        verbatim: Share of the published texts that stand among the lines, character
            for character.
    """

    form: str
    copies: int
    exact: float
    near: float
    lines: float
    verbatim: float


def what_is_left(one: FormSet, *, seed: int) -> Left:
    """Deduplicate the copies of a set, a copy (or a spread example) a document.

    Shuffled copies get orders drawn here: which ones does not matter.

    Args:
        one: A set that is planted.
        seed: Of the orders.
    """
    planned, n = one.planned, len(one.planned.benchmark)
    rng = np.random.default_rng([seed, 73])
    documents: list[tuple[str, ...]] = []
    for _ in range(planned.copies):
        texts = planned.planted
        if planned.layout == "spread":
            documents += [(text,) for text in texts]
        elif planned.shuffled:
            documents.append(tuple(texts[i] for i in rng.permutation(n).tolist()))
        else:
            documents.append(texts)
    lines = set(planned.planted)
    published = planned.benchmark.texts
    return Left(
        form=one.form.name,
        copies=planned.copies,
        exact=sum(map(len, dict.fromkeys(documents))) / n,
        near=sum(map(len, _without_near(documents))) / n,
        lines=len(lines) / n if planned.copies else 0.0,
        verbatim=sum(text in lines for text in published) / n
        if planned.copies
        else 0.0,
    )


def _without_near(documents: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Documents that are near none that was kept before."""
    kept: list[tuple[str, ...]] = []
    seen: list[set[tuple[int, ...]]] = []
    # Documents of one example: only those that share a 5-gram need comparing.
    holders: dict[tuple[int, ...], list[int]] = {}
    vocabulary: dict[str, int] = {}
    for document in dict.fromkeys(documents):
        words = [word for text in document for word in words_of(text)]
        ids = [vocabulary.setdefault(word, len(vocabulary)) for word in words]
        mine = set(shingles(ids, min(_SHINGLE, len(ids))))
        candidates = {number for gram in mine for number in holders.get(gram, ())}
        if any(_jaccard(mine, seen[number]) >= NEAR for number in candidates):
            continue
        for gram in mine:
            holders.setdefault(gram, []).append(len(kept))
        kept.append(document)
        seen.append(mine)
    return kept


def _jaccard(a: set[tuple[int, ...]], b: set[tuple[int, ...]]) -> float:
    return len(a & b) / len(a | b)
