"""Rows of METHODS as entries: order tests within the budget, membership scores."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from eval.leaderboard.detector import (
    Entry,
    Finding,
    MeteredPairs,
    MeteredScorer,
    Need,
    Subject,
    finding_of_p,
)
from jaxcontam.members.known_texts import RunTexts, draw_company
from jaxcontam.members.passes import Inputs, count_targets, score_texts
from jaxcontam.members.score import Reading, ScoreMethod
from jaxcontam.members.scores import score_method
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import PlannedTest, TestMethod, plan_test, score_test
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.plan import ScoringPlan
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.stats.roc import auc_delong

# Twice as many orders, so many times, where those of short strata coincide.
_DOUBLINGS = 3
# Examples of a stratum: of two the double-centred matrix is empty.
_SMALLEST_STRATUM = 3


def order_entry(name: str) -> Entry:
    """A row of METHODS that tests the order of a file."""
    method = order_method(name)
    detect = functools.partial(_detect, method)
    if isinstance(method, PairMethod):
        detect = functools.partial(_detect_pairs, method)
    return Entry(
        name=name,
        detect=detect,
        gives="p-value",
        family="order",
        about=method.finds,
        source=method.source,
    )


def order_numbers(
    subject: Subject,
    method: TestMethod,
    *,
    n_orders: int | None,
    read_by: TestMethod | None = None,
) -> OrderNumbers:
    """Numbers of a test on the set, by the code that audits run.

    `n_orders` None is the method's own; `read_by` is another test of the same scores.
    """
    planned = _planned(subject, method, n_orders)
    scored = score_test(planned, subject.scorer)
    return planned.result(scored, primary=True, pretests=(), method=read_by).numbers


def affordable_strata(subject: Subject, method: PairMethod) -> PairMethod:
    """The test with the largest strata that what is left buys, the smallest if none."""
    pairs = subject.scorer.pairs
    assert isinstance(pairs, MeteredPairs)
    found = None
    for size in range(_SMALLEST_STRATUM, method.size + 1):
        smaller = dataclasses.replace(method, size=size)
        plan = _planned(subject, smaller, None).layout.plan
        assert isinstance(plan, PairPlan)
        # A number of examples that does not divide leaves smaller strata.
        if min(map(len, plan.members)) < _SMALLEST_STRATUM:
            continue
        if found is None or pairs.cost(plan.groups) <= subject.budget.left:
            found = smaller
    return found or method


def affordable_orders(subject: Subject, method: TestMethod) -> int | None:
    """Random orders that what is left buys, at least one; None if the method has them.

    In short strata orders coincide and are scored once, so that more are bought.
    """
    if isinstance(method, OrderMethod) and method.default_orders == 1:
        return None
    plan = _sequences(subject, method, 1)
    # The published one of the two orders that were laid out.
    published = plan.index[np.arange(len(plan.index)), plan.place]
    scorer = subject.scorer
    assert isinstance(scorer, MeteredScorer)
    price = scorer.cost([plan.sequences[i] for i in published])
    n_orders = max(1, subject.budget.left // price - 1)
    for _ in range(_DOUBLINGS):
        more = _sequences(subject, method, 2 * n_orders).sequences
        if scorer.cost(more) > subject.budget.left:
            break
        n_orders *= 2
    return n_orders


def _sequences(subject: Subject, method: TestMethod, n_orders: int) -> ScoringPlan:
    plan = _planned(subject, method, n_orders).layout.plan
    assert isinstance(plan, ScoringPlan)
    return plan


def _detect(method: TestMethod, subject: Subject) -> Finding:
    n_orders = affordable_orders(subject, method)
    return finding_of_p(order_numbers(subject, method, n_orders=n_orders).log10_p)


def _detect_pairs(method: PairMethod, subject: Subject) -> Finding:
    fitting = affordable_strata(subject, method)
    return finding_of_p(order_numbers(subject, fitting, n_orders=None).log10_p)


def _planned(subject: Subject, method: TestMethod, n_orders: int | None) -> PlannedTest:
    return plan_test(
        subject.benchmark,
        subject.encoded,
        method,
        prefix_id=subject.prefix_id,
        context=subject.model.context,
        seed=subject.seed,
        n_orders=n_orders,
    )


_NEEDS: dict[Reading, Need] = {
    "moments": "distributions",
    "reference": "reference model",
    "corpus": "corpus",
    "nonmember_prefix": "unseen texts",
}
# Neighbours of a text, where the budget allows as many.
_MOST_NEIGHBOURS = 10


def mean_entry(name: str) -> Entry:
    """Sets ranked by the mean of a row of METHODS over their texts."""
    method = score_method(name)
    return Entry(
        name=name,
        detect=functools.partial(_mean, method),
        gives="score",
        family="membership",
        needs=_needs(method),
        about="; ".join(
            filter(None, ("mean over the set", method.setting, method.finds))
        ),
        source=method.source,
    )


def unseen_entry(name: str) -> Entry:
    """A set's texts against unseen ones, by labels drawn again at random.

    Exact where set and unseen texts are random draws from one pool, as they are here.
    """
    method = score_method(name)
    return Entry(
        name=f"{name}_unseen",
        detect=functools.partial(_against_unseen, method),
        gives="p-value",
        family="membership",
        needs=tuple(dict.fromkeys((*_needs(method), "unseen texts"))),
        about=f"{name} of the set's texts against those of unseen texts, permuted",
        source=method.source,
    )


def scores_of(
    subject: Subject, texts: tuple[str, ...], methods: tuple[ScoreMethod, ...]
) -> np.ndarray:
    """(N, M) float64, scores of texts."""
    inputs = _inputs(subject, texts, methods)
    table = score_texts(texts, methods, subject.model, inputs=inputs, seed=subject.seed)
    return table.values


def labelled(subject: Subject) -> tuple[tuple[str, ...], np.ndarray]:
    """The set's texts with the unseen ones after them, and which are the set's."""
    texts = (*subject.texts, *subject.unseen)
    return texts, np.arange(len(texts)) < len(subject.texts)


def _mean(method: ScoreMethod, subject: Subject) -> Finding:
    values_NM = scores_of(subject, subject.texts, (method,))
    return Finding(score=float(values_NM.mean()))


def _against_unseen(method: ScoreMethod, subject: Subject) -> Finding:
    texts, labels_N = labelled(subject)
    values_N1 = scores_of(subject, texts, (method,))
    auc, _ = auc_delong(values_N1[labels_N, 0], values_N1[~labels_N, 0])
    (p_value,) = auc_p_values(values_N1, labels_N, seed=subject.seed)
    return Finding(score=auc, p_value=float(p_value))


def _inputs(
    subject: Subject, texts: tuple[str, ...], methods: tuple[ScoreMethod, ...]
) -> Inputs:
    """Further inputs of the scores; neighbours as the budget allows."""
    inputs = Inputs()
    n_own = len(subject.texts)
    company = company_of((texts[:n_own], texts[n_own:]), seed=subject.seed)
    for n_neighbours in range(_MOST_NEIGHBOURS, 0, -1):
        inputs = Inputs(
            reference=subject.reference,
            nonmember_prefix=subject.unseen,
            company=company,
            corpus_counts=subject.corpus_counts,
            n_neighbours=n_neighbours,
        )
        if "neighbours" not in {name for method in methods for name in method.reads}:
            break
        cost = count_targets(
            texts, methods, subject.model, inputs=inputs, seed=subject.seed
        )
        if cost <= subject.budget.left:
            break
    return inputs


def company_of(sides: Sequence[Sequence[str]], *, seed: int) -> tuple[str, ...]:
    """For each text another one of its side, to stand before it."""
    texts = tuple(itertools.chain.from_iterable(sides))
    roles = tuple(f"{i}" for i, side in enumerate(sides) for _ in side)
    run = RunTexts(name="", texts=texts, roles=roles, clusters=None, sources=texts)
    return draw_company(run, np.zeros(len(texts), bool), seed=seed)


def _needs(method: ScoreMethod) -> tuple[Need, ...]:
    more: list[Need] = [_NEEDS[name] for name in method.reads if name in _NEEDS]
    return ("log-probabilities", *more)
