"""AUC and true positives at a rate over many targets that judge the same texts.

One threshold for all targets, as in the attack's own evaluation. Neither two texts of
one target nor two targets of one text are independent, so that intervals come of a
bootstrap that draws targets and texts: Owen (2007), "The pigeonhole bootstrap". It
errs to the wide side. Shadows stay as they are.

Dimension key
    N  targets
    E  texts
    K  resamples
    P  pairs of a target and a text, sorted by score
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

FPRS = (0.01, 0.05)
"""Rates of false positives at which true ones are stated."""

_LEVEL = 0.95
# Resampled weights held at once; 32 MiB of float64.
_MOST_CELLS = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How well one score tells members from non-members.

    Attributes:
        auc: Over all pairs of a target and a text.
        auc_low: Lower end of the 95 % interval.
        auc_high: Upper end.
        tpr: For each of `FPRS` the share of members above the lowest threshold that no
            more than this share of the non-members exceeds.
        tpr_low: Likewise, lower end.
        tpr_high: Upper end.
        behind: AUC of the score that all are compared with, minus this one; None where
            there is no such score.
        behind_low: Lower end of its 95 % interval, from the same resamples.
        behind_high: Upper end.
        n_targets: Models.
        n_members: Pairs of a target and a text that it read.
        n_nonmembers: Pairs of a target and a text that it did not.
    """

    auc: float
    auc_low: float
    auc_high: float
    tpr: tuple[float, ...]
    tpr_low: tuple[float, ...]
    tpr_high: tuple[float, ...]
    behind: float | None
    behind_low: float | None
    behind_high: float | None
    n_targets: int
    n_members: int
    n_nonmembers: int


def rates_of(
    scores: Mapping[str, np.ndarray],
    read_NE: np.ndarray,
    *,
    n_boot: int,
    seed: int,
    best: str | None = None,
) -> dict[str, Rates]:
    """Rates of scores of the same pairs, with two-way intervals.

    Args:
        scores: Name -> (N, E) float64, higher = more likely a member.
        read_NE: bool, what is true.
        n_boot: Resamples, at least 100; the same for all scores.
        seed: Seeds the resamples.
        best: Name of the score that the others are compared with.

    Raises:
        ValueError: If a score is not finite, there is only one kind of pairs, or
            `n_boot` is too small.
    """
    N, E = read_NE.shape
    if n_boot < 100:
        raise ValueError(f"n_boot must be at least 100, got {n_boot}")
    if read_NE.all() or not read_NE.any():
        raise ValueError("read must hold members and non-members")
    rng = np.random.default_rng([seed, 83])
    of_targets_KN = rng.multinomial(N, np.full(N, 1 / N), size=n_boot)
    of_texts_KE = rng.multinomial(E, np.full(E, 1 / E), size=n_boot)
    found, draws = {}, {}
    for name, scores_NE in scores.items():
        if scores_NE.shape != (N, E) or not np.isfinite(scores_NE).all():
            raise ValueError(f"{name} must be {(N, E)} finite scores")
        ranked = _Ranked.of(scores_NE, read_NE)
        found[name] = ranked.values(np.ones((1, N), int), np.ones((1, E), int))[0]
        draws[name] = ranked.values(of_targets_KN, of_texts_KE)
    rows = {}
    for name, value_V in found.items():
        low_V, high_V = _interval(draws[name])
        behind = behind_low = behind_high = None
        if best is not None:
            behind = float(found[best][0] - value_V[0])
            ends = _interval(draws[best][:, 0] - draws[name][:, 0])
            behind_low, behind_high = map(float, ends)
        rows[name] = Rates(
            auc=float(value_V[0]),
            auc_low=float(low_V[0]),
            auc_high=float(high_V[0]),
            tpr=tuple(value_V[1:].tolist()),
            tpr_low=tuple(low_V[1:].tolist()),
            tpr_high=tuple(high_V[1:].tolist()),
            behind=behind,
            behind_low=behind_low,
            behind_high=behind_high,
            n_targets=N,
            n_members=int(read_NE.sum()),
            n_nonmembers=int((~read_NE).sum()),
        )
    return rows


def _interval(draws_K: np.ndarray) -> np.ndarray:
    tail = (1 - _LEVEL) / 2
    return np.nanquantile(draws_K, [tail, 1 - tail], axis=0)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Ranked:
    """Pairs sorted by score, the best first.

    Attributes:
        target: (P,) which target.
        text: (P,) which text.
        member: (P,) bool.
        last: (P,) bool, the last one of equal scores: these are one step of the curve.
    """

    target: np.ndarray
    text: np.ndarray
    member: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, scores_NE: np.ndarray, read_NE: np.ndarray) -> "_Ranked":
        order_P = np.argsort(-scores_NE, axis=None, kind="stable")
        target_P, text_P = np.divmod(order_P, scores_NE.shape[1])
        sorted_P = scores_NE.reshape(-1)[order_P]
        return cls(
            target_P,
            text_P,
            read_NE.reshape(-1)[order_P],
            np.append(sorted_P[1:] != sorted_P[:-1], True),
        )

    def values(self, of_targets_KN: np.ndarray, of_texts_KE: np.ndarray) -> np.ndarray:
        """(K, 1 + rates): AUC and true positives of each resample."""
        at_once = max(1, _MOST_CELLS // len(self.target))
        parts = []
        for start in range(0, len(of_targets_KN), at_once):
            chunk = slice(start, start + at_once)
            weights_KP = (
                of_targets_KN[chunk][:, self.target] * of_texts_KE[chunk][:, self.text]
            )
            parts.append(_weighted(weights_KP, self.member, self.last))
        return np.concatenate(parts)


def _weighted(
    weights_KP: np.ndarray, member_P: np.ndarray, last_P: np.ndarray
) -> np.ndarray:
    """(K, 1 + rates): AUC, then true positives, of weighted pairs, best score first.

    A resample that lacks one kind is NaN.
    """
    # Weights at or above each distinct score; the curve is a polygon between these.
    above_in_KR = np.where(member_P, weights_KP, 0).cumsum(axis=1)[:, last_P]
    above_out_KR = np.where(member_P, 0, weights_KP).cumsum(axis=1)[:, last_P]
    with np.errstate(invalid="ignore", divide="ignore"):
        tpr_KR = above_in_KR / above_in_KR[:, -1:]
        fpr_KR = above_out_KR / above_out_KR[:, -1:]
    steps_KR = np.diff(fpr_KR, axis=1, prepend=0)
    before_KR = np.concatenate([np.zeros((len(tpr_KR), 1)), tpr_KR[:, :-1]], axis=1)
    columns = [(steps_KR * (tpr_KR + before_KR) / 2).sum(axis=1)]
    columns += [_at(tpr_KR, fpr_KR, fpr) for fpr in FPRS]
    values_KV = np.stack(columns, axis=1)
    is_whole_K = (above_in_KR[:, -1] > 0) & (above_out_KR[:, -1] > 0)
    return np.where(is_whole_K[:, None], values_KV, np.nan)


def _at(tpr_KR: np.ndarray, fpr_KR: np.ndarray, fpr: float) -> np.ndarray:
    """Largest share of members that a threshold of at most this rate finds."""
    # 0.05 * 100 is a hair above 5 in binary.
    return np.where(fpr_KR <= fpr + 1e-9, tpr_KR, 0.0).max(axis=1)
