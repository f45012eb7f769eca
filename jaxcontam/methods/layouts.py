"""A test laid out: what is to be scored, and how scores become evidence."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.results import Evidence
from jaxcontam.scoring.cost import Costed, ScoringCost, pair_cost, sequence_cost
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.pair_plan import ALL_TOKENS, PairPlan
from jaxcontam.scoring.plan import ScoringPlan
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.pair_statistic import PairStatistic
from jaxcontam.stats.randomisation import N_MONTE_CARLO


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoredTest:
    """What scoring a planned test gave.

    Attributes:
        evidence: The scores beside what was scored.
        n_cached: Target tokens whose scores the store held.
        n_targets: Target tokens that were asked for; None for all of the layout's.
    """

    evidence: Evidence
    n_cached: int
    n_targets: int | None = None


class UnscorableExampleError(ArithmeticError):
    """The model's log-probability of an example is not finite.

    Attributes:
        example: Its index.
    """

    def __init__(self, example: int):
        super().__init__(f"example {example}: not finite")
        self.example = example


class Layout(Protocol):
    """What every laid-out test has."""

    @property
    def n_strata(self) -> int:
        """Strata with more than one order."""
        ...

    @property
    def n_dropped(self) -> int:
        """Strata with a single order."""
        ...

    @property
    def n_orders(self) -> int:
        """Counterfactual orders of a stratum, at most."""
        ...

    @property
    def log10_floor(self) -> float:
        """log10 of the smallest p-value, if nothing ties."""
        ...

    @property
    def n_scored(self) -> int:
        """Distinct sequences, or pairs."""
        ...

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        ...

    @property
    def cut(self) -> np.ndarray:
        """(n_examples,) int32, ids removed from each example."""
        ...

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """What scoring would cost; asks no model.

        Args:
            scorer: Says how batches are made and what the store holds.
            planned: Keys that tests before this one put into the store; grows. None
                where no other test can ask for the same.
        """
        ...

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """Score everything.

        Raises:
            UnscorableExampleError: Names the example.
            InputError: If the model gives less than the test needs.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SequenceLayout:
    """Orders as sequences of ids, each distinct one once."""

    design: OrderDesign
    plan: ScoringPlan

    @property
    def n_strata(self) -> int:
        """See `Layout`, as for all that follow."""
        return self.design.n_strata

    @property
    def n_dropped(self) -> int:
        """See `Layout`."""
        return self.design.n_dropped

    @property
    def n_orders(self) -> int:
        """See `Layout`."""
        return self.design.n_orders

    @property
    def log10_floor(self) -> float:
        """See `Layout`."""
        return -self.n_strata * math.log10(self.n_orders + 1)

    @property
    def n_scored(self) -> int:
        """See `Layout`."""
        return len(self.plan.sequences)

    @property
    def n_targets(self) -> int:
        """See `Layout`."""
        return n_targets(self.plan.sequences)

    @property
    def cut(self) -> np.ndarray:
        """See `Layout`."""
        return self.plan.cut

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """See `Layout`."""
        return sequence_cost(scorer, self.plan.sequences, planned)

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """See `Layout`."""
        try:
            sums = scorer.sums(self.plan.sequences, progress)
        except NonFiniteScoreError as e:
            raise UnscorableExampleError(
                self.plan.example_at(e.sequence, e.position)
            ) from e
        evidence = Evidence(
            scores=self.plan.matrix(sums.loglik),
            orders=self.design.orders,
            place=self.design.place,
            cut=self.plan.cut,
        )
        return ScoredTest(evidence, sums.n_cached)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairLayout:
    """Examples after others of their stratum.

    Attributes:
        design: The published order of each stratum.
        codes: (K, s_max) int64, groups within strata.
        runs: (K, s_max) int64, runs within strata.
        plan: What is scored.
        first_tokens: Q choices of how many tokens of each example count.
        statistic: Says which orders are compared.
    """

    design: OrderDesign
    codes: np.ndarray
    runs: np.ndarray
    plan: PairPlan
    first_tokens: tuple[int, ...]
    statistic: PairStatistic

    @property
    def n_strata(self) -> int:
        """See `Layout`, as for all that follow."""
        return self.design.n_strata

    @property
    def n_dropped(self) -> int:
        """See `Layout`."""
        return self.design.n_dropped

    @property
    def n_orders(self) -> int:
        """See `Layout`."""
        return max(self._columns(), default=1) - 1

    @property
    def log10_floor(self) -> float:
        """See `Layout`."""
        floor = -sum(math.log10(n_columns) for n_columns in self._columns())
        if len(self.first_tokens) == 1:
            return floor
        # The best of several is found by Monte Carlo.
        return max(floor, -math.log10(N_MONTE_CARLO + 1))

    @property
    def n_scored(self) -> int:
        """See `Layout`."""
        return self.plan.n_pairs

    @property
    def n_targets(self) -> int:
        """See `Layout`."""
        return self.plan.n_targets

    @property
    def cut(self) -> np.ndarray:
        """See `Layout`."""
        return self.plan.cut

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """See `Layout`."""
        return pair_cost(scorer, self.plan, planned)

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """See `Layout`."""
        if scorer.pairs is None:
            raise ValueError("this scorer has no pairs")
        if self.first_tokens != (ALL_TOKENS,) and not scorer.pairs.has_tokens:
            raise InputError(
                "--first-tokens: this model gives one number a text, not one a token",
                hint="leave it out, so that all tokens count",
            )
        try:
            scored = scorer.pairs.logprobs(self.plan.groups, progress)
        except NonFiniteScoreError as e:
            group = self.plan.groups[e.sequence]
            raise UnscorableExampleError(group.others[e.position]) from e
        return ScoredTest(self.evidence(scored.logprobs), scored.n_cached)

    def evidence(self, logprobs: Sequence[Sequence[np.ndarray]]) -> Evidence:
        """Pair matrices from the scores of each group of the plan."""
        return Evidence(
            orders=self.design.orders,
            cut=self.plan.cut,
            pairs=self.plan.matrices(logprobs, self.first_tokens),
            first_tokens=np.array(self.first_tokens, np.int64),
            codes=self.codes,
            runs=self.runs,
        )

    def _columns(self) -> list[int]:
        published_KS = self.design.orders[:, 0]
        return pair_columns(self.statistic, published_KS, self.codes, self.runs)


def pair_columns(
    statistic: PairStatistic,
    published_KS: np.ndarray,
    codes_KS: np.ndarray,
    runs_KS: np.ndarray,
) -> list[int]:
    """Orders of each stratum that a pair test compares, the published one included.

    Args:
        statistic: Says which orders are compared.
        published_KS: Example indices of each stratum, -1 in padding.
        codes_KS: Groups within strata.
        runs_KS: Runs within strata.
    """
    there_KS = published_KS >= 0
    # Strata of a file are of few kinds.
    kinds, of_K = np.unique(
        np.stack([codes_KS, runs_KS, there_KS]), axis=1, return_inverse=True
    )
    n_columns = [
        statistic.n_orders(codes_S[there_S > 0], runs_S[there_S > 0])
        for codes_S, runs_S, there_S in kinds.swapaxes(0, 1)
    ]
    return [n_columns[kind] for kind in of_K.tolist()]
