"""Likeness of texts: TF-IDF vectors, neighbours against chance, near-duplicates.

Dimension key
    N  examples
    T  words of all rows
    V  distinct words
    R  orders
    S  neighbours, S = N - 1; or runs of a stratum
    E  entries of a sparse matrix
    P  pairs of examples
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.stats.orders import split_strata
from jaxcontam.stats.pretests.null import Statistic, value_codes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEAR_DUPLICATE = 0.9
"""Cosine of TF-IDF vectors from which two texts count as near-duplicates."""

MATRIX_EXAMPLES = 4_000
"""Most examples for which all cosines are kept, one byte each: 16 MB."""

# A word of more than this share of the texts is frequent.
_FREQUENT = 0.02
# Rows of a block of cosines, and candidate pairs compared at once.
_ROWS, _PAIRS = 250, 50_000

# Scripts that put no space between words count one character a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


def words_of(text: str) -> list[str]:
    """Words without case and punctuation."""
    return _WORD.findall(text.casefold())


def tfidf(words: Sequence[Sequence[str]]) -> "csr_array":
    """Unit rows (1 + log tf) log(n / df), float32, (N, V).

    A word that stands in every text weighs nothing; a text of such words alone is a
    row of zeros, like no other.
    """
    return _tfidf(number_words(words))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NumberedWords:
    """The words of all rows as numbers, and the distinct ones of each row.

    `numbers` (T,) are in order of first appearance. `is_first` (T,) says whether a word
    stands in its row for the first time: the entries of a sparse matrix, in its order;
    `entry` (T,) is the entry that each word counts for.
    """

    numbers: np.ndarray
    sizes: np.ndarray
    n_kinds: int
    is_first: np.ndarray
    entry: np.ndarray

    @property
    def row(self) -> np.ndarray:
        """(T,) the row of each word."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def number_words(words: Sequence[Sequence[str]]) -> NumberedWords:
    """Number the words of rows."""
    flat = list(itertools.chain.from_iterable(words))
    number = {word: i for i, word in enumerate(dict.fromkeys(flat))}
    numbers_T = np.fromiter(map(number.__getitem__, flat), np.int64, len(flat))
    sizes_N = np.fromiter(map(len, words), np.int64, len(words))
    row_T = np.repeat(np.arange(len(words)), sizes_N)
    keys_T = row_T * max(1, len(number)) + numbers_T
    order_T = np.argsort(keys_T, kind="stable")
    begins_T = np.diff(keys_T[order_T], prepend=-1) != 0
    firsts_E = order_T[begins_T]
    is_first_T = np.zeros(len(flat), bool)
    is_first_T[firsts_E] = True
    entry_T = np.empty(len(flat), np.int64)
    entry_T[order_T] = (np.cumsum(is_first_T) - 1)[firsts_E][np.cumsum(begins_T) - 1]
    return NumberedWords(numbers_T, sizes_N, len(number), is_first_T, entry_T)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowWords:
    """Words of rows that several checks read, also as numbers and as TF-IDF."""

    words: list[list[str]]
    numbered: NumberedWords
    vectors: "csr_array"


def read_words(rows: tuple[str, ...]) -> RowWords:
    """Words and TF-IDF of rows."""
    words = [words_of(row) for row in rows]
    numbered = number_words(words)
    return RowWords(words, numbered, _tfidf(numbered))


ReadWords = Callable[[tuple[str, ...]], RowWords]
"""`read_words`, or the same with a memory: several checks read the same rows."""


def _tfidf(words: NumberedWords) -> "csr_array":
    from scipy.sparse import csr_array

    n = len(words.sizes)
    columns_E = words.numbers[words.is_first].astype(np.int32)
    rows_E = words.row[words.is_first]
    counts_E = np.bincount(words.entry, minlength=len(columns_E))
    df_V = np.bincount(columns_E, minlength=max(1, words.n_kinds))
    weights_E = (1 + np.log(counts_E.astype(np.float64))) * np.log(n / df_V[columns_E])
    norm_N = np.sqrt(np.bincount(rows_E, weights_E**2, minlength=n))
    weights_E /= np.maximum(norm_N, 1e-30)[rows_E]
    starts = np.append(0, np.cumsum(np.bincount(rows_E, minlength=n)))
    return csr_array(
        (weights_E.astype(np.float32), columns_E, starts), shape=(n, len(df_V))
    )


def similar_neighbours(vectors_NV: "csr_array") -> Statistic:
    """Sum of the cosines of neighbours, rounded to 1/255.

    Any fixed function of two texts keeps the permutation test exact, so cosines are
    kept in a byte each. For up to `MATRIX_EXAMPLES`; see `stratum_cosines`.
    """
    n, _ = _size(vectors_NV)
    cosines_NN = np.empty((n, n), np.uint8)
    for start, block in _cosine_rows(vectors_NV):
        # Float32 rows of one word may have a product a little above 1.
        cosines_NN[start : start + _ROWS] = np.rint(255 * np.minimum(block, 1))
    flat = cosines_NN.reshape(-1)

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        # n ** 2 is below 2 ** 31: int32 indices do not overflow.
        pairs_RS = orders_RN[:, :-1].astype(np.int32) * np.int32(n) + orders_RN[:, 1:]
        return flat.take(pairs_RS).sum(axis=1, dtype=np.int64) / 255

    return statistic


def cosines(vectors_NV: "csr_array") -> np.ndarray:
    """(N, N) float32, all cosines of unit rows."""
    n, _ = _size(vectors_NV)
    cosines_NN = np.empty((n, n), np.float32)
    for start, block in _cosine_rows(vectors_NV):
        cosines_NN[start : start + _ROWS] = block
    return cosines_NN


def stratum_cosines(
    vectors_NV: "csr_array", order_N: np.ndarray, size: int
) -> list[np.ndarray]:
    """(S, S) cosines within strata, symmetric, 0 on the diagonal.

    Rows stand stratum by stratum in `order_N`.
    """
    ordered_NV = vectors_NV[order_N]
    sizes = [len(stratum) for stratum in split_strata(len(order_N), size)]
    of_N = np.repeat(np.arange(len(sizes)), sizes)
    place_N = np.concatenate([np.arange(size) for size in sizes])
    cosines_KSS = np.zeros((len(sizes), max(sizes), max(sizes)))
    for lag in range(1, max(sizes)):
        left = np.flatnonzero(of_N[:-lag] == of_N[lag:])
        right = left + lag
        products = ordered_NV[left].multiply(ordered_NV[right])
        cosines = np.asarray(products.sum(axis=1)).ravel()
        cosines_KSS[of_N[left], place_N[left], place_N[right]] = cosines
        cosines_KSS[of_N[left], place_N[right], place_N[left]] = cosines
    return [cosines_KSS[k, :size, :size] for k, size in enumerate(sizes)]


def near_duplicates(
    words: Sequence[Sequence[str]], texts: Sequence[str], vectors_NV: "csr_array"
) -> np.ndarray:
    """`codes_N`: equal for texts of equal words or joined by cosines from 0.9 on.

    Finds such pairs without comparing all: if words are sorted from rare to frequent,
    the first ones that hold 1 - 0.9 ** 2 of a row's squared length must share a word
    with those of the other row, since what is left is shorter than 0.9. In long files
    of few words some pairs may be missed. Texts without words are compared as they are.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    same_N = value_codes(
        [" ".join(ws) if ws else (t,) for ws, t in zip(words, texts, strict=True)]
    )
    _, first = np.unique(same_N, return_index=True)
    distinct = vectors_NV[first]
    heads = _rare_heads(distinct)
    by_word = heads.T.tocsr()
    pairs: list[np.ndarray] = [np.empty((2, 0), np.int64)]
    for start in range(0, len(first), _ROWS):
        candidates = (heads[start : start + _ROWS] @ by_word).tocoo()
        left_P, right_P = candidates.row + start, candidates.col
        left_P, right_P = left_P[left_P < right_P], right_P[left_P < right_P]
        for at in range(0, len(left_P), _PAIRS):
            left, right = left_P[at : at + _PAIRS], right_P[at : at + _PAIRS]
            cosines = np.asarray(distinct[left].multiply(distinct[right]).sum(axis=1))
            alike = cosines.ravel() >= NEAR_DUPLICATE
            pairs.append(np.stack([left[alike], right[alike]]))
    joined = np.concatenate(pairs, axis=1)
    graph = coo_array(
        (np.ones(joined.shape[1], bool), (joined[0], joined[1])),
        shape=(len(first), len(first)),
    )
    _, of_distinct = connected_components(graph, directed=False)
    return of_distinct[same_N].astype(np.int32)


def _rare_heads(vectors_NV: "csr_array") -> "csr_array":
    """The rarest words of each row that hold 1 - 0.9 ** 2 of its squared length."""
    from scipy.sparse import csr_array

    n, n_words = _size(vectors_NV)
    rows_E = np.repeat(np.arange(n), np.diff(vectors_NV.indptr))
    columns_E = vectors_NV.indices
    df_V = np.bincount(columns_E, minlength=n_words)
    order_E = np.lexsort((columns_E, df_V[columns_E], rows_E))
    squares_E = vectors_NV.data[order_E].astype(np.float64) ** 2
    ends_E = np.cumsum(squares_E)
    before_E = ends_E - squares_E
    sizes = np.diff(vectors_NV.indptr)
    starts_N = np.append(before_E, 0.0)[vectors_NV.indptr[:-1]]
    # A hair more than needed: float32 rows are not quite of length 1.
    kept_E = before_E - np.repeat(starts_N, sizes) <= 1 - NEAR_DUPLICATE**2 + 1e-5
    kept_E &= squares_E > 0
    rows, columns = rows_E[order_E][kept_E], columns_E[order_E][kept_E]
    heads_NV = csr_array((np.ones(len(rows), np.int32), (rows, columns)), (n, n_words))
    # Without the words that would make too many pairs of examples that share one.
    df_V = np.bincount(heads_NV.indices, minlength=n_words).astype(np.int64)
    by_rarity_V = np.argsort(df_V, kind="stable")
    n_pairs_V = np.cumsum(df_V[by_rarity_V] ** 2)
    kept_V = np.sort(by_rarity_V[n_pairs_V <= max(5_000_000, n)])
    return heads_NV[:, kept_V]


def _cosine_rows(vectors_NV: "csr_array") -> Iterator[tuple[int, np.ndarray]]:
    """Cosines of some rows with all, and the first of these rows."""
    n, n_words = _size(vectors_NV)
    # Words of many texts go through a dense product, the others through a sparse one:
    # each is slow at the other's work.
    df_V = np.bincount(vectors_NV.indices, minlength=n_words)
    frequent_NV = vectors_NV[:, df_V > n * _FREQUENT].toarray()
    rare = vectors_NV[:, df_V <= n * _FREQUENT].tocsr()
    by_word = rare.T.tocsr()
    for start in range(0, n, _ROWS):
        block = (rare[start : start + _ROWS] @ by_word).toarray()
        block += frequent_NV[start : start + _ROWS] @ frequent_NV.T
        yield start, block


def _size(vectors_NV: "csr_array") -> tuple[int, int]:
    """N and V; scipy's types leave the shape open."""
    n, n_words = vectors_NV.shape or (0, 0)
    return n, n_words
