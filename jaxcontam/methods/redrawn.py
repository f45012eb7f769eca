"""What of a test's evidence no model decides: whoever holds a report draws it again."""

import numpy as np

from jaxcontam.methods import canary, reported_method
from jaxcontam.methods.layouts import pair_columns
from jaxcontam.methods.method import PairMethod, SequentialMethod, stratum_runs
from jaxcontam.methods.version_method import VersionMethod
from jaxcontam.results import Evidence, OrderResult
from jaxcontam.stats.direction import needed_pairs
from jaxcontam.stats.orders import draw_places, published_orders
from jaxcontam.stats.rows import unpadded


def counts(method: str, evidence: Evidence) -> tuple[int, int]:
    """Strata and counterfactual orders that a row of a report states.

    Args:
        method: Name of the test.
        evidence: Evidence of the row.

    Raises:
        InputError: If there is no such test.
        ValueError: If a part of the evidence is missing.
    """
    row, scores, orders = reported_method(method), evidence.scores, evidence.orders
    if isinstance(row, PairMethod):
        if orders is None or evidence.codes is None or evidence.runs is None:
            raise ValueError("no pair matrices")
        columns = pair_columns(
            row.statistic, orders[:, 0], evidence.codes, evidence.runs
        )
        return len(columns), max(columns) - 1
    if scores is None:
        raise ValueError("no scores")
    if isinstance(row, VersionMethod):
        return len(scores), max(map(len, unpadded(scores))) - 1
    n_strata, n_columns = scores.shape
    if isinstance(row, SequentialMethod):
        # It may have ended early.
        most = int(_rule(evidence)[1])
        by_strata = row.turns_of == "n_strata"
        return (most, n_columns - 1) if by_strata else (n_strata, most)
    return n_strata, n_columns - 1


def redrawn(
    result: OrderResult, evidence: Evidence, *, seed: int, level: float
) -> Evidence:
    """Orders, places, runs and groups that the seed and the file decide.

    Groups stand in the benchmark alone: where orders keep to them, orders and places
    are left out.

    Args:
        result: The row, with the counts of its evidence.
        evidence: Evidence of the row.
        seed: The run's seed.
        level: The p-value at which sequential tests stop.

    Returns:
        What is known; None elsewhere.

    Raises:
        ValueError: If a part of the evidence is missing, or counts contradict, or a
            pair that the test asks for was not scored.
    """
    method, digest = reported_method(result.method), result.content_digest
    orders, scores = evidence.orders, evidence.scores
    if isinstance(method, VersionMethod):
        if scores is None or method.name.startswith(canary.METHOD.name):
            return Evidence()
        sizes = [len(row) for row in unpadded(scores)]
        return Evidence(place=draw_places(sizes, seed=seed, content_digest=digest))
    if orders is None:
        raise ValueError("no orders")
    runs = rule = None
    if isinstance(method, PairMethod):
        runs = stratum_runs(orders[:, 0], result.n_examples)
        _check_pairs(evidence.pairs, orders[:, 0], runs)
    if isinstance(method, SequentialMethod):
        rule = np.array([level, _rule(evidence)[1]])
    if result.group_field is not None:
        return Evidence(runs=runs, rule=rule)
    n_runs = result.n_strata + result.n_dropped
    if result.n_dropped < 0 or n_runs > result.n_examples:
        raise ValueError("more strata than examples")
    strata = np.array_split(np.arange(result.n_examples), n_runs)
    if isinstance(method, PairMethod):
        design, codes = published_orders(strata)
        return Evidence(orders=design.orders, codes=codes, runs=runs)
    assert scores is not None
    if isinstance(method, SequentialMethod):
        design = method.redraw(result, (scores.shape[0], scores.shape[1]), seed)
    else:
        design = method.redraw(
            strata, result.n_orders, seed=seed, content_digest=digest
        )
    return Evidence(orders=design.orders, place=design.place, rule=rule)


def _check_pairs(
    pairs: np.ndarray | None, published_KS: np.ndarray, runs_KS: np.ndarray
) -> None:
    """Refuse matrices that hold neither all pairs nor those that tell the direction."""
    if pairs is None or not np.isnan(pairs).any():
        return
    for k, size in enumerate((published_KS >= 0).sum(axis=1).tolist()):
        needed_SS = needed_pairs(runs_KS[k, :size]) | np.eye(size, dtype=bool)
        if (np.isnan(pairs[:, k, :size, :size]) == needed_SS).any():
            raise ValueError("pairs are not those that tell the direction")


def _rule(evidence: Evidence) -> np.ndarray:
    if evidence.rule is None or evidence.rule.shape != (2,):
        raise ValueError("no rule of stopping")
    return evidence.rule
