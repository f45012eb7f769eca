"""One test of one file: designed, laid out, scored, analysed."""

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.data.release import search_warnings
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.proof.result import (
    DESIGNED,
    EFFECT_UNIT,
    RELEASED,
    Evidence,
    OrderResult,
)
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.terms import Null, Validity, restricted_null
from jaxcontam.scoring.cost import Costed, ScoringCost, sequence_cost
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.plan import ScoringPlan, VersionPlan
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets
from jaxcontam.stats.local import Run
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.result import Local, Pretest

_ALL_ALIKE = (
    "all orders score the same: check that the model is given what stands before an "
    "example"
)


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlannedTest(Planned):
    """One test of the order of one benchmark, ready to be scored."""

    encoded: Encoded
    method: TestMethod
    group_field: str | None
    block_field: str | None

    def result(
        self,
        scored: ScoredTest,
        *,
        primary: bool,
        pretests: tuple[Pretest, ...],
        method: TestMethod | None = None,
    ) -> OrderResult:
        """By the method, or by another one that reads the same evidence."""
        benchmark = self.benchmark
        n_cached = scored.n_cached if method is None else self.n_targets
        method, layout = method or self.method, self.layout
        n_strata, n_orders = method.counts(scored.evidence)
        grouped = self.group_field is not None
        null = restricted_null(
            method.null, grouped=grouped, blocks=self.block_field is not None
        )
        if benchmark.order_provenance in ("seeded", RELEASED):
            null = DESIGNED
        numbers = method.numbers(
            scored.evidence,
            grouped=grouped,
            seed=self.seed,
            content_digest=benchmark.content_digest,
        )
        return OrderResult(
            benchmark=benchmark.name,
            fingerprint=benchmark.fingerprint,
            content_digest=benchmark.content_digest,
            order_provenance=benchmark.order_provenance,
            n_examples=len(benchmark),
            n_cut=int(np.count_nonzero(layout.cut)),
            method=method.name,
            primary=primary,
            null=null,
            validity=method.validity,
            n_strata=n_strata,
            n_dropped=layout.n_dropped,
            n_orders=n_orders,
            group_field=self.group_field,
            block_field=self.block_field,
            tokens_scored=self.n_targets - n_cached,
            cached_tokens=n_cached,
            numbers=numbers,
            effect_unit=EFFECT_UNIT,
            pretests=pretests,
            commitments=benchmark.commitments,
            warnings=(
                *_warnings(self),
                *[_ALL_ALIKE] * numbers.all_alike,
                *(test.note for test in pretests if test.note is not None),
            ),
        )


class NothingToPermuteError(InputError):
    """Too few strata have an order to compare with."""


def plan_test(
    benchmark: Benchmark,
    encoded: Encoded,
    method: TestMethod,
    *,
    prefix_id: int | None,
    context: int,
    seed: int,
    n_orders: int | None = None,
    group_field: str | None = None,
    block_field: str | None = None,
) -> PlannedTest:
    """Design and lay out a test; asks no model.

    Orders move examples only within equal values of `group_field`; examples are runs of
    equal values of `block_field`. See `OrderFile` for the numbers.

    Raises:
        InputError: If the file has too few examples, no two examples fit the context,
            or groups leave no order to compare with.
    """
    groups = None if group_field is None else benchmark.groups(group_field)
    if len(benchmark) < method.fewest_examples:
        unit = "example" if block_field is None else "block"
        raise InputError(
            f"{benchmark.name}: {len(benchmark)} {unit}"
            f"{'s' * (len(benchmark) > 1)}, {method.name} needs "
            f"{method.fewest_examples}",
            hint="an order needs examples that could stand otherwise",
        )
    if group_field is not None and not method.grouped:
        raise InputError(
            f"{method.name} cannot keep orders to groups",
            hint=f"drop --group-field {group_field}, or use --tests adjacency",
        )
    layout = method.lay_out(
        OrderFile(
            n_examples=len(benchmark),
            n_ids=int(encoded.lengths.sum()),
            context=context,
            seed=seed,
            content_digest=benchmark.content_digest,
            groups=groups,
            prefix_id=prefix_id,
            n_orders=n_orders,
        ),
        encoded,
    )
    if layout.n_strata < method.fewest_strata:
        raise NothingToPermuteError(
            f"{benchmark.name}: {layout.n_strata} strata have two different orders"
            + (f" with equal {group_field!r} at each place" if group_field else "")
            + f", {method.name} needs {method.fewest_strata}",
            hint=f"too few examples near each other have equal {group_field!r}; "
            "--tests adjacency looks furthest"
            if group_field
            else "the file is too short",
        )
    return PlannedTest(
        benchmark=benchmark,
        encoded=encoded,
        method=method,
        layout=layout,
        group_field=group_field,
        block_field=block_field,
        seed=seed,
    )


def score_test(
    planned: Planned,
    scorer: SequenceScorer,
    progress: Progress | None = None,
) -> ScoredTest:
    """Score everything that a planned test asks for."""
    try:
        return planned.layout.score(scorer, progress)
    except NonFiniteScoreError as e:
        raise unscorable(planned, planned.layout.example_of(e)) from e


def unscorable(planned: Planned, example: int) -> InputError:
    """Error about an example that the model gives no finite number."""
    return InputError(
        f"{planned.benchmark.name}: example {example + 1}: its log-probability is not "
        "finite",
        hint="check the checkpoint: its weights may hold NaN or be truncated",
    )


def _warnings(planned: PlannedTest) -> tuple[str, ...]:
    n, layout = len(planned.benchmark), planned.layout
    cut = layout.cut
    encoded = planned.encoded
    lengths = encoded.lengths - (cut - encoded.n_cut_ids)
    benchmark = planned.benchmark
    warnings = [*benchmark.left_out, *search_warnings(benchmark.commitments)]
    if n_cut := int(np.count_nonzero(cut)):
        longest = int(lengths[cut > 0].max())
        warnings.append(
            f"{n_cut} of {n} examples were cut to fit, to {longest} tokens at most"
        )
    kept = [encoded.cut(i, int(length)).tobytes() for i, length in enumerate(lengths)]
    if n_same := n - len(set(kept)):
        warnings.append(f"{n_same} of {n} examples repeat another one")
    if dropped := layout.n_dropped:
        warnings.append(f"{dropped} strata have a single order and were left out")
    return tuple(warnings)


def strata_of(result: OrderResult) -> list[np.ndarray]:
    """Runs of the file that a row without groups counts, dropped ones included."""
    n_runs = result.n_strata + result.n_dropped
    if result.n_dropped < 0 or n_runs > result.n_examples:
        raise ValueError("more strata than examples")
    return np.array_split(np.arange(result.n_examples), n_runs)


def in_examples(run: Run, published_KS: np.ndarray) -> Local:
    """A run of strata as numbers of examples."""
    last_S = published_KS[run.last]
    return Local(
        first_example=int(published_KS[run.first, 0]) + 1,
        last_example=int(last_S.max()) + 1,
        statistic=run.statistic,
        p_value=run.p_value,
    )
