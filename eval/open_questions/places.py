"""Which tokens of an example carry the memory of what stood before it?

Pair matrices are made of the first k tokens of each example, and of its k-th token
alone; places are counted after the tokens that all examples share. The effect is in
nats a boundary, z is the effect over its sd among all orders.

Dimension key
    Q  choices of tokens
    K  strata
    S  examples of the largest stratum
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.curves import Curve, curves_svg
from eval.open_questions.rows import (
    Answer,
    Question,
    Row,
    cells,
    mean_interval,
    where,
    words,
)
from eval.open_questions.scores import SetScores
from eval.study import Grid
from jaxcontam.methods import adjacency
from jaxcontam.scoring.pair_plan import ALL_TOKENS
from jaxcontam.stats.pair_normal import adjacency_normal_test
from jaxcontam.stats.pair_statistic import PairStrata

N_PLACES = 24
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Places and numbers of first tokens that tables show."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow(Row):
    """Effects of one set by place; a number for each of the first `N_PLACES` tokens.

    Attributes:
        alone_effect: Of each token alone, nats a boundary.
        alone_z: Likewise, over its sd.
        first_effect: Of the first 1, 2, ... tokens together.
        first_z: Likewise.
        reached: Share of examples that have so many tokens.
        all_effect: Of all tokens.
        all_z: Likewise.
    """

    alone_effect: tuple[float, ...]
    alone_z: tuple[float, ...]
    first_effect: tuple[float, ...]
    first_z: tuple[float, ...]
    reached: tuple[float, ...]
    all_effect: float
    all_z: float


def measure(scores: SetScores) -> list[PlaceRow]:
    """One row."""
    pairs = scores.pairs(adjacency.METHOD.size)
    strata = pairs.strata(*range(N_PLACES + 1), ALL_TOKENS)
    upto_QKSS = strata.pairs[:-1]
    alone = [_effect(strata, own) for own in np.diff(upto_QKSS, axis=0)]
    first = [_effect(strata, own) for own in upto_QKSS[1:]]
    whole = _effect(strata, strata.pairs[-1])
    lengths = scores.subject.encoded.lengths - pairs.layout.plan.n_shared
    return [
        PlaceRow(
            **where(scores),
            alone_effect=tuple(effect for effect, _ in alone),
            alone_z=tuple(z for _, z in alone),
            first_effect=tuple(effect for effect, _ in first),
            first_z=tuple(z for _, z in first),
            reached=tuple(float((lengths >= k + 1).mean()) for k in range(N_PLACES)),
            all_effect=whole[0],
            all_z=whole[1],
        )
    ]


def _effect(strata: PairStrata, pairs_KSS: np.ndarray) -> tuple[float, float]:
    """Effect and z of one choice of tokens, by closed-form moments."""
    one = dataclasses.replace(
        strata, pairs=pairs_KSS[None], first_tokens=np.array([ALL_TOKENS])
    )
    numbers = adjacency_normal_test(one, seed=0, content_digest="")
    return numbers.effect or 0.0, numbers.statistic


def answer(rows: Sequence[PlaceRow]) -> Answer:
    """Effect and z by place, a figure a population."""
    grids, figures = [], {}
    for population, found in cells(rows, lambda row: row.population).items():
        by_copies = cells(found, lambda row: row.copies)
        curves, alone_lines, first_lines = [], [], []
        for copies, group in by_copies.items():
            alone = [
                mean_interval([row.alone_effect[k] for row in group])
                for k in range(N_PLACES)
            ]
            head = (str(copies), str(len(group)))
            alone_lines.append((*head, *(words(alone[k - 1], 3) for k in SHOWN)))
            first_lines.append(
                (
                    *head,
                    *(
                        words(mean_interval([row.first_z[k - 1] for row in group]))
                        for k in SHOWN
                    ),
                    words(mean_interval([row.all_z for row in group])),
                )
            )
            curves.append(
                Curve(
                    label=f"{copies} copies",
                    x=range(1, N_PLACES + 1),
                    y=[mean for mean, _, _ in alone],
                    low=[low for _, low, _ in alone],
                    high=[high for _, _, high in alone],
                )
            )
        reached = tuple(
            f"{np.mean([row.reached[k - 1] for row in found]):.0%}" for k in SHOWN
        )
        places = tuple(str(k) for k in SHOWN)
        grids += [
            Grid(
                f"{population}: effect of the k-th token alone, nats a boundary; 95 % "
                "intervals over sets",
                ("copies", "sets", *places),
                (*alone_lines, ("have it", "", *reached)),
            ),
            Grid(
                f"{population}: z of the first k tokens together",
                ("copies", "sets", *places, "all"),
                tuple(first_lines),
            ),
        ]
        figures[f"places-{population}"] = curves_svg(
            curves,
            x_label="token of the example",
            y_label="effect of this token alone,\nnats a boundary",
            level=0.0,
        )
    return Answer(tuple(grids), figures)


QUESTION = Question("places", PlaceRow, measure, answer)
