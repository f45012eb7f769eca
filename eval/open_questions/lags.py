"""Lag profiles: which places after an example does a model expect to follow it?

Entry h of a profile is the mean centred pair entry [i, i + h] in standard deviations
of all entries. Centring a spike at +1 alone leaves negative entries elsewhere, so what
such a spike of the same effect would leave is taken off in a second profile.
"""

import dataclasses
from collections.abc import Sequence

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
from jaxcontam.stats.adjacency import LAGS, boundaries_matrix, lag_profile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LagRow(Row):
    """Lag profile of one set.

    Attributes:
        profile: For each of `LAGS`, sd of the entries.
        beyond: The same of what a spike at +1 of the same effect does not explain.
    """

    profile: tuple[float, ...]
    beyond: tuple[float, ...]


def measure(scores: SetScores) -> list[LagRow]:
    """One row; nothing where all pairs score alike or strata are short."""
    centred = scores.pairs(adjacency.METHOD.size).strata().centred(0)
    profile = lag_profile(centred)
    spikes = [boundaries_matrix(len(pairs_SS)) for pairs_SS in centred]
    gained = sum(float(spike.trace(1)) for spike in spikes)
    effect = sum(float(pairs_SS.trace(1)) for pairs_SS in centred) / gained
    squares = sum(float((pairs_SS**2).sum()) for pairs_SS in centred)
    spike_squares = sum(float((spike**2).sum()) for spike in spikes)
    # `lag_profile` divides by the sd of what it is given; both are put in the sd of
    # the pairs.
    scale = effect * (spike_squares / squares) ** 0.5 if squares > 0 else 0.0
    values, beyond = [], []
    for own, spike in zip(profile, lag_profile(spikes), strict=True):
        if own is None or spike is None:
            return []
        values.append(own)
        beyond.append(own - scale * spike)
    return [LagRow(**where(scores), profile=tuple(values), beyond=tuple(beyond))]


def answer(rows: Sequence[LagRow]) -> Answer:
    """Mean profiles by population and copies, and a figure a population."""
    grids, figures = [], {}
    for population, found in cells(rows, lambda row: row.population).items():
        by_copies = cells(found, lambda row: row.copies)
        means = {
            copies: [
                mean_interval([row.profile[i] for row in group])
                for i in range(len(LAGS))
            ]
            for copies, group in by_copies.items()
        }
        header = ("copies", "sets", *(f"{lag:+d}" for lag in LAGS))
        grids.append(
            Grid(
                f"{population}: mean pair entry at each lag, sd of entries; 95 % "
                "intervals over sets",
                header,
                tuple(
                    (str(copies), str(len(by_copies[copies])), *map(words, profile))
                    for copies, profile in means.items()
                ),
            )
        )
        grids.append(
            Grid(
                f"{population}: the same beyond a spike at +1 alone",
                header,
                tuple(
                    (
                        str(copies),
                        str(len(group)),
                        *(
                            words(mean_interval([row.beyond[i] for row in group]))
                            for i in range(len(LAGS))
                        ),
                    )
                    for copies, group in by_copies.items()
                ),
            )
        )
        figures[f"lags-{population}"] = curves_svg(
            [
                Curve(
                    label=f"{copies} copies",
                    x=LAGS,
                    y=[mean for mean, _, _ in profile],
                    low=[low for _, low, _ in profile],
                    high=[high for _, _, high in profile],
                )
                for copies, profile in means.items()
            ],
            x_label="place after the example",
            y_label="mean pair entry, sd",
            x_ticks=LAGS,
            level=0.0,
        )
    return Answer(tuple(grids), figures)


QUESTION = Question("lags", LagRow, measure, answer)
