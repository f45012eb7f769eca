"""From a benchmark to a result: design, plan, score, analyse."""

import dataclasses

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.data.release import search_warnings
from jaxcontam.errors import InputError
from jaxcontam.orders.layouts import ScoredTest
from jaxcontam.orders.method import OrderFile, Planned, TestMethod
from jaxcontam.progress import Progress
from jaxcontam.proof.result import DESIGNED, EFFECT_UNIT, RELEASED, OrderResult
from jaxcontam.reports.terms import restricted_null
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.scorer import NonFiniteScoreError
from jaxcontam.stats.result import Pretest


class NothingToPermuteError(InputError):
    """Too few strata have an order to compare with."""


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


_ALL_ALIKE = (
    "all orders score the same: check that the model is given what stands before an "
    "example"
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
