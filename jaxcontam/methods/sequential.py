"""Order tests that score in turns and may stop early, and the one over strata."""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods import stratified
from jaxcontam.methods.layouts import Layout, StrataInTurns
from jaxcontam.methods.method import OrderFile, TestMethod, strata_of
from jaxcontam.results import Evidence, OrderNumbers, OrderResult
from jaxcontam.results.terms import ProofWords
from jaxcontam.stats.effect import order_effect
from jaxcontam.stats.orders import OrderDesign, boundaries_gained, draw_orders
from jaxcontam.stats.randomisation import LOG10_E_MAX, MODEL_TOLERANCE, power_of_ten
from jaxcontam.stats.sequential import Stop, e_process, strata_turns

# Standard errors of an effect that is found with probability 0.8 at level 0.001: by
# simulation 5.0 at 50 to 1,000 strata of normal scores and 5.1 at 20, where the test of
# a fixed number of strata needs 3.9. That is the price of looking early.
_MDE_ERRORS = 5.1


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


def layout(file: OrderFile, encoded: Encoded) -> Layout:
    """The orders of `stratified`, scored a few strata at a time."""
    whole = stratified.METHOD.lay_out(file, encoded)
    design = whole.design
    turn = strata_turns(
        design.n_strata, seed=file.seed, content_digest=file.content_digest
    )
    return StrataInTurns(design, whole.plan, turn, file.level)


def redraw(result: OrderResult, scored: tuple[int, int], seed: int) -> OrderDesign:
    """Orders of the strata that were to be scored first."""
    digest, K = result.content_digest, result.n_strata
    design = draw_orders(
        np.array_split(np.arange(result.n_examples), K + result.n_dropped),
        result.n_orders,
        seed=seed,
        content_digest=digest,
    )
    rows = strata_turns(K, seed=seed, content_digest=digest)[: scored[0]]
    return OrderDesign(design.orders[rows], design.place[rows], design.n_dropped)


def analyse(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, rule_2: np.ndarray
) -> OrderNumbers:
    """Anytime-valid p-value: 1 / the highest wealth of a bet on the published order.

    Null hypothesis: the model is indifferent to the order of exchangeable examples
    within each stratum. Valid whenever scoring stopped, for whatever reason; weaker
    than `stratified` on the same scores. Blind to copies in other orders.

    Args:
        loglik_KM: (K, m + 1) float64, nats, column 0 the published order; strata in
            the order in which they were scored.
        boundaries_K: See `boundaries_gained`.
        rule_2: (2,) the level, where wealth 1 / level stops, and the strata in all.

    Source:
        Soft-rank e-values over strata, see `e_process`.
    """
    K, M = loglik_KM.shape
    level, n_strata = rule_2.tolist()
    run = e_process(loglik_KM, level=level)
    stop: Stop | None = "exhausted" if n_strata <= K else None
    if run.first_stop is not None:
        stop = "rejected"
    p_floor = power_of_ten(-n_strata * math.log10(M))
    tolerance = MODEL_TOLERANCE * float(np.abs(loglik_KM).max(axis=1).sum())
    effect = order_effect(loglik_KM, boundaries_K, p_floor=p_floor, tolerance=tolerance)
    if effect.mde is not None and effect.effect_se is not None:
        mde = max(effect.mde, _MDE_ERRORS * effect.effect_se)
        effect = effect._replace(mde=mde)
    centred_K = loglik_KM[:, 0] - loglik_KM.mean(axis=1)
    log10_p = float(run.log10_p[-1])
    log10_e = min(float(run.log_wealth[-1]) / math.log(10), LOG10_E_MAX)
    return OrderNumbers(
        statistic=float(centred_K.sum()),
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_floor=p_floor,
        e_value=10.0**log10_e,
        **effect._asdict(),
        scores="centred",
        n_used=K,
        stop=stop,
    )


METHOD = SequentialMethod(
    name="sequential",
    layout=layout,
    turns_of="n_strata",
    redraw=redraw,
    analyse=analyse,
    null="exchangeability",
    validity="exact",
    cost="up to m + 1 passes (10); fewer where the evidence is strong",
    finds="as stratified, and may stop early; weaker on a full file",
    source="e-process of soft ranks (Ramdas et al. 2023), columns as in "
    "arXiv:2310.17623",
    words=ProofWords(
        chance="a test that looks again and again would ever come this far with "
        "probability {p}. It looked at {n_used} of {n_strata} strata, in an order "
        "fixed by the seed, and ended {ended}"
    ),
)
