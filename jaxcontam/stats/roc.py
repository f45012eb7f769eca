"""Area under the ROC curve with DeLong's standard error."""

import math

import numpy as np


def auc_delong(members: np.ndarray, nonmembers: np.ndarray) -> tuple[float, float]:
    """Probability that a member outscores a non-member, ties counting one half.

    Args:
        members: Scores, higher = more likely a member; at least 2.
        nonmembers: Likewise.

    Returns:
        The AUC and its standard error.

    Raises:
        ValueError: If a group has fewer than 2 scores or one is not finite.

    Source:
        DeLong, DeLong and Clarke-Pearson (1988), through mid-ranks as in Sun and
        Xu (2014).
    """
    # scipy.stats takes half a second to import: only those who ask for an AUC wait.
    from scipy.stats import rankdata

    n_members, n_nonmembers = len(members), len(nonmembers)
    if min(n_members, n_nonmembers) < 2:
        raise ValueError("each group must have at least 2 scores")
    pooled = np.concatenate([members, nonmembers]).astype(np.float64)
    if not np.isfinite(pooled).all():
        raise ValueError("scores must be finite")
    ranks = rankdata(pooled)
    below = (ranks[:n_members] - rankdata(members)) / n_nonmembers
    above = 1 - (ranks[n_members:] - rankdata(nonmembers)) / n_members
    variance = below.var(ddof=1) / n_members + above.var(ddof=1) / n_nonmembers
    return float(below.mean()), math.sqrt(float(variance))
