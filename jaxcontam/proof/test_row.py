"""A test as tables, reports and `verify` know it: numbers follow from evidence."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.verdict import MIN_EFFECT
from jaxcontam.reports.methods import MethodRow
from jaxcontam.reports.terms import ORDER_WORDS, ProofWords
from jaxcontam.stats.pair_test import PairStatistic
from jaxcontam.stats.result import OrderNumbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestRow(MethodRow, abc.ABC):
    """A test, whose numbers `verify` makes again from its evidence.

    Attributes:
        validity: `exact`, `asymptotic`, or when it is exact.
        command: Runs it; `audit` where it is named after `--tests`.
        default_orders: m unless `--n-orders` says otherwise; None where it is fixed.
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
