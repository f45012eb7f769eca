"""From a benchmark to a result: design, plan, score, analyse."""

import dataclasses

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.methods.method import OrderFile, OrderMethod
from jaxcontam.results import DESIGNED, Evidence, OrderNumbers, OrderResult, Pretest
from jaxcontam.scoring.plan import ScoringPlan, plan_orders
from jaxcontam.scoring.scorer import NonFiniteScoreError, Progress, Scorer, n_targets
from jaxcontam.stats.orders import OrderDesign, boundaries_gained
from jaxcontam.stats.pretests import directional

EFFECT_UNIT = "nats per example boundary"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlannedTest:
    """One test of one benchmark, ready to be scored."""

    benchmark: Benchmark
    encoded: Encoded
    method: OrderMethod
    design: OrderDesign
    plan: ScoringPlan
    group_field: str | None
    seed: int

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return n_targets(self.plan.sequences)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoredTest:
    """What scoring a planned test gave.

    Attributes:
        evidence: The scores beside what was scored.
        n_cached: Target tokens whose scores the store held.
    """

    evidence: Evidence
    n_cached: int


def plan_test(
    benchmark: Benchmark,
    encoded: Encoded,
    method: OrderMethod,
    *,
    prefix_id: int | None,
    context: int,
    seed: int,
    n_orders: int | None = None,
    group_field: str | None = None,
) -> PlannedTest:
    """Design and lay out a test; asks no model.

    Raises:
        InputError: If the file has one example, no two examples fit the context, or
            groups leave no order to compare with.
    """
    if len(benchmark) < 2:
        raise InputError(
            f"{benchmark.name}: one example", hint="an order needs at least two"
        )
    # A method with one fixed counterfactual, such as reversal, keeps its own number.
    fixed = method.default_orders == 1
    design = method.design(
        OrderFile(
            n_examples=len(benchmark),
            n_ids=int(encoded.lengths.sum()),
            context=context,
            seed=seed,
            content_digest=benchmark.content_digest,
            groups=None if group_field is None else benchmark.groups(group_field),
        ),
        method.default_orders if n_orders is None or fixed else n_orders,
    )
    if design.n_strata < method.fewest_strata:
        raise InputError(
            f"{benchmark.name}: {design.n_strata} strata have two different orders, "
            f"{method.name} needs {method.fewest_strata}",
            hint=f"--group-field {group_field} leaves too little to permute"
            if group_field
            else "the file is too short",
        )
    plan = plan_orders(
        design,
        encoded,
        prefix_id=prefix_id,
        context=context,
        windowed=method.windowed,
    )
    return PlannedTest(
        benchmark=benchmark,
        encoded=encoded,
        method=method,
        design=design,
        plan=plan,
        group_field=group_field,
        seed=seed,
    )


def score_test(
    planned: PlannedTest, scorer: Scorer, progress: Progress | None = None
) -> ScoredTest:
    """Score every order of a planned test.

    Raises:
        InputError: If the model gives a number that is not finite; names the example.
    """
    try:
        sums = scorer.sums(planned.plan.sequences, progress)
    except NonFiniteScoreError as e:
        example = planned.plan.example_at(e.sequence, e.position)
        raise InputError(
            f"{planned.benchmark.name}: example {example + 1}: the model's "
            "log-probability is not finite",
            hint="check the checkpoint: its weights may hold NaN or be truncated",
        ) from e
    evidence = Evidence(
        scores=planned.plan.matrix(sums.loglik),
        orders=planned.design.orders,
        place=planned.design.place,
        cut=planned.plan.cut,
    )
    return ScoredTest(evidence, sums.n_cached)


def numbers_from(
    method: OrderMethod, evidence: Evidence, *, grouped: bool, seed: int
) -> OrderNumbers:
    """What the test says of stored evidence; `verify` recomputes it with this.

    Args:
        method: The test.
        evidence: Its (K, m + 1) scores, with orders or boundaries.
        grouped: Whether orders moved examples within groups only.
        seed: The run's seed.

    Raises:
        ValueError: If a score is not finite or there are too few strata.
    """
    if evidence.boundaries is not None:
        boundaries_K = evidence.boundaries
    elif evidence.orders is not None:
        counted = grouped or method.counted_boundaries
        boundaries_K = boundaries_gained(evidence.orders, counted=counted)
    else:
        boundaries_K = np.ones(len(evidence.scores))
    return method.analyse(evidence.scores, boundaries_K, seed)


def order_result(
    planned: PlannedTest,
    scored: ScoredTest,
    *,
    primary: bool,
    pretests: tuple[Pretest, ...],
    method: OrderMethod | None = None,
    copies: int | None = None,
    copies_shuffled: bool | None = None,
) -> OrderResult:
    """The row of a scored test, before verdicts are given.

    Args:
        planned: The test.
        scored: Its scores.
        primary: Whether this test decides.
        pretests: Of the file; only those that bear on the null are kept.
        method: Analyse the same scores by another method, at no cost.
        copies: Planted duplication count, in studies.
        copies_shuffled: Whether each planted copy had an order of its own.
    """
    benchmark = planned.benchmark
    n_cached = scored.n_cached if method is None else planned.n_targets
    method = method or planned.method
    grouped = planned.group_field is not None
    numbers = numbers_from(method, scored.evidence, grouped=grouped, seed=planned.seed)
    cut = planned.plan.cut
    null = f"within-group {method.null}" if grouped else method.null
    if benchmark.order_provenance == "seeded":
        null = DESIGNED
    bearing = directional(pretests) if method.null == "reversibility" else pretests
    return OrderResult(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        order_provenance=benchmark.order_provenance,
        n_examples=len(benchmark),
        n_cut=int(np.count_nonzero(cut)),
        method=method.name,
        primary=primary,
        null=null,
        validity=method.validity,
        n_strata=planned.design.n_strata,
        n_dropped=planned.design.n_dropped,
        n_orders=planned.design.n_orders,
        group_field=planned.group_field,
        tokens_scored=planned.n_targets - n_cached,
        cached_tokens=n_cached,
        numbers=numbers,
        effect_unit=EFFECT_UNIT,
        pretests=bearing,
        warnings=_warnings(planned),
        copies=copies,
        copies_shuffled=copies_shuffled,
    )


def _warnings(planned: PlannedTest) -> tuple[str, ...]:
    n, cut = len(planned.benchmark), planned.plan.cut
    warnings = []
    if n_cut := int(np.count_nonzero(cut)):
        warnings.append(f"{n_cut} of {n} examples were cut to fit")
    encoded = planned.encoded
    kept = [
        encoded.cut(i, len(ids) - int(more)).tobytes()
        for i, (ids, more) in enumerate(
            zip(encoded.ids, cut - encoded.n_cut_ids, strict=True)
        )
    ]
    if n_same := n - len(set(kept)):
        warnings.append(f"{n_same} of {n} examples repeat another one")
    if dropped := planned.design.n_dropped:
        warnings.append(f"{dropped} strata have a single order and were left out")
    return tuple(warnings)
