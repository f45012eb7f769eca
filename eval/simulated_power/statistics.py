"""What each order test computes from pair matrices, under `vmap` over data sets.

A score of an order is the sum of the entries between its neighbours, so it is a part of
chance plus the effect times a part of gain: both are computed once, for any effect.

The library counts or convolves (`jaxcontam.stats.lattice`): rigorous, and milliseconds
a data set. Here the saddlepoint formula takes microseconds, in float32, and the study
compares the two on a random part of its data sets.

Dimension key
    D  data sets
    K  strata
    S  examples of a stratum
    G  boundaries of a stratum, S - 1
    M  columns; the published order comes first
    P  orders in a table
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from eval.simulated_power.laws import Pairs
from jaxcontam.stats.power import PowerDesign
from jaxcontam.stats.randomisation import (
    MIN_ORDERS_TO_STUDENTISE,
    SD_RATIO_TO_STUDENTISE,
)

# Newton steps on a convex function; the last ones change nothing that counts.
_STEPS = 6
# Nearer to the middle the formula divides by nothing; no level is there.
_NEAREST = 0.3


def saddlepoint_tail(law_KM: jax.Array, statistic: jax.Array) -> jax.Array:
    """P(sum of one random column a row >= statistic), about.

    Barndorff-Nielsen's form of the Lugannani-Rice formula: relative error near 1 % at
    20 rows of 10 columns or 40 of 2. Statistics less than 0.3 standard deviations above
    the mean give 1, and so do rows without spread.

    Args:
        law_KM: (K, M) float; every row has mean 0.
        statistic: Scalar.

    Source:
        Daniels (1987), Tail probability approximations, International Statistical
        Review 55: the formulas for a sum of independent, not identical, variables.
    """
    sd = jnp.sqrt(jnp.sum(jnp.mean(law_KM**2, axis=1)))
    rows_KM = law_KM / jnp.where(sd > 0, sd, 1.0)
    z = statistic / jnp.where(sd > 0, sd, 1.0)
    tops_K = rows_KM.max(axis=1)

    def cumulants(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        weights_KM = jnp.exp(theta * (rows_KM - tops_K[:, None]))
        totals_K = weights_KM.mean(axis=1)
        means_K = (weights_KM * rows_KM).mean(axis=1) / totals_K
        squares_K = (weights_KM * rows_KM**2).mean(axis=1) / totals_K
        log_mean = jnp.sum(jnp.log(totals_K) + theta * tops_K)
        # float32 may leave a variance of minus nothing.
        return log_mean, means_K.sum(), jnp.maximum((squares_K - means_K**2).sum(), 0)

    def step(_: int, theta: jax.Array) -> jax.Array:
        mean, variance = cumulants(theta)[1:]
        moved = theta + (z - mean) / jnp.maximum(variance, 1e-6)
        return jnp.clip(moved, theta / 2, 2 * theta + 0.5)

    # Nearer to 0 than the formula is asked for it need not be right, only finite.
    start = jnp.maximum(z, _NEAREST)
    theta = jax.lax.fori_loop(0, _STEPS, step, start)
    log_mean, _, variance = cumulants(theta)
    w = jnp.sqrt(jnp.maximum(2 * (theta * z - log_mean), 1e-6))
    u = theta * jnp.sqrt(jnp.maximum(variance, 1e-12))
    p = jax.scipy.stats.norm.sf(w + jnp.log(u / w) / w)
    return jnp.where((z > _NEAREST) & (sd > 0), jnp.clip(p, 0.0, 1.0), 1.0)


# Random orders of a stratum are drawn from a table of this many; 16 bits choose one.
_TABLE = 2**16
# Adjacency's law over all orders of a stratum is seen through so many of them; its
# variance is known in closed form.
N_COLUMNS = 256


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Scores of orders, in two parts; a score is chance + effect * gain.

    Attributes:
        chance: (D, K, M) float32.
        gain: (D, K, M) float32.
        variance: (D, K, 3) float32 of adjacency: the coefficients of 1, effect and
            effect squared in the variance over all orders of a stratum.
    """

    chance: jax.Array
    gain: jax.Array
    variance: jax.Array | None = None


jax.tree_util.register_dataclass(Parts, ["chance", "gain", "variance"], [])


def order_parts(design: PowerDesign, pairs: Sequence[Pairs], key: jax.Array) -> Parts:
    """Scores of the published order and of its counterfactuals.

    Random orders are drawn afresh for every stratum of every data set; only those of a
    whole file (`rank`) are shared by the data sets of one call. Adjacency's matrices
    are centred first, and its columns after the published one stand for all orders.

    Args:
        design: Design of the test.
        pairs: Pairs of each of its stratum sizes.
        key: Key of the orders.
    """
    found = []
    for number, (kind, own) in enumerate(zip(design.kinds, pairs, strict=True)):
        own_key = jax.random.fold_in(key, number)
        if design.n_orders is None:
            found.append(_pair_parts(own, kind.size))
        elif design.rule == "rank":
            found.append(_shared_orders(own, kind.size, design.n_orders, own_key))
        elif is_reversal(design):
            found.append(_both_ways(own))
        else:
            found.append(_drawn_orders(own, kind.size, design.n_orders, own_key))
    variances = [part.variance for part in found if part.variance is not None]
    return Parts(
        jnp.concatenate([part.chance for part in found], axis=1),
        jnp.concatenate([part.gain for part in found], axis=1),
        jnp.concatenate(variances, axis=1) if variances else None,
    )


def p_values(design: PowerDesign, parts: Parts, effect: jax.Array) -> jax.Array:
    """(D,) p-values of the files with this effect, by the laws of the library."""
    scores = parts.chance + effect * parts.gain
    if design.n_orders is None:
        variances_DK = _law_variances(parts, effect)
        return jax.vmap(_pair_p)(scores, variances_DK)
    if design.rule == "rank":
        return jax.vmap(_rank_p)(scores)
    if design.rule == "t":
        return jax.vmap(_t_p)(scores)
    return jax.vmap(_sum_p)(scores)


def spreads(design: PowerDesign, parts: Parts) -> jax.Array:
    """(D,) squared spread of one boundary, as a report of a clean file estimates it.

    From the variance of counterfactual orders (`effect_se`), or from that of strata
    where there is one counterfactual only.
    """
    noise = sum(kind.count * kind.noise for kind in design.kinds)
    chance = parts.chance
    if design.n_orders is None:
        return _law_variances(parts, jnp.float32(0)).sum(axis=1) / noise
    if design.n_orders == 1:
        gains_DK = chance[:, :, 0] - chance[:, :, 1]
        return gains_DK.shape[1] * gains_DK.var(axis=1, ddof=1) / 2 / noise
    return chance[:, :, 1:].var(axis=2, ddof=1).sum(axis=1) / noise


def is_reversal(design: PowerDesign) -> bool:
    """Whether the one counterfactual is the reverse, which keeps no boundary."""
    return design.rule == "sum" and design.n_orders == 1


def _both_ways(pairs: Pairs) -> Parts:
    forward_DK = jnp.trace(pairs.noise, 1, -2, -1)
    backward_DK = jnp.trace(pairs.noise, -1, -2, -1)
    gain_DK = pairs.weights.sum(axis=-1)
    return Parts(
        jnp.stack([forward_DK, backward_DK], axis=-1),
        jnp.stack([gain_DK, jnp.zeros_like(gain_DK)], axis=-1),
    )


def _drawn_orders(pairs: Pairs, size: int, n_orders: int, key: jax.Array) -> Parts:
    D, K, _, _ = pairs.noise.shape
    chosen_DKM = jax.random.bits(key, (D, K, n_orders), jnp.uint16).astype(jnp.int32)
    cells_PG = jnp.asarray(_table_cells(size))

    def of_stratum(entries_C: jax.Array, chosen_M: jax.Array) -> jax.Array:
        return entries_C[cells_PG[chosen_M]].sum(axis=-1)

    def all_columns(matrices_DKSS: jax.Array) -> jax.Array:
        entries = matrices_DKSS.reshape(D, K, size * size)
        drawn_DKM = jax.vmap(jax.vmap(of_stratum))(entries, chosen_DKM)
        published_DK = jnp.trace(matrices_DKSS, 1, -2, -1)
        return jnp.concatenate([published_DK[..., None], drawn_DKM], axis=-1)

    return Parts(all_columns(pairs.noise), all_columns(_superdiagonal(pairs.weights)))


def _shared_orders(pairs: Pairs, size: int, n_orders: int, key: jax.Array) -> Parts:
    """One stratum; data sets last in memory, so that a gather reads whole rows."""
    keys = jax.random.split(key, n_orders)
    orders_MS = jax.vmap(lambda k: jax.random.permutation(k, size))(keys)
    orders_MS = jnp.concatenate([jnp.arange(size)[None], orders_MS])
    cells_GM = (orders_MS[:, :-1] * size + orders_MS[:, 1:]).T

    def all_columns(matrices_DSS: jax.Array) -> jax.Array:
        D = len(matrices_DSS)
        entries_CD = matrices_DSS.reshape(D, size * size).T
        start = jnp.zeros((n_orders + 1, D), matrices_DSS.dtype)
        sums_MD, _ = jax.lax.scan(
            lambda sums, cells_M: (sums + entries_CD[cells_M], None), start, cells_GM
        )
        return sums_MD.T[:, None]

    return Parts(
        all_columns(pairs.noise[:, 0]),
        all_columns(_superdiagonal(pairs.weights)[:, 0]),
    )


def _pair_parts(pairs: Pairs, size: int) -> Parts:
    """Path sums of centred matrices: the published order's, then those of a table."""
    steps_CP = jnp.asarray(_table_steps(size))
    chance = _double_centred(pairs.noise)
    gain = _double_centred(_superdiagonal(pairs.weights))

    def all_columns(centred_DKSS: jax.Array) -> jax.Array:
        flat_DKC = centred_DKSS.reshape(*centred_DKSS.shape[:2], size * size)
        published_DK = jnp.trace(centred_DKSS, 1, -2, -1)
        return jnp.concatenate([published_DK[..., None], flat_DKC @ steps_CP], axis=-1)

    def covariance(a: jax.Array, b: jax.Array) -> jax.Array:
        # As `path_moments`, where rows and columns sum to 0.
        products = (a * b).sum(axis=(-1, -2))
        crossed = (a * jnp.swapaxes(b, -1, -2)).sum(axis=(-1, -2))
        return (products - crossed / size) / (size - 1)

    terms = [covariance(chance, chance), 2 * covariance(chance, gain)]
    terms.append(covariance(gain, gain))
    return Parts(all_columns(chance), all_columns(gain), jnp.stack(terms, axis=-1))


def _law_variances(parts: Parts, effect: jax.Array) -> jax.Array:
    """(D, K) variance of the path sum over all orders of a stratum."""
    assert parts.variance is not None
    powers = jnp.stack([jnp.ones_like(effect), effect, effect**2])
    return jnp.maximum(parts.variance @ powers, 0)


def _pair_p(scores_KM: jax.Array, variances_K: jax.Array) -> jax.Array:
    law_KM = scores_KM[:, 1:] - scores_KM[:, 1:].mean(axis=1, keepdims=True)
    seen_K = (law_KM**2).mean(axis=1)
    factor_K = jnp.sqrt(variances_K / jnp.where(seen_K > 0, seen_K, 1.0))
    return saddlepoint_tail(law_KM * factor_K[:, None], scores_KM[:, 0].sum())


def _sum_p(scores_KM: jax.Array) -> jax.Array:
    """Centred rows, studentised where `auto` would: see `row_scores`."""
    _, M = scores_KM.shape
    centred_KM = scores_KM - scores_KM.mean(axis=1, keepdims=True)
    if M - 1 >= MIN_ORDERS_TO_STUDENTISE:
        sd_K = scores_KM.std(axis=1, ddof=1)
        low, high = jnp.percentile(sd_K, jnp.array([10.0, 90.0]))
        divisor_K = jnp.where(high > SD_RATIO_TO_STUDENTISE * low, sd_K, 1.0)
        centred_KM /= jnp.where(divisor_K > 0, divisor_K, 1.0)[:, None]
    return saddlepoint_tail(centred_KM, centred_KM[:, 0].sum())


def _rank_p(scores_KM: jax.Array) -> jax.Array:
    (scores_M,) = scores_KM
    return (1 + jnp.sum(scores_M[1:] >= scores_M[0])) / len(scores_M)


def _t_p(scores_KM: jax.Array) -> jax.Array:
    K, _ = scores_KM.shape
    gains_K = scores_KM[:, 0] - scores_KM[:, 1:].mean(axis=1)
    t = gains_K.mean() / gains_K.std(ddof=1) * jnp.sqrt(jnp.float32(K))
    below = jax.scipy.special.betainc((K - 1) / 2, 0.5, (K - 1) / (K - 1 + t**2)) / 2
    return jnp.where(t > 0, below, 1 - below)


def _double_centred(matrices: jax.Array) -> jax.Array:
    """As `jaxcontam.stats.adjacency.double_centred`, for arrays of matrices."""
    n = matrices.shape[-1]
    off_diagonal = jnp.broadcast_to(~np.eye(n, dtype=bool), matrices.shape)
    entries = jnp.where(off_diagonal, matrices, 0)
    rows, columns = entries.sum(axis=-1), entries.sum(axis=-2)
    total = rows.sum(axis=-1)[..., None]
    row_effects = ((n - 1) * rows + columns - total) / (n * (n - 2))
    column_effects = ((n - 1) * columns + rows - total) / (n * (n - 2))
    effects = row_effects[..., :, None] + column_effects[..., None, :]
    mean = total[..., None] / (n * (n - 1))
    return jnp.where(off_diagonal, entries - mean - effects, 0)


def _superdiagonal(weights: jax.Array) -> jax.Array:
    """Matrices with these values above the diagonal, and 0 elsewhere."""
    S = weights.shape[-1] + 1
    padded = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, 1)])
    next_to = np.eye(S, k=1, dtype=np.float32)
    return padded[..., :, None] * next_to.reshape(*[1] * (padded.ndim - 1), S, S)


@functools.cache
def _orders(size: int, n_orders: int) -> np.ndarray:
    """(P, S) random orders, the same ones always."""
    rng = np.random.default_rng([size, n_orders])
    return rng.permuted(np.tile(np.arange(size), (n_orders, 1)), axis=1)


@functools.cache
def _table_cells(size: int) -> np.ndarray:
    """(P, G) cells of a flat matrix that each order of a table visits."""
    orders_PS = _orders(size, _TABLE)
    return (orders_PS[:, :-1] * size + orders_PS[:, 1:]).astype(np.int32)


@functools.cache
def _table_steps(size: int) -> np.ndarray:
    """(S * S, P) ones where an order of the small table visits a cell."""
    orders_PS = _orders(size, N_COLUMNS)
    steps_PC = np.zeros((N_COLUMNS, size * size), np.float32)
    cells_PG = orders_PS[:, :-1] * size + orders_PS[:, 1:]
    np.put_along_axis(steps_PC, cells_PG, 1.0, axis=1)
    return steps_PC.T
