"""Labels drawn again at random: the null of every test of members against non-members.

Dimension key
    K  drawn labellings
    N  texts
    M  scores of a text
    C  documents of one label
"""

from collections.abc import Iterator

import numpy as np

# Labels drawn at once; 32 MiB once they are float64.
_MOST_CELLS = 1 << 22


def relabellings(
    labels_N: np.ndarray, clusters_N: np.ndarray | None, *, n: int, seed: int
) -> Iterator[np.ndarray]:
    """Labellings as likely as the true one, if membership is a matter of chance.

    Without clusters, labels change places among all texts. With clusters, documents of
    one label change their labels as a whole, and a document that holds both labels
    changes them among its own texts.

    Args:
        labels_N: (N,) bool, True = member; both occur.
        clusters_N: (N,) document codes, or None.
        n: K.
        seed: Seeds the draws.

    Yields:
        (k, N) bool, K rows in all; each row holds both labels.

    Raises:
        ValueError: If one label is missing or the lengths differ.
    """
    labels_N = np.asarray(labels_N, bool)
    (N,) = labels_N.shape
    if labels_N.all() or not labels_N.any():
        raise ValueError("labels must hold both members and non-members")
    if clusters_N is not None and len(clusters_N) != N:
        raise ValueError("clusters must have one code a text")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    rows = max(1, _MOST_CELLS // N)
    for start in range(0, n, rows):
        k = min(rows, n - start)
        if clusters_N is None:
            yield rng.permuted(np.broadcast_to(labels_N, (k, N)), axis=1)
        else:
            yield _of_documents(labels_N, clusters_N, k, rng)


def _of_documents(
    labels_N: np.ndarray, clusters_N: np.ndarray, k: int, rng: np.random.Generator
) -> np.ndarray:
    _, codes_N, sizes = np.unique(clusters_N, return_inverse=True, return_counts=True)
    n_members = np.bincount(codes_N, labels_N)
    is_whole = (n_members == 0) | (n_members == sizes)
    drawn_KN = np.broadcast_to(labels_N, (k, len(labels_N))).copy()
    if is_whole.any():
        whole_C = np.flatnonzero(is_whole)
        given_KC = np.broadcast_to(n_members[whole_C] > 0, (k, len(whole_C)))
        place = np.full(len(sizes), -1)
        place[whole_C] = np.arange(len(whole_C))
        texts = is_whole[codes_N]
        drawn_KN[:, texts] = rng.permuted(given_KC, axis=1)[:, place[codes_N[texts]]]
    for code in np.flatnonzero(~is_whole):
        texts = np.flatnonzero(codes_N == code)
        given = np.broadcast_to(labels_N[texts], (k, len(texts)))
        drawn_KN[:, texts] = rng.permuted(given, axis=1)
    return drawn_KN


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
    in small samples; it says nothing where the labels go with kind or date of a text.

    Args:
        values_NM: (N, M) float64, finite; M scores of each text, higher = member.
        labels_N: (N,) bool, True = member.
        clusters_N: (N,) document codes, or None.
        n: Labellings; the smallest p-value is 1 / (n + 1).
        seed: Seeds them; all scores share them.

    Returns:
        (M,) float64.

    Raises:
        ValueError: If a value is not finite, or as for `relabellings`.

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


def _aucs(labels_KN: np.ndarray, ranks_NM: np.ndarray) -> np.ndarray:
    """(K, M) AUCs; documents of different size change the number of members."""
    _, N = labels_KN.shape
    n_members_K1 = labels_KN.sum(axis=1)[:, None]
    sums_KM = labels_KN.astype(np.float64) @ ranks_NM
    lowest_K1 = n_members_K1 * (n_members_K1 + 1) / 2
    return (sums_KM - lowest_K1) / (n_members_K1 * (N - n_members_K1))
