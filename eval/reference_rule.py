"""How often is a clean model accused beside a reference that reads less well?

Question: files whose order can be foretold, worth so many standard errors to a clean
model; beside a reference whose gains, or gains and noise, are a share of the model's,
and whose scores are scaled up to the model's. How many are called contaminated? How
often does the test of half the model less the reference reject where the reference
gains just half, among all files and among those that the model's own p-value picks?
And how many are found that were remembered?
Command: `python -m eval.reference_rule`. Hardware: one CPU core, minutes, no model.
Headline: docs/log.

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
from jaxcontam.reports.numbers import shown_or_dash
from jaxcontam.reports.terms import (
    CONTAMINATED_LEVEL,
    DIFFERENCE_LEVEL,
    QUIET,
    REFERENCE_LEVEL,
    REFERENCE_SHARE,
    SHARE_LEVEL,
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
    *((share, 1.0) for share in (0.7, 0.5, 0.3, 0.1)),
    *((1.0, noise) for noise in (1.1, 1.25, 1.5, 2.0)),
)
# (Strata, standard errors that the model gains, about).
_FORETOLD = ((37, 3), (37, 5), (125, 3), (500, 3), (500, 5))
_HALVED = tuple(itertools.product((37, 125, 500), (2, 3, 4, 5)))
_SHARED = (0.0, 0.5)
# (Strata, nats that a boundary gains in standard deviations of the noise of a pair).
_REMEMBERED = ((37, 0.5), (37, 1.0))
_NORMAL, _HEAVY = "foretold", "foretold, heavy tails"
# Without likeness, whose unevenness is noise that both models share.
_EVEN = "foretold, nothing alike"
# Nats that a boundary gains where 37 strata gain one standard error, about.
_ERROR = {_NORMAL: 0.35 / 3, _HEAVY: 0.35 / 3, _EVEN: 0.093}
_EQUALS = _REFERENCES[:5]
_MEMORIES = ("each boundary", "one boundary in ten", "one stratum in ten")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Files of one kind, and what is said of them.

    Attributes:
        gain: Nats that a boundary gains, in standard deviations of a pair's noise.
        share: Gain of the reference in parts of the model's; 0 where it remembers none.
        noise: Its noise, likewise.
        shared: Correlation of its noise with the model's.
        errors: Standard errors that the model gains, mean over files.
        found: Share of files with a direction at the level.
        below: Share whose scaled reference is below half of the model, at its level.
        below_of_found: The same among the files with a direction; None without any.
        scaled: Share accused, the reference's scores scaled up to the model's.
    """

    kind: str
    gain: float
    n_strata: int
    share: float
    noise: float
    shared: float
    errors: float
    found: float
    below: float
    below_of_found: float | None
    scaled: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRule(StudyFlags):
    """Simulate audits beside references that gain less."""

    n_files: int = 40_000
    """Files that can be foretold, each reference; fewer of more than 74 strata, and a
    tenth that are remembered."""
    out: Path = Path("runs/reference_rule")
    """Folder for the table and its numbers."""

    positive = ("n_files",)

    def run(self) -> dict[str, Any]:
        """Simulate, print, write; returns the numbers."""
        clock = Clock.start()
        n_files = 200 if self.tiny else self.n_files
        foretold = [
            (kind, _gain(kind, *order), order[0], *reference, 0.0)
            for kind, orders, references in (
                (_NORMAL, _FORETOLD, _REFERENCES),
                (_HEAVY, _FORETOLD[:1], _EQUALS),
            )
            for order, reference in itertools.product(orders, references)
        ]
        halved = [
            (_EVEN, _gain(_EVEN, *order), order[0], REFERENCE_SHARE, 1.0, shared)
            for shared, order in itertools.product(_SHARED, _HALVED)
        ]
        remembered = [
            (kind, gain, n_strata, 0.0, noise, 0.0)
            for kind, (n_strata, gain), noise in itertools.product(
                _MEMORIES, _REMEMBERED, (1.0, 0.5)
            )
        ]

        def cells_of(settings: list[tuple[Any, ...]], most: int) -> list[Cell]:
            return [
                simulate(*one, n_files=min(most, most * 74 // one[2]), seed=self.seed)
                for one in settings
            ]

        cells = [*cells_of(foretold, n_files), *cells_of(remembered, n_files // 10)]
        halves = cells_of(halved, n_files)
        files = {
            "files": "{r.kind}, {r.gain:.2g} a boundary, {r.n_strata} strata",
            "standard errors": "{r.errors:.1f}",
        }
        accused = {
            "reference's gain": "{r.share:g}",
            "its noise": "{r.noise:g}",
            "direction <= 0.001": "{r.found:.3f}",
            "contaminated": "{r.scaled:.4f}",
        }
        below = {
            "noise shared": "{r.shared:g}",
            "direction <= 0.001": "{r.found:.3f}",
            "below half, of all": "{r.below:.3f}",
            "of those at 0.001": lambda r: shown_or_dash(r.below_of_found, ".3f"),
            "contaminated": "{r.scaled:.4f}",
        }
        return finish_study(
            "reference_rule",
            self,
            clock=clock,
            numbers={"cells": [dataclasses.asdict(one) for one in (*cells, *halves)]},
            grids=[
                Grid.of("Share of files called contaminated", cells, files | accused),
                Grid.of("Beside a reference that gains half", halves, files | below),
            ],
        )


def _gain(kind: str, n_strata: int, errors: float) -> float:
    """Nats that a boundary gains where the model gains so many standard errors."""
    return _ERROR[kind] * errors * math.sqrt(37 / n_strata)


def simulate(
    kind: str,
    gain: float,
    n_strata: int,
    share: float,
    noise: float,
    shared: float = 0.0,
    *,
    n_files: int,
    seed: int,
) -> Cell:
    """Audits of fresh files; see `Cell` for the arguments."""
    rng = np.random.default_rng([seed, n_strata])
    totals = np.zeros(5)
    # Little memory whatever the number of files.
    for start in range(0, n_files, 500):
        shape = (min(500, n_files - start), n_strata, len(_LEFT_P))
        alike_FKP = 0.5 * rng.exponential(size=shape) * (_FORWARD_P | _BACKWARD_P)
        foretold_FKP, memory_FKP = np.zeros(shape), np.zeros(shape)
        if kind == _EVEN:
            alike_FKP[:] = 0.0
        if kind in _ERROR:
            foretold_FKP = gain * rng.lognormal(-0.5, 1.0, shape) * _FORWARD_P
        else:
            memory_FKP = gain * _drawn(kind, rng, shape) * _MEMORY_P
        own_FKP, other_FKP = rng.normal(size=(2, *shape))
        if kind == _HEAVY:
            own_FKP, other_FKP = rng.standard_t(3, (2, *shape)) / math.sqrt(3)
        other_FKP = shared * own_FKP + math.sqrt(1 - shared**2) * other_FKP
        totals += _totals(
            own_FKP + alike_FKP + foretold_FKP + memory_FKP,
            noise * (other_FKP + alike_FKP) + share * foretold_FKP,
        )
    errors, found, below, both, scaled = (totals / n_files).tolist()
    return Cell(
        kind=kind,
        gain=gain,
        n_strata=n_strata,
        share=share,
        noise=noise,
        shared=shared,
        errors=errors,
        found=found,
        below=below,
        below_of_found=both / found if found else None,
        scaled=scaled,
    )


def _drawn(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Memory of each pair, 1 on average."""
    if kind == _MEMORIES[0]:
        return rng.exponential(size=shape)
    drawn = shape if kind == _MEMORIES[1] else (*shape[:-1], 1)
    return 10.0 * (rng.random(drawn) < 0.1)


def _totals(model_FKP: np.ndarray, reference_FKP: np.ndarray) -> np.ndarray:
    """(5,) of what `Cell` has shares of, the fourth counted among those found."""
    z_F = _direction(model_FKP)
    found_F = z_F > norm.isf(CONTAMINATED_LEVEL)
    ratio_F = np.maximum(1.0, _spread(model_FKP) / _spread(reference_FKP))
    scaled_FKP = ratio_F[:, None, None] * reference_FKP
    half_F = _direction(REFERENCE_SHARE * model_FKP - scaled_FKP)
    below_F = half_F > norm.isf(SHARE_LEVEL)
    both_F = found_F & below_F
    accused_F = both_F & (np.abs(_direction(reference_FKP)) < norm.isf(REFERENCE_LEVEL))
    difference_F = _direction(model_FKP - scaled_FKP)
    is_quiet_F = _error(scaled_FKP) <= QUIET * _error(model_FKP)
    level_F = np.where(is_quiet_F, DIFFERENCE_LEVEL, CONTAMINATED_LEVEL)
    accused_F &= difference_F > norm.isf(level_F)
    counts = [one_F.sum() for one_F in (found_F, below_F, both_F, accused_F)]
    return np.array([z_F.sum(), *counts])


def _direction(pairs_FKP: np.ndarray) -> np.ndarray:
    """(F,) standardised statistics."""
    sums_FKM = pairs_FKP @ _sums_PM()
    gained_F = (sums_FKM[..., 0] - sums_FKM.mean(axis=-1)).sum(axis=1)
    return gained_F / _error(pairs_FKP)


def _error(pairs_FKP: np.ndarray) -> np.ndarray:
    """(F,) standard deviations of statistics under reversals."""
    return np.sqrt((pairs_FKP @ _sums_PM()).var(axis=-1).sum(axis=1))


@functools.cache
def _sums_PM() -> np.ndarray:
    """Contribution of each pair to the statistic of each order."""
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
