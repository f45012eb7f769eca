"""One test of one file: designed, laid out, scored, analysed."""

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from jaxcontam.amounts import counted
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.data.files import Provenance
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
from jaxcontam.scoring.cost import Costed, ScoringCost, pair_cost, sequence_cost
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.plan import ScoringPlan, VersionPlan
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets
from jaxcontam.scoring.seam import WHOLE, Seam
from jaxcontam.stats.local import Run
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.pair_test import PairStatistic, pair_columns
from jaxcontam.stats.result import Local, OrderNumbers, Pretest

_ALL_ALIKE = (
    "all orders score the same: check that the model is given the context before an "
    "example"
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoredTest:
    """Scores beside what was scored, and target tokens whose scores the store held."""

    evidence: Evidence
    n_cached: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Layout:
    """A laid-out test: its orders, and what is scored of them.

    Attributes:
        cut: (n_examples,) int32, ids removed from each example; None where long texts
            are scored in windows.
        items: Record of each row of versions, counted from 0.
        statistic: What a test of pairs sums; None for sequences.
        codes: (K, S) int64 as in `Evidence`, of pairs; like `runs`.
    """

    design: OrderDesign
    plan: ScoringPlan | VersionPlan | PairPlan
    cut: np.ndarray | None
    items: tuple[int, ...] = ()
    statistic: PairStatistic | None = None
    codes: np.ndarray | None = None
    runs: np.ndarray | None = None

    @property
    def columns(self) -> list[int]:
        """Orders of each stratum that are compared, the published one included."""
        orders_KMS = self.design.orders
        if self.statistic is None:
            return (orders_KMS[:, :, 0] >= 0).sum(axis=1).tolist()
        assert self.codes is not None and self.runs is not None
        return pair_columns(self.statistic, orders_KMS[:, 0], self.codes, self.runs)

    @property
    def n_orders(self) -> int:
        """Counterfactual orders of a stratum, at most."""
        return max(self.columns, default=1) - 1

    @property
    def log10_floor(self) -> float:
        """log10 of the smallest p-value, if nothing ties."""
        return -sum(math.log10(n_columns) for n_columns in self.columns)

    @property
    def n_scored(self) -> int:
        """Distinct sequences, or pairs."""
        if isinstance(self.plan, PairPlan):
            return self.plan.n_pairs
        return len(self.plan.sequences)

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        if isinstance(self.plan, PairPlan):
            return self.plan.n_targets
        return n_targets(self.plan.sequences)

    def cost(self, scorer: Costed, planned: set[bytes] | None) -> ScoringCost:
        """Price the scoring; asks no model.

        `planned` are keys that tests before this one put into the store, and grows;
        None where no other test can ask for the same.
        """
        if isinstance(self.plan, PairPlan):
            return pair_cost(scorer, self.plan, planned)
        return sequence_cost(scorer, self.plan.sequences, planned)

    def score(self, scorer: SequenceScorer, progress: Progress | None) -> ScoredTest:
        """Score everything.

        Raises:
            NonFiniteScoreError: See `example_of`.
            InputError: If the model gives less than the test needs.
        """
        if isinstance(self.plan, PairPlan):
            if scorer.pairs is None:
                raise ValueError("this scorer has no pairs")
            scored = scorer.pairs.logprobs(self.plan.groups, progress)
            return ScoredTest(self.pair_evidence(scored.logprobs), scored.n_cached)
        sums = scorer.sums(self.plan.sequences, progress)
        evidence = Evidence(
            scores=self.plan.matrix(sums.loglik),
            orders=self.design.orders,
            place=self.design.place,
            cut=self.cut,
        )
        return ScoredTest(evidence, sums.n_cached)

    def pair_evidence(self, logprobs: Sequence[Sequence[np.ndarray]]) -> Evidence:
        """Pair matrices from the scores of each group of the plan."""
        assert isinstance(self.plan, PairPlan)
        return Evidence(
            orders=self.design.orders,
            cut=self.cut,
            pairs=self.plan.matrices(logprobs),
            codes=self.codes,
            runs=self.runs,
        )

    def example_of(self, error: NonFiniteScoreError) -> int:
        """Index of the example, or record, whose score is not finite."""
        if isinstance(self.plan, PairPlan):
            return self.plan.groups[error.sequence].others[error.position]
        if isinstance(self.plan, VersionPlan):
            return self.items[self.plan.version_of(error.sequence)[0]]
        return self.plan.example_at(error.sequence, error.position)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderFile:
    """A file without its order: all that a design may depend on.

    Attributes:
        n_ids: Ids of all examples, separators included.
        context: Tokens that the model reads at once.
        content_digest: Digest of the sorted example digests.
        prefix_id: Put before each sequence if the tokenizer has one.
        n_orders: m; None is the method's own. Pair tests have all orders anyway.
        seam: What pair tests score of each pair.
    """

    n_examples: int
    n_ids: int
    context: int
    seed: int
    content_digest: str
    groups: Sequence[object] | None = None
    prefix_id: int | None = None
    n_orders: int | None = None
    seam: Seam = WHOLE


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
class PlannedTest:
    """One test of one benchmark, ready to be scored.

    Attributes:
        fingerprint: Digest of what is tested: of examples in their order, or of items.
        content_digest: The same whatever the order.
        encoded: Ids of the examples of the file; None where items are tested.
        order_provenance: That of the order under test.
        checks: Pre-tests of its own; None: those of the order of the file.
        warnings: What the reader should know before anything is scored.
        alike: One more where all orders score alike; or empty.
        seam: What is scored of each pair.
    """

    benchmark: Benchmark
    method: TestRow
    layout: Layout
    seed: int
    fingerprint: str
    content_digest: str
    order_provenance: Provenance
    encoded: Encoded | None = None
    group_field: str | None = None
    block_field: str | None = None
    effect_unit: str = EFFECT_UNIT
    checks: Callable[[], tuple[Pretest, ...]] | None = None
    warnings: tuple[str, ...] = ()
    alike: str = ""
    seam: Seam = WHOLE

    @property
    def is_of_file(self) -> bool:
        """True for the order of a file, False for that of its items' options."""
        return self.checks is None

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return self.layout.n_targets

    @property
    def _n_tokens(self) -> int | None:
        """Tokens of all examples, as they are cut; None of items."""
        if self.encoded is None or self.layout.cut is None:
            return None
        cut = self.layout.cut - self.encoded.n_cut_ids
        return int((self.encoded.lengths - cut).sum())

    def numbers(
        self, evidence: Evidence, method: TestRow | None = None
    ) -> OrderNumbers:
        """Analyse evidence by the method, or by another one that reads the same."""
        return (method or self.method).numbers(
            evidence,
            grouped=self.group_field is not None,
            seed=self.seed,
            content_digest=self.content_digest,
        )

    def result(
        self,
        scored: ScoredTest,
        *,
        primary: bool,
        pretests: tuple[Pretest, ...],
        method: TestRow | None = None,
    ) -> OrderResult:
        """The row of the scored test, before verdicts are given.

        `pretests` are those of the file. Another `method` analyses the same scores, at
        no cost.
        """
        n_cached = scored.n_cached if method is None else self.n_targets
        method, layout = method or self.method, self.layout
        n_strata, n_orders = method.counts(scored.evidence)
        null = restricted_null(
            cast(Null, method.null),
            grouped=self.group_field is not None,
            blocks=self.block_field is not None,
        )
        if self.order_provenance in ("seeded", RELEASED):
            null = DESIGNED
        numbers = self.numbers(scored.evidence, method)
        pretests = pretests if self.checks is None else self.checks()
        return OrderResult(
            benchmark=self.benchmark.name,
            fingerprint=self.fingerprint,
            content_digest=self.content_digest,
            order_provenance=self.order_provenance,
            n_examples=len(self.benchmark),
            n_tokens=self._n_tokens,
            n_cut=0 if layout.cut is None else int(np.count_nonzero(layout.cut)),
            method=method.name,
            primary=primary,
            null=null,
            validity=cast(Validity, method.validity),
            n_strata=n_strata,
            n_dropped=layout.design.n_dropped,
            n_orders=n_orders,
            group_field=self.group_field,
            block_field=self.block_field,
            context_tokens=self.seam.context_tokens,
            score_tokens=self.seam.score_tokens,
            tokens_scored=self.n_targets - n_cached,
            cached_tokens=n_cached,
            numbers=numbers,
            effect_unit=self.effect_unit,
            pretests=pretests,
            commitments=self.benchmark.commitments if self.is_of_file else (),
            warnings=(
                *self.warnings,
                *([self.alike] if numbers.all_alike and self.alike else []),
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
    seam: Seam = WHOLE,
) -> PlannedTest:
    """Design and lay out a test; asks no model.

    Orders move examples only within equal values of `group_field`; examples are runs of
    equal values of `block_field`. See `OrderFile` for the rest.

    Raises:
        InputError: If the file has too few examples, no two examples fit the context,
            or groups leave no order to compare with.
    """
    groups = None if group_field is None else benchmark.groups(group_field)
    unit = "example" if block_field is None else "block"
    check_number(benchmark.name, len(benchmark), method, unit=unit)
    if group_field is not None and not method.grouped:
        raise InputError(
            f"{method.name} cannot keep orders to groups",
            hint=f"leave out --group-field {group_field}, or use --tests adjacency",
        )
    digest = benchmark.content_digest
    layout = method.lay_out(
        OrderFile(
            n_examples=len(benchmark),
            n_ids=int(encoded.lengths.sum()),
            context=context,
            seed=seed,
            content_digest=digest,
            groups=groups,
            prefix_id=prefix_id,
            n_orders=n_orders,
            seam=seam,
        ),
        encoded,
    )
    if (n_strata := layout.design.n_strata) < method.fewest_strata:
        raise NothingToPermuteError(
            f"{benchmark.name}: {n_strata} strata have two different orders"
            + (f" with equal {group_field!r} at each place" if group_field else "")
            + f", {method.name} needs {method.fewest_strata}",
            hint=f"too few examples near each other have equal {group_field!r}; use "
            "--tests adjacency, which looks furthest"
            if group_field
            else "give a longer file",
        )
    return PlannedTest(
        benchmark=benchmark,
        method=method,
        layout=layout,
        seed=seed,
        fingerprint=benchmark.fingerprint,
        content_digest=digest,
        order_provenance=benchmark.order_provenance,
        encoded=encoded,
        group_field=group_field,
        block_field=block_field,
        warnings=_warnings(benchmark, encoded, layout),
        alike=_ALL_ALIKE,
        seam=seam if method.scores_pairs else WHOLE,
    )


def check_number(name: str, n: int, method: TestMethod, *, unit: str) -> None:
    """Refuse a file of fewer examples, or blocks, than a test needs."""
    if n < method.fewest_examples:
        raise InputError(
            f"{name}: {counted(n, unit)}, {method.name} needs {method.fewest_examples}",
            hint="give more examples: an order test needs several that can change "
            "places",
        )


def score_test(
    planned: PlannedTest, scorer: SequenceScorer, progress: Progress | None = None
) -> ScoredTest:
    """Score everything that a planned test asks for."""
    try:
        return planned.layout.score(scorer, progress)
    except NonFiniteScoreError as e:
        raise unscorable(planned, planned.layout.example_of(e)) from e


def unscorable(planned: PlannedTest, example: int) -> InputError:
    """Error about an example that the model gives no finite number."""
    return InputError(
        f"{planned.benchmark.name}: example {example + 1}: its log-probability is not "
        "finite",
        hint="check the checkpoint: its weights may hold NaN or be truncated",
    )


def _warnings(
    benchmark: Benchmark, encoded: Encoded, layout: Layout
) -> tuple[str, ...]:
    n, cut = len(benchmark), layout.cut
    assert cut is not None
    lengths = encoded.lengths - (cut - encoded.n_cut_ids)
    warnings = [*benchmark.left_out, *search_warnings(benchmark.commitments)]
    if n_cut := int(np.count_nonzero(cut)):
        longest = int(lengths[cut > 0].max())
        warnings.append(
            f"{n_cut} of {n} examples were cut to fit, to at most {longest} tokens"
        )
    kept = [encoded.cut(i, int(length)).tobytes() for i, length in enumerate(lengths)]
    if n_same := n - len(set(kept)):
        warnings.append(f"{n_same} of {n} examples repeat another one")
    if isinstance(layout.plan, PairPlan):
        n_alike = len(set(kept)) - layout.plan.n_distinct
        if 2 * n_alike > n:
            warnings.append(
                f"{n_alike} of {n} examples are like others in all that is scored of "
                "them, so the test sees little: score more of each (--score-tokens)"
            )
    if dropped := layout.design.n_dropped:
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
