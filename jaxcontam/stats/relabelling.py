"""Labels drawn again: tests of members against non-members, by score and as a set.

Dimension key
    K  drawn labellings
    N  texts
    M  scores of a text
    C  documents, or texts where each is its own
    D  features
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

_FOLDS = 5


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SetLevelResult:
    """Result of `set_level_test`, one-sided; `p_value` is at least 1 / (K + 1).

    `scores`, (N,), are each by a classifier fitted without it; high = suspected.
    """

    auc: float
    p_value: float
    scores: np.ndarray = dataclasses.field(repr=False)
    null_distribution: np.ndarray = dataclasses.field(repr=False)


def relabellings(
    labels_N: np.ndarray, clusters_N: np.ndarray | None, *, n: int, seed: int
) -> Iterator[np.ndarray]:
    """Labellings as likely as the true one, if membership is a matter of chance.

    Labels change places among all texts, or among whole documents, of which none may
    hold both. Yields (k, N) bool, K rows in all; each row holds both labels.
    """
    labels_N = np.asarray(labels_N, bool)
    (N,) = labels_N.shape
    if labels_N.all() or not labels_N.any():
        raise ValueError("labels must hold both members and non-members")
    if clusters_N is not None and len(clusters_N) != N:
        raise ValueError("clusters must have one code per text")
    given_C, codes_N = labels_N, None
    if clusters_N is not None:
        _, codes_N, sizes = np.unique(
            clusters_N, return_inverse=True, return_counts=True
        )
        n_members = np.bincount(codes_N, labels_N)
        given_C = n_members > 0
        if (n_members != given_C * sizes).any():
            raise ValueError("a document must hold one label")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    # 32 MiB once they are float64.
    rows = max(1, (1 << 22) // N)
    for start in range(0, n, rows):
        k = min(rows, n - start)
        drawn_KC = rng.permuted(np.broadcast_to(given_C, (k, len(given_C))), axis=1)
        yield drawn_KC if codes_N is None else drawn_KC[:, codes_N]


def auc_p_values(
    values_NM: np.ndarray,
    labels_N: np.ndarray,
    clusters_N: np.ndarray | None = None,
    *,
    n: int = 9999,
    seed: int = 0,
) -> np.ndarray:
    """One-sided p-value of each score's AUC, by labels drawn again at random.

    Null hypothesis: members and non-members were assigned by chance, so that no score
    of a model that saw none, or all, of them can tell them apart. Valid with ties and
    in small samples, for texts that stand once in both together; it says nothing where
    the labels go with kind or date of a text. All scores share the labellings.

    Source:
        Phipson and Smyth (2010), "Permutation p-values should never be zero".
    """
    from scipy.stats import rankdata

    if not np.isfinite(values_NM).all():
        raise ValueError("values must be finite")
    # Halves of whole numbers, so that sums are exact and ties stay ties.
    ranks_NM = rankdata(values_NM, axis=0)
    labels_N = np.asarray(labels_N, bool)
    own_M = _aucs(labels_N[None], ranks_NM)[0]
    n_as_high_M = np.zeros(values_NM.shape[1], np.int64)
    for drawn_KN in relabellings(labels_N, clusters_N, n=n, seed=seed):
        n_as_high_M += (_aucs(drawn_KN, ranks_NM) >= own_M - 1e-12).sum(axis=0)
    return (1 + n_as_high_M) / (1 + n)


def set_level_test(
    features_ND: np.ndarray,
    is_suspect_N: np.ndarray,
    *,
    clusters_N: np.ndarray | None = None,
    n_permutations: int = 999,
    seed: int = 0,
) -> SetLevelResult:
    """Test that the scores of a suspected set follow the law of a validation set.

    Dataset inference. Null hypothesis: which texts are suspected is a matter of chance,
    as for a random split of one pool. A linear classifier is fitted on all folds but
    one and predicts that one; the statistic is the AUC of these predictions, and each
    permutation of the labels fits everything anew: exact at any size. A small p-value
    says that the sets differ, not why: sets of different kind or date differ for any
    model. Documents stay whole in folds and permutations.

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
        raise ValueError(f"is_suspect must have one label per text, {N}")
    if not np.isfinite(features_ND).all():
        row = int(np.flatnonzero(~np.isfinite(features_ND).all(axis=1))[0])
        raise ValueError(f"features must be finite, row {row} is not")
    codes_N = np.arange(N)
    if clusters_N is not None:
        _, codes_N = np.unique(clusters_N, return_inverse=True)
    n_codes = int(codes_N.max()) + 1
    if n_codes < _FOLDS:
        raise ValueError(f"{_FOLDS} texts or documents are needed, got {n_codes}")
    # Without a look at the labels: these change in permutations.
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    folds_N = (rng.permutation(n_codes) % _FOLDS)[codes_N]
    maps = _standardised(features_ND, folds_N)
    scores_N1 = _held_out(maps, folds_N, suspect_N[None])
    auc = float(_own_aucs(scores_N1, suspect_N[None])[0])
    drawn = relabellings(suspect_N, clusters_N, n=n_permutations, seed=seed + 1)
    null = [_own_aucs(_held_out(maps, folds_N, one_KN), one_KN) for one_KN in drawn]
    null_K = np.concatenate(null)
    n_as_high = int(np.count_nonzero(null_K >= auc - 1e-12))
    return SetLevelResult(
        auc=auc,
        p_value=(1 + n_as_high) / (1 + n_permutations),
        scores=scores_N1[:, 0],
        null_distribution=null_K,
    )


def _standardised(
    features_ND: np.ndarray, folds_N: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each fold: features of all texts as its training texts scale them, solver."""
    D = features_ND.shape[1]
    found = []
    for fold in range(int(folds_N.max()) + 1):
        training = features_ND[folds_N != fold]
        low_D, high_D = np.quantile(training, [0.025, 1 - 0.025], axis=0)
        clipped_ND = np.clip(features_ND, low_D, high_D)
        training = clipped_ND[folds_N != fold]
        spread_D = training.std(axis=0)
        # A constant is no feature; a spread of rounding would blow it up to one.
        is_constant_D = spread_D <= 1e-12 * np.maximum(1.0, abs(training).max(axis=0))
        centred_ND = np.where(is_constant_D, 0.0, clipped_ND - training.mean(axis=0))
        z_ND = centred_ND / np.where(is_constant_D, 1.0, spread_D)
        z_train = z_ND[folds_N != fold]
        # A ridge: scores of one text are near copies of each other.
        gram_DD = z_train.T @ z_train + 0.01 * len(z_train) * np.eye(D)
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


def _own_aucs(scores_NK: np.ndarray, labels_KN: np.ndarray) -> np.ndarray:
    """(K,) AUC of each column of scores under its own labels."""
    from scipy.stats import rankdata

    ranks_NK = rankdata(scores_NK, axis=0)
    sums_K = np.einsum("nk,kn->k", ranks_NK, labels_KN.astype(np.float64))
    return _auc_of(sums_K, labels_KN.sum(axis=1), labels_KN.shape[1])


def _aucs(labels_KN: np.ndarray, ranks_NM: np.ndarray) -> np.ndarray:
    """(K, M) AUCs; documents of different size change the number of members."""
    sums_KM = labels_KN.astype(np.float64) @ ranks_NM
    return _auc_of(sums_KM, labels_KN.sum(axis=1)[:, None], labels_KN.shape[1])


def _auc_of(sums: np.ndarray, n_members: np.ndarray, N: int) -> np.ndarray:
    """AUC of members whose ranks among N texts have this sum."""
    return (sums - n_members * (n_members + 1) / 2) / (n_members * (N - n_members))
