"""Rows of METHODS that are tests."""

import abc
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.layouts import Layout, ScoredTest, SequenceLayout
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.terms import Null, Validity
from jaxcontam.scoring.plan import plan_orders
from jaxcontam.stats.local import Run, local_evidence
from jaxcontam.stats.orders import OrderDesign, boundaries_gained, draw_orders
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.result import Local, OrderNumbers, Pretest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderFile:
    """A file without its order: all that a design may depend on.

    Attributes:
        n_ids: Ids of all examples, separators included.
        context: Tokens that the model reads at once.
        content_digest: Digest of the sorted example digests.
        prefix_id: Put before each sequence if the tokenizer has one.
        n_orders: m; None is the method's own. Pair tests have all orders anyway.
    """

    n_examples: int
    n_ids: int
    context: int
    seed: int
    content_digest: str
    groups: Sequence[object] | None = None
    prefix_id: int | None = None
    n_orders: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestMethod(TestRow):
    """A test of the order of a file.

    Attributes:
        fewest_strata: Strata with more than one order that the analysis needs.
    """

    fewest_strata: int = 1
    fewest_examples: int = 2
    grouped: bool = True
    null: Null
    validity: Validity

    @abc.abstractmethod
    def lay_out(self, file: OrderFile, encoded: Encoded) -> Layout:
        """Design the test of a file; asks no model."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned(abc.ABC):
    """A test of one benchmark, ready to be scored."""

    benchmark: Benchmark
    method: TestRow
    layout: Layout
    seed: int

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return self.layout.n_targets

    @abc.abstractmethod
    def result(
        self,
        scored: ScoredTest,
        *,
        primary: bool,
        pretests: tuple[Pretest, ...],
        method: TestMethod | None = None,
    ) -> OrderResult:
        """The row of the scored test, before verdicts are given.

        Another `method` analyses the same scores, at no cost.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderMethod(TestMethod):
    """An order test that scores whole orders.

    Attributes:
        strata: (file, m) -> contiguous runs of examples, sizes differing by at most 1.
        analyse: (loglik_KM, boundaries_K, seed) -> numbers.
        draw: (strata, m, seed=, content_digest=, groups=) -> orders to score.
        windowed: Strata may exceed the context and are scored in windows.
        counted_boundaries: The effect counts the neighbours that its orders keep.
    """

    strata: Callable[[OrderFile, int], list[np.ndarray]]
    analyse: Callable[[np.ndarray, np.ndarray, int], OrderNumbers]
    default_orders: int  # pyright: ignore[reportGeneralTypeIssues]
    draw: Callable[..., OrderDesign] = draw_orders
    windowed: bool = False
    counted_boundaries: bool = False

    def design(self, file: OrderFile, n_orders: int) -> OrderDesign:
        """Orders of the file's strata, before any model is asked."""
        return self.draw(
            self.strata(file, n_orders),
            n_orders,
            seed=file.seed,
            content_digest=file.content_digest,
            groups=file.groups,
        )

    def lay_out(self, file: OrderFile, encoded: Encoded) -> SequenceLayout:
        """Orders of the file as sequences."""
        # A method with one fixed counterfactual, such as reversal, keeps its own m.
        fixed = self.default_orders == 1
        m = self.default_orders if file.n_orders is None or fixed else file.n_orders
        design = self.design(file, m)
        plan = plan_orders(
            design,
            encoded,
            prefix_id=file.prefix_id,
            context=file.context,
            windowed=self.windowed,
        )
        return SequenceLayout(design, plan)

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """From scores, with orders or boundaries, as given matrices have them."""
        if evidence.scores is None:
            raise ValueError("no scores")
        if evidence.boundaries is not None:
            boundaries_K = evidence.boundaries
        elif evidence.orders is not None:
            counted = grouped or self.counted_boundaries
            boundaries_K = boundaries_gained(evidence.orders, counted=counted)
        else:
            boundaries_K = np.ones(len(evidence.scores))
        numbers = self.analyse(evidence.scores, boundaries_K, seed)
        if not self.locates or evidence.orders is None:
            return numbers
        local = where_in_orders(evidence.scores, evidence.orders, seed=seed)
        return dataclasses.replace(numbers, local=local)

    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int
    ) -> Evidence:
        """Orders and places."""
        if evidence.orders is None:
            raise ValueError("no orders")
        if result.group_field is not None:
            return Evidence()
        design = self.draw(
            strata_of(result),
            result.n_orders,
            seed=seed,
            content_digest=result.content_digest,
        )
        return Evidence(orders=design.orders, place=design.place)


def strata_of(result: OrderResult) -> list[np.ndarray]:
    """Runs of the file that a row without groups counts, dropped ones included."""
    n_runs = result.n_strata + result.n_dropped
    if result.n_dropped < 0 or n_runs > result.n_examples:
        raise ValueError("more strata than examples")
    return np.array_split(np.arange(result.n_examples), n_runs)


def where_in_orders(
    loglik_KM: np.ndarray, orders_KMS: np.ndarray, *, seed: int
) -> Local:
    """The best run of strata, which stand in file order, by scores of whole orders."""
    ties_K = MODEL_TOLERANCE * np.abs(loglik_KM).max(axis=1)
    found = local_evidence(loglik_KM, ties_K, seed=seed)
    return in_examples(found, orders_KMS[:, 0])


def in_examples(run: Run, published_KS: np.ndarray) -> Local:
    """A run of strata as numbers of examples."""
    last_S = published_KS[run.last]
    return Local(
        first_example=int(published_KS[run.first, 0]) + 1,
        last_example=int(last_S.max()) + 1,
        statistic=run.statistic,
        p_value=run.p_value,
    )
