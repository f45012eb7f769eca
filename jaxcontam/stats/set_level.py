"""Dataset inference: does a whole set score otherwise than texts that were never seen?

Dimension key
    K  drawn labellings
    N  texts
    D  features
"""

import dataclasses

import numpy as np

from jaxcontam.stats.relabelling import relabellings

# Share of each tail of the training texts at which features are cut off.
_CLIPPED = 0.025
# Ridge penalty for each training text, of standardised features: scores of one text are
# near copies of each other.
_PENALTY = 0.01
_FOLDS = 5


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SetLevelResult:
    """Result of `set_level_test`.

    Attributes:
        auc: AUC of held-out predictions, suspected against validation texts.
        p_value: One-sided, in [1 / (K + 1), 1].
        scores: (N,) float64; the prediction for each text by a classifier that was
            fitted without it, higher = suspected.
        null_distribution: (K,) float64; the AUC with labels drawn again.
    """

    auc: float
    p_value: float
    scores: np.ndarray = dataclasses.field(repr=False)
    null_distribution: np.ndarray = dataclasses.field(repr=False)


def set_level_test(
    features_ND: np.ndarray,
    is_suspect_N: np.ndarray,
    *,
    clusters_N: np.ndarray | None = None,
    n_permutations: int = 999,
    seed: int = 0,
) -> SetLevelResult:
    """Test that the scores of a suspected set follow the law of a validation set.

    Null hypothesis: which texts are suspected is a matter of chance, as for a random
    split of one pool. A linear classifier is fitted on all folds but one and predicts
    that one; the statistic is the AUC of these predictions, and each permutation of
    the labels fits everything anew. Exact then at any size and with any tails. A small
    p-value says that the sets differ, not why: sets of different kind or date differ
    for any model.

    Args:
        features_ND: (N, D) float64, finite; scores of each text.
        is_suspect_N: (N,) bool.
        clusters_N: (N,) document codes; documents stay whole in folds and permutations.
        n_permutations: K.
        seed: Seeds folds and permutations.

    Raises:
        ValueError: If a feature is not finite, one set is empty, or a count is too
            small.

    Source:
        Maini et al., "LLM Dataset Inference", arXiv:2406.06443, with three departures:
        clip points and scales come from the pooled training folds (the authors' code
        clips each class by itself before the split, which alone makes equal sets
        differ), all texts are held out once, and permutation replaces the t-test.
    """
    features_ND = np.asarray(features_ND, np.float64)
    suspect_N = np.asarray(is_suspect_N, bool)
    N, _ = features_ND.shape
    if len(suspect_N) != N:
        raise ValueError(f"is_suspect must have one label a text, {N}")
    if not np.isfinite(features_ND).all():
        row = int(np.flatnonzero(~np.isfinite(features_ND).all(axis=1))[0])
        raise ValueError(f"features must be finite, row {row} is not")
    folds_N = _folds(N, clusters_N, seed)
    maps = _standardised(features_ND, folds_N)
    scores_N1 = _held_out(maps, folds_N, suspect_N[None])
    auc = float(_aucs(scores_N1, suspect_N[None])[0])
    null = [
        _aucs(_held_out(maps, folds_N, drawn_KN), drawn_KN)
        for drawn_KN in relabellings(
            suspect_N, clusters_N, n=n_permutations, seed=seed + 1
        )
    ]
    null_K = np.concatenate(null)
    n_as_high = int(np.count_nonzero(null_K >= auc - 1e-12))
    return SetLevelResult(
        auc=auc,
        p_value=(1 + n_as_high) / (1 + n_permutations),
        scores=scores_N1[:, 0],
        null_distribution=null_K,
    )


def _folds(n: int, clusters_N: np.ndarray | None, seed: int) -> np.ndarray:
    """(N,) folds, drawn without a look at the labels: these change in permutations."""
    codes_N = np.arange(n)
    if clusters_N is not None:
        _, codes_N = np.unique(clusters_N, return_inverse=True)
    n_codes = int(codes_N.max()) + 1
    if n_codes < _FOLDS:
        raise ValueError(f"{_FOLDS} texts or documents are needed, got {n_codes}")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    return (rng.permutation(n_codes) % _FOLDS)[codes_N]


def _standardised(
    features_ND: np.ndarray, folds_N: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each fold: features of all texts as its training texts scale them, solver."""
    D = features_ND.shape[1]
    found = []
    for fold in range(int(folds_N.max()) + 1):
        training = features_ND[folds_N != fold]
        low_D, high_D = np.quantile(training, [_CLIPPED, 1 - _CLIPPED], axis=0)
        clipped_ND = np.clip(features_ND, low_D, high_D)
        training = clipped_ND[folds_N != fold]
        spread_D = training.std(axis=0)
        # A constant is no feature; a spread of rounding would blow it up to one.
        is_constant_D = spread_D <= 1e-12 * np.maximum(1.0, abs(training).max(axis=0))
        centred_ND = np.where(is_constant_D, 0.0, clipped_ND - training.mean(axis=0))
        z_ND = centred_ND / np.where(is_constant_D, 1.0, spread_D)
        z_train = z_ND[folds_N != fold]
        gram_DD = z_train.T @ z_train + _PENALTY * len(z_train) * np.eye(D)
        found.append((z_ND, np.linalg.solve(gram_DD, z_train.T)))
    return found


def _held_out(
    maps: list[tuple[np.ndarray, np.ndarray]],
    folds_N: np.ndarray,
    labels_KN: np.ndarray,
) -> np.ndarray:
    """(N, K) predictions; no intercept: a fold's share of suspects is not used."""
    K, N = labels_KN.shape
    scores_NK = np.empty((N, K))
    for fold, (z_ND, solver) in enumerate(maps):
        weights_DK = solver @ labels_KN[:, folds_N != fold].T.astype(np.float64)
        scores_NK[folds_N == fold] = z_ND[folds_N == fold] @ weights_DK
    return scores_NK


def _aucs(scores_NK: np.ndarray, labels_KN: np.ndarray) -> np.ndarray:
    """(K,) AUC of each column of scores under its own labels."""
    from scipy.stats import rankdata

    _, N = labels_KN.shape
    ranks_NK = rankdata(scores_NK, axis=0)
    n_K = labels_KN.sum(axis=1)
    sums_K = np.einsum("nk,kn->k", ranks_NK, labels_KN.astype(np.float64))
    return (sums_K - n_K * (n_K + 1) / 2) / (n_K * (N - n_K))
