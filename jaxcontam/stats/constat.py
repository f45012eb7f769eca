"""ConStat: what a model's score should be, by its score on items it cannot have seen.

Dimension key
    M  models, the one in question first, then R references
    N  published items
    P  other items
    K  points of a curve, ascending
    D  resamples
"""

import dataclasses

import numpy as np

from jaxcontam.stats.inflation import LEVEL

FEWEST = 5
"""References that a curve needs, as the authors' code does."""

N_RESAMPLES = 1000

# Grid on which the smoothness is chosen, as far up as the authors' search goes.
_LEAST_PENALTY, _N_PENALTIES = 1e-8, 60
# Points that stand closer are one.
_SAME = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConStatEstimate:
    """A score against the one that the curve of the references predicts.

    Attributes:
        estimate: Score on published items less the predicted one.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        p_value: One-sided, that the difference is at most 0; at least
            1 / (1 + resamples).
        outside: Whether the model's score on the other items lies outside those of the
            references, where the curve is a straight line.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    outside: bool


def constat(
    published_MN: np.ndarray,
    other_MP: np.ndarray,
    *,
    paired: bool,
    chance: float | None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> ConStatEstimate:
    """Compare a model's accuracy with a curve through those of references.

    A smoothing spline maps accuracy on other items to accuracy on published ones,
    fitted to the references; what the model has above it is the estimate. Other items
    may so be harder by more for weak models than for strong ones. Bootstrap: items and
    references are drawn again. Its p-value has no guarantee in finite samples.

    Args:
        published_MN: Scores in [0, 1], of at least five references.
        other_MP: Likewise; with `paired` item j is the rewrite of item j.
        paired: Draw pairs.
        chance: Accuracy of guessing, a point of the curve with its binomial noise;
            None where it is not known.
        n_resamples: D.
        seed: Seeds the draws.

    Raises:
        ValueError: If there are too few references, or all have one accuracy on the
            other items.

    Source:
        Dekoninck et al., "ConStat", arXiv:2405.16281, with these departures from the
        authors' code: a reference keeps its two accuracies together (theirs sorts both
        lists by themselves); pairs are drawn together; the interval and the p-value
        are the basic bootstrap's about the estimate itself, and p is never 0; the
        smoothness is chosen on a grid; beyond the references the curve goes on
        straight (theirs is drawn towards (0, 0) and (1, 1)).
    """
    M, N = published_MN.shape
    P = other_MP.shape[1]
    if M - 1 < FEWEST:
        raise ValueError(f"references must be at least {FEWEST}, got {M - 1}")
    rng = np.random.default_rng([seed, 17])
    x_M, y_M = other_MP.mean(axis=1), published_MN.mean(axis=1)
    guess = () if chance is None else ((chance, chance),)
    own = _excess(x_M, y_M, np.arange(1, M), guess)
    if own is None:
        raise ValueError("references must have different scores on the other items")
    drawn: list[float] = []
    # Draws in which all references score alike have no curve.
    for _ in range(10 * n_resamples):
        if len(drawn) == n_resamples:
            break
        items_N = rng.integers(N, size=N)
        items_P = items_N if paired else rng.integers(P, size=P)
        noisy = tuple(
            (
                g + rng.normal(0, np.sqrt(g * (1 - g) / P)),
                g + rng.normal(0, np.sqrt(g * (1 - g) / N)),
            )
            for g, _ in guess
        )
        found = _excess(
            other_MP[:, items_P].mean(axis=1),
            published_MN[:, items_N].mean(axis=1),
            _references(M - 1, rng),
            noisy,
        )
        if found is not None:
            drawn.append(found)
    if not drawn:
        raise ValueError("references must have different scores on the other items")
    about_D = 2 * own - np.array(drawn)
    low, high = np.quantile(about_D, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConStatEstimate(
        estimate=own,
        low=float(low),
        high=float(high),
        p_value=(1 + int(np.count_nonzero(about_D <= 0))) / (1 + len(drawn)),
        outside=not x_M[1:].min() <= x_M[0] <= x_M[1:].max(),
    )


def smoothing_spline(
    x_K: np.ndarray, y_K: np.ndarray, penalty: float | None = None
) -> np.ndarray:
    """Natural cubic spline that trades distance to points against curvature.

    Args:
        x_K: Ascending, at least three.
        y_K: Heights.
        penalty: Weight of the integral of the squared second derivative; None chooses
            by generalised cross-validation.

    Returns:
        `fitted_K`, its heights at the points.

    Source:
        Green and Silverman 1994, "Nonparametric Regression and Generalized Linear
        Models", sections 2.3 and 3.2.
    """
    K = len(x_K)
    step = np.diff(x_K)
    # Heights -> by how much the slope changes at each point inside.
    bends = np.diff(np.diff(np.eye(K), axis=0) / step[:, None], axis=0)
    beside = np.diag(step[1:-1] / 6, 1)
    within = np.diag((step[:-1] + step[1:]) / 3) + beside + beside.T
    values_K, vectors = np.linalg.eigh(bends.T @ np.linalg.solve(within, bends))
    # Straight lines cost nothing; what rounding leaves of that is no curvature.
    values_K[:2] = 0.0
    along_K = vectors.T @ y_K
    if penalty is None:
        grid = np.geomspace(_LEAST_PENALTY, K, _N_PENALTIES)
        left_GK = grid[:, None] * values_K / (1 + grid[:, None] * values_K)
        error_G = ((left_GK * along_K) ** 2).sum(axis=1) / left_GK.sum(axis=1) ** 2
        penalty = float(grid[np.argmin(error_G)])
    return vectors @ (along_K / (1 + penalty * values_K))


def spline_at(x: float, x_K: np.ndarray, fitted_K: np.ndarray) -> float:
    """Height of a natural cubic spline, which goes on straight beyond its ends."""
    from scipy.interpolate import CubicSpline

    curve = CubicSpline(x_K, fitted_K, bc_type="natural")
    inside = min(max(x, x_K[0]), x_K[-1])
    return float(curve(inside) + curve(inside, 1) * (x - inside))


def _excess(
    x_M: np.ndarray,
    y_M: np.ndarray,
    references_R: np.ndarray,
    more: tuple[tuple[float, float], ...],
) -> float | None:
    """Height of the first model above the curve; None where there is no curve."""
    x_K, y_K = x_M[references_R], y_M[references_R]
    for at, height in more:
        x_K, y_K = np.append(x_K, at), np.append(y_K, height)
    order = np.argsort(x_K, kind="stable")
    x_K, y_K = x_K[order], y_K[order]
    starts = np.flatnonzero(np.diff(x_K, prepend=-np.inf) > _SAME)
    counts = np.diff(np.append(starts, len(x_K)))
    x_K, y_K = x_K[starts], np.add.reduceat(y_K, starts) / counts
    if len(x_K) < 3:
        return None
    predicted = spline_at(float(x_M[0]), x_K, smoothing_spline(x_K, y_K))
    return float(y_M[0] - min(max(predicted, 0.0), 1.0))


def _references(R: int, rng: np.random.Generator) -> np.ndarray:
    """References drawn again, five or more different ones; of five all."""
    while R > FEWEST:
        drawn = rng.integers(R, size=R)
        if len(np.unique(drawn)) >= FEWEST:
            return 1 + drawn
    return np.arange(1, R + 1)
