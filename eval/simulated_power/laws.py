"""Laws of pair matrices: what chance adds to a boundary, and where the effect is.

Entry [i, j] of a pair matrix is what example j scores after example i. Chance gives
every entry mean 0 and variance 1 (over the file), so effects are in standard
deviations of one boundary. What items add to whole rows and columns comes on top:
entries of `item effects` have variance 3, and effects stay in units of the rest, since
two orders of the same items differ by item effects at their ends only. A published
boundary gains the effect times its weight, and weights have mean 1.

Dimension key
    D  data sets
    K  strata of one size
    S  examples of a stratum
    G  boundaries of a stratum, S - 1
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

# Where only a part of the file gains: this share, and so much more.
_PART = 0.2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How pair matrices are drawn.

    Attributes:
        says: In words.
        entries: (key, shape) -> independent entries of mean 0 and variance 1.
        symmetry: Correlation of [i, j] with [j, i].
        strata_spread: Standard deviation of the log of a stratum's scale.
        example_spread: Standard deviation of the log of a scored example's scale.
        item_effects: Standard deviation of what an example adds to its whole row, and
            of what it adds to its whole column.
        gains: `all` boundaries, `first` fifth of the file, or a `random` fifth.
    """

    says: str
    entries: Callable[[jax.Array, tuple[int, ...]], jax.Array]
    symmetry: float = 0.0
    strata_spread: float = 0.0
    example_spread: float = 0.0
    item_effects: float = 0.0
    gains: str = "all"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pair matrices of the strata of one size, without and with nothing but effect.

    Attributes:
        noise: (D, K, S, S) float32.
        weights: (D, K, G) float32; the effect's multiple at each published boundary.
    """

    noise: jax.Array
    weights: jax.Array


jax.tree_util.register_dataclass(Pairs, ["noise", "weights"], [])


def draw_pairs(
    key: jax.Array, law: Law, sizes: Sequence[tuple[int, int]], n_sets: int
) -> list[Pairs]:
    """Pair matrices of many files.

    Args:
        key: Key of these data sets.
        law: Law of their entries.
        sizes: (examples, how many) of strata, in file order.
        n_sets: D.
    """
    weights = _file_weights(law, sizes)
    scales = _strata_scales(jax.random.fold_in(key, 0), law, sizes, n_sets)
    found = []
    for number, (s, count) in enumerate(sizes):
        own = jax.random.fold_in(key, number + 1)
        noise_DKSS = _noise(own, law, (n_sets, count, s, s))
        if law.strata_spread:
            noise_DKSS *= scales[number][..., None, None]
        weights_DKG = jnp.broadcast_to(weights[number], (n_sets, count, s - 1))
        if law.gains == "random":
            gains = jax.random.bernoulli(
                jax.random.fold_in(own, 9), _PART, weights_DKG.shape
            )
            weights_DKG = gains / jnp.float32(_PART)
        found.append(Pairs(noise_DKSS, weights_DKG))
    return found


def _noise(key: jax.Array, law: Law, shape: tuple[int, ...]) -> jax.Array:
    S = shape[-1]
    keys = jax.random.split(key, 5)
    noise = law.entries(keys[0], shape)
    if law.symmetry:
        half = jnp.triu(law.entries(keys[1], shape), 1)
        shared = half + jnp.swapaxes(half, -1, -2)
        rho = law.symmetry
        noise = (1 - rho) ** 0.5 * noise + rho**0.5 * shared
    if law.example_spread:
        scale = jnp.exp(law.example_spread * jax.random.normal(keys[2], shape[:-1]))
        mean_square = jnp.mean(scale**2, axis=(-1, -2), keepdims=True)
        noise *= (scale / jnp.sqrt(mean_square))[..., None, :]
    if law.item_effects:
        rows = jax.random.normal(keys[3], (*shape[:-1], 1))
        columns = jax.random.normal(keys[4], (*shape[:-2], 1, S))
        noise += law.item_effects * (rows + columns)
    return noise


def _strata_scales(
    key: jax.Array, law: Law, sizes: Sequence[tuple[int, int]], n_sets: int
) -> list[jax.Array]:
    """(D, K) of each size; the mean square over all strata of a file is 1."""
    counts = [count for _, count in sizes]
    scales = jnp.exp(law.strata_spread * jax.random.normal(key, (n_sets, sum(counts))))
    scales /= jnp.sqrt(jnp.mean(scales**2, axis=1, keepdims=True))
    return jnp.split(scales, np.cumsum(counts)[:-1], axis=1)


def _file_weights(law: Law, sizes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """(K, G) of each size, mean 1 over the boundaries inside strata."""
    n_boundaries = sum(count * (s - 1) for s, count in sizes)
    flat = np.ones(n_boundaries, np.float32)
    if law.gains == "first":
        n_gaining = max(1, round(_PART * n_boundaries))
        flat[:] = 0
        flat[:n_gaining] = n_boundaries / n_gaining
    ends = np.cumsum([count * (s - 1) for s, count in sizes])[:-1]
    return [
        part.reshape(count, s - 1)
        for part, (s, count) in zip(np.split(flat, ends), sizes, strict=True)
    ]


def _left_skewed(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return 1 - jax.random.exponential(key, shape)


def _right_skewed(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.exponential(key, shape) - 1


def _heavy_tailed(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Student's t with 3 degrees by its quantile function's parts: z / sqrt(chi2/3)."""
    normal, gamma = jax.random.split(key)
    # Chi-square of 3 degrees: one squared normal and twice an exponential.
    chi = jax.random.normal(gamma, shape) ** 2
    chi += 2 * jax.random.exponential(jax.random.fold_in(gamma, 1), shape)
    # The variance of t3 is 3, so the two factors of sqrt(3) cancel.
    return jax.random.normal(normal, shape) / jnp.sqrt(chi)


LAWS: Mapping[str, Law] = {
    "normal": Law(says="independent normal entries", entries=jax.random.normal),
    "left-skewed": Law(says="minus an exponential, skewness -2", entries=_left_skewed),
    "right-skewed": Law(says="exponential, skewness 2", entries=_right_skewed),
    "t3": Law(says="Student's t, 3 degrees of freedom", entries=_heavy_tailed),
    "unequal strata": Law(
        says="normal; scales of strata lognormal, sigma 1",
        entries=jax.random.normal,
        strata_spread=1.0,
    ),
    "unequal examples": Law(
        says="normal; scales of scored examples lognormal, sigma 0.75",
        entries=jax.random.normal,
        example_spread=0.75,
    ),
    "item effects": Law(
        says="normal, and rows and columns with normal effects of variance 1",
        entries=jax.random.normal,
        item_effects=1.0,
    ),
    "first fifth": Law(
        says="normal; only the first fifth of the file gains, five times as much",
        entries=jax.random.normal,
        gains="first",
    ),
    "random fifth": Law(
        says="normal; each boundary gains five times as much or, mostly, nothing",
        entries=jax.random.normal,
        gains="random",
    ),
    "symmetry .5": Law(
        says="normal; [i, j] and [j, i] correlate .5",
        entries=jax.random.normal,
        symmetry=0.5,
    ),
    "symmetry .9": Law(
        says="normal; [i, j] and [j, i] correlate .9",
        entries=jax.random.normal,
        symmetry=0.9,
    ),
}
"""Laws of the study."""
