"""Where in the file a test's evidence lies, as numbers of examples.

Dimension key
    K  strata
    M  columns, M = m + 1
    S  examples of the largest stratum
"""

import numpy as np

from jaxcontam.results import Local
from jaxcontam.stats.local import Run, local_evidence
from jaxcontam.stats.pair_statistic import PairStatistic, PairStrata
from jaxcontam.stats.pair_test import sampled_columns
from jaxcontam.stats.randomisation import MODEL_TOLERANCE

# Orders of a stratum besides the published one. A stratum of eight has 40,320, and
# those of a large file do not fit in memory together.
_N_SAMPLED = 999


def where_in_orders(
    loglik_KM: np.ndarray, orders_KMS: np.ndarray, *, seed: int
) -> Local:
    """The best run of strata of a test that scores whole orders.

    Args:
        loglik_KM: (K, m + 1) float64, nats, column 0 published, rows in file order.
        orders_KMS: See `OrderDesign`.
        seed: Seeds the re-draws.
    """
    ties_K = MODEL_TOLERANCE * np.abs(loglik_KM).max(axis=1)
    found = local_evidence(loglik_KM, ties_K, seed=seed)
    return _in_examples(found.scan, orders_KMS[:, 0])


def where_in_pairs(
    strata: PairStrata,
    statistic: PairStatistic,
    orders_KMS: np.ndarray,
    *,
    seed: int,
    content_digest: str,
) -> Local:
    """The best run of strata of a pair test, by its first choice of tokens.

    Any of the others would do as well, but not the one that turned out best.

    Args:
        strata: Pair matrices in file order.
        statistic: What is summed over an order.
        orders_KMS: Column 0 is the published order.
        seed: The run's seed.
        content_digest: Digest of the benchmark's content.
    """
    rows = sampled_columns(
        strata,
        statistic,
        seed=seed,
        content_digest=content_digest,
        n_orders=_N_SAMPLED,
    )
    largest_KS = np.nan_to_num(np.abs(strata.pairs[0])).max(axis=2)
    ties_K = MODEL_TOLERANCE * largest_KS.sum(axis=1)
    return _in_examples(local_evidence(rows, ties_K, seed=seed).scan, orders_KMS[:, 0])


def _in_examples(run: Run, published_KS: np.ndarray) -> Local:
    last_S = published_KS[run.last]
    return Local(
        first_example=int(published_KS[run.first, 0]) + 1,
        last_example=int(last_S.max()) + 1,
        statistic=run.statistic,
        p_value=run.p_value,
    )
