"""Effect of order in nats per boundary, its standard error, and what would be seen.

Dimension key
    K  strata
    M  columns, M = m + 1
"""

import dataclasses

import numpy as np

LEVEL = 0.001
"""Level of the minimum detectable effect, which is stated for power 0.8."""
# Normal quantiles of 1 - LEVEL and of the power.
_Z_LEVEL, _Z_POWER = 3.090, 0.842


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """Effect size of an order test.

    Attributes:
        effect: Mean gain of the published order, nats per boundary.
        effect_se: Its standard error; None for one stratum with one order.
        mde: (3.090 + 0.842) standard errors; None where the floor exceeds 0.001.
    """

    effect: float
    effect_se: float | None
    mde: float | None


def order_effect(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, *, p_floor: float | None
) -> Effect:
    """Gain of column 0 over the mean of the others, per boundary gained.

    The spread is that of the counterfactual columns within a stratum; a single
    counterfactual leaves only the spread of the gains between strata. `p_floor` is
    None for a test without a floor.
    """
    K, M = loglik_KM.shape
    gains_K = loglik_KM[:, 0] - loglik_KM[:, 1:].mean(axis=1)
    total = float(boundaries_K.sum())
    if M > 2:
        variance = float(loglik_KM[:, 1:].var(axis=1, ddof=1).sum()) * M / (M - 1)
        se = variance**0.5 / total
    elif K > 1:
        se = K**0.5 * float(gains_K.std(ddof=1)) / total
    else:
        se = None
    detectable = p_floor is None or p_floor <= LEVEL
    return Effect(
        effect=float(gains_K.sum()) / total,
        effect_se=se,
        mde=(_Z_LEVEL + _Z_POWER) * se if se is not None and detectable else None,
    )
