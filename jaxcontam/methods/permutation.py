"""Permutation tests of the whole file: of a fixed number of orders, and in turns."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import DrawsInTurns, Layout
from jaxcontam.methods.method import OrderFile, OrderMethod
from jaxcontam.methods.sequential import SequentialMethod
from jaxcontam.results import OrderNumbers, OrderResult
from jaxcontam.results.terms import ProofWords
from jaxcontam.scoring.plan import ScoringPlan, plan_orders
from jaxcontam.stats.effect import order_effect
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.randomisation import (
    LOG10_E_MAX,
    MODEL_TOLERANCE,
    power_of_ten,
    randomisation_test,
)
from jaxcontam.stats.sequential import (
    DrawnTest,
    besag_clifford,
    binomial_mixture,
    fewest_draws,
    mixture_wealth,
    order_losses,
    whole_file_chunk,
    whole_file_orders,
)

# Most draws of the bet unless the user says otherwise, in units of the fewest that can
# reject.
_DRAWS_FACTOR = 2
# Orders as likely as the published one that end the test: p is then known to a third.
_LOSSES = 10
# Most draws then unless the user says otherwise, so that p = level stands one loss.
_LOSSES_AT_LEVEL = 2


def analyse(loglik_KM: np.ndarray, boundaries_K: np.ndarray, seed: int) -> OrderNumbers:
    """(1 + #{orders that score as high}) / (m + 1), ties counting against detection.

    Null hypothesis: the model is indifferent to the order of exchangeable examples.
    The p-value is never below 1 / (m + 1), however strong the contamination.

    Args:
        loglik_KM: (1, m + 1) float64, nats, column 0 the published order.
        boundaries_K: See `boundaries_gained`.
        seed: Changes nothing: one stratum has nothing to re-draw.

    Source:
        Oren et al., arXiv:2310.17623, section 3.1; Phipson and Smyth (2010) for the
        added 1.
    """
    numbers = randomisation_test(loglik_KM, boundaries_K, seed=seed)
    return dataclasses.replace(numbers, p_monte_carlo=numbers.p_value)


def _in_turns(
    file: OrderFile,
    encoded: Encoded,
    n_orders: int,
    test: Callable[[np.ndarray, float, int], DrawnTest],
    log10_floor: float,
) -> Layout:
    """Random orders of the whole file, scored in windows, a few at a time."""

    def chunk(c: int) -> tuple[OrderDesign, ScoringPlan]:
        design = whole_file_chunk(
            c,
            n_orders,
            n_examples=file.n_examples,
            seed=file.seed,
            content_digest=file.content_digest,
            groups=file.groups,
        )
        return design, plan_orders(
            design,
            encoded,
            prefix_id=file.prefix_id,
            context=file.context,
            windowed=True,
        )

    return DrawsInTurns(*chunk(0), chunk, n_orders, file.level, test, log10_floor)


def _bet_layout(file: OrderFile, encoded: Encoded) -> Layout:
    n_orders = file.n_orders
    if n_orders is None:
        n_orders = _DRAWS_FACTOR * fewest_draws(file.level)
    floor = _bet_floor(n_orders, file.level)
    return _in_turns(file, encoded, n_orders, _bet, floor)


def _bet(losses_T: np.ndarray, level: float, n_most: int) -> DrawnTest:
    return binomial_mixture(losses_T, level=level, n_most=n_most)


def _bet_floor(n_orders: int, level: float) -> float:
    """log10 of the smallest p-value: every draw is won."""
    n_won = min(n_orders, fewest_draws(level))
    wealth = mixture_wealth(np.array([n_won]), np.array([0]), level=level)
    return -math.log10(float(wealth[0]))


def bet_on_draws(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, rule_2: np.ndarray
) -> OrderNumbers:
    """Anytime-valid p-value of the whole file's order, no smaller than 0.9 level.

    Null hypothesis: the model is indifferent to the order of exchangeable examples.
    Where there is nothing to find, some tens of orders settle it; p = 0.001 needs
    2,557 of them. Blind to copies in other orders.

    Args:
        loglik_KM: (1, T + 1) float64, nats, column 0 the published order, the others
            in the order in which they were drawn.
        boundaries_K: See `boundaries_gained`.
        rule_2: (2,) the level that the bet is made for, and the most draws.

    Source:
        Fischer and Ramdas, arXiv:2401.07365, section 5; permutations as in Oren et
        al., arXiv:2310.17623, section 3.1.
    """
    level, n_most = float(rule_2[0]), int(rule_2[1])
    test = _bet(order_losses(loglik_KM[0]), level, n_most)
    floor = _bet_floor(n_most, level)
    return _drawn_numbers(loglik_KM, boundaries_K, test, log10_floor=floor)


def _counted_layout(file: OrderFile, encoded: Encoded) -> Layout:
    n_orders = file.n_orders
    if n_orders is None:
        n_orders = math.ceil(_LOSSES_AT_LEVEL / file.level) - 1
    return _in_turns(file, encoded, n_orders, _count, -math.log10(n_orders + 1))


def _count(losses_T: np.ndarray, _: float, n_most: int) -> DrawnTest:
    return besag_clifford(losses_T, h=min(_LOSSES, n_most), n_most=n_most)


def count_losses(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, rule_2: np.ndarray
) -> OrderNumbers:
    """10 / t if the tenth loss came at draw t, else (losses + 1) / (most draws + 1).

    Null hypothesis: the model is indifferent to the order of exchangeable examples.
    Exact for this way of stopping alone. Saves draws where there is nothing to find,
    none where the evidence is strong. Blind to copies in other orders.

    Args:
        loglik_KM: (1, T + 1) float64, nats, column 0 the published order, the others
            in the order in which they were drawn.
        boundaries_K: See `boundaries_gained`.
        rule_2: (2,) a level that is not used, and the most draws.

    Source:
        Besag and Clifford (1991), "Sequential Monte Carlo p-values"; permutations as
        in Oren et al., arXiv:2310.17623, section 3.1.
    """
    n_most = int(rule_2[1])
    test = _count(order_losses(loglik_KM[0]), float(rule_2[0]), n_most)
    floor = -math.log10(n_most + 1)
    return _drawn_numbers(loglik_KM, boundaries_K, test, log10_floor=floor)


def _drawn_numbers(
    loglik_KM: np.ndarray,
    boundaries_K: np.ndarray,
    test: DrawnTest,
    *,
    log10_floor: float,
) -> OrderNumbers:
    """Numbers of a test that used the first of some draws; effects use them all."""
    p_floor = power_of_ten(log10_floor)
    tolerance = MODEL_TOLERANCE * float(np.abs(loglik_KM).max())
    effect = order_effect(loglik_KM, boundaries_K, p_floor=p_floor, tolerance=tolerance)
    log10_e = None if test.log_e is None else test.log_e / math.log(10)
    return OrderNumbers(
        statistic=float(loglik_KM[0, 0] - loglik_KM[0].mean()),
        p_value=test.p_value,
        log10_p=math.log10(test.p_value),
        p_monte_carlo=test.p_value,
        p_floor=p_floor,
        e_value=None if log10_e is None else 10.0 ** min(log10_e, LOG10_E_MAX),
        **effect._asdict(),
        scores="centred",
        n_used=test.n_draws,
        stop=test.stop,
    )


def _redraw(result: OrderResult, scored: tuple[int, int], seed: int) -> OrderDesign:
    """The published order and those that were to be drawn first."""
    return whole_file_orders(
        scored[1] - 1,
        result.n_orders,
        n_examples=result.n_examples,
        seed=seed,
        content_digest=result.content_digest,
    )


METHOD = OrderMethod(
    name="permutation",
    # The whole file as one stratum, scored in windows.
    strata=lambda file, n_orders: [np.arange(file.n_examples)],
    analyse=analyse,
    default_orders=99,
    windowed=True,
    null="exchangeability",
    validity="exact",
    cost="m + 1 passes (100), twice that in windows",
    finds="the published order of the file; p not below 1 / (m + 1)",
    source="Oren et al. 2023, arXiv:2310.17623, section 3.1",
)

_WORDS = ProofWords(
    chance="a test that looks again and again would ever come this far with "
    "probability {p}. It looked at {n_used} of at most {n_orders} random "
    "orders, in the order of their draw, and ended {ended}"
)

SEQUENTIAL = SequentialMethod(
    name="permutation_sequential",
    layout=_bet_layout,
    turns_of="n_orders",
    redraw=_redraw,
    analyse=bet_on_draws,
    null="exchangeability",
    validity="exact",
    cost="about 40 passes where nothing is found, 2,558 for p = 0.001; twice in "
    "windows",
    finds="the published order of the file; stops at p = 0.001 or out of its reach",
    source="Fischer and Ramdas 2024, arXiv:2401.07365",
    words=_WORDS,
)

BESAG_CLIFFORD = dataclasses.replace(
    SEQUENTIAL,
    name="permutation_besag_clifford",
    layout=_counted_layout,
    analyse=count_losses,
    cost="about 60 passes where nothing is found, 2,000 otherwise; twice in windows",
    finds="the published order of the file; stops after 10 orders as likely",
    source="Besag and Clifford 1991, Biometrika 78",
)
