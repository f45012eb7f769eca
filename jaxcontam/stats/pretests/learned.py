"""Rules of what follows what, learned from one part of a file, found in the others.

No list of what people count in, or of roles, labels or languages, is ever complete. But
a rule shows itself more than once: if the words of neighbours in one part of the file
tell which of two neighbours comes first in another part, then a model that learned such
rules anywhere prefers this file's direction, memory or none.

Null hypothesis: each contiguous stratum was as likely to stand the other way round,
whatever the others are. Strata that repeat one order, as a walk in circles does, break
it, and follow a rule.

Dimension key
    N  rows
    P  pairs of neighbours within a stratum
    K  strata
    C  rows of some strata, those that have pairs
    B  drawn signs
    Q  kinds of features, of which the best counts
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.stats.multiple import max_t
from jaxcontam.stats.pretests.attraction import OPEN, Attraction
from jaxcontam.stats.pretests.null import ends_of, group_codes, neighbour_pairs
from jaxcontam.stats.pretests.similarity import ReadWords, cosines, read_words, tfidf
from jaxcontam.stats.result import Pretest

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# White space between two words goes without saying.
_SIGN = re.compile(r"\w+|\s{2,}|^\s|[^\w\s]")
# Words at the beginning and at the end of a row that count by their place.
_AT_ENDS = 3


def learned_direction(
    texts: Sequence[str],
    *,
    groups: Sequence[object] | None = None,
    n_checks: int = 1,
    seed: int = 0,
    read: ReadWords = read_words,
) -> Pretest:
    """Test whether the direction of some strata foretells that of others.

    With x the features of a row, a stratum k says

        phi_k = sum over its neighbours (a, b) of x_a x_b^T - x_b x_a^T,

    which changes its sign if the stratum is read backwards. The statistic is the sum of
    <phi_k, phi_l> over pairs of strata, against random signs of the strata: exact for
    any features. These are TF-IDF of words, of words with pairs of words, of the first
    and last words of a row, and of signs with the shapes of words (case, digits); the
    best of the four counts, by max-T. Blind to what happens once: an effect after its
    cause, events by their dates. Fewer than some 60 rows teach no rule: p is at least
    two in 2 ** K. One-sided; the statistic is the best one's standard score.

    Source:
        A U-statistic of the antisymmetric part of a bilinear form; our own.
    """
    codes_N = group_codes(len(texts), groups)
    # Many short strata, since what is learned grows with their number.
    left_P, right_P, stratum_P = neighbour_pairs(codes_N, 4)
    # Strata without a pair say nothing.
    _, stratum_P = np.unique(stratum_P, return_inverse=True)
    K = int(stratum_P.max(initial=-1)) + 1
    # All strata of a short file learn from each other, ever fewer of a long one, so
    # that the pairs of strata grow no faster than the file.
    size = min(512, max(32, 2**22 // max(K, 1)))
    parts = [
        slice(*np.searchsorted(stratum_P, (first, first + size)).tolist())
        for first in range(0, K, size)
    ]
    rows = [ends_of(text) for text in texts]
    agreements = [
        [_agreement(vectors_NV, left_P[at], right_P[at], stratum_P[at]) for at in parts]
        for vectors_NV in _vectors(rows, read)
    ]
    # A kind that is alike in all rows says nothing.
    agreements = [
        of_kind for of_kind in agreements if any(one_KK.any() for one_KK in of_kind)
    ]
    statistic, p_value = 0.0, 1.0
    # Holm multiplies the smallest p-value by the checks of the battery.
    most = max(9_999, 400 * n_checks - 1)
    for n_draws in (499, most) if agreements else ():
        sums_QB = _drawn(agreements, n_draws, seed)
        # Sums of float32 that differ by less are ties.
        best = max_t(sums_QB, tolerances=1e-6 * np.abs(sums_QB).max(axis=1))
        statistic, p_value = best.statistic, best.p_value
        if p_value > OPEN:
            break
    found = Attraction(statistic, p_value, applicable=bool(agreements))
    return found.row("learned_direction", directional=True)


def _vectors(rows: Sequence[str], read: ReadWords) -> Iterator["csr_array"]:
    """Words; words and pairs of words; first and last words; signs. Ends count, too."""
    found = read(tuple(rows))
    yield found.vectors
    pairs = [itertools.pairwise(["", *row, ""]) for row in found.words]
    both = zip(found.words, pairs, strict=True)
    yield tfidf([[*row, *(f"{a} {b}" for a, b in two)] for row, two in both])
    ends = [(row[:_AT_ENDS], row[-_AT_ENDS:]) for row in found.words]
    yield tfidf([[*(f" {w}" for w in a), *(f"{w} " for w in b)] for a, b in ends])
    yield tfidf([_signs(row) for row in rows])


def _signs(row: str) -> list[str]:
    """Signs, white space and shapes of words, each also with the one before it."""
    found = [_shape(token) for token in _SIGN.findall(row)]
    pairs = itertools.pairwise(["", *found[:_AT_ENDS], *found[-_AT_ENDS:], ""])
    return [*found, *(f"{a} {b}" for a, b in pairs)]


# Most words of a file come again and again.
@functools.lru_cache(maxsize=2**14)
def _shape(word: str) -> str:
    """`a`, `A`, `Aa` or `0`: the case of a word, or a digit first; a sign is itself."""
    if not word[0].isalnum():
        return word
    if word[0].isdigit():
        return "0"
    if word.istitle():
        return "Aa"
    return "A" if word.isupper() else "a"


def _agreement(
    vectors_NV: "csr_array",
    left_P: np.ndarray,
    right_P: np.ndarray,
    stratum_P: np.ndarray,
) -> np.ndarray:
    """(K, K) float32, half of <phi_k, phi_l> of the strata; 0 on the diagonal."""
    from scipy.sparse import csr_array

    rows_C = np.unique(np.concatenate([left_P, right_P]))
    # Without columns that are empty here: most words of a file are in few rows.
    own = vectors_NV[rows_C]
    used, columns = np.unique(own.indices, return_inverse=True)
    shape = (len(rows_C), max(1, len(used)))
    cosines_CC = cosines(csr_array((own.data, columns, own.indptr), shape))
    a_P, b_P = np.searchsorted(rows_C, left_P), np.searchsorted(rows_C, right_P)
    products_PP = cosines_CC[np.ix_(a_P, a_P)] * cosines_CC[np.ix_(b_P, b_P)]
    crossed_PP = cosines_CC[np.ix_(a_P, b_P)]
    products_PP -= crossed_PP * crossed_PP.T
    starts_K = np.flatnonzero(np.diff(stratum_P, prepend=-1))
    sums_KK = np.add.reduceat(np.add.reduceat(products_PP, starts_K, 0), starts_K, 1)
    np.fill_diagonal(sums_KK, 0.0)
    return sums_KK


def _drawn(
    agreements: Sequence[Sequence[np.ndarray]], n_draws: int, seed: int
) -> np.ndarray:
    """(Q, B + 1) the statistic of each kind under the same signs, published first."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums_QB = np.zeros((len(agreements), n_draws + 1))
    for of_part in zip(*agreements, strict=True):
        signs_BK = rng.integers(2, size=(n_draws + 1, len(of_part[0]))) * 2 - 1
        signs_BK = signs_BK.astype(np.float32)
        signs_BK[0] = 1.0
        for sums_B, agreement_KK in zip(sums_QB, of_part, strict=True):
            sums_B += np.einsum("bk,bk->b", signs_BK @ agreement_KK, signs_BK)
    return sums_QB
