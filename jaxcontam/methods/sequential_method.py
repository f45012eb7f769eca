"""Order tests that score in turns, and may stop early."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import Layout
from jaxcontam.methods.method import OrderFile, TestMethod, strata_of
from jaxcontam.results import Evidence, OrderNumbers, OrderResult
from jaxcontam.stats.orders import OrderDesign, boundaries_gained


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SequentialMethod(TestMethod):
    """An order test that scores in turns and may stop early.

    Attributes:
        layout: (file, encoded) -> what is scored.
        turns_of: What it counts while it goes on: `n_strata` or `n_orders`.
        redraw: (result, (K, M) of its scores, seed) -> the orders that were to be
            scored, in their turn, if there are no groups.
        analyse: (loglik_KM, boundaries_K, rule) -> numbers; see `Evidence.rule`.
    """

    may_stop: ClassVar[bool] = True

    layout: Callable[[OrderFile, Encoded], Layout]
    turns_of: Literal["n_strata", "n_orders"]
    redraw: Callable[[OrderResult, tuple[int, int], int], OrderDesign]
    analyse: Callable[[np.ndarray, np.ndarray, np.ndarray], OrderNumbers]

    def lay_out(self, file: OrderFile, encoded: Encoded) -> Layout:
        """What is scored, in turns."""
        return self.layout(file, encoded)

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """From scores and orders in their turn, and the rule."""
        scores, orders, rule = evidence.scores, evidence.orders, evidence.rule
        if scores is None or orders is None or rule is None:
            raise ValueError("no scores, orders or rule")
        return self.analyse(scores, boundaries_gained(orders, counted=grouped), rule)

    def counts(self, evidence: Evidence) -> tuple[int, int]:
        """Those that were planned: it may have ended early."""
        n_strata, n_orders = super(SequentialMethod, self).counts(evidence)
        most = int(_rule(evidence)[1])
        return (most, n_orders) if self.turns_of == "n_strata" else (n_strata, most)

    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int, level: float
    ) -> Evidence:
        """Orders and places of what was scored, and the rule."""
        if evidence.orders is None:
            raise ValueError("no orders")
        rule = np.array([level, _rule(evidence)[1]])
        if result.group_field is not None:
            return Evidence(rule=rule)
        strata_of(result)
        assert evidence.scores is not None
        n_rows, n_columns = evidence.scores.shape
        design = self.redraw(result, (n_rows, n_columns), seed)
        return Evidence(orders=design.orders, place=design.place, rule=rule)


def _rule(evidence: Evidence) -> np.ndarray:
    if evidence.rule is None or evidence.rule.shape != (2,):
        raise ValueError("no rule of stopping")
    return evidence.rule
