"""How often is a clean model accused beside a reference that reads less well?

Question: files whose order can be foretold, worth so many standard errors to a clean
model; beside a reference whose gains, or gains and noise, are a share of the model's.
How many are called contaminated, with the reference's scores as they are and scaled up
to the model's? And how many are found that were remembered?
Command: `python -m eval.reference_rule`. Hardware: one CPU core, minutes, no model.
Headline: LOG.md.

Strata of eight examples with the pairs that `direction` asks for; more or less natural
order each way, p-values by the normal law (37 strata and more).

Dimension key
    F  files
    K  strata of a file
    P  scored pairs of a stratum
    M  orders of a stratum
"""

import dataclasses
import functools
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from eval.study import Clock, Grid, StudyFlags, finish_study, run_study
from jaxcontam.results.terms import (
    CONTAMINATED_LEVEL,
    REFERENCE_BOUND,
    REFERENCE_LEVEL,
    REFERENCE_SHARE,
)
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    needed_pairs,
    runs_of,
)

_SIZE, _RUN = 8, 4
_RUNS_S = runs_of(_SIZE, _RUN)
_NEEDED_SS = needed_pairs(_RUNS_S)
_LEFT_P, _RIGHT_P = np.nonzero(_NEEDED_SS)
_FORWARD_P, _BACKWARD_P = _RIGHT_P == _LEFT_P + 1, _RIGHT_P == _LEFT_P - 1
# Memory of later neighbours fades with their distance.
_MEMORY_P = np.where(_RIGHT_P > _LEFT_P, 1 / np.maximum(1, _RIGHT_P - _LEFT_P), 0.0)
# (gain, noise) of the reference in parts of the model's.
_REFERENCES = (
    *((share, share) for share in (1.0, 0.7, 0.5, 0.3, 0.1)),
    *((share, 1.0) for share in (0.7, 0.5)),
    (1.0, 2.0),
)
# (Strata, nats that a boundary gains in standard deviations of the noise of a pair):
# three, five and three standard errors.
_FORETOLD = ((37, 0.35), (37, 0.55), (125, 0.19))
_REMEMBERED = ((37, 0.5), (37, 1.0))
_NORMAL, _HEAVY = "foretold", "foretold, heavy tails"
_EQUALS = _REFERENCES[:5]
_MEMORIES = ("each boundary", "one boundary in ten", "one stratum in ten")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Files of one kind, and what is said of them.

    Attributes:
        kind: `foretold`, with normal noise or Student's with 3 degrees of freedom, or
            what is remembered.
        gain: Nats that a boundary gains, in standard deviations of a pair's noise.
        n_strata: Strata of a file.
        share: Gain of the reference in parts of the model's; 0 where it remembers none.
        noise: Its noise, likewise.
        found: Share of files with a direction at the level.
        as_they_are: Share accused, the reference's scores as they are.
        scaled: The same with its scores scaled up to the model's.
    """

    kind: str
    gain: float
    n_strata: int
    share: float
    noise: float
    found: float
    as_they_are: float
    scaled: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRule(StudyFlags):
    """Simulate audits beside references that gain less."""

    n_files: int = 20_000
    """Files that can be foretold, each length and reference; a tenth remembered."""
    out: Path = Path("runs/reference_rule")
    """Folder for the table and its numbers."""

    positive = ("n_files",)

    def run(self) -> dict[str, Any]:
        """Simulate, print, write; returns the numbers."""
        clock = Clock.start()
        n_files = 200 if self.tiny else self.n_files
        foretold = itertools.chain(
            itertools.product((_NORMAL,), _FORETOLD, _REFERENCES, (n_files,)),
            itertools.product((_HEAVY,), _FORETOLD[:1], _EQUALS, (n_files,)),
        )
        remembered = itertools.product(
            _MEMORIES, _REMEMBERED, ((0.0, 1.0), (0.0, 0.5)), (n_files // 10,)
        )
        cells = [
            simulate(kind, gain, n_strata, *reference, n_files=n, seed=self.seed)
            for kind, (n_strata, gain), reference, n in itertools.chain(
                foretold, remembered
            )
        ]
        columns = {
            "files": "{r.kind}, {r.gain} a boundary, {r.n_strata} strata",
            "reference's gain": "{r.share:g}",
            "its noise": "{r.noise:g}",
            "direction <= 0.001": "{r.found:.3f}",
            "contaminated, scores as they are": "{r.as_they_are:.4f}",
            "scaled": "{r.scaled:.4f}",
        }
        return finish_study(
            "reference_rule",
            self,
            clock=clock,
            numbers={"cells": [dataclasses.asdict(cell) for cell in cells]},
            grids=[Grid.of("Share of files called contaminated", cells, columns)],
        )


def simulate(
    kind: str,
    gain: float,
    n_strata: int,
    share: float,
    noise: float,
    *,
    n_files: int,
    seed: int,
) -> Cell:
    """Audits of fresh files; see `Cell` for the arguments."""
    rng = np.random.default_rng([seed, n_strata])
    accused = np.zeros(3)
    # Little memory whatever the number of files.
    for start in range(0, n_files, 500):
        shape = (min(500, n_files - start), n_strata, len(_LEFT_P))
        natural_FKP = 0.5 * rng.exponential(size=shape) * (_FORWARD_P | _BACKWARD_P)
        memory_FKP = np.zeros(shape)
        if kind in (_NORMAL, _HEAVY):
            natural_FKP += gain * rng.lognormal(-0.5, 1.0, shape) * _FORWARD_P
        else:
            memory_FKP = gain * _drawn(kind, rng, shape) * _MEMORY_P
        own_FKP, other_FKP = rng.normal(size=(2, *shape))
        if kind == _HEAVY:
            own_FKP, other_FKP = rng.standard_t(3, (2, *shape)) / math.sqrt(3)
        model_FKP = own_FKP + natural_FKP + memory_FKP
        reference_FKP = noise * other_FKP + (share or noise) * natural_FKP
        accused += _accused(model_FKP, reference_FKP)
    return Cell(kind, gain, n_strata, share, noise, *(accused / n_files).tolist())


def _drawn(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Memory of each pair, 1 on average."""
    if kind == _MEMORIES[0]:
        return rng.exponential(size=shape)
    drawn = shape if kind == _MEMORIES[1] else (*shape[:-1], 1)
    return 10.0 * (rng.random(drawn) < 0.1)


def _accused(model_FKP: np.ndarray, reference_FKP: np.ndarray) -> np.ndarray:
    """(3,) files found, accused with the reference as it is, and with it scaled."""
    z_F, effect_F, _ = _direction(model_FKP)
    other_z_F, other_F, se_F = _direction(reference_FKP)
    found_F = z_F > norm.isf(CONTAMINATED_LEVEL)
    counts = [found_F.sum()]
    ratio_F = _spread(model_FKP) / _spread(reference_FKP)
    for scale_F in (np.ones_like(ratio_F), np.maximum(1.0, ratio_F)):
        bound_F = scale_F * (other_F + REFERENCE_BOUND * se_F)
        accused_F = found_F & (bound_F < REFERENCE_SHARE * effect_F)
        accused_F &= np.abs(other_z_F) < norm.isf(REFERENCE_LEVEL)
        scaled_FKP = scale_F[:, None, None] * reference_FKP
        difference_F, _, _ = _direction(model_FKP - scaled_FKP)
        accused_F &= difference_F > norm.isf(CONTAMINATED_LEVEL)
        counts.append(accused_F.sum())
    return np.array(counts)


def _direction(pairs_FKP: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(F,) standardised statistics, effects a boundary and their standard errors."""
    sums_FKM = pairs_FKP @ _sums_PM()
    gained_F = (sums_FKM[..., 0] - sums_FKM.mean(axis=-1)).sum(axis=1)
    deviation_F = np.sqrt(sums_FKM.var(axis=-1).sum(axis=1))
    unit_M = _FORWARD_P.astype(float) @ _sums_PM()
    unit = pairs_FKP.shape[1] * (unit_M[0] - unit_M.mean())
    return gained_F / deviation_F, gained_F / unit, deviation_F / unit


@functools.cache
def _sums_PM() -> np.ndarray:
    """What each pair adds to the statistic of each order."""
    orders_MS = flipped_orders(np.zeros(_SIZE, np.int64), _RUNS_S)
    rows = []
    for i, j in zip(_LEFT_P, _RIGHT_P, strict=True):
        one_SS = np.where(_NEEDED_SS, 0.0, np.nan)
        one_SS[i, j] = 1.0
        rows.append(directed_sums(antisymmetric(one_SS), orders_MS))
    return np.array(rows)


def _spread(pairs_FKP: np.ndarray) -> np.ndarray:
    """`backward_spread` of each file.

    In strata of two runs the ends of the first one, after those of the second, hold all
    that is left without effects of single examples.
    """
    ends = [(4, 0), (7, 0), (4, 3), (7, 3)]
    scored = list(zip(_LEFT_P.tolist(), _RIGHT_P.tolist(), strict=True))
    places = [scored.index(pair) for pair in ends]
    turn_FK = pairs_FKP[..., places] @ np.array([0.5, -0.5, -0.5, 0.5])
    return 2.0 * np.abs(turn_FK).mean(axis=1)


if __name__ == "__main__":
    sys.exit(run_study("reference_rule", ReferenceRule))
