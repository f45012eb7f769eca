"""Tail of a sum of independent discrete uniforms, for many data sets at once.

The library counts or convolves (`jaxcontam.stats.lattice`): rigorous, and milliseconds
a data set. Here the saddlepoint formula takes microseconds under `vmap`, in float32,
and the study compares the two on a random part of its data sets.

Dimension key
    K  strata
    M  columns
"""

import jax
import jax.numpy as jnp

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
        _, mean, variance = cumulants(theta)
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
