"""Statistics of an order that look at one number or one code an example.

Each maker takes the values in file order and gives a `Statistic`: a function from
orders to one number per order.

Dimension key
    N  examples
    S  neighbours, S = N - 1
    R  orders
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.pretests.null import Statistic


def centred_ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """`ranks_N`: mid-ranks less their mean; 0 where the value is missing (nan)."""
    from scipy.stats import rankdata

    values_N = np.asarray(values, np.float64)
    there_N = ~np.isnan(values_N)
    ranks_N = np.zeros(len(values_N))
    if there_N.any():
        ranks = rankdata(values_N[there_N])
        ranks_N[there_N] = ranks - ranks.mean()
    return ranks_N


def autocorrelation(ranks_N: np.ndarray) -> Statistic:
    """Correlation of centred ranks with those of the next example."""
    total = max(float(ranks_N @ ranks_N), 1e-300)

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = ranks_N[orders_RN]
        return np.einsum("rn,rn->r", values_RN[:, :-1], values_RN[:, 1:]) / total

    return statistic


def trend(ranks_N: np.ndarray) -> Statistic:
    """Spearman's rho of centred ranks with the place in the file."""
    place_N = np.arange(len(ranks_N)) - (len(ranks_N) - 1) / 2
    scale = math.sqrt(max(float(place_N @ place_N) * float(ranks_N @ ranks_N), 1e-300))
    return lambda orders_RN: ranks_N[orders_RN] @ place_N / scale


def steps(values: Sequence[float] | np.ndarray) -> Statistic:
    """Steps up less steps down between neighbours; missing values (nan) take none.

    Unlike a trend it sees an order that starts again and again, such as the turns of
    many dialogues; read backwards it changes its sign.
    """
    from scipy.stats import rankdata

    # Ranks, since float32 is quick to move and large ids would collide in it.
    ranks = rankdata(values, "dense", nan_policy="omit")
    ranks_N = np.asarray(ranks, np.float32)

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = ranks_N[orders_RN]
        left, right = values_RN[:, :-1], values_RN[:, 1:]
        ups = np.count_nonzero(right > left, axis=1)
        return (ups - np.count_nonzero(right < left, axis=1)).astype(np.float64)

    return statistic


def equal_neighbours(codes_N: np.ndarray) -> Statistic:
    """Number of examples whose next one has the same code."""

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = codes_N[orders_RN]
        same_RS = values_RN[:, :-1] == values_RN[:, 1:]
        return np.count_nonzero(same_RS, axis=1).astype(np.float64)

    return statistic
