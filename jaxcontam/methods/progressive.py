"""Layouts that score in turns and stop once their test needs no more.

Dimension key
    K  strata
    M  orders of a stratum, M = m + 1
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import (
    ScoredTest,
    SequenceLayout,
    UnscorableExampleError,
)
from jaxcontam.methods.method import OrderFile
from jaxcontam.progress import Progress, progress_after
from jaxcontam.results import Evidence
from jaxcontam.scoring.cost import Costed, ScoringCost, sequence_cost
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.plan import ScoringPlan, plan_orders
from jaxcontam.scoring.scorer import NonFiniteScoreError, SequenceSums, n_targets
from jaxcontam.stats.orders import OrderDesign, from_scoring_columns
from jaxcontam.stats.sequential import (
    DrawnTest,
    e_process,
    looks,
    n_chunks,
    order_losses,
    whole_file_chunk,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StrataInTurns(SequenceLayout):
    """Orders of strata that are scored in a random order until the bet is won.

    Attributes:
        turn: (K,) the strata in the order in which they are scored.
        level: Wealth 1 / level stops.
    """

    turn: np.ndarray
    level: float

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """See `Layout`; scores the strata of a look, then looks."""
        plan, design = self.plan, self.design
        loglik = np.full(len(plan.sequences), np.nan)
        n_cached, targets, scores_KM = 0, 0, np.zeros((0, design.n_orders + 1))
        for n_strata in looks(self.n_strata):
            rows = self.turn[:n_strata]
            asked = np.unique(plan.index[rows])
            asked = asked[np.isnan(loglik[asked])]
            sequences = [plan.sequences[i] for i in asked]
            sums = _sums(
                scorer,
                plan,
                asked,
                sequences,
                progress_after(progress, targets, self.n_targets),
            )
            loglik[asked] = sums.loglik
            n_cached += sums.n_cached
            targets += n_targets(sequences)
            scores_KM = from_scoring_columns(loglik[plan.index[rows]], plan.place[rows])
            if e_process(scores_KM, level=self.level).first_stop is not None:
                break
        rows = self.turn[: len(scores_KM)]
        evidence = Evidence(
            scores=scores_KM,
            orders=design.orders[rows],
            place=design.place[rows],
            cut=plan.cut,
            rule=np.array([self.level, self.n_strata]),
        )
        return ScoredTest(evidence, n_cached, targets)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DrawsInTurns:
    """Random orders of the whole file, drawn and scored until the test stops.

    Attributes:
        file: What the draws depend on.
        encoded: The benchmark's ids.
        prefix_id: Put before each sequence if the tokenizer has one.
        n_orders: Most random orders.
        test: (losses, level, most draws) -> what it says so far.
        log10_floor: log10 of the smallest p-value.
    """

    file: OrderFile
    encoded: Encoded
    prefix_id: int | None
    n_orders: int
    test: Callable[[np.ndarray, float, int], DrawnTest]
    log10_floor: float

    @property
    def n_strata(self) -> int:
        """See `Layout`, as for all that follow."""
        return self._chunk(0).n_strata

    @property
    def n_dropped(self) -> int:
        """See `Layout`."""
        return self._chunk(0).n_dropped

    @property
    def n_scored(self) -> int:
        """See `Layout`; repeated orders are counted again."""
        return self.n_orders + 1

    @property
    def n_targets(self) -> int:
        """See `Layout`; at most so many."""
        one = self.file.n_ids - (self.prefix_id is None)
        return one * (self.n_orders + 1)

    @property
    def cut(self) -> np.ndarray:
        """See `Layout`: whole files are scored in windows, never cut."""
        return self.encoded.n_cut_ids

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """See `Layout`: of all orders, taken to cost what the first ones do."""
        first = self._plan(self._chunk(0))
        cost = sequence_cost(scorer, first.sequences, planned)
        times = math.ceil((self.n_orders + 1) / len(first.sequences))
        return ScoringCost(
            n_targets=self.n_targets,
            n_cached=cost.n_cached,
            positions=type(cost.positions)(
                {shape: n * times for shape, n in cost.positions.items()}
            ),
            store_bytes=cost.store_bytes * times,
        )

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """See `Layout`; draws and scores some orders, then looks."""
        orders, scores, place = [], [], np.zeros(1, np.int64)
        n_cached, targets = 0, 0
        for c in range(n_chunks(self.n_orders)):
            design = self._chunk(c)
            plan = self._plan(design)
            asked = np.arange(len(plan.sequences))
            after = progress_after(progress, targets, self.n_targets)
            sums = _sums(scorer, plan, asked, plan.sequences, after)
            n_cached += sums.n_cached
            targets += n_targets(plan.sequences)
            orders.append(design.orders)
            scores.append(plan.matrix(sums.loglik))
            if c == 0:
                place = design.place
            losses = order_losses(np.concatenate(scores, axis=1)[0])
            if self.test(losses, self.file.level, self.n_orders).stop is not None:
                break
        evidence = Evidence(
            scores=np.concatenate(scores, axis=1),
            orders=np.concatenate(orders, axis=1),
            place=place,
            cut=self.encoded.n_cut_ids,
            rule=np.array([self.file.level, self.n_orders]),
        )
        return ScoredTest(evidence, n_cached, targets)

    def _chunk(self, c: int) -> OrderDesign:
        return whole_file_chunk(
            c,
            self.n_orders,
            n_examples=self.file.n_examples,
            seed=self.file.seed,
            content_digest=self.file.content_digest,
            groups=self.file.groups,
        )

    def _plan(self, design: OrderDesign) -> ScoringPlan:
        return plan_orders(
            design,
            self.encoded,
            prefix_id=self.prefix_id,
            context=self.file.context,
            windowed=True,
        )


def _sums(
    scorer: SequenceScorer,
    plan: ScoringPlan,
    asked: np.ndarray,
    sequences: Sequence[np.ndarray],
    progress: Progress | None,
) -> SequenceSums:
    """Scores of some sequences of a plan, `asked` by number."""
    try:
        return scorer.sums(sequences, progress)
    except NonFiniteScoreError as e:
        example = plan.example_at(int(asked[e.sequence]), e.position)
        raise UnscorableExampleError(example) from e
