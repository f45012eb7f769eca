"""ROC curves: area, standard errors, differences, rates, and the best threshold.

Scores are oriented: higher = more likely a member. Texts of one document may share a
cluster; then documents, not texts, count as independent.

Dimension key
    P  members
    Q  non-members
    C  clusters
    R  thresholds
"""

import dataclasses
import math
from typing import Literal

import numpy as np

Clusters = tuple[np.ndarray, np.ndarray]
"""Integer codes of the documents of the members and of the non-members."""

Convention = Literal["le", "lt"]
"""A false-positive rate of at most the wanted one, or below it."""

# 0.29 * 100 is a hair below 29 in binary, and 0.05 * 100 a hair above 5.
_SLACK = 1e-9
# Standard errors below it are 0 but for rounding, such as those of equal documents.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """AUC of one score minus that of another one, on the same texts.

    The p-value is two-sided, of no difference; the interval of 95 %.
    """

    difference: float
    se: float
    low: float
    high: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Threshold:
    """A cut: texts that score at or above it count as members.

    Its accuracy, of both groups alike, is on the texts that it was chosen on: at least
    0.5, and too high for others.
    """

    value: float
    accuracy: float


def auc_delong(
    members_P: np.ndarray, nonmembers_Q: np.ndarray, *, clusters: Clusters | None = None
) -> tuple[float, float]:
    """Probability that a member outscores a non-member, ties counting one half.

    Gives the AUC and its standard error. `clusters` are the documents of the texts, at
    least 2 in each group; one may hold both members and non-members. Scores are finite.

    Source:
        DeLong, DeLong and Clarke-Pearson (1988), through mid-ranks as in Sun and
        Xu (2014); with clusters Obuchowski (1997), "Nonparametric analysis of
        clustered ROC curve data".
    """
    below_P, above_Q = _placements(members_P, nonmembers_Q)
    auc = float(below_P.mean())
    return auc, math.sqrt(_variance(below_P, above_Q, clusters))


def auc_interval(
    auc: float, se: float, *, n: int, level: float = 0.95
) -> tuple[float, float]:
    """Interval of an AUC, on the logit scale, so that it stays within 0 and 1.

    Near 0 and 1 a sample that lacks the few pairs in the wrong order looks certain.
    Where fewer than 5 of n independent pairs are expected to be so, the interval is no
    narrower than Clopper and Pearson's of n pairs; simulated coverage falls to 57 %
    without this. A perfect separation gives a low end of ((1 - level) / 2) ** (1 / n).
    `n` counts independent texts, or documents, of the smaller group.
    """
    if not 0 <= auc <= 1 or se < 0 or n < 1:
        raise ValueError(
            f"auc must be in [0, 1], se at least 0, n at least 1, got {auc, se, n}"
        )
    if se <= _ROUNDING and 0 < auc < 1:
        # A constant score. All of n pairs came out alike, as they do with probability
        # (1 - level) / 2 where a pair does with probability `alike`.
        alike = ((1 - level) / 2) ** (1 / n)
        return auc * alike, auc * alike + 1 - alike
    low = high = auc
    if 0 < auc < 1:
        half = _quantile(level, n) * se / (auc * (1 - auc))
        logit = math.log(auc / (1 - auc))
        low, high = _expit(logit - half), _expit(logit + half)
    if n * min(auc, 1 - auc) < 5:
        from scipy.special import betaincinv

        # Clopper-Pearson, of a share of n that need not be a whole number.
        k, error = auc * n, (1 - level) / 2
        low = min(low, float(betaincinv(k, n - k + 1, error)) if k > 0 else 0.0)
        high = max(high, float(betaincinv(k + 1, n - k, 1 - error)) if k < n else 1.0)
    return low, high


def paired_delong(
    a_members_P: np.ndarray,
    a_nonmembers_Q: np.ndarray,
    b_members_P: np.ndarray,
    b_nonmembers_Q: np.ndarray,
    *,
    clusters: Clusters | None = None,
    share: float = 1.0,
) -> Difference:
    """AUC of score A minus AUC of score B, both of the same texts in the same order.

    With a share, this share of what A has above 0.5 minus what B has above 0.5.

    Source:
        DeLong, DeLong and Clarke-Pearson (1988), section 3. Not a test between nested
        models that were fitted on these very texts.
    """
    P, Q = len(a_members_P), len(a_nonmembers_Q)
    if (len(b_members_P), len(b_nonmembers_Q)) != (P, Q):
        raise ValueError("both scores must be of the same texts")
    a_below_P, a_above_Q = _placements(a_members_P, a_nonmembers_Q)
    b_below_P, b_above_Q = _placements(b_members_P, b_nonmembers_Q)
    below_P = share * a_below_P - b_below_P + (1 - share) / 2
    above_Q = share * a_above_Q - b_above_Q + (1 - share) / 2
    difference = float(below_P.mean())
    se = math.sqrt(_variance(below_P, above_Q, clusters))
    n = min(P, Q)
    if clusters is not None:
        n = min(len(np.unique(group)) for group in clusters)
    if se > _ROUNDING:
        from scipy.special import stdtr

        p_value = float(2 * stdtr(max(1, n - 1), -abs(difference) / se))
        half = _quantile(0.95, n) * se
        low, high = difference - half, difference + half
    else:
        # All pairs differ alike. With a mean of 0 and values in [-1, 1], one pair does
        # so with probability at most 1 / (1 + |difference|).
        p_value = min(1.0, 2 * (1 + abs(difference)) ** -n)
        alike = 0.025 ** (1 / n)
        low = difference * alike - (1 - alike)
        high = difference * alike + (1 - alike)
        if difference == 0 and np.array_equal(a_below_P, b_below_P):
            # The same ranking twice cannot differ on other texts either.
            low = high = 0.0
    return Difference(difference, se, max(-1.0, low), min(1.0, high), p_value)


def roc_curve(
    members_P: np.ndarray, nonmembers_Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """False- and true-positive rates, (R,), at or above each distinct score."""
    members_P, nonmembers_Q = _checked(members_P, nonmembers_Q, fewest=1)
    ascending_R = np.unique(np.concatenate([members_P, nonmembers_Q]))
    rates = []
    for group in (nonmembers_Q, members_P):
        below_R = np.searchsorted(np.sort(group), ascending_R)
        rates.append(np.append(0.0, (len(group) - below_R[::-1]) / len(group)))
    return rates[0], rates[1]


def n_allowed(n_nonmembers: int, fpr: float, convention: Convention = "le") -> int:
    """Number of non-members that may lie above a threshold of this false-positive rate.

    Fewer than one expected is a ValueError: no rate that small can be read off so few.
    """
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must be in (0, 1), got {fpr}")
    if fpr * n_nonmembers < 1 - _SLACK:
        raise ValueError(
            f"fpr times the number of non-members must be at least 1, "
            f"got {fpr} * {n_nonmembers}"
        )
    if convention == "le":
        return math.floor(fpr * n_nonmembers + _SLACK)
    return math.ceil(fpr * n_nonmembers - _SLACK) - 1


def tpr_at_fpr(
    members_P: np.ndarray,
    nonmembers_Q: np.ndarray,
    fpr: float,
    convention: Convention = "le",
) -> tuple[float, float]:
    """Share of members above the lowest threshold that keeps the false-positive rate.

    The threshold was chosen on this sample, so the share is biased upward where few
    non-members lie above it. No interpolation. `le` is at most `fpr`, `lt` below it, as
    Shi et al. and MIMIR do. Scores above the threshold count as members.
    """
    members_P, nonmembers_Q = _checked(members_P, nonmembers_Q, fewest=1)
    k = n_allowed(len(nonmembers_Q), fpr, convention)
    threshold = float(np.sort(nonmembers_Q)[::-1][k])
    return float((members_P > threshold).mean()), threshold


def best_threshold(members_P: np.ndarray, nonmembers_Q: np.ndarray) -> Threshold:
    """The cut with the highest accuracy, both groups weighing the same.

    Candidates lie half way between neighbouring scores, and above the highest. Among
    equally accurate ones the highest is taken. Where no cut is better than chance, none
    is a member.
    """
    members_P, nonmembers_Q = _checked(members_P, nonmembers_Q, fewest=1)
    P, Q = len(members_P), len(nonmembers_Q)
    values = np.unique(np.concatenate([members_P, nonmembers_Q]))
    # Numbers at or above each value, and none above all of them.
    n_found = P - np.searchsorted(np.sort(members_P), values, side="left")
    n_false = Q - np.searchsorted(np.sort(nonmembers_Q), values, side="left")
    # tpr - fpr times P * Q: whole numbers, so that ties are ties.
    gain = np.append(n_found * Q - n_false * P, 0).astype(np.int64)
    best = len(gain) - 1 - int(np.argmax(gain[::-1]))
    accuracy = 0.5 + float(gain[best]) / (2 * P * Q)
    if best == len(values):
        return Threshold(math.nextafter(float(values[-1]), math.inf), accuracy)
    assert best > 0, "all being members is no better than none, which comes first"
    below, above = float(values[best - 1]), float(values[best])
    middle = below + (above - below) / 2
    # Between neighbouring floats there is no other.
    return Threshold(middle if middle > below else above, accuracy)


def _checked(
    members_P: np.ndarray, nonmembers_Q: np.ndarray, *, fewest: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    members_P = np.asarray(members_P, np.float64)
    nonmembers_Q = np.asarray(nonmembers_Q, np.float64)
    P, Q = len(members_P), len(nonmembers_Q)
    if min(P, Q) < fewest:
        raise ValueError(
            f"each group must have at least {fewest} score{'s' * (fewest > 1)}, "
            f"got {P} and {Q}"
        )
    if not (np.isfinite(members_P).all() and np.isfinite(nonmembers_Q).all()):
        raise ValueError("scores must be finite")
    return members_P, nonmembers_Q


def _placements(
    members_P: np.ndarray, nonmembers_Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Share of non-members below each member, of members above each non-member."""
    # scipy.stats takes half a second to import: only those who ask for an AUC wait.
    from scipy.stats import rankdata

    members_P, nonmembers_Q = _checked(members_P, nonmembers_Q)
    P, Q = len(members_P), len(nonmembers_Q)
    ranks = rankdata(np.concatenate([members_P, nonmembers_Q]))
    below_P = (ranks[:P] - rankdata(members_P)) / Q
    above_Q = 1 - (ranks[P:] - rankdata(nonmembers_Q)) / P
    return below_P, above_Q


def _variance(
    below_P: np.ndarray, above_Q: np.ndarray, clusters: Clusters | None
) -> float:
    """Variance of the mean placement; whole documents vary together."""
    P, Q = len(below_P), len(above_Q)
    if clusters is None:
        return float(below_P.var(ddof=1) / P + above_Q.var(ddof=1) / Q)
    if (len(clusters[0]), len(clusters[1])) != (P, Q):
        raise ValueError("clusters must have one code a text")
    names, codes = np.unique(np.concatenate(clusters), return_inverse=True)
    in_P, in_Q, n_codes = codes[:P], codes[P:], len(names)
    centre = below_P.mean()
    of_members_C = np.bincount(in_P, below_P - centre, n_codes) / P
    of_others_C = np.bincount(in_Q, above_Q - centre, n_codes) / Q
    n_members, n_others = len(np.unique(in_P)), len(np.unique(in_Q))
    if min(n_members, n_others) < 2:
        raise ValueError("each group must come from at least 2 documents")
    variance = (
        n_members / (n_members - 1) * float(of_members_C @ of_members_C)
        + n_others / (n_others - 1) * float(of_others_C @ of_others_C)
        + 2 * n_codes / (n_codes - 1) * float(of_members_C @ of_others_C)
    )
    # The three corrections differ, so that their sum may fall below 0.
    return max(0.0, variance)


def _quantile(level: float, n: int) -> float:
    """Two-sided quantile of Student's t: few documents know their spread badly."""
    from scipy.special import stdtrit

    return float(stdtrit(max(1, n - 1), (1 + level) / 2))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
