"""Scores of one set under one model, and what a question makes of them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from eval.study import Grid, grouped
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.methods import adjacency
from jaxcontam.methods.layouts import PairLayout
from jaxcontam.methods.method import OrderMethod, pair_strata
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.results import Evidence, OrderNumbers
from jaxcontam.scoring.pair_plan import ALL_TOKENS
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.pair_statistic import PairStrata


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Subject:
    """One set of one model.

    Attributes:
        population: What the model is one of.
        seed: Seeds the model; also seeds the tests.
        copies: How often the set was planted.
        benchmark: Its examples in published order.
        encoded: Their ids.
        prefix_id: Before each scored sequence.
        context: Tokens that the model was trained to read at once.
        scorer: The model's.
        orders: Scores of random orders that stand there already, or None.
    """

    population: str
    seed: int
    copies: int
    benchmark: Benchmark
    encoded: Encoded
    prefix_id: int | None
    context: int
    scorer: Scorer
    orders: Evidence | None = None

    @property
    def n_ids(self) -> int:
        """Tokens of one pass."""
        return int(self.encoded.lengths.sum())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Token scores of every pair of one stratum size.

    Attributes:
        layout: What was scored.
        logprobs: For each group and continuation one float32 array, nats an id.
        passes: Tokens that the model read over those of the set.
    """

    layout: PairLayout
    logprobs: list[list[np.ndarray]]
    passes: float

    def strata(self, *first_tokens: int) -> PairStrata:
        """Pair matrices over the first tokens of each example; none given is all."""
        chosen = first_tokens or (ALL_TOKENS,)
        layout = dataclasses.replace(self.layout, first_tokens=chosen)
        return pair_strata(layout.evidence(self.logprobs))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """A test that scores whole orders.

    Attributes:
        numbers: What it says.
        evidence: Its scores.
        n_strata: K.
        passes: Tokens that the model read over those of the set.
    """

    numbers: OrderNumbers
    evidence: Evidence
    n_strata: int
    passes: float


class SetScores:
    """Scores a subject when a question asks, and keeps what was scored."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self._pairs: dict[int, Pairs] = {}
        self._orders: dict[tuple[str, int | None, int], Orders] = {}

    def pairs(self, size: int) -> Pairs:
        """All pairs within strata of at most `size` examples."""
        if size not in self._pairs:
            method = dataclasses.replace(adjacency.METHOD, size=size)
            layout = self._planned(method, None, self.subject.context).layout
            assert isinstance(layout, PairLayout)
            pairs = self.subject.scorer.pairs
            assert pairs is not None
            groups = layout.plan.groups
            n_read = layout.n_targets + sum(len(group.prefix) for group in groups)
            self._pairs[size] = Pairs(
                layout, pairs.logprobs(groups).logprobs, n_read / self.subject.n_ids
            )
        return self._pairs[size]

    def orders(
        self, method: OrderMethod, n_orders: int | None, *, context: int | None = None
    ) -> Orders:
        """A test of whole orders, in strata that fit the context.

        Args:
            method: Told from others by its name.
            n_orders: m; None is the method's own.
            context: Tokens read at once; None is all that the model was trained on.
        """
        context = context or self.subject.context
        key = (method.name, n_orders, context)
        if key not in self._orders:
            planned = self._planned(method, n_orders, context)
            scored = score_test(planned, self.subject.scorer)
            result = order_result(planned, scored, primary=False, pretests=())
            self._orders[key] = Orders(
                result.numbers,
                scored.evidence,
                result.n_strata,
                planned.n_targets / self.subject.n_ids,
            )
        return self._orders[key]

    def order_scores(self, method: OrderMethod, n_orders: int) -> np.ndarray:
        """(K, m + 1) scores of random orders: those that stood there, or scored now.

        Those that stood there are of no use if they are of another m.
        """
        stored = self.subject.orders
        if stored is not None and stored.scores is not None:
            scores_KM = stored.scores
            if scores_KM.ndim == 2 and scores_KM.shape[1] == n_orders + 1:
                return scores_KM
        scores = self.orders(method, n_orders).evidence.scores
        assert scores is not None
        return scores

    def _planned(self, method, n_orders: int | None, context: int):
        subject = self.subject
        return plan_test(
            subject.benchmark,
            subject.encoded,
            method,
            prefix_id=subject.prefix_id,
            context=context,
            seed=subject.seed,
            n_orders=n_orders,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Where a number was measured; each question adds its own.

    Attributes:
        population: What the model is one of.
        seed: Seeds the model.
        name: Name of the set.
        copies: How often it was planted.
    """

    population: str
    seed: int
    name: str
    copies: int


_R = TypeVar("_R", bound=Row)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a question's rows come to.

    Attributes:
        grids: Tables.
        figures: Name -> text of an SVG.
    """

    grids: tuple[Grid, ...]
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        name: As typed after `--questions`.
        row: Its kind of row.
        measure: Scores of a set -> rows.
        answer: Rows of all sets -> tables and figures.
    """

    name: str
    row: type[Row]
    measure: Callable[[SetScores], list[Any]]
    answer: Callable[[Sequence[Any]], Answer]


def where(scores: SetScores) -> dict[str, Any]:
    """The fields of `Row` of a set."""
    subject = scores.subject
    return {
        "population": subject.population,
        "seed": subject.seed,
        "name": subject.benchmark.name,
        "copies": subject.copies,
    }


def cells(rows: Iterable[_R], key: Callable[[_R], Any]) -> dict[Any, list[_R]]:
    """Rows by a key, in ascending order of keys."""
    return dict(sorted(grouped(rows, key).items(), key=lambda item: item[0]))
