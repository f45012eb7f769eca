"""How often is a clean model accused beside a reference that copies less than it does?

Question: a benchmark that is easier to guess than its control, for a model that reads
better than its reference; neither has seen a text. How many of such runs does the rule
of `replicate` call contaminated, how many did the one before, whose reference was
silent by p > 0.05? And how many are found that were learnt by heart?
Command: `python -m eval.replication.rule`. Hardware: one CPU core, minutes, no model.
Headline: docs/log.

Judgements are drawn. The ease of a text alone decides what is copied, so that the
reference copies nothing that the model does not; or chance does. Both write as close to
the control, so that closeness never objects.

Dimension key
    R  runs
    N  instances of a side
"""

import dataclasses
import functools
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom, hypergeom

from eval.study import Clock, Grid, StudyFlags, finish_study, run_study
from jaxcontam.replication.control import COPIES_SHARE, share_p
from jaxcontam.replication.overlap import ALPHA, LEVEL

_SIZES = (50, 100, 200)
# Copies of the benchmark: the model's, and those of a reference that is weaker.
_WEAKER = ((0.36, 0.06), (0.5, 0.08), (0.5, 0.12), (0.3, 0.05), (0.2, 0.05))
# As above, where the test of a share is at its level, or the reference is mute.
_BEYOND = ((0.4, 0.05), (0.5, 0.05), (0.4, 0.04), (0.36, 0.0), (0.2, 0.0))
# What both copy of the control.
_GUESSED = (0.0, 0.02)
_LEARNT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
_KNOWN = (0.0, 0.01, 0.03)
_EASE, _CHANCE = "ease", "chance"
# The same counts come again and again.
_share_p = np.vectorize(functools.cache(share_p))


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Runs of n instances a side, and shares of them that are called contaminated.

    Model and reference copy a `rate` and `reference` of the benchmark, and `guessed` of
    the control, as `decided_by` ease or chance. They are accused by the rule `before`
    and by the rule `now`.
    """

    decided_by: str
    n: int
    rate: float
    reference: float
    guessed: float
    before: float
    now: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule(StudyFlags):
    """Simulate runs beside references that copy less."""

    n_runs: int = 10_000
    """Runs of clean models a cell; a fifth as many of those that learnt."""
    out: Path = Path("runs/replication-rule")
    """Folder for the table and its numbers."""

    positive = ("n_runs",)

    def run(self) -> dict[str, Any]:
        """Simulate, print, write; returns the numbers."""
        clock = Clock.start()
        n_runs = 50 if self.tiny else self.n_runs
        clean = [
            simulate(*cell, n_runs=n_runs, seed=self.seed)
            for cell in itertools.product(
                (_EASE, _CHANCE), _SIZES, (*_WEAKER, *_BEYOND), _GUESSED
            )
        ]
        # What is not learnt is guessed, by both alike.
        learnt = [
            simulate(
                *(_CHANCE, n, (known + (1 - known) * rate, known), known),
                n_runs=max(1, n_runs // 5),
                seed=self.seed,
            )
            for n, rate, known in itertools.product(_SIZES, _LEARNT, _KNOWN)
        ]
        columns = {
            "instances a side": "{r.n}",
            "model, reference": "{r.rate:.3g}, {r.reference:g}",
            "of the control": "{r.guessed:g}",
            "silent by p > 0.05": "{r.before:.4f}",
            f"less than {COPIES_SHARE:g}": "{r.now:.4f}",
        }
        by = {"copied by": "{r.decided_by}"}
        return finish_study(
            "replication.rule",
            self,
            clock=clock,
            numbers={"cells": [dataclasses.asdict(one) for one in (*clean, *learnt)]},
            grids=[
                Grid.of("Clean models called contaminated", clean, by | columns),
                Grid.of("Models that learnt it by heart", learnt, columns),
            ],
        )


def simulate(
    decided_by: str,
    n: int,
    rates: tuple[float, float],
    guessed: float,
    *,
    n_runs: int,
    seed: int,
) -> Cell:
    """Fresh runs; see `Cell` for the arguments, `rates` being model and reference."""
    rng = np.random.default_rng([seed, n])
    sides = []
    for own, other in (rates, (guessed, guessed)):
        hard_2RN = rng.random((2, n_runs, n))
        if decided_by == _EASE:
            hard_2RN[1] = hard_2RN[0]
        model_RN, reference_RN = hard_2RN[0] < own, hard_2RN[1] < other
        pairs = (model_RN, reference_RN, model_RN & reference_RN)
        sides.append(np.stack([one_RN.sum(axis=1) for one_RN in pairs], axis=1))
    shares = accused(n, *sides).mean(axis=1)
    return Cell(decided_by, n, *rates, guessed, *shares.tolist())


def accused(n: int, benchmark_R3: np.ndarray, control_R3: np.ndarray) -> np.ndarray:
    """(2, R) bool: by the former rule and by the rule.

    Counts are those that the model copies, the reference, and both, of n a side. With
    sides of one size the sign flips of the excess are those of a fair coin.
    """
    (a, c, both), (b, d, both_control) = benchmark_R3.T, control_R3.T
    in_favour = a - both + d - both_control
    against = c - both + b - both_control
    is_found = hypergeom.sf(a - 1, 2 * n, a + b, n) <= LEVEL
    is_found &= binom.sf(in_favour - 1, in_favour + against, 0.5) <= LEVEL
    below = _share_p(a, c, share=COPIES_SHARE) <= ALPHA
    silent = hypergeom.sf(c - 1, 2 * n, c + d, n) > ALPHA
    return is_found & np.stack([silent, below])


if __name__ == "__main__":
    sys.exit(run_study("replication.rule", Rule))
