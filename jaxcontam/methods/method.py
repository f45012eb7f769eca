"""What a row of METHODS is made of."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import Layout, PairLayout, SequenceLayout
from jaxcontam.methods.where import where_in_orders, where_in_pairs
from jaxcontam.results import Evidence, OrderNumbers, OrderResult
from jaxcontam.results.terms import ORDER_WORDS, MethodRow, Null, ProofWords, Validity
from jaxcontam.scoring.pair_plan import ALL_TOKENS, plan_pairs
from jaxcontam.scoring.plan import plan_orders
from jaxcontam.stats.adjacency import FEWEST_EXAMPLES
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.effect import LEVEL
from jaxcontam.stats.orders import (
    OrderDesign,
    boundaries_gained,
    draw_orders,
    published_orders,
)
from jaxcontam.stats.pair_statistic import PairStatistic, PairStrata
from jaxcontam.stats.strata import split_strata


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderFile:
    """What a design may depend on: the file without its order.

    Attributes:
        n_examples: At least 2.
        n_ids: Ids of all examples, separators included.
        context: Tokens that the model reads at once.
        seed: The run's seed.
        content_digest: Digest of the sorted example digests.
        groups: One value per example, or None.
        first_tokens: Choices of how many tokens of each example count, in pair tests.
        level: p-value at which sequential tests stop.
    """

    n_examples: int
    n_ids: int
    context: int
    seed: int
    content_digest: str
    groups: Sequence[object] | None = None
    first_tokens: tuple[int, ...] = (ALL_TOKENS,)
    level: float = LEVEL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderTestRow(MethodRow):
    """What tests of the order of a file have in common.

    Attributes:
        fewest_strata: Strata with more than one order that the analysis needs.
        fewest_examples: Examples that the design needs.
        grouped: Whether orders can keep to groups.
        null: What is assumed of a model that never saw the file.
        validity: `exact` (for sequential tests at their own time of stopping, or at
            any) or `asymptotic`.
        words: What a report says of it.
    """

    fewest_strata: int = 1
    fewest_examples: int = 2
    grouped: bool = True
    null: Null
    validity: Validity
    words: ProofWords = ORDER_WORDS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderMethod(OrderTestRow):
    """An order test that scores whole orders.

    Attributes:
        design: (file, m) -> orders to score.
        analyse: (loglik_KM, boundaries_K, seed) -> numbers.
        redraw: (strata, m, seed=, content_digest=) -> the orders of `design` without
            groups, from what a report holds: `verify` compares with them.
        default_orders: m unless `--n-orders` says otherwise.
        windowed: Strata may exceed the context and are scored in windows.
        counted_boundaries: The effect counts the neighbours that its orders keep.
        locates: Say where in the file the evidence lies.
    """

    design: Callable[[OrderFile, int], OrderDesign]
    analyse: Callable[[np.ndarray, np.ndarray, int], OrderNumbers]
    default_orders: int
    redraw: Callable[..., OrderDesign] = draw_orders
    windowed: bool = False
    counted_boundaries: bool = False
    locates: bool = False

    def lay_out(
        self,
        file: OrderFile,
        encoded: Encoded,
        *,
        prefix_id: int | None,
        n_orders: int | None,
    ) -> Layout:
        """Orders of the file as sequences; see `plan_orders` for what it raises."""
        # A method with one fixed counterfactual, such as reversal, keeps its own m.
        fixed = self.default_orders == 1
        m = self.default_orders if n_orders is None or fixed else n_orders
        design = self.design(file, m)
        plan = plan_orders(
            design,
            encoded,
            prefix_id=prefix_id,
            context=file.context,
            windowed=self.windowed,
        )
        return SequenceLayout(design, plan)

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """What the test says of stored evidence; `verify` recomputes it with this.

        Args:
            evidence: Its (K, m + 1) scores, with orders or boundaries.
            grouped: Whether orders moved examples within groups only.
            seed: The run's seed.
            content_digest: Unused: the orders are in the evidence.

        Raises:
            ValueError: If a score is not finite or there are too few strata.
        """
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairMethod(OrderTestRow):
    """An order test that scores examples after others of their stratum.

    Attributes:
        size: Most examples of a stratum.
        statistic: What it sums, and over which orders.
        analyse: (strata, seed, content_digest) -> numbers.
        whole: Score all pairs of a stratum, not only those that tell the direction.
        locates: Say where in the file the evidence lies.
    """

    size: int
    statistic: PairStatistic
    analyse: Callable[..., OrderNumbers]
    whole: bool = True
    locates: bool = False
    fewest_examples: int = FEWEST_EXAMPLES

    def lay_out(
        self,
        file: OrderFile,
        encoded: Encoded,
        *,
        prefix_id: int | None,
        n_orders: int | None,
    ) -> Layout:
        """Pairs of each stratum; its orders are columns, whatever n_orders.

        With groups all pairs are scored: a run that keeps to its groups has other
        neighbours when it is reversed.

        Raises:
            InputError: If no two examples fit the context.
        """
        del n_orders
        # Other than for sequences, a stratum need not fit the context, only two
        # examples, and the floor of p is low however few the strata are.
        design, codes_KS = published_orders(
            split_strata(file.n_examples, self.size), groups=file.groups
        )
        strata = [row[row >= 0] for row in design.orders[:, 0]]
        runs_KS = stratum_runs(design.orders[:, 0], file.n_examples)
        whole = self.whole or file.groups is not None
        plan = plan_pairs(
            strata,
            encoded,
            prefix_id=prefix_id,
            context=file.context,
            wanted=None if whole else _needed_pairs(runs_KS, design.orders[:, 0]),
        )
        return PairLayout(
            design, codes_KS, runs_KS, plan, file.first_tokens, self.statistic
        )

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """What the test says of stored evidence.

        Args:
            evidence: Pair matrices, published orders and groups.
            grouped: Unused: the groups are in the evidence.
            seed: The run's seed.
            content_digest: Digest of the benchmark's content.

        Raises:
            ValueError: If an entry is missing or not finite.
        """
        strata, orders = pair_strata(evidence), evidence.orders
        numbers = self.analyse(strata, seed=seed, content_digest=content_digest)
        if not self.locates or orders is None:
            return numbers
        local = where_in_pairs(
            strata, self.statistic, orders, seed=seed, content_digest=content_digest
        )
        return dataclasses.replace(numbers, local=local)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SequentialMethod(OrderTestRow):
    """An order test that scores in turns and may stop early.

    Attributes:
        layout: (file, encoded, prefix_id, n_orders or None) -> what is scored.
        turns_of: What it counts while it goes on: `n_strata` or `n_orders`.
        redraw: (result, (K, M) of its scores, seed) -> the orders that were to be
            scored, in their turn, if there are no groups.
        analyse: (loglik_KM, boundaries_K, rule) -> numbers; see `Evidence.rule`.
    """

    layout: Callable[[OrderFile, Encoded, int | None, int | None], Layout]
    turns_of: Literal["n_strata", "n_orders"]
    redraw: Callable[[OrderResult, tuple[int, int], int], OrderDesign]
    analyse: Callable[[np.ndarray, np.ndarray, np.ndarray], OrderNumbers]

    def lay_out(
        self,
        file: OrderFile,
        encoded: Encoded,
        *,
        prefix_id: int | None,
        n_orders: int | None,
    ) -> Layout:
        """What is scored, in turns; see `plan_orders` for what it raises."""
        return self.layout(file, encoded, prefix_id, n_orders)

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """What the test says of stored evidence.

        Args:
            evidence: Scores and orders in their turn, and the rule.
            grouped: Whether orders moved examples within groups only.
            seed: Unused: what is drawn is in the evidence.
            content_digest: Unused.

        Raises:
            ValueError: If a part is missing or a score is not finite.
        """
        scores, orders, rule = evidence.scores, evidence.orders, evidence.rule
        if scores is None or orders is None or rule is None:
            raise ValueError("no scores, orders or rule")
        boundaries_K = boundaries_gained(orders, counted=grouped)
        return self.analyse(scores, boundaries_K, rule)


TestMethod = OrderMethod | PairMethod | SequentialMethod
"""A method that gives a p-value."""


def stratum_runs(published_KS: np.ndarray, n_examples: int) -> np.ndarray:
    """(K, S) int64, the run of each example, which direction reverses; 0 in padding.

    Args:
        published_KS: Example indices of each stratum, -1 in padding.
        n_examples: Examples in the whole file; small files are cut into shorter runs.
    """
    length = run_length(n_examples)
    runs_KS = np.zeros(published_KS.shape, np.int64)
    sizes_K = (published_KS >= 0).sum(axis=1)
    for size in np.unique(sizes_K).tolist():
        runs_KS[sizes_K == size, :size] = runs_of(size, length)
    return runs_KS


def _needed_pairs(runs_KS: np.ndarray, published_KS: np.ndarray) -> np.ndarray:
    """(K, S, S) bool, see `needed_pairs`; strata of one size have the same runs."""
    K, S = runs_KS.shape
    needed_KSS = np.zeros((K, S, S), bool)
    sizes_K = (published_KS >= 0).sum(axis=1)
    for size, k in zip(*np.unique(sizes_K, return_index=True), strict=True):
        needed_KSS[sizes_K == size, :size, :size] = needed_pairs(runs_KS[k, :size])
    return needed_KSS


def pair_strata(evidence: Evidence) -> PairStrata:
    """Pair matrices of stored evidence.

    Raises:
        ValueError: If a part of them is missing.
    """
    pairs, orders = evidence.pairs, evidence.orders
    first_tokens, codes, runs = evidence.first_tokens, evidence.codes, evidence.runs
    if pairs is None or orders is None or first_tokens is None:
        raise ValueError("no pair matrices")
    if codes is None or runs is None:
        raise ValueError("no groups or runs of the pair matrices")
    return PairStrata(
        pairs=pairs,
        first_tokens=first_tokens,
        sizes=(orders[:, 0] >= 0).sum(axis=1),
        codes=codes,
        runs=runs,
        starts=orders[:, 0, 0].astype(np.int64),
    )
