"""LiRA: a target's score beside those of shadow models that read a text or did not.

Every model of the population is a target once; the others are its shadows. For each
text the shadows that read it and those that did not give two Gaussians, and the score
is the log of the ratio of their densities at what the target says.

Source: Carlini, Chien, Nasr, Song, Terzis and Tramer, "Membership Inference Attacks
From First Principles", arXiv:2112.03570, algorithm 1 (online) and section VI (offline).
Their statistic is the logit of the probability of a label; here it is that of the mean
probability of a token (geometric mean), as for language models texts have no label.

Dimension key
    N  models
    E  texts
    S  shadows of one target, N - 1
"""

import dataclasses
from typing import Literal

import numpy as np

Kind = Literal["online", "offline"]

# Two Gaussians with the same spread are no narrower than float32 scores resolve.
_LEAST_VARIANCE = 1e-12
# Nats a token; as `LEAST_LOSS` of membership scores.
_LEAST_LOSS = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """What shadows of one side say of each text.

    Attributes:
        n: (E,) int64, shadows.
        mean: (E,) float64; NaN where there is no shadow.
        variance: (E,) float64, n - 1 in the denominator; NaN below two shadows.
    """

    n: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def token_logit(mean_logprob: np.ndarray) -> np.ndarray:
    """Logit of exp(mean log-probability a token): log p - log(1 - p), increasing.

    A text that a model knows by heart has a mean of 0 after rounding; it counts as a
    loss of 1e-6 nats per token.
    """
    logp = np.minimum(mean_logprob, -_LEAST_LOSS)
    return logp - np.log(-np.expm1(logp))


def lira_scores(
    values_NE: np.ndarray,
    read_NE: np.ndarray,
    group_E: np.ndarray,
    *,
    kind: Kind = "online",
    pooled: bool = False,
    n_shadows: int | None = None,
) -> np.ndarray:
    """LiRA of every target and text, with the other models as shadows.

    Args:
        values_NE: float64 statistic of each model and text, higher = member.
        read_NE: bool, True where the model was trained on the text.
        group_E: int, texts of one number of copies; for `pooled`.
        kind: `online` compares both Gaussians; `offline` uses that of the shadows that
            did not read the text alone, and is the target's distance from its mean in
            standard deviations.
        pooled: One variance a side and group, that within texts, where shadows are too
            few for one per text. Their released code takes the spread over all texts,
            which holds how texts differ, too.
        n_shadows: Take the next so many models, half of which read the text, for each
            target; None takes all others.

    Returns:
        (N, E) float64, higher = more likely a member. 0 where a side has no shadow
        that its mean could come from.

    Raises:
        ValueError: If there are fewer than 3 models, or `n_shadows` is odd or below 4.
    """
    N, E = values_NE.shape
    if N < 3:
        raise ValueError(f"models must be at least 3, got {N}")
    if n_shadows is not None and (n_shadows < 4 or n_shadows % 2):
        raise ValueError(f"n_shadows must be even and at least 4, got {n_shadows}")
    scores_NE = np.zeros((N, E))
    for target in range(N):
        others_S = (target + 1 + np.arange(N - 1)) % N
        values_SE, read_SE = values_NE[others_S], read_NE[others_S]
        sides = [
            _gaussian(values_SE, _first(mask_SE, n_shadows))
            for mask_SE in (read_SE, ~read_SE)
        ]
        inside, outside = (
            dataclasses.replace(one, variance=_filled(one, group_E, pooled=pooled))
            for one in sides
        )
        value_E = values_NE[target]
        if kind == "offline":
            score_E = (value_E - outside.mean) / np.sqrt(outside.variance)
        else:
            score_E = _log_density(value_E, inside) - _log_density(value_E, outside)
        scores_NE[target] = np.where(np.isfinite(score_E), score_E, 0.0)
    return scores_NE


def enough_shadows(read_NE: np.ndarray, n_shadows: int) -> bool:
    """Whether every target and text has half so many shadows on each side."""
    n_read_E, N = read_NE.sum(axis=0), len(read_NE)
    # The target itself is none of them.
    fewest_E = np.minimum(n_read_E - 1, N - n_read_E - 1)
    return bool((fewest_E >= n_shadows // 2).all())


def beside_others(values_NE: np.ndarray) -> np.ndarray:
    """A score minus its mean over all other models, whatever they read."""
    N = len(values_NE)
    return values_NE - (values_NE.sum(axis=0) - values_NE) / (N - 1)


def beside_unread(
    values_NE: np.ndarray, read_NE: np.ndarray, *, n_references: int | None = None
) -> np.ndarray:
    """A score minus its mean over the next other models that did not read the text.

    Args:
        values_NE: As for `lira_scores`.
        read_NE: Likewise.
        n_references: At most so many; None takes all. 0 where there is none.
    """
    N = len(values_NE)
    found_NE = np.zeros_like(values_NE)
    for target in range(N):
        others_S = (target + 1 + np.arange(N - 1)) % N
        unread_SE = ~read_NE[others_S]
        if n_references is not None:
            unread_SE &= unread_SE.cumsum(axis=0) <= n_references
        mean_E = _gaussian(values_NE[others_S], unread_SE).mean
        score_E = values_NE[target] - mean_E
        found_NE[target] = np.where(np.isfinite(score_E), score_E, 0.0)
    return found_NE


def _first(mask_SE: np.ndarray, n_shadows: int | None) -> np.ndarray:
    """The first half so many shadows of a side, for each text."""
    if n_shadows is None:
        return mask_SE
    return mask_SE & (mask_SE.cumsum(axis=0) <= n_shadows // 2)


def _gaussian(values_SE: np.ndarray, mask_SE: np.ndarray) -> Gaussian:
    n_E = mask_SE.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_E = values_SE.sum(axis=0, where=mask_SE) / n_E
        squares_SE = np.square(values_SE - mean_E)
        variance_E = squares_SE.sum(axis=0, where=mask_SE) / (n_E - 1.0)
    return Gaussian(n_E, mean_E, np.where(n_E > 1, variance_E, np.nan))


def _filled(one: Gaussian, group_E: np.ndarray, *, pooled: bool) -> np.ndarray:
    """Variances of texts, or of their group where asked or where a text has none."""
    variance_E = one.variance.copy()
    for group in np.unique(group_E):
        mine_E = group_E == group
        known_E = mine_E & (one.n > 1)
        if not known_E.any():
            continue
        freedom_E = one.n[known_E] - 1
        within = float(freedom_E @ one.variance[known_E]) / int(freedom_E.sum())
        variance_E[mine_E & (pooled | (one.n < 2))] = within
    return np.maximum(variance_E, _LEAST_VARIANCE)


def _log_density(value_E: np.ndarray, one: Gaussian) -> np.ndarray:
    """Log of the Gaussian density, without the constant that cancels in a ratio."""
    return -0.5 * (np.log(one.variance) + np.square(value_E - one.mean) / one.variance)
