"""Symmetry of pair matrices: does i after j say what j after i says?

rho is the correlation of [i, j] with [j, i] after double centring. Near 1, chance
likeness cancels between an order and its reverse, and two passes would do: a test of
directions has z over that of all orders of 1 / sqrt(2 (1 - rho)). Near 0 it has 0.71.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from eval.open_questions.rows import (
    Answer,
    Question,
    Row,
    cells,
    mean_interval,
    ratio_interval,
    where,
    words,
)
from eval.open_questions.scores import SetScores
from eval.study import Grid
from jaxcontam.methods import adjacency
from jaxcontam.stats.adjacency import path_moments, symmetry

# An sd of so few nats is what centring leaves of a matrix that equals its transpose.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SymmetryRow(Row):
    """Symmetry of one set's pair matrices.

    Attributes:
        tokens: Mean ids of an example.
        rho: Correlation of [i, j] with [j, i].
        z_all: Path statistic over its sd among all orders.
        z_directions: The same of the matrix less its transpose.
    """

    tokens: float
    rho: float
    z_all: float
    z_directions: float


def measure(scores: SetScores) -> list[SymmetryRow]:
    """One row; nothing where all pairs score alike."""
    centred = scores.pairs(adjacency.METHOD.size).strata().centred(0)
    rho = symmetry(centred)
    z_all, z_directions = (
        path_z(found)
        for found in (centred, [pairs_SS - pairs_SS.T for pairs_SS in centred])
    )
    if rho is None:
        return []
    return [
        SymmetryRow(
            **where(scores),
            tokens=scores.subject.n_ids / len(scores.subject.benchmark),
            rho=rho,
            z_all=z_all,
            z_directions=z_directions,
        )
    ]


def path_z(matrices: Sequence[np.ndarray]) -> float:
    """Sum over published neighbours, less its mean over all orders, over its sd.

    0 where all orders score alike.
    """
    moments = [path_moments(pairs_SS) for pairs_SS in matrices]
    sd = math.sqrt(sum(variance for _, variance in moments))
    total = sum(float(np.trace(pairs_SS, 1)) for pairs_SS in matrices)
    gain = total - sum(mean for mean, _ in moments)
    return gain / sd if sd > _ROUNDING else 0.0


def answer(rows: Sequence[SymmetryRow]) -> Answer:
    """Symmetry by population and copies, and what it promises of directions."""
    lines = []
    for (population, copies), found in cells(
        rows, lambda row: (row.population, row.copies)
    ).items():
        rho = mean_interval([row.rho for row in found])
        z_all = [row.z_all for row in found]
        z_directions = [row.z_directions for row in found]
        promised = 1 / math.sqrt(2 * (1 - rho[0])) if rho[0] < 1 else math.inf
        lines.append(
            (
                population,
                str(copies),
                str(len(found)),
                str(len({row.seed for row in found})),
                f"{np.mean([row.tokens for row in found]):.0f}",
                words(rho, 3),
                f"{min(r.rho for r in found):.2f} to {max(r.rho for r in found):.2f}",
                words(mean_interval(z_all)),
                words(mean_interval(z_directions)),
                words(ratio_interval(z_directions, z_all)),
                f"{promised:.2f}",
            )
        )
    return Answer(
        (
            Grid(
                "Symmetry rho of double-centred pair matrices (strata of 8); z of all "
                "orders, z of directions alone, their ratio and 1 / sqrt(2 (1 - rho)); "
                "95 % intervals over sets; sets of one model share its weights, so "
                "that of fewer models than sets they say nothing of other models",
                (
                    "population",
                    "copies",
                    "sets",
                    "models",
                    "tokens",
                    "rho",
                    "range",
                    "z all",
                    "z directions",
                    "ratio",
                    "by rho",
                ),
                tuple(lines),
            ),
        )
    )


QUESTION = Question("symmetry", SymmetryRow, measure, answer)
