"""Designs of order tests of a file that is not there yet."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

from jaxcontam.orders.methods import (
    ADJACENCY,
    DIRECTION,
    LARGEST_STRATUM,
    N_SHARDS,
    PERMUTATION,
    REVERSAL,
    SHARDED_T,
    STRATIFIED,
)
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.scoring.seam import SEAM, Seam
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.orders import stratum_size
from jaxcontam.stats.power import (
    PowerDesign,
    direction_design,
    drawn_design,
    pair_design,
    reversal_design,
    stratum_sizes,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """A file as far as a plan needs it: N examples, mean ids of one with its separator.

    `symmetry` is the correlation by chance of pair [i, j] with [j, i]; `seam` is what
    pair tests score.
    """

    n_examples: int
    example_tokens: float
    context: int
    symmetry: float = 0.0
    n_shards: int = N_SHARDS
    seam: Seam = SEAM


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Cost of scoring.

    Attributes:
        n_targets: Target tokens, before equal sequences are scored once.
        n_read: Tokens that pass through the model: windows overlap by half.
    """

    n_sequences: int
    n_targets: float
    n_read: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """A test that can be planned.

    Attributes:
        n_strata: (file, m) -> strata, by the same rules as for a real file.
        design: (N, strata, m, symmetry as in `FilePlan`) -> what its power depends on.
    """

    method: OrderMethod | PairMethod
    n_strata: Callable[[FilePlan, int], int]
    design: Callable[[int, int, int, float], PowerDesign]
    smallest: int = 2


def has_free_orders(name: str) -> bool:
    """True if `--tests NAME:N` changes the test."""
    return PLANNED[name].method.default_orders not in (None, 1)


def fewest_examples(name: str) -> int:
    """Examples that the design needs; a stratum has two at least."""
    method = PLANNED[name].method
    return max(method.fewest_examples, 2 * method.fewest_strata)


def power_design(name: str, file: FilePlan, n_orders: int | None) -> PowerDesign:
    """Strata and orders of a test, by the same rules as for a real file."""
    row = PLANNED[name]
    own = row.method.default_orders or 0
    m = n_orders if has_free_orders(name) and n_orders else own
    return row.design(file.n_examples, row.n_strata(file, m), m, file.symmetry)


def scored_design(
    name: str, n_examples: int, n_strata: int, n_orders: int, *, symmetry: float = 0.0
) -> PowerDesign | None:
    """The design of a test of a real file; None for tests that cannot be planned."""
    row = PLANNED.get(name)
    if row is None or n_strata < 1 or n_examples < row.smallest * n_strata:
        return None
    return row.design(n_examples, n_strata, n_orders, symmetry)


def workload(name: str, file: FilePlan, design: PowerDesign) -> Workload:
    """Cost of a design of `power_design`."""
    tokens, row = file.example_tokens, PLANNED[name]
    if isinstance(row.method, PairMethod):
        length, n_pairs = run_length(file.n_examples), 0
        for size, count in stratum_sizes(file.n_examples, row.n_strata(file, 0)):
            n_each = size * (size - 1)
            if not row.method.whole:
                n_each = int(needed_pairs(runs_of(size, length)).sum())
            n_pairs += count * n_each
        n = n_pairs * min(tokens, file.seam.score_tokens or tokens)
        return Workload(n_sequences=n_pairs, n_targets=n, n_read=n)
    m = design.n_orders or 0
    n_used = sum(kind.count * kind.size for kind in design.kinds)
    n_targets = n_used * (m + 1) * tokens
    longest = max((kind.size for kind in design.kinds), default=0) * tokens
    windowed = row.method.windowed and longest > file.context - 1
    return Workload(
        n_sequences=design.n_strata * (m + 1),
        n_targets=n_targets,
        n_read=n_targets * (2 if windowed else 1),
    )


def _pair_strata(file: FilePlan, _: int) -> int:
    return math.ceil(file.n_examples / ADJACENCY.size)


def _n_strata(file: FilePlan, n_orders: int, *, limit: int | None = None) -> int:
    n_ids = math.ceil(file.n_examples * file.example_tokens)
    size = stratum_size(file.n_examples, n_ids, file.context, n_orders, limit=limit)
    return math.ceil(file.n_examples / size)


PLANNED: Mapping[str, PowerRow] = {
    row.method.name: row
    for row in (
        PowerRow(
            method=DIRECTION,
            n_strata=_pair_strata,
            design=lambda n, k, _, symmetry: direction_design(n, k, symmetry=symmetry),
            smallest=3,
        ),
        PowerRow(
            method=ADJACENCY,
            n_strata=_pair_strata,
            design=lambda n, k, _, symmetry: pair_design(n, k, symmetry=symmetry),
            smallest=3,
        ),
        PowerRow(
            method=STRATIFIED,
            n_strata=_n_strata,
            design=lambda n, k, m, _: drawn_design(n, k, m),
        ),
        PowerRow(
            method=REVERSAL,
            n_strata=functools.partial(_n_strata, limit=LARGEST_STRATUM),
            design=lambda n, k, _, symmetry: reversal_design(n, k, symmetry=symmetry),
        ),
        PowerRow(
            method=SHARDED_T,
            n_strata=lambda file, _: min(file.n_shards, file.n_examples // 2),
            design=lambda n, k, m, _: drawn_design(n, k, m, rule="t"),
        ),
        PowerRow(
            method=PERMUTATION,
            n_strata=lambda file, _: 1,
            design=lambda n, k, m, _: drawn_design(n, k, m, rule="rank"),
        ),
    )
}
"""Tests that can be planned, by name."""
