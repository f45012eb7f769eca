"""The adjacency statistic against its normal law: approximate, and nothing is drawn."""

import math

import numpy as np

from jaxcontam.results import OrderNumbers
from jaxcontam.stats.adjacency import (
    boundaries_matrix,
    lag_profile,
    path_moments,
    symmetry,
)
from jaxcontam.stats.direction import neighbours
from jaxcontam.stats.effect import mde_of
from jaxcontam.stats.pair_statistic import PairStrata
from jaxcontam.stats.pair_test import tie_tolerance
from jaxcontam.stats.randomisation import SMALLEST_P


def adjacency_normal_test(
    strata: PairStrata, *, seed: int, content_digest: str
) -> OrderNumbers:
    """The same statistic against its normal approximation, in closed form.

    Mean and variance over all orders of a stratum need no order at all, so this
    works at any stratum size. A tail beyond 1e-15 is no number to quote. Only for
    strata without groups, whose orders are all S! ones.

    Args:
        strata: Pair matrices; the first choice of tokens counts.
        seed: Changes nothing: nothing is drawn.
        content_digest: Likewise.

    Raises:
        ValueError: If an entry is not finite or orders keep to groups.

    Source:
        Combinatorial central limit theorem for path statistics; moments as in
        `path_moments`.
    """
    from scipy import stats

    if not np.isfinite(strata.pairs).all():
        raise ValueError("pair matrices must be finite")
    if any(
        len(np.unique(codes_S[:size])) > 1
        for codes_S, size in zip(strata.codes, strata.sizes, strict=True)
    ):
        raise ValueError("closed-form moments are those of strata without groups")
    centred = strata.centred(0)
    moments = [path_moments(matrix) for matrix in centred]
    sd = math.sqrt(sum(variance for _, variance in moments))
    statistic = sum(float(np.trace(matrix, 1)) for matrix in centred)
    boundaries = sum(
        float(np.trace(boundaries_matrix(int(size)), 1)) for size in strata.sizes
    )
    differs = sd > tie_tolerance(strata, 0)
    log_p = float(stats.norm.logsf(statistic / sd)) if differs else 0.0
    effect_se = sd / boundaries
    return OrderNumbers(
        statistic=statistic / sd if differs else 0.0,
        p_value=max(math.exp(log_p), SMALLEST_P),
        log10_p=log_p / math.log(10),
        effect=statistic / boundaries,
        effect_se=effect_se,
        mde=mde_of(effect_se, p_floor=None, differs=differs),
        scores="double-centred",
        first_tokens=int(strata.first_tokens[0]),
        symmetry=symmetry(centred),
        lag_profile=lag_profile(centred),
        neighbours=neighbours(strata.matrices(0)),
    )
