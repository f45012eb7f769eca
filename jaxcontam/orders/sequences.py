"""Tests that score whole orders as sequences."""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.order_test import (
    Layout,
    OrderFile,
    TestMethod,
    in_examples,
    strata_of,
)
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.scoring.plan import plan_orders
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.orders import OrderDesign, boundaries_gained, draw_orders
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.result import Local, OrderNumbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderMethod(TestMethod):
    """An order test that scores whole orders.

    Attributes:
        strata: (file, m) -> contiguous runs of examples, sizes differing by at most 1.
        analyse: (loglik_KM, boundaries_K, seed) -> numbers.
        draw: (strata, m, seed=, content_digest=, groups=) -> orders to score.
        windowed: Strata may exceed the context and are scored in windows.
        counted_boundaries: The effect counts the neighbours that its orders keep.
    """

    strata: Callable[[OrderFile, int], list[np.ndarray]]
    analyse: Callable[[np.ndarray, np.ndarray, int], OrderNumbers]
    default_orders: int  # pyright: ignore[reportGeneralTypeIssues]
    draw: Callable[..., OrderDesign] = draw_orders
    windowed: bool = False
    counted_boundaries: bool = False

    def design(self, file: OrderFile, n_orders: int) -> OrderDesign:
        """Orders of the file's strata, before any model is asked."""
        return self.draw(
            self.strata(file, n_orders),
            n_orders,
            seed=file.seed,
            content_digest=file.content_digest,
            groups=file.groups,
        )

    def lay_out(self, file: OrderFile, encoded: Encoded) -> Layout:
        """Orders of the file as sequences."""
        # A method with one fixed counterfactual, such as reversal, keeps its own m.
        fixed = self.default_orders == 1
        m = self.default_orders if file.n_orders is None or fixed else file.n_orders
        design = self.design(file, m)
        plan = plan_orders(
            design,
            encoded,
            prefix_id=file.prefix_id,
            context=file.context,
            windowed=self.windowed,
        )
        return Layout(design=design, plan=plan, cut=plan.cut)

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """From scores, with orders or boundaries, as given matrices have them."""
        if evidence.scores is None:
            raise ValueError("no scores")
        if evidence.boundaries is not None:
            boundaries_K = evidence.boundaries
        elif evidence.orders is not None:
            counted = grouped or self.counted_boundaries
            boundaries_K = boundaries_gained(evidence.orders, counted=counted)
        else:
            boundaries_K = np.ones(len(evidence.scores))
        numbers = self.analyse(evidence.scores, boundaries_K, seed)
        if not self.locates or evidence.orders is None:
            return numbers
        local = where_in_orders(evidence.scores, evidence.orders, seed=seed)
        return dataclasses.replace(numbers, local=local)

    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int
    ) -> Evidence:
        """Orders and places."""
        if evidence.orders is None:
            raise ValueError("no orders")
        if result.group_field is not None:
            return Evidence()
        design = self.draw(
            strata_of(result),
            result.n_orders,
            seed=seed,
            content_digest=result.content_digest,
        )
        return Evidence(orders=design.orders, place=design.place)


def where_in_orders(
    loglik_KM: np.ndarray, orders_KMS: np.ndarray, *, seed: int
) -> Local:
    """The best run of strata, which stand in file order, by scores of whole orders."""
    ties_K = MODEL_TOLERANCE * np.abs(loglik_KM).max(axis=1)
    found = local_evidence(loglik_KM, ties_K, seed=seed)
    return in_examples(found, orders_KMS[:, 0])
