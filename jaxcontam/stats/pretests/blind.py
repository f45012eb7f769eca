"""Order tests of the file on blind matrices, which no model made.

The statistics of the order tests, on pair matrices of a scorer that cannot have seen
the file. Attraction says that the order is not random, direction that the file itself
points forward: a test that needs a random, or a reversible, order proves nothing then.

The scorer gives log p(row b | row a) from counts alone. It knows how often tokens occur
in the file as a heap of rows, and what it has read: row a, then row b so far. From
shorter to longer n-grams, h being the last n - 1 tokens,

    p_n(w | h) = (c(h w) + d_n p_(n-1)(w)) / (c(h) + d_n),

where c counts what was read, tokens just read more than those long ago, and p_0 is the
share of w in the other rows of the heap, which no order changes. A language model that
copies from its context does as much, and so prefers any order that puts like beside
like, or a name where the next row takes it up, memory or none.

Dimension key
    N  rows
    K  strata, or blocks of the copying scorer
    S  rows of a stratum, or of the largest block
    T  tokens of all rows, each row between a begin and an end
    G  distinct n-grams of the blocks
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from jaxcontam.stats.adjacency import FEWEST_EXAMPLES, double_centred
from jaxcontam.stats.multiple import shared_sums
from jaxcontam.stats.orders import cut_to_budget, split_strata
from jaxcontam.stats.pretests.attraction import (
    OPEN,
    Attraction,
    attraction_of,
    draws_of,
    far_apart,
    two_sided_p,
)
from jaxcontam.stats.pretests.null import gate, group_codes
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.result import Pretest

Kind = Literal["words", "characters"]
KINDS: tuple[Kind, ...] = ("words", "characters")
BLOCK = 8
"""Rows of a block: all ordered pairs of each block are scored."""
# Words, runs of spaces, single other signs: how a file was written counts. One space
# between two words goes without saying.
_TOKEN = re.compile(r"\w+|\s{2,}|(?<!\w) | (?!\w)|[^\S ]|[^\w\s]")
# Pseudocount of the heap.
_HEAP = 1.0
# The last token read counts 1 + _RECENT times.
_RECENT = 20.0
# Cells (a token after one row) looked up at once: their tables stay in cache.
_CELLS = 1 << 19
SMALL = 5


def blind_pretests(
    texts: Sequence[str], *, groups: Sequence[object] | None = None, seed: int = 0
) -> tuple[Pretest, ...]:
    """Attraction and direction of the file's own order, in nats, with no model.

    Four rows for each kind of copying scorer: `blind_attraction` (neighbours, as the
    `adjacency` test), `blind_lags` (the distance of 2 to 7 rows that stands out most,
    before and after), `blind_runs` (neighbours against rows of other parts of the file)
    and `blind_direction` (forward against backward). All are two-sided: turns of a
    dialogue repel each other. Rows pass or not by Holm over these alone; see `gate`.
    """
    codes_N = group_codes(len(texts), groups)
    found: list[Pretest] = []
    for kind in KINDS:
        found += _of_kind(texts, codes_N, kind, seed=seed)
    return gate(found)


def direction_of(
    matrices: Sequence[np.ndarray],
    codes: Sequence[np.ndarray] | None = None,
    *,
    seed: int = 0,
) -> Attraction:
    """Forward minus backward of pair matrices, against the signs of their strata.

    Null hypothesis: each stratum was as likely to stand the other way round, given its
    contents; with groups, each group of a stratum. Natural order attracts both ways and
    leaves it true. Strata of fewer than 4 rows are left out. The statistic is half the
    mean difference a boundary, in nats, above 0 where it points forward.
    """
    differences: list[float] = []
    n_boundaries, ties = 0, 0.0
    sizes = [len(matrix_SS) for matrix_SS in matrices]
    for size in sorted(set(sizes)):
        if size < FEWEST_EXAMPLES:
            continue
        used = [k for k, own in enumerate(sizes) if own == size]
        pairs_KSS = np.stack([matrices[k] for k in used])
        ties += 2 * MODEL_TOLERANCE * float(np.abs(pairs_KSS).max(axis=(1, 2)).sum())
        n_boundaries += len(used) * (size - 1)
        for k, centred_SS in zip(used, double_centred(pairs_KSS), strict=True):
            # Each group the other way round.
            turned_S, codes_S = np.arange(size), np.zeros(size)
            if codes is not None:
                codes_S = codes[k]
            for code in np.unique(codes_S):
                places = np.flatnonzero(codes_S == code)
                turned_S[places] = places[::-1]
            forward = centred_SS.trace(1)
            backward = centred_SS[turned_S[:-1], turned_S[1:]].sum()
            differences.append(float(forward - backward))
    if math.fsum(map(abs, differences)) <= ties:
        return Attraction(0.0, 1.0, applicable=False)
    columns_KM = np.outer(differences, [1.0, -1.0])
    p_value = 1.0
    for n_draws in draws_of(len(differences)):
        drawn = shared_sums(columns_KM[None], n_draws=n_draws, seed=seed)[0]
        p_value = two_sided_p(drawn, columns_KM, ties)
        if p_value > OPEN:
            break
    return Attraction(math.fsum(differences) / (2 * n_boundaries), p_value)


def _of_kind(
    rows: Sequence[str], codes_N: np.ndarray, kind: Kind, *, seed: int
) -> list[Pretest]:
    tokens = read_tokens(rows, kind)
    matrices = matrices_of(tokens, kind)
    codes = _split(codes_N, matrices)
    near, far = attraction_of(matrices, codes, seed=seed)
    order = far_apart(len(rows))
    apart = matrices_of(tokens.rows(order), kind)
    runs, _ = attraction_of(apart, _split(codes_N[order], apart), seed=seed)
    if len(matrices) < 40:
        # Smaller strata before fewer signs: 2 ^ -K must not bind.
        matrices = matrices_of(tokens, kind, size=SMALL)
        codes = _split(codes_N, matrices)
    found = {
        "attraction": near,
        "lags": far,
        "runs": runs,
        "direction": direction_of(matrices, codes, seed=seed),
    }
    return [
        one.row(f"blind_{what}:{kind}", directional=what == "direction")
        for what, one in found.items()
    ]


def _split(codes_N: np.ndarray, matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Codes of the rows of each matrix."""
    ends = np.cumsum([len(matrix_SS) for matrix_SS in matrices])
    return np.split(codes_N, ends[:-1]) if matrices else []


# What a row begins and ends with; tokens of texts come after.
_BEGIN, _END, _FIRST = 0, 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class _Cache:
    """Weights of a kind of scorer for the rows that it has read.

    `pseudocounts` are d_n of n = 1, 2, ...: a large first one keeps a single token from
    outweighing the heap. The extra weight of the last token falls by e over `memory`.
    """

    pseudocounts: tuple[float, ...]
    memory: float
    budget: int


_CACHES: dict[Kind, _Cache] = {
    "words": _Cache((50.0, 1.0, 0.5), 3.0, 2_000_000),
    "characters": _Cache((200.0, 10.0, 2.0, 1.0, 0.5), 10.0, 1_000_000),
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Rows as a kind of scorer reads them.

    `tokens` (T,) are numbers of the tokens of all rows, `lengths` (N,) those of each,
    `n_kinds` the distinct ones.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    n_kinds: int

    def starts(self) -> np.ndarray:
        """(N,) place of each row's first token."""
        return np.cumsum(self.lengths) - self.lengths

    def row(self) -> np.ndarray:
        """(T,) the row of each token."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def rows(self, order_N: np.ndarray) -> "Tokens":
        """Some of the rows, in an order."""
        lengths_N = self.lengths[order_N]
        shift_N = self.starts()[order_N] - (np.cumsum(lengths_N) - lengths_N)
        tokens_T = self.tokens[
            np.arange(lengths_N.sum()) + np.repeat(shift_N, lengths_N)
        ]
        numbers_T, n_kinds = _renumbered(tokens_T)
        return Tokens(numbers_T, lengths_N, n_kinds)


def read_tokens(texts: Sequence[str], kind: Kind) -> Tokens:
    """Tokens of rows, for `matrices_of`."""
    if kind == "words":
        found = list(map(_TOKEN.findall, texts))
        flat = list(itertools.chain.from_iterable(found))
        numbers = {token: i for i, token in enumerate(dict.fromkeys(flat))}
        tokens_T = np.fromiter(map(numbers.__getitem__, flat), np.int64, len(flat))
        lengths_N = np.array(list(map(len, found)), np.int64)
        return Tokens(tokens_T, lengths_N, len(numbers))
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    points_T = np.frombuffer(joined, "<u4").astype(np.int64)
    numbers_T, n_kinds = _renumbered(points_T)
    return Tokens(numbers_T, np.array(list(map(len, texts)), np.int64), n_kinds)


def matrices_of(tokens: Tokens, kind: Kind, *, size: int = BLOCK) -> list[np.ndarray]:
    """Pair matrices of contiguous blocks of rows, by a scorer that never saw the file.

    Entry [a, b] is log p(row b | row a) in nats; the diagonal is 0 and not used. It
    depends on its two rows and on the unordered file alone, so that tests of the order
    are as exact for these matrices as for a model's.

    Work grows with the tokens of the file up to a budget (2 million words, 1 million
    characters: some seconds). Rows of longer files keep so many tokens as fit, the same
    number for all, half from the beginning of a row and half from its end; where fewer
    than 16 would be left, blocks hold 4 rows.

    Rows stand in published order. `words` (words, runs of spaces, single signs; case
    kept) looks at n-grams of up to 3, `characters` of up to 5. Sizes of blocks differ
    by at most 1.

    Source:
        Cache language model (Kuhn and De Mori 1990) over n-grams, smoothed by
        Dirichlet priors (MacKay and Peto 1995).
    """
    if not len(tokens.lengths):
        return []
    cache = _CACHES[kind]
    rows, size = _rows_of(tokens, cache.budget, size)
    heap_T = _heap(rows)
    n_rows = len(rows.lengths)
    sizes_K = np.array([len(block) for block in split_strata(n_rows, size)])
    ends_K = np.cumsum(sizes_K)
    begins_K = np.append(rows.starts(), len(rows.tokens))[np.append(0, ends_K)]
    matrices: list[np.ndarray] = []
    first = 0
    while first < len(sizes_K):
        # As many blocks at once as _CELLS allow, at least one.
        most = begins_K[first] + _CELLS // size
        last = max(first + 1, int(np.searchsorted(begins_K, most, "right")) - 1)
        here = slice(int(begins_K[first]), int(begins_K[last]))
        of = slice(int(ends_K[first] - sizes_K[first]), int(ends_K[last - 1]))
        some = Tokens(rows.tokens[here], rows.lengths[of], rows.n_kinds)
        matrices += _matrices(some, heap_T[here], sizes_K[first:last], cache)
        first = last
    return matrices


def _matrices(
    rows: Tokens, heap_T: np.ndarray, sizes_K: np.ndarray, cache: _Cache
) -> list[np.ndarray]:
    """The matrices of some blocks, all of whose tokens are looked up together."""
    K, S = len(sizes_K), int(sizes_K.max())
    starts_N, row_T = rows.starts(), rows.row()
    block_N = np.repeat(np.arange(K), sizes_K)
    place_N = np.arange(len(block_N)) - (np.cumsum(sizes_K) - sizes_K)[block_N]
    block_T, place_T = block_N[row_T], place_N[row_T]
    within_T = np.arange(len(row_T)) - starts_N[row_T]
    # A row's end is as far from the next row's begin as this begin is from itself.
    left_T = rows.lengths[row_T] - 1 - within_T
    recent_T = np.exp(-left_T / cache.memory)
    fades_T1 = _RECENT * np.exp(-within_T / cache.memory)[:, None]
    n_read_KS, recent_KS = np.zeros((K, S)), np.zeros((K, S))
    # All but a row's begin, which nothing predicts.
    n_read_KS[block_N, place_N] = rows.lengths - 1
    recent_N = np.add.reduceat(recent_T, starts_N) - recent_T[starts_N]
    recent_KS[block_N, place_N] = recent_N
    context_TS = n_read_KS[block_T] + fades_T1 * recent_KS[block_T]
    context_TS += np.maximum(within_T - 1, 0)[:, None]
    p_TS = np.repeat(heap_T[:, None], S, axis=1)
    gram_T = block_T
    for n, pseudocount in enumerate(cache.pseudocounts, 1):
        before_T = gram_T if n == 1 else np.roll(gram_T, 1)
        # No n-gram reaches back into another row.
        before_T[starts_N] = gram_T[starts_N]
        gram_T, n_grams, earlier_T = _grams(
            before_T * rows.n_kinds + rows.tokens, row_T
        )
        cell_T, n_cells = gram_T * S + place_T, n_grams * S
        counts = np.bincount(cell_T, minlength=n_cells).reshape(n_grams, S)
        recent = np.bincount(cell_T, recent_T, n_cells).reshape(n_grams, S)
        found_TS = fades_T1 * recent[gram_T] + counts[gram_T] + earlier_T[:, None]
        p_TS *= pseudocount
        p_TS += found_TS
        p_TS /= context_TS + pseudocount
        # This n-gram is the context of the next token.
        context_TS = np.roll(found_TS, 1, axis=0)
    p_TS[starts_N] = 1.0
    sums_NS = np.add.reduceat(np.log(p_TS), starts_N, axis=0)
    matrices = []
    for end, size in zip(np.cumsum(sizes_K).tolist(), sizes_K.tolist(), strict=True):
        matrix_SS = sums_NS[end - size : end, :size].T.copy()
        np.fill_diagonal(matrix_SS, 0.0)
        matrices.append(matrix_SS)
    return matrices


def _grams(keys_T: np.ndarray, row_T: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Number of each n-gram, how many there are, and how often it came in its row."""
    order_T = np.argsort(keys_T, kind="stable")
    is_new_T = np.diff(keys_T[order_T], prepend=-1) != 0
    # Equal n-grams of one row stand together, in the order of the row.
    is_first_T = is_new_T | (np.diff(row_T[order_T], prepend=-1) != 0)
    places_T = np.arange(len(keys_T))
    firsts_T = np.maximum.accumulate(np.where(is_first_T, places_T, 0))
    gram_T, earlier_T = np.empty_like(order_T), np.empty_like(order_T)
    gram_T[order_T] = np.cumsum(is_new_T) - 1
    earlier_T[order_T] = places_T - firsts_T
    return gram_T, int(gram_T.max()) + 1, earlier_T


def _heap(rows: Tokens) -> np.ndarray:
    """(T,) p of each token by its share in all other rows."""
    T = len(rows.tokens)
    counts_V = np.bincount(rows.tokens, minlength=rows.n_kinds)
    _, of_row_T, counts = np.unique(
        rows.tokens * len(rows.lengths) + rows.row(),
        return_inverse=True,
        return_counts=True,
    )
    others_T = counts_V[rows.tokens] - counts[of_row_T]
    n_others_T = T - np.repeat(rows.lengths, rows.lengths)
    return (others_T + _HEAP / rows.n_kinds) / (n_others_T + _HEAP)


def _rows_of(tokens: Tokens, budget: int, size: int) -> tuple[Tokens, int]:
    """Rows between a begin and an end, cut to the budget, and the most of a block."""
    tokens_T, lengths_N, n_kinds = tokens.tokens, tokens.lengths, tokens.n_kinds
    cap = cut_to_budget(lengths_N, budget)
    if cap is not None and cap < 16:
        size = min(size, 4)
        cap = cut_to_budget(lengths_N, budget * BLOCK // size)
    if cap is not None:
        within_T = np.arange(len(tokens_T)) - tokens.starts()[tokens.row()]
        left_T = np.repeat(lengths_N, lengths_N) - within_T
        # The first and the last token stay in any case.
        cap = max(cap, 2)
        tokens_T = tokens_T[(within_T < (cap + 1) // 2) | (left_T <= cap // 2)]
        lengths_N = np.minimum(lengths_N, cap)
    n, lengths_N = len(lengths_N), lengths_N + 2
    ends_N = np.cumsum(lengths_N)
    is_text_T = np.ones(len(tokens_T) + 2 * n, bool)
    is_text_T[ends_N - lengths_N] = is_text_T[ends_N - 1] = False
    framed_T = np.full(len(is_text_T), _BEGIN, np.int64)
    framed_T[ends_N - 1] = _END
    framed_T[is_text_T] = tokens_T + _FIRST
    return Tokens(framed_T, lengths_N, n_kinds + _FIRST), size


def _renumbered(numbers_T: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers without gaps, in the same order, and how many are distinct."""
    is_there_V = np.bincount(numbers_T) > 0
    return (np.cumsum(is_there_V) - 1)[numbers_T], int(is_there_V.sum())
