"""The simulation's p-values beside the library's own, on the same data sets.

Dimension key
    D  data sets
    K  strata
    M  columns
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from eval.simulated_power.cells import LEVELS, Batch, Cell
from eval.simulated_power.laws import Pairs
from jaxcontam.methods import sharded_t
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.all_orders import stratum_orders
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.power import PowerDesign
from jaxcontam.stats.randomisation import MATRIX_TOLERANCE, row_scores

# Beyond these the ratio of two p-values decides nothing.
_LOWEST, _HIGHEST = 1e-6, 0.1
# A rank's p-value may equal a level, and is rounded differently here and there.
_ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How far the simulation's p-values are from the library's.

    Attributes:
        test: Its name.
        law: Of the entries.
        n_checked: Data sets.
        log_ratios: ln(p here / p there), there the middle of the library's bracket,
            where that is between 1e-6 and 0.1.
        n_decisions: Pairs of data set and level.
        n_differing: Those where one p-value is at most the level and the other is not.
    """

    test: str
    law: str
    n_checked: int
    log_ratios: tuple[float, ...]
    n_decisions: int
    n_differing: int


def check_batch(cell: Cell, batch: Batch, name: str, n_checked: int) -> Check:
    """Test data sets with the library that were tested here.

    Args:
        cell: That the batch is of.
        batch: Data sets; the first ones are taken.
        name: Of the effect.
        n_checked: How many.
    """
    design = cell.design
    e = cell.names.index(name)
    effect, here_D = cell.effects[e], np.asarray(batch.p_values[e])
    scores_DKM = np.asarray(batch.parts.chance, np.float64)
    scores_DKM = scores_DKM + effect * np.asarray(batch.parts.gain, np.float64)
    log_ratios, n_differing = [], 0
    levels_L = np.array(LEVELS) * (1 + _ROUNDING)
    n_checked = min(n_checked, len(here_D))
    for d, here in enumerate(here_D[:n_checked].tolist()):
        if design.n_orders is None:
            low, high = _pair_bracket(batch.pairs, effect, d)
        else:
            low, high = _bracket(design, scores_DKM[d])
        there = math.sqrt(low * high)
        if _LOWEST < there < _HIGHEST:
            log_ratios.append(math.log(here / there))
        n_differing += int(((here <= levels_L) != (there <= levels_L)).sum())
    return Check(
        test=cell.test,
        law=cell.law,
        n_checked=n_checked,
        log_ratios=tuple(log_ratios),
        n_decisions=n_checked * len(LEVELS),
        n_differing=n_differing,
    )


def _bracket(design: PowerDesign, scores_KM: np.ndarray) -> tuple[float, float]:
    """Bounds of the library's p-value of scored orders."""
    if design.rule == "t":
        p = sharded_t.analyse(scores_KM, np.ones(len(scores_KM)), 0).p_value
        return p, p
    # Permutation does not studentise; with one row it would not matter.
    scored = row_scores(scores_KM, kind="auto", relative_tolerance=MATRIX_TOLERANCE)
    tail = lattice_tail(scored.differences, scored.tolerance)
    return 10.0**tail.log10_lower, 10.0**tail.log10_upper


def _pair_bracket(pairs: Sequence[Pairs], effect: float, d: int) -> tuple[float, float]:
    """Bounds of the library's p-value over all orders of a file's pair matrices."""
    sums = []
    for own in pairs:
        gains = np.asarray(own.weights[d], np.float64)
        for noise_SS, weights_G in zip(np.asarray(own.noise[d]), gains, strict=True):
            matrix_SS = noise_SS + effect * np.diag(weights_G, 1)
            codes_S = np.zeros(len(matrix_SS), np.int64)
            orders_MS = stratum_orders(codes_S, np.random.default_rng(0))
            sums.append(path_sums(double_centred(matrix_SS), orders_MS))
    largest = sum(float(np.abs(sums_M).max()) for sums_M in sums)
    tail = lattice_tail(
        (row_M - row_M[0] for row_M in sums), MATRIX_TOLERANCE * largest
    )
    return 10.0**tail.log10_lower, 10.0**tail.log10_upper
