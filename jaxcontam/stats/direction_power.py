"""Power of the direction test before anything is scored."""

import math

import numpy as np

from jaxcontam.stats.direction import direction_weights, run_length, runs_of
from jaxcontam.stats.power import PowerDesign, StratumKind, stratum_sizes


def direction_design(
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Runs that stand forwards or backwards, from the pairs that tell the direction.

    Args:
        n_examples: N, at least 4 a stratum.
        n_strata: K.
        symmetry: Correlation of [i, j] with [j, i] by chance.

    Source:
        The statistic is linear in the pairs: its noise is the squared length of their
        weights, and each run has its share of a stratum's gain and noise.
    """
    kinds, n_runs_in_all = [], 0
    for s, count in stratum_sizes(n_examples, n_strata):
        runs_S = runs_of(s, run_length(n_examples))
        n_runs = int(np.count_nonzero(np.bincount(runs_S) > 1))
        weights_SS = direction_weights(runs_S)
        gain = float(np.trace(weights_SS, 1))
        noise = (1 - symmetry) * float((weights_SS**2).sum())
        kinds.append(
            StratumKind(
                count=count * n_runs,
                # The mean of two columns is halfway between them.
                gain=2 * gain / n_runs,
                noise=2 * noise / n_runs,
                size=s,
            )
        )
        n_runs_in_all += count * n_runs
    return PowerDesign(
        rule="sum",
        kinds=tuple(kinds),
        n_orders=1,
        log10_floor=-n_runs_in_all * math.log10(2),
    )
