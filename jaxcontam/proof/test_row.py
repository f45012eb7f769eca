"""A test as tables, reports and `verify` know it: numbers follow from evidence."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.result import Evidence, OrderResult, ReferenceResult
from jaxcontam.reports.methods import MethodRow
from jaxcontam.reports.terms import ORDER_WORDS, REFERENCE_SHARE, ProofWords
from jaxcontam.stats.direction import backward_spread
from jaxcontam.stats.pair_test import PairStatistic, PairStrata
from jaxcontam.stats.randomisation import row_spread
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.stats.rows import unpadded


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestRow(MethodRow, abc.ABC):
    """A test, whose numbers `verify` makes again from its evidence.

    Attributes:
        validity: `exact`, `asymptotic`, or when it is exact.
        command: Runs it; `audit` where it is named after `--tests`.
        default_orders: m unless `--tests NAME:M` says another; None where it is fixed.
        whole: Scores all pairs of a stratum, not only those that tell the direction.
        locates: Says where in the file the evidence lies.
        statistic: What a test of pairs sums, and over which orders; else None.
        least_effects: Unit -> effect that `no evidence` must have been able to find;
            `MIN_EFFECT` in any other unit.
    """

    __test__: ClassVar[bool] = False  # pytest takes the name for that of its own.
    scores_pairs: ClassVar[bool] = False

    null: str
    validity: str
    words: ProofWords = ORDER_WORDS
    command: str = "audit"
    default_orders: int | None = None
    whole: bool = False
    locates: bool = False
    statistic: PairStatistic | None = None
    least_effects: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def gives(self) -> str:
        """A p-value, and when it holds."""
        return f"p-value, {self.validity}"

    @property
    def example(self) -> str:
        """The command that asks for this test, if `audit` names it; else empty."""
        if self.command != "audit":
            return ""
        return f"jaxcontam audit MODEL benchmark.jsonl --tests {self.name}"

    def least_effect(self, unit: str) -> float:
        """Effect that `no evidence` must have been able to find by default."""
        return self.least_effects.get(unit, MIN_EFFECT)

    @abc.abstractmethod
    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """Analyse stored evidence; `grouped` orders moved examples within groups only.

        Raises:
            ValueError: If a part of the evidence is missing or not finite, or there are
                too few strata.
        """

    def counts(self, evidence: Evidence) -> tuple[int, int]:
        """Strata and counterfactual orders that a row of a report states."""
        if evidence.scores is None:
            raise ValueError("no scores")
        return len(evidence.scores), evidence.scores.shape[1] - 1

    @abc.abstractmethod
    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int
    ) -> Evidence:
        """Draw again what no model decides: orders, places, runs and groups.

        Groups stand in the benchmark alone: where orders keep to them, orders and
        places are left out.

        Raises:
            ValueError: If a part of the evidence is missing, or counts contradict, or a
                pair that the test asks for was not scored.
        """


def pair_strata(evidence: Evidence) -> PairStrata:
    """Pair matrices of stored evidence; ValueError if a part of them is missing."""
    pairs, orders = evidence.pairs, evidence.orders
    codes, runs = evidence.codes, evidence.runs
    if pairs is None or orders is None:
        raise ValueError("no pair matrices")
    if codes is None or runs is None:
        raise ValueError("no groups or runs of the pair matrices")
    return PairStrata(
        pairs=pairs,
        sizes=(orders[:, 0] >= 0).sum(axis=1),
        codes=codes,
        runs=runs,
        starts=orders[:, 0, 0].astype(np.int64),
    )


def reference_result(
    method: TestRow,
    evidence: Evidence,
    *,
    name: str,
    fingerprint: str,
    seed: int,
    content_digest: str,
) -> ReferenceResult:
    """Test the reference model, and the target less the reference.

    The statistic is linear in the pair matrix, or in the scores of versions, so what
    the model prefers more than the reference does is the same test of the difference
    of both matrices: paired by stratum, exact under the same null, and blind to order
    that both models see. A smaller model sees it, but gains fewer nats: so the
    reference's matrix is first multiplied by `scale`, where its scores vary less with
    the context than the target's: after later runs, or after any example where all
    orders are compared, or over all versions of a row, so that no order under test
    changes it.

    The same test of half of the target less the reference asks whether the reference
    gains less than half: where it gains just half at every boundary, what is left is
    noise, and the p-value is exact if no order changes how likely that noise is.
    Noise that both models share counts half.
    """
    field = "pairs" if method.scores_pairs else "scores"
    scores = getattr(evidence, field)
    reference = getattr(evidence, f"reference_{field}")
    if scores is None or reference is None:
        raise ValueError(f"no {field} of a reference model")
    missing, missing_of_reference = map(np.isnan, (scores, reference))
    if not np.array_equal(missing, missing_of_reference):
        raise ValueError(f"the reference was scored with other {field}")
    # Where in the file it lies enters no p-value, and takes time.
    method = dataclasses.replace(method, locates=False)
    spread, other = (
        _spread(method, dataclasses.replace(evidence, **{field: one}))
        for one in (scores, reference)
    )
    # One where there is nothing to compare.
    scale = max(1.0, spread / other if spread and other else 1.0)
    own, difference, half = (
        method.numbers(
            dataclasses.replace(evidence, **{field: one}),
            grouped=False,
            seed=seed,
            content_digest=content_digest,
        )
        for one in (
            reference,
            scores - scale * reference,
            REFERENCE_SHARE * scores - scale * reference,
        )
    )
    return ReferenceResult(
        name=name,
        fingerprint=fingerprint,
        p_value=own.p_value,
        log10_p=own.log10_p,
        effect=own.effect,
        effect_se=own.effect_se,
        scale=scale,
        difference=difference.effect,
        difference_se=difference.effect_se,
        difference_p=difference.p_value,
        difference_log10_p=difference.log10_p,
        half_p=half.p_value,
        loglik_gap=loglik_gap(evidence),
    )


def _spread(method: TestRow, evidence: Evidence) -> float | None:
    if evidence.scores is not None:
        return row_spread(unpadded(evidence.scores))
    strata = pair_strata(evidence)
    if method.whole:
        return backward_spread(strata.matrices(), None)
    runs = [
        runs_S[:size] for runs_S, size in zip(strata.runs, strata.sizes, strict=True)
    ]
    return backward_spread(strata.matrices(), runs)


def loglik_gap(evidence: Evidence) -> float:
    """Mean log-likelihood of an example under the reference, less the model's, in nats.

    Over the pairs that were scored, or over all versions. A text may be cut elsewhere
    for a shorter context.
    """
    if evidence.scores is not None and evidence.reference_scores is not None:
        return float(np.nanmean(evidence.reference_scores - evidence.scores))
    assert evidence.orders is not None
    assert evidence.pairs is not None and evidence.reference_pairs is not None
    there_KS = evidence.orders[:, 0] >= 0
    there_KSS = there_KS[:, :, None] & there_KS[:, None, :]
    there_KSS &= ~np.eye(there_KS.shape[1], dtype=bool)
    gap_KSS = evidence.reference_pairs - evidence.pairs
    return float(np.nanmean(gap_KSS[there_KSS]))
