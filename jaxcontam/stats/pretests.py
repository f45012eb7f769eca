"""Checks of exchangeability on the file itself; no model is asked.

The order tests assume that, without the model, every order of the file was equally
likely. A file sorted by length or grouped by label breaks that, and a clean model
would then be found guilty. Failing checks turn the verdict into `invalid design`.

Dimension key
    N  examples
    R  random permutations
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.multiple import holm

N_PERMUTATIONS = 9_999
# The smallest p-value must stay below the level when Holm multiplies it: many label
# fields ask for more permutations.
_PERMUTATIONS_A_TEST = 400
LEVEL = 0.01
"""Familywise level of the battery."""

# Permutations held in memory at once: this many indices.
_BLOCK = 2_000_000


def pretest_battery(
    texts: Sequence[str],
    fields: Mapping[str, Sequence[object]],
    *,
    seed: int,
    groups: Sequence[object] | None = None,
) -> tuple[Pretest, ...]:
    """Two-sided permutation tests of the file's order, Holm-corrected at 0.01.

    Looks at: lag-1 autocorrelation of the mid-ranks of length; Spearman's rho of the
    index with length and with the lexicographic rank; for each field with 2 to n/4
    distinct values, the number of equal neighbours. A pass does not prove
    exchangeability.

    Args:
        texts: Examples in published order.
        fields: Values of each field, one an example; see `label_fields`.
        seed: Seeds the permutations.
        groups: With `--group-field`: permute only among equal values, the null
            that the order test then assumes.
    """
    from scipy.stats import rankdata

    n = len(texts)
    length_rank_N = _centred(rankdata([len(text) for text in texts]))
    text_rank_N = _centred(rankdata(_dense_ranks(texts)))
    index_N = _centred(np.arange(n, dtype=np.float64))
    statistics: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "length_autocorrelation": _autocorrelation(length_rank_N),
        "length_trend": _spearman(index_N, length_rank_N),
        "alphabetical_trend": _spearman(index_N, text_rank_N),
    }
    for name, values in fields.items():
        codes_N = _dense_ranks([repr(value) for value in values]).astype(np.int64)
        statistics[f"equal_neighbours:{name}"] = _equal_neighbours(codes_N)
    observed = {name: f(np.arange(n)[None])[0] for name, f in statistics.items()}
    drawn = _null_statistics(statistics, n, seed, groups)
    p_values = {name: _two_sided(observed[name], drawn[name]) for name in statistics}
    # What no permutation changes cannot fail, and is no test to correct for.
    names = [name for name in statistics if np.ptp(drawn[name]) > 0]
    adjusted = dict(
        zip(names, holm(np.array([p_values[name] for name in names])), strict=True)
    )
    return tuple(
        Pretest(name, float(observed[name]), p, bool(adjusted.get(name, 1.0) > LEVEL))
        for name, p in p_values.items()
    )


def label_fields(
    rows: Sequence[Mapping[str, object] | None],
) -> dict[str, list[object]]:
    """Fields that could group a file: 2 to n/4 distinct values."""
    names = dict.fromkeys(name for row in rows if row is not None for name in row)
    fields = {}
    for name in names:
        values = [None if row is None else row.get(name) for row in rows]
        if 2 <= len({repr(value) for value in values}) <= len(rows) / 4:
            fields[name] = values
    return fields


def directional(pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """Those that a reversible order must pass: grouping reads the same backwards."""
    return tuple(test for test in pretests if test.name.endswith("_trend"))


def _null_statistics(
    statistics: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    n: int,
    seed: int,
    groups: Sequence[object] | None,
) -> dict[str, np.ndarray]:
    """Each statistic over the same seeded permutations, block by block."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    codes_N = (
        np.zeros(n, np.int64)
        if groups is None
        else _dense_ranks([repr(group) for group in groups]).astype(np.int64)
    )
    by_group_N = np.argsort(codes_N, kind="stable")
    starts = np.flatnonzero(np.diff(codes_N[by_group_N], prepend=-1))
    blocks: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    remaining = max(N_PERMUTATIONS, _PERMUTATIONS_A_TEST * len(statistics) - 1)
    while remaining:
        n_rows = min(remaining, max(1, _BLOCK // n))
        permuted_RN = np.empty((n_rows, n), np.int64)
        for members_N in np.split(by_group_N, starts[1:]):
            tiled_RN = np.tile(members_N, (n_rows, 1))
            permuted_RN[:, members_N] = rng.permuted(tiled_RN, axis=1)
        for name, statistic in statistics.items():
            blocks[name].append(statistic(permuted_RN))
        remaining -= n_rows
    return {name: np.concatenate(parts) for name, parts in blocks.items()}


def _autocorrelation(ranks_N: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    total = max(float(ranks_N @ ranks_N), 1e-300)

    def statistic(permuted_RN: np.ndarray) -> np.ndarray:
        values_RN = ranks_N[permuted_RN]
        return np.einsum("rn,rn->r", values_RN[:, :-1], values_RN[:, 1:]) / total

    return statistic


def _spearman(
    index_N: np.ndarray, ranks_N: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    scale = math.sqrt(max(float(index_N @ index_N) * float(ranks_N @ ranks_N), 1e-300))
    return lambda permuted_RN: ranks_N[permuted_RN] @ index_N / scale


def _equal_neighbours(codes_N: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def statistic(permuted_RN: np.ndarray) -> np.ndarray:
        values_RN = codes_N[permuted_RN]
        return (values_RN[:, :-1] == values_RN[:, 1:]).sum(axis=1).astype(np.float64)

    return statistic


def _two_sided(observed: float, drawn_R: np.ndarray) -> float:
    """Twice the smaller one-sided p-value; ties count against rejection."""
    tie = 1e-9 * max(1.0, abs(observed))
    above = 1 + np.count_nonzero(drawn_R >= observed - tie)
    below = 1 + np.count_nonzero(drawn_R <= observed + tie)
    return min(1.0, 2 * float(min(above, below)) / (1 + len(drawn_R)))


def _dense_ranks(values: Sequence[str]) -> np.ndarray:
    rank = {value: i for i, value in enumerate(sorted(set(values)))}
    return np.array([rank[value] for value in values], np.float64)


def _centred(values_N: np.ndarray) -> np.ndarray:
    return values_N - values_N.mean()
