"""Planned tests of an audit through a model: rows of the report and their evidence."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxcontam.commands.order_checks import CheckedFiles
from jaxcontam.commands.progress import progress_bar
from jaxcontam.methods import direction, two_min
from jaxcontam.methods.method import PairMethod, TestMethod
from jaxcontam.methods.options import PlannedOptions, options_result
from jaxcontam.methods.order_test import PlannedTest, order_result, score_test
from jaxcontam.methods.reference_model import reference_result
from jaxcontam.methods.two_min import combined_results
from jaxcontam.results import Evidence, ModelInfo, OrderResult

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import SequenceScorer

Planned = PlannedTest | PlannedOptions
Row = tuple[OrderResult, Evidence | None]


def scored_rows(
    planned: Sequence[Planned],
    scorer: "SequenceScorer",
    *,
    names: Sequence[str],
    checked: CheckedFiles,
    words: str = "scoring orders",
) -> list[Row]:
    """Score every test; direction is read from the pairs of a test that has them all.

    Args:
        planned: Tests of all benchmarks.
        scorer: Of the model.
        names: The tests asked for, the deciding one first.
        checked: The files and what their pre-tests said.
        words: Beside the progress bar.
    """
    total, done = sum(test.n_targets for test in planned), 0
    rows: list[Row] = []
    with progress_bar(words) as progress:
        for test in planned:
            scored = score_test(
                test, scorer, lambda now, _, done=done: progress(done + now, total)
            )
            done += test.n_targets
            if isinstance(test, PlannedOptions):
                primary = test.method.name == names[0]
                result = options_result(test, scored, primary=primary)
                rows.append((result, scored.evidence))
                continue
            own: TestMethod = test.method
            read: list[TestMethod | None] = [None]
            if direction.METHOD.name in names and has_all_pairs(own):
                read.append(direction.METHOD)
            for method in read:
                name = (method or own).name
                result = order_result(
                    test,
                    scored,
                    primary=name == names[0],
                    pretests=checked.pretests[test.benchmark.name],
                    method=method,
                )
                result = dataclasses.replace(
                    result, n_repeats=checked.n_repeats[test.benchmark.name]
                )
                rows.append((result, scored.evidence))
    if two_min.METHOD.name in names:
        parts = [result for result, _ in rows]
        primary = two_min.METHOD.name == names[0]
        rows += [(row, None) for row in combined_results(parts, primary=primary)]
    return rows


def has_all_pairs(method: object) -> bool:
    """Whether a test scores all pairs of its strata."""
    return isinstance(method, PairMethod) and method.whole


def with_reference(
    rows: Sequence[Row], reference: Sequence[Row], info: ModelInfo, *, seed: int
) -> list[Row]:
    """Rows of pair tests beside the same tests of a reference model.

    Args:
        rows: Of the model.
        reference: Of the reference, from the same benchmarks and tests.
        info: The reference model.
        seed: The run's seed.
    """
    from jaxcontam.methods import METHODS

    of_reference = {
        (result.benchmark, result.method): evidence for result, evidence in reference
    }
    found: list[Row] = []
    for result, evidence in rows:
        method = METHODS.get(result.method)
        other = of_reference.get((result.benchmark, result.method))
        if isinstance(method, PairMethod) and evidence is not None and other:
            evidence = dataclasses.replace(evidence, reference_pairs=other.pairs)
            result = dataclasses.replace(
                result,
                reference=reference_result(
                    method,
                    evidence,
                    name=info.name,
                    fingerprint=info.fingerprint,
                    seed=seed,
                    content_digest=result.content_digest,
                ),
            )
        found.append((result, evidence))
    return found
