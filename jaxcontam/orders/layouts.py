"""A test laid out: what is to be scored, and how scores become evidence.

Dimension key
    K  strata
    S  examples of the largest stratum
"""

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.progress import Progress
from jaxcontam.proof.result import Evidence
from jaxcontam.scoring.cost import Costed, ScoringCost, pair_cost, sequence_cost
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.plan import ScoringPlan, VersionPlan
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.pair_test import PairStatistic


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoredTest:
    """Scores beside what was scored, and target tokens whose scores the store held."""

    evidence: Evidence
    n_cached: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Layout(abc.ABC):
    """A laid-out test: its orders, and what is scored of them."""

    design: OrderDesign
    plan: ScoringPlan | VersionPlan | PairPlan

    @property
    def n_strata(self) -> int:
        """Strata with more than one order."""
        return self.design.n_strata

    @property
    def n_dropped(self) -> int:
        """Strata with a single order."""
        return self.design.n_dropped

    @property
    def n_orders(self) -> int:
        """Counterfactual orders of a stratum, at most."""
        return self.design.n_orders

    @property
    def log10_floor(self) -> float:
        """log10 of the smallest p-value, if nothing ties."""
        return -self.n_strata * math.log10(self.n_orders + 1)

    @property
    def n_scored(self) -> int:
        """Distinct sequences, or pairs."""
        return len(self._sequences)

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return n_targets(self._sequences)

    @property
    def cut(self) -> np.ndarray:
        """(n_examples,) int32, ids removed from each example."""
        assert not isinstance(self.plan, VersionPlan)
        return self.plan.cut

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """Price the scoring; asks no model.

        `planned` are keys that tests before this one put into the store, and grows;
        None where no other test can ask for the same.
        """
        return sequence_cost(scorer, self._sequences, planned)

    @property
    def _sequences(self) -> Sequence[np.ndarray]:
        assert not isinstance(self.plan, PairPlan)
        return self.plan.sequences

    @abc.abstractmethod
    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """Score everything.

        Raises:
            NonFiniteScoreError: See `example_of`.
            InputError: If the model gives less than the test needs.
        """

    @abc.abstractmethod
    def example_of(self, error: NonFiniteScoreError) -> int:
        """Index of the example whose score is not finite."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SequenceLayout(Layout):
    """Orders as sequences of ids, each distinct one once."""

    plan: ScoringPlan

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """Score all sequences at once."""
        sums = scorer.sums(self.plan.sequences, progress)
        evidence = Evidence(
            scores=self.plan.matrix(sums.loglik),
            orders=self.design.orders,
            place=self.design.place,
            cut=self.plan.cut,
        )
        return ScoredTest(evidence, sums.n_cached)

    def example_of(self, error: NonFiniteScoreError) -> int:
        """Index of the example at the token."""
        return self.plan.example_at(error.sequence, error.position)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairLayout(Layout):
    """Examples after others of their stratum; `codes` and `runs` are (K, S) int64."""

    plan: PairPlan
    codes: np.ndarray
    runs: np.ndarray
    statistic: PairStatistic

    @property
    def n_orders(self) -> int:
        """Orders that the statistic compares with the published one, at most."""
        return max(self._columns(), default=1) - 1

    @property
    def log10_floor(self) -> float:
        """log10 of the smallest p-value, if nothing ties."""
        return -sum(math.log10(n_columns) for n_columns in self._columns())

    @property
    def n_scored(self) -> int:
        """Distinct pairs."""
        return self.plan.n_pairs

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return self.plan.n_targets

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """Price the pairs."""
        return pair_cost(scorer, self.plan, planned)

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """Score all pairs."""
        if scorer.pairs is None:
            raise ValueError("this scorer has no pairs")
        scored = scorer.pairs.logprobs(self.plan.groups, progress)
        return ScoredTest(self.evidence(scored.logprobs), scored.n_cached)

    def example_of(self, error: NonFiniteScoreError) -> int:
        """Index of the pair's second example."""
        return self.plan.groups[error.sequence].others[error.position]

    def evidence(self, logprobs: Sequence[Sequence[np.ndarray]]) -> Evidence:
        """Pair matrices from the scores of each group of the plan."""
        return Evidence(
            orders=self.design.orders,
            cut=self.plan.cut,
            pairs=self.plan.matrices(logprobs),
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
    """Orders of each stratum that a pair test compares, the published one included."""
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
