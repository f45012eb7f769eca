"""Permutation test of the whole file by a bet that stops when it is won or lost."""

import math

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import Layout
from jaxcontam.methods.method import OrderFile, SequentialMethod
from jaxcontam.methods.progressive import DrawsInTurns
from jaxcontam.results import OrderNumbers, OrderResult
from jaxcontam.results.terms import ProofWords
from jaxcontam.stats.effect import order_effect
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.randomisation import LOG10_E_MAX, MODEL_TOLERANCE, power_of_ten
from jaxcontam.stats.sequential import (
    DrawnTest,
    binomial_mixture,
    fewest_draws,
    mixture_wealth,
    order_losses,
    whole_file_orders,
)

# Most draws unless the user says otherwise, in units of the fewest that can reject.
_DRAWS_FACTOR = 2


def layout(
    file: OrderFile, encoded: Encoded, prefix_id: int | None, n_orders: int | None
) -> Layout:
    """Random orders of the whole file, scored in windows, a few at a time."""
    if n_orders is None:
        n_orders = _DRAWS_FACTOR * fewest_draws(file.level)
    return DrawsInTurns(
        file=file,
        encoded=encoded,
        prefix_id=prefix_id,
        n_orders=n_orders,
        test=draw_test,
        log10_floor=log10_floor(n_orders, file.level),
    )


def draw_test(losses_T: np.ndarray, level: float, n_most: int) -> DrawnTest:
    """What the bet says of the draws so far."""
    return binomial_mixture(losses_T, level=level, n_most=n_most)


def log10_floor(n_orders: int, level: float) -> float:
    """log10 of the smallest p-value: every draw is won."""
    n_won = min(n_orders, fewest_draws(level))
    wealth = mixture_wealth(np.array([n_won]), np.array([0]), level=level)
    return -math.log10(float(wealth[0]))


def analyse(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, rule: np.ndarray
) -> OrderNumbers:
    """Anytime-valid p-value of the whole file's order, no smaller than 0.9 level.

    Null hypothesis: the model is indifferent to the order of exchangeable examples.
    Where there is nothing to find, some tens of orders settle it; p = 0.001 needs
    2,557 of them. Blind to copies in other orders.

    Args:
        loglik_KM: (1, T + 1) float64, nats, column 0 the published order, the others
            in the order in which they were drawn.
        boundaries_K: See `boundaries_gained`.
        rule: (2,) the level that the bet is made for, and the most draws.

    Source:
        Fischer and Ramdas, arXiv:2401.07365, section 5; permutations as in Oren et
        al., arXiv:2310.17623, section 3.1.
    """
    level, n_most = float(rule[0]), int(rule[1])
    test = draw_test(order_losses(loglik_KM[0]), level, n_most)
    floor = log10_floor(n_most, level)
    return drawn_numbers(loglik_KM, boundaries_K, test, log10_floor=floor)


def drawn_numbers(
    loglik_KM: np.ndarray,
    boundaries_K: np.ndarray,
    test: DrawnTest,
    *,
    log10_floor: float,
) -> OrderNumbers:
    """Numbers of a test that used the first of some draws; effects use them all."""
    if not np.isfinite(loglik_KM).all():
        raise ValueError("log-likelihoods must be finite")
    p_floor = power_of_ten(log10_floor)
    tolerance = MODEL_TOLERANCE * float(np.abs(loglik_KM).max())
    effect = order_effect(loglik_KM, boundaries_K, p_floor=p_floor, tolerance=tolerance)
    log10_e = None if test.log_e is None else test.log_e / math.log(10)
    return OrderNumbers(
        statistic=float(loglik_KM[0, 0] - loglik_KM[0].mean()),
        p_value=test.p_value,
        log10_p=math.log10(test.p_value),
        p_lower=None,
        p_monte_carlo=test.p_value,
        p_floor=p_floor,
        e_value=None if log10_e is None else 10.0 ** min(log10_e, LOG10_E_MAX),
        effect=effect.effect,
        effect_se=effect.effect_se,
        mde=effect.mde,
        scores="centred",
        n_used=test.n_draws,
        stop=test.stop,
    )


def redraw(result: OrderResult, scored: tuple[int, int], seed: int) -> OrderDesign:
    """The published order and those that were to be drawn first."""
    return whole_file_orders(
        scored[1] - 1,
        result.n_orders,
        n_examples=result.n_examples,
        seed=seed,
        content_digest=result.content_digest,
    )


METHOD = SequentialMethod(
    name="permutation_sequential",
    layout=layout,
    turns_of="n_orders",
    redraw=redraw,
    analyse=analyse,
    null="exchangeability",
    validity="exact",
    cost="about 40 passes where nothing is found, 2,558 for p = 0.001; twice in "
    "windows",
    finds="the published order of the file; stops at p = 0.001 or out of its reach",
    source="Fischer and Ramdas 2024, arXiv:2401.07365",
    words=ProofWords(
        chance="a test that looks again and again would ever come this far with "
        "probability {p}. It looked at {n_used} of at most {n_orders} random "
        "orders, in the order of their draw, and ended {ended}"
    ),
)
