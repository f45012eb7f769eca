"""Order tests of many models of one shape, scored in one call."""

from collections.abc import Sequence

import numpy as np
from flax import nnx

from jaxcontam.errors import InputError
from jaxcontam.methods.layouts import PairLayout, ScoredTest
from jaxcontam.methods.order_test import PlannedTest, unscorable
from jaxcontam.scoring.population import score_population
from jaxcontam.scoring.stored import NonFiniteScoreError


def score_population_tests(
    planned: Sequence[Sequence[PlannedTest]],
    graphdef: nnx.GraphDef,
    states: nnx.State,
    *,
    context: int,
    side_by_side: bool | None = None,
) -> list[list[ScoredTest] | InputError]:
    """Score the pair tests of many models of one shape in one call.

    Args:
        planned: The tests of each model; all of them score pairs.
        graphdef: Graph definition of the decoder, from `nnx.split`.
        states: Weights with an axis of models in front.
        context: Tokens that the models read at once.
        side_by_side: See `score_population`.

    Returns:
        The scored tests of each model, or the error that `score_test` would raise.

    Raises:
        ValueError: If a test scores whole orders.
    """
    layouts: list[list[PairLayout]] = []
    for of_model in planned:
        layouts.append([])
        for test in of_model:
            if not isinstance(test.layout, PairLayout):
                raise ValueError(f"{test.method.name} scores no pairs")
            layouts[-1].append(test.layout)
    scored = score_population(
        graphdef,
        states,
        [
            [group for layout in of_model for group in layout.plan.groups]
            for of_model in layouts
        ],
        context=context,
        side_by_side=side_by_side,
    )
    found: list[list[ScoredTest] | InputError] = []
    for tests, of_model, scores in zip(planned, layouts, scored, strict=True):
        stops = np.cumsum([len(layout.plan.groups) for layout in of_model])
        if isinstance(scores, NonFiniteScoreError):
            at = int(np.searchsorted(stops, scores.sequence, side="right"))
            index = scores.sequence - int(stops[at]) + len(of_model[at].plan.groups)
            example = of_model[at].plan.groups[index].others[scores.position]
            found.append(unscorable(tests[at], example))
            continue
        starts = stops - [len(layout.plan.groups) for layout in of_model]
        found.append(
            [
                ScoredTest(layout.evidence(scores.logprobs[start:stop]), 0)
                for layout, start, stop in zip(of_model, starts, stops, strict=True)
            ]
        )
    return found
