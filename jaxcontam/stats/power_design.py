"""Designs of order tests, as far as their power depends on them.

The model behind them: each published boundary gains `effect` nats, and what chance adds
to one boundary has standard deviation `sd` and no memory.
"""

import dataclasses
import math
from typing import Literal

import numpy as np

from jaxcontam.stats.adjacency import boundaries_matrix, path_moments
from jaxcontam.stats.direction import direction_weights, run_length, runs_of
from jaxcontam.stats.pair_statistic import n_stratum_orders


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StratumKind:
    """Strata of one size.

    `gain` is the boundaries that the published order has over the mean order.

    Attributes:
        noise: Variance of one order's score in units of sd^2.
        signal: Variance over all orders that an effect of 1 itself adds; 0 where the
            orders are drawn, for there it follows from `gain`.
    """

    count: int
    gain: float
    noise: float
    size: int
    signal: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """Strata and orders, on which power depends besides effect and spread.

    Attributes:
        rule: `sum`: exact law of a sum over strata; `rank`: rank of one order among
            m; `t`: t-test over strata.
        n_orders: m; None where all orders are columns.
        log10_floor: log10 of the smallest p-value; None if there is no floor.
    """

    rule: Literal["sum", "rank", "t"]
    kinds: tuple[StratumKind, ...]
    n_orders: int | None
    log10_floor: float | None

    @property
    def n_strata(self) -> int:
        """K."""
        return sum(kind.count for kind in self.kinds)

    @property
    def boundaries(self) -> float:
        """Boundaries gained in all: the effect's divisor."""
        return sum(kind.count * kind.gain for kind in self.kinds)


def drawn_design(
    n_examples: int,
    n_strata: int,
    n_orders: int,
    *,
    rule: Literal["sum", "rank", "t"] = "sum",
) -> PowerDesign:
    """Strata with m random orders each: stratified, permutation or sharded_t."""
    kinds = tuple(
        StratumKind(
            count=count,
            gain=(s - 1) ** 2 / s,
            # A random path of independent entries, given those entries.
            noise=(s - 1) ** 2 / s,
            size=s,
        )
        for s, count in stratum_sizes(n_examples, n_strata)
    )
    return PowerDesign(
        rule=rule,
        kinds=kinds,
        n_orders=n_orders,
        log10_floor=None if rule == "t" else _drawn_floor(kinds, n_orders),
    )


def reversal_design(
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Strata in two orders; `symmetry` is the correlation of [i, j] with [j, i]."""
    kinds = tuple(
        StratumKind(count=count, gain=s - 1, noise=(s - 1) * (1 - symmetry), size=s)
        for s, count in stratum_sizes(n_examples, n_strata)
    )
    return PowerDesign(
        rule="sum", kinds=kinds, n_orders=1, log10_floor=_drawn_floor(kinds, 1)
    )


def pair_design(
    n_examples: int,
    n_strata: int,
    *,
    symmetry: float = 0.0,
) -> PowerDesign:
    """Strata whose pairs are scored and whose orders all are columns: adjacency.

    `symmetry` is the correlation of [i, j] with [j, i] by chance.

    Source:
        Double centring projects a matrix onto s^2 - 3s + 1 dimensions, and the path
        statistic is the product with the projected neighbours: their squared length
        is both its gain and, for independent entries, its variance.
    """
    kinds, log10_floor = [], 0.0
    for s, count in stratum_sizes(n_examples, n_strata):
        kept = boundaries_matrix(s)
        gain = float(np.trace(kept, 1))
        kinds.append(
            StratumKind(
                count=count,
                gain=gain,
                noise=gain + symmetry * float(np.trace(kept, -1)),
                size=s,
                signal=path_moments(kept)[1],
            )
        )
        log10_floor -= count * math.log10(n_stratum_orders(np.zeros(s, np.int64)))
    return PowerDesign(
        rule="sum", kinds=tuple(kinds), n_orders=None, log10_floor=log10_floor
    )


def direction_design(
    n_examples: int, n_strata: int, *, symmetry: float = 0.0
) -> PowerDesign:
    """Runs that stand forwards or backwards, from the pairs that tell the direction.

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


def stratum_sizes(n_examples: int, n_strata: int) -> list[tuple[int, int]]:
    """(size, count) of contiguous strata, sizes differing by at most 1, from 2 on."""
    small, n_large = divmod(n_examples, n_strata)
    sizes = [(small + 1, n_large), (small, n_strata - n_large)]
    return [(size, count) for size, count in sizes if count and size > 1]


def _drawn_floor(kinds: tuple[StratumKind, ...], n_orders: int) -> float:
    return -sum(kind.count for kind in kinds) * math.log10(n_orders + 1)
