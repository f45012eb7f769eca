"""Bootstrap intervals of statistics of two groups: each group is resampled by itself.

Dimension key
    K  resamples
    P  members
    Q  non-members
    C  documents of one kind

`tpr_interval` resamples nothing: there K is the numbers of non-members that may lie
above the true threshold of a false-positive rate.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxcontam.stats.roc import Clusters, Convention, n_allowed

Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""((K, P) members, (K, Q) non-members) -> (K,): one value per row."""


@dataclasses.dataclass(frozen=True, slots=True)
class BootstrapResult:
    """A statistic, its standard deviation over resamples, and percentile interval."""

    statistic: float
    se: float
    low: float
    high: float


def bootstrap(
    statistic: Statistic,
    members_P: np.ndarray,
    nonmembers_Q: np.ndarray,
    *,
    clusters: Clusters | None = None,
    n_boot: int = 2000,
    seed: int = 0,
) -> BootstrapResult:
    """95 % percentile interval of a statistic; both groups keep their size.

    With clusters, whole documents are drawn: those with members only, with non-members
    only, and with both each keep their number. `n_boot` is K.

    Source:
        Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.
    """
    P, Q = len(members_P), len(nonmembers_Q)
    if min(P, Q) < 1 or n_boot < 1:
        raise ValueError(
            f"members, nonmembers and n_boot must be at least 1, got {P, Q, n_boot}"
        )
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    members_P = np.asarray(members_P, np.float64)
    nonmembers_Q = np.asarray(nonmembers_Q, np.float64)
    if clusters is None:
        # 32 MiB of resampled scores at once.
        rows = max(1, (1 << 22) // (P + Q))
        counts = [min(rows, n_boot - start) for start in range(0, n_boot, rows)]
        draws_K = np.concatenate(
            [
                statistic(
                    members_P[rng.integers(P, size=(k, P))],
                    nonmembers_Q[rng.integers(Q, size=(k, Q))],
                )
                for k in counts
            ]
        )
    else:
        draws_K = _of_documents(
            statistic, members_P, nonmembers_Q, clusters, n_boot, rng
        )
    low, high = np.quantile(draws_K, [(1 - 0.95) / 2, (1 + 0.95) / 2])
    own = statistic(members_P[None], nonmembers_Q[None])[0]
    return BootstrapResult(
        statistic=float(own),
        se=float(draws_K.std(ddof=1)) if n_boot > 1 else 0.0,
        low=float(low),
        high=float(high),
    )


def tpr_statistic(fpr: float, convention: Convention = "le") -> Statistic:
    """True-positive rate at a false-positive rate, threshold found anew in each row.

    A cluster bootstrap may draw fewer non-members than `fpr` needs; the threshold is
    then the largest of them.
    """

    def statistic(members_KP: np.ndarray, nonmembers_KQ: np.ndarray) -> np.ndarray:
        _, Q = nonmembers_KQ.shape
        # Ascending place of the score with exactly the allowed number above it.
        place = Q - 1 - (n_allowed(Q, fpr, convention) if fpr * Q >= 1 - 1e-9 else 0)
        threshold_K = np.partition(nonmembers_KQ, place, axis=1)[:, place]
        return (members_KP > threshold_K[:, None]).mean(axis=1)

    return statistic


def _of_documents(
    statistic: Statistic,
    members_P: np.ndarray,
    nonmembers_Q: np.ndarray,
    clusters: Clusters,
    n_boot: int,
    rng: np.random.Generator,
) -> np.ndarray:
    if len(members_P) != len(clusters[0]) or len(nonmembers_Q) != len(clusters[1]):
        raise ValueError("clusters must have one code per text")
    shared = np.intersect1d(clusters[0], clusters[1])
    kinds = [*(np.setdiff1d(side, shared) for side in clusters), shared]
    sides = [
        _by_document(scores, side)
        for scores, side in zip((members_P, nonmembers_Q), clusters, strict=True)
    ]
    found = np.empty(n_boot)
    for draw in range(n_boot):
        drawn = np.concatenate(
            [
                kind[rng.integers(len(kind), size=len(kind))]
                for kind in kinds
                if len(kind)
            ]
        )
        found[draw] = statistic(*(_of_drawn(side, drawn)[None] for side in sides))[0]
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Documents:
    """Scores of one group; (C,) codes of documents ascend, `starts` are in (P,)."""

    scores: np.ndarray
    codes: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def _by_document(scores_P: np.ndarray, codes_P: np.ndarray) -> _Documents:
    order = np.argsort(codes_P, kind="stable")
    names, starts, sizes = np.unique(
        np.asarray(codes_P)[order], return_index=True, return_counts=True
    )
    return _Documents(scores_P[order], names, starts, sizes)


def _of_drawn(side: _Documents, drawn_C: np.ndarray) -> np.ndarray:
    """Scores of the drawn documents that this group has, in the order of the draw."""
    place = np.searchsorted(side.codes, drawn_C)
    place = place[np.take(side.codes, place, mode="clip") == drawn_C]
    sizes = side.sizes[place]
    # Each document's run of places: its start, and then one after the other.
    ends = np.cumsum(sizes)
    within = np.arange(int(ends[-1])) - np.repeat(ends - sizes, sizes)
    return side.scores[np.repeat(side.starts[place], sizes) + within]


# Probability of the numbers that are left out as too unlikely, on each side.
_NEGLIGIBLE = 1e-9


def tpr_interval(
    members_P: np.ndarray, nonmembers_Q: np.ndarray, fpr: float
) -> tuple[float, float]:
    """95 % interval of the members' share above the threshold of a false-positive rate.

    The true threshold, which `fpr` of all non-members exceed, lies between two
    non-members of this sample: below the k-th largest with k binomial. For each k the
    share above the one and above the other has Clopper and Pearson's limits; the ends
    are quantiles of their mixture over k. The low end is 0 where the true threshold may
    well lie above all non-members.

    Source:
        Own construction from confidence distributions; simulated coverage is .96 to
        .997 at 1 to 100 expected false positives, where the bootstrap's falls to .91.
        Clopper and Pearson (1934) for the limits.
    """
    from scipy.special import betainc
    from scipy.stats import binom

    P, Q = len(members_P), len(nonmembers_Q)
    if min(P, Q) < 1 or not 0 < fpr < 1:
        raise ValueError(
            f"members and nonmembers must not be empty and fpr in (0, 1), "
            f"got {P, Q, fpr}"
        )
    first = int(binom.ppf(_NEGLIGIBLE, Q, fpr))
    last = int(binom.ppf(1 - _NEGLIGIBLE, Q, fpr))
    k_K = np.arange(first, last + 1)
    weight_K = binom.pmf(k_K, Q, fpr)
    weight_K /= weight_K.sum()
    # With k above it the true threshold lies between edges k and k + 1, descending.
    edges = np.concatenate(
        [[np.inf], np.sort(np.asarray(nonmembers_Q, np.float64))[::-1], [-np.inf]]
    )
    sorted_P = np.sort(np.asarray(members_P, np.float64))
    n_low_K = P - np.searchsorted(sorted_P, edges[k_K], side="right")
    n_high_K = P - np.searchsorted(sorted_P, edges[k_K + 1], side="right")

    def low_mass(share: float) -> float:
        # A share of no member has all its mass at 0.
        below_K = betainc(np.maximum(n_low_K, 1), P - n_low_K + 1, share)
        return float(weight_K @ np.where(n_low_K == 0, 1.0, below_K))

    def high_mass(share: float) -> float:
        below_K = betainc(n_high_K + 1, np.maximum(P - n_high_K, 1), share)
        return float(weight_K @ np.where(n_high_K == P, 0.0, below_K))

    error = (1 - 0.95) / 2
    return _crossing(low_mass, error), _crossing(high_mass, 1 - error)


def _crossing(mass: Callable[[float], float], target: float) -> float:
    """First point at which a function that rises from 0 to 1 reaches the target."""
    if mass(0.0) >= target:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if mass(middle) >= target else (middle, high)
    return high
