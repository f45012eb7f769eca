"""Permutation test of the whole file that stops after ten orders as likely as it."""

import math

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.layouts import Layout
from jaxcontam.methods.method import OrderFile, SequentialMethod
from jaxcontam.methods.permutation_sequential import drawn_numbers, redraw
from jaxcontam.methods.progressive import DrawsInTurns
from jaxcontam.results import OrderNumbers
from jaxcontam.results.terms import ProofWords
from jaxcontam.stats.sequential import DrawnTest, besag_clifford, order_losses

# Orders as likely as the published one that end the test: p is then known to a third.
_LOSSES = 10
# Most draws unless the user says otherwise, so that p = level stands one loss.
_LOSSES_AT_LEVEL = 2


def layout(
    file: OrderFile, encoded: Encoded, prefix_id: int | None, n_orders: int | None
) -> Layout:
    """Random orders of the whole file, scored in windows, a few at a time."""
    if n_orders is None:
        n_orders = math.ceil(_LOSSES_AT_LEVEL / file.level) - 1
    return DrawsInTurns(
        file=file,
        encoded=encoded,
        prefix_id=prefix_id,
        n_orders=n_orders,
        test=draw_test,
        log10_floor=-math.log10(n_orders + 1),
    )


def draw_test(losses_T: np.ndarray, level: float, n_most: int) -> DrawnTest:
    """What the count of losses says of the draws so far; the level does not matter."""
    del level
    return besag_clifford(losses_T, h=min(_LOSSES, n_most), n_most=n_most)


def analyse(
    loglik_KM: np.ndarray, boundaries_K: np.ndarray, rule: np.ndarray
) -> OrderNumbers:
    """10 / t if the tenth loss came at draw t, else (losses + 1) / (most draws + 1).

    Null hypothesis: the model is indifferent to the order of exchangeable examples.
    Exact for this way of stopping alone. Saves draws where there is nothing to find,
    none where the evidence is strong. Blind to copies in other orders.

    Args:
        loglik_KM: (1, T + 1) float64, nats, column 0 the published order, the others
            in the order in which they were drawn.
        boundaries_K: See `boundaries_gained`.
        rule: (2,) a level that is not used, and the most draws.

    Source:
        Besag and Clifford (1991), "Sequential Monte Carlo p-values"; permutations as
        in Oren et al., arXiv:2310.17623, section 3.1.
    """
    n_most = int(rule[1])
    test = draw_test(order_losses(loglik_KM[0]), float(rule[0]), n_most)
    floor = -math.log10(n_most + 1)
    return drawn_numbers(loglik_KM, boundaries_K, test, log10_floor=floor)


METHOD = SequentialMethod(
    name="permutation_besag_clifford",
    layout=layout,
    turns_of="n_orders",
    redraw=redraw,
    analyse=analyse,
    null="exchangeability",
    validity="exact",
    cost="about 60 passes where nothing is found, 2,000 otherwise; twice in windows",
    finds="the published order of the file; stops after 10 orders as likely",
    source="Besag and Clifford 1991, Biometrika 78",
    words=ProofWords(
        chance="a test that looks again and again would ever come this far with "
        "probability {p}. It looked at {n_used} of at most {n_orders} random "
        "orders, in the order of their draw, and ended {ended}"
    ),
)
