"""Tests that may stop early: over strata, or over random orders of a whole file.

A p-value of a test that was continued after a look is not valid. These are: the
wealth of a bet against the null is large with probability at most 1 / wealth at any
time of stopping, and the rule of Besag and Clifford counts its own stop.

The sequence in which strata and orders are scored is fixed by the seed, by what the
file holds and by counts: never by scores, the order under test, or the machine.

Dimension key
    K  strata, in the order in which they were scored
    M  columns, M = m + 1
    T  draws, in the order in which they were made
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from jaxcontam.stats.orders import OrderDesign, draw_orders, row_generator
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, log_wealth
from jaxcontam.stats.rows import flat_rows

# The bet's mixture spans success probabilities up to this share of the level: then
# wealth 1 / level is reached by a finite number of draws without a loss.
_SHARE_OF_LEVEL = 0.9

Stop = Literal["rejected", "futile", "enough", "exhausted"]
"""Why drawing ended: level reached; out of reach; h losses; no draw left."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EProcess:
    """Wealth of a bettor who bets on the published order, stratum by stratum.

    Attributes:
        log_wealth: (K,) natural log of the e-value after each stratum.
        log10_p: (K,) log10 of the anytime-valid p-value, 1 / highest wealth so far.
        first_stop: Strata after which the wealth first reached 1 / level; None if it
            never did.
    """

    log_wealth: np.ndarray
    log10_p: np.ndarray
    first_stop: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DrawnTest:
    """A test of one published number against draws that came one by one.

    Attributes:
        p_value: See the function that made it.
        n_draws: Draws that it used.
        stop: Why it needs no more draws; None while it does.
        log_e: Natural log of the wealth at the stop; None where nothing is bet.
    """

    p_value: float
    n_draws: int
    stop: Stop | None
    log_e: float | None


def e_process(loglik_KM: np.ndarray, *, level: float) -> EProcess:
    """Anytime-valid evidence that the published column of each row is no chance.

    Null hypothesis: within each row the m + 1 versions are exchangeable, rows
    independently. Whatever the time of stopping, the p-value is valid, and more rows
    may be added later. It is weaker than the exact p-value of a fixed number of rows.

    Each row is centred and divided by the standard deviation pooled over the rows so
    far, this one included with all its columns: a number that does not tell which
    column is the published one, so each factor has expectation 1 given the past.
    Nothing is bet on a row whose values float32 sums cannot tell apart.

    Args:
        loglik_KM: (K, m + 1) float64, column 0 the published version; rows in an
            order that was fixed before any was scored and does not depend on scores.
        level: Wealth 1 / level stops, in (0, 1).

    Raises:
        ValueError: If a value is not finite or `level` is outside (0, 1).

    Source:
        Soft-rank e-values, see `soft_rank_log_e`; the running scale is ours.
    """
    _check_level(level)
    if not np.isfinite(loglik_KM).all():
        raise ValueError("log-likelihoods must be finite")
    ties_K = MODEL_TOLERANCE * np.abs(loglik_KM).max(axis=1)
    varies_K1 = (np.ptp(loglik_KM, axis=1) > ties_K)[:, None]
    centred_KM = loglik_KM - loglik_KM.mean(axis=1, keepdims=True)
    centred_KM = np.where(varies_K1, centred_KM, 0.0)
    n_so_far_K = np.arange(1, len(loglik_KM) + 1)
    pooled_K = np.sqrt(np.cumsum(centred_KM.var(axis=1, ddof=1)) / n_so_far_K)
    # Rows before the first that varies are all zeros, whatever divides them.
    scale_K = np.where(pooled_K > 0, pooled_K, 1.0)
    wealth_K = log_wealth(flat_rows(centred_KM / scale_K[:, None]))
    highest_K = np.maximum(np.maximum.accumulate(wealth_K), 0.0)
    # Rounding may put a wealth of exactly 1 / level a hair below it.
    reached = np.flatnonzero(wealth_K >= -math.log(level) - 1e-12)
    return EProcess(
        log_wealth=wealth_K,
        log10_p=-highest_K / math.log(10),
        first_stop=int(reached[0]) + 1 if len(reached) else None,
    )


def order_losses(loglik_M: np.ndarray) -> np.ndarray:
    """Whether each random order is at least as likely as the published one.

    Args:
        loglik_M: (M,) float64, nats, the published order first. Differences that
            float32 sums do not resolve are ties, and ties are losses.

    Returns:
        (M - 1,) boolean.
    """
    published = loglik_M[0]
    return loglik_M[1:] >= published - MODEL_TOLERANCE * abs(published)


def besag_clifford(losses_T: np.ndarray, *, h: int, n_most: int) -> DrawnTest:
    """p-value h / t if the h-th loss came at draw t, else (losses + 1) / (n_most + 1).

    Null hypothesis: the published number and the draws are exchangeable. Valid at
    this stopping rule only. Saves draws where there is nothing to find: about
    h (1 + ln(n_most / h)) are enough, and none is saved where the evidence is strong.

    Args:
        losses_T: Boolean, True where a draw is at least as high as the published
            number (ties are losses); those after the stop are not looked at.
        h: Losses that end the test, at least 1.
        n_most: Draws that end the test, at least h.

    Returns:
        With `stop` None, and the p-value that stopping now would not deserve (1),
        while more draws are needed.

    Raises:
        ValueError: If h or n_most is out of range.

    Source:
        Besag and Clifford (1991), "Sequential Monte Carlo p-values", Biometrika 78.
    """
    if h < 1:
        raise ValueError(f"h must be at least 1, got {h}")
    if n_most < h:
        raise ValueError(f"n_most must be at least h = {h}, got {n_most}")
    used_T = losses_T[:n_most]
    lost = np.flatnonzero(used_T)
    if len(lost) >= h:
        t = int(lost[h - 1]) + 1
        return DrawnTest(h / t, t, "enough", None)
    t, n_lost = len(used_T), len(lost)
    if t < n_most:
        return DrawnTest(1.0, t, None, None)
    return DrawnTest((n_lost + 1) / (n_most + 1), t, "exhausted", None)


def binomial_mixture(losses_T: np.ndarray, *, level: float, n_most: int) -> DrawnTest:
    """Anytime-valid p-value 1 / highest wealth of a bet that draws rarely win.

    Null hypothesis: the published number and the draws are exchangeable. Valid at any
    time of stopping. Made for one level: the p-value is never below 0.9 times it.
    Stops when the wealth reaches 1 / level, or falls below level, from where it
    hardly comes back; both save draws.

    Args:
        losses_T: As in `besag_clifford`.
        level: In (0, 1).
        n_most: Draws that end the test, at least 1.

    Returns:
        With `stop` None while more draws are needed; its p-value is valid all the
        same.

    Raises:
        ValueError: If `level` or `n_most` is out of range.

    Source:
        Fischer and Ramdas, "Sequential Monte-Carlo testing by betting",
        arXiv:2401.07365, section 5, with c = 0.9 level.
    """
    _check_level(level)
    if n_most < 1:
        raise ValueError(f"n_most must be at least 1, got {n_most}")
    used_T = losses_T[:n_most]
    n_lost_T = np.cumsum(used_T)
    wealth_T = mixture_wealth(np.arange(1, len(used_T) + 1), n_lost_T, level=level)
    stops = np.flatnonzero((wealth_T >= 1 / level) | (wealth_T < level))
    t = int(stops[0]) + 1 if len(stops) else len(used_T)
    stop: Stop | None = None
    if len(stops):
        stop = "rejected" if wealth_T[t - 1] >= 1 / level else "futile"
    elif t == n_most:
        stop = "exhausted"
    highest = float(wealth_T[:t].max(initial=1.0))
    last = float(wealth_T[t - 1]) if t else 1.0
    return DrawnTest(
        p_value=min(1.0, 1 / highest),
        n_draws=t,
        stop=stop,
        log_e=math.log(last) if last > 0 else -math.inf,
    )


def mixture_wealth(
    n_draws_T: np.ndarray, n_losses_T: np.ndarray, *, level: float
) -> np.ndarray:
    """Wealth of the binomial-mixture bet after t draws with some losses among them.

    Args:
        n_draws_T: t, at least 0.
        n_losses_T: Losses, in [0, t].
        level: In (0, 1).

    Returns:
        (1 - F(losses; t + 1, c)) / c with F the binomial distribution function and
        c = 0.9 level; 1 before the first draw, never above 1 / c.
    """
    from scipy import special

    c = _SHARE_OF_LEVEL * level
    return special.bdtrc(n_losses_T.astype(np.float64), n_draws_T + 1, c) / c


def fewest_draws(level: float) -> int:
    """Draws, all won, after which the binomial-mixture bet reaches 1 / level."""
    _check_level(level)
    c = _SHARE_OF_LEVEL * level
    return math.ceil(math.log1p(-_SHARE_OF_LEVEL) / math.log1p(-c)) - 1


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")


# Strata before the first look at the wealth: one stratum multiplies it by at most
# m + 1, so fewer of them hardly reach 1,000.
_FIRST_LOOK = 8
# Each look has a quarter more strata than the one before: at most a fifth of what is
# scored is scored in vain.
_GROWTH = 1.25
# Orders of a whole file between two looks; the published one is among the first.
_CHUNK = 16
# Key of the generator that puts strata in turn: no stratum has this number.
_TURN_STREAM = 2**63


def looks(n_strata: int) -> Iterator[int]:
    """Numbers of strata after which the wealth is looked at; the last is all."""
    n = _FIRST_LOOK
    while n < n_strata:
        yield n
        n = math.ceil(n * _GROWTH)
    yield n_strata


def strata_turns(n_strata: int, *, seed: int, content_digest: str) -> np.ndarray:
    """(K,) the order in which strata are scored; fixed before any is.

    A function of the seed and of what the file holds, not of its order or scores.
    """
    return row_generator(seed, content_digest, _TURN_STREAM).permutation(n_strata)


def n_chunks(n_orders: int) -> int:
    """Chunks that hold the published order and `n_orders` random ones."""
    return math.ceil((n_orders + 1) / _CHUNK)


def whole_file_chunk(
    c: int,
    n_orders: int,
    *,
    n_examples: int,
    seed: int,
    content_digest: str,
    groups: Sequence[object] | None = None,
) -> OrderDesign:
    """Chunk c of the orders of a whole file; the published one heads the first alone.

    Args:
        c: Number of the chunk; it has its own generator.
        n_orders: Random orders in all chunks.
        n_examples: N.
        seed: The run's seed.
        content_digest: Digest of the benchmark's content.
        groups: As in `draw_orders`.
    """
    in_chunk = min(_CHUNK, n_orders + 1 - c * _CHUNK)
    design = draw_orders(
        [np.arange(n_examples)],
        in_chunk - (c == 0),
        seed=seed,
        content_digest=content_digest,
        groups=groups,
        first=c,
    )
    if c == 0:
        return design
    return OrderDesign(
        design.orders[:, 1:], np.zeros_like(design.place), design.n_dropped
    )


def whole_file_orders(
    n_scored: int,
    n_orders: int,
    *,
    n_examples: int,
    seed: int,
    content_digest: str,
) -> OrderDesign:
    """The published order and the first `n_scored` of the random ones.

    Arguments as in `whole_file_chunk`.
    """
    chunks = [
        whole_file_chunk(
            c, n_orders, n_examples=n_examples, seed=seed, content_digest=content_digest
        )
        for c in range(n_chunks(min(n_scored, n_orders)))
    ]
    orders_KMS = np.concatenate([chunk.orders for chunk in chunks], axis=1)
    return OrderDesign(orders_KMS[:, : n_scored + 1], chunks[0].place, 0)
