"""Six kinds of scores under the null of exchangeability."""

from collections.abc import Callable, Mapping

import numpy as np

Kind = Callable[[np.random.Generator, np.ndarray], list[np.ndarray]]
"""Exchangeable values of rows of given lengths, rows independent of each other."""


def _rows(flat_N: np.ndarray, sizes_K: np.ndarray) -> list[np.ndarray]:
    return np.split(flat_N, np.cumsum(sizes_K)[:-1])


def _normal(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.normal(size=sizes_K.sum()), sizes_K)


def _left_skewed(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(-rng.exponential(size=sizes_K.sum()), sizes_K)


def _heavy_tailed(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.standard_t(3, size=sizes_K.sum()), sizes_K)


def _heteroscedastic(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    scale_N = np.repeat(rng.lognormal(sigma=1.5, size=len(sizes_K)), sizes_K)
    return _rows(scale_N * rng.normal(size=sizes_K.sum()), sizes_K)


def _tied(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.integers(-1, 2, size=sizes_K.sum()).astype(float), sizes_K)


def _duplicated(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    """As of few distinct examples: each column repeats one of at most half as many."""
    distinct_K = np.maximum((sizes_K + 1) // 2, 2)
    drawn = rng.random(sizes_K.sum()) * np.repeat(distinct_K, sizes_K)
    starts_N = np.repeat(np.cumsum(sizes_K) - sizes_K, sizes_K)
    values_N = rng.normal(size=sizes_K.sum())
    return _rows(values_N[starts_N + drawn.astype(int)], sizes_K)


KINDS: Mapping[str, Kind] = {
    "normal": _normal,
    "left-skewed": _left_skewed,
    "t3": _heavy_tailed,
    "heteroscedastic": _heteroscedastic,
    "tied": _tied,
    "duplicated": _duplicated,
}
