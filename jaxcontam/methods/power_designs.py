"""What each order test would score in a file that is not there yet."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from jaxcontam.methods.adjacency import METHOD as ADJACENCY
from jaxcontam.methods.direction import METHOD as DIRECTION
from jaxcontam.methods.permutation import METHOD as PERMUTATION
from jaxcontam.methods.reversal import LARGEST_STRATUM
from jaxcontam.methods.reversal import METHOD as REVERSAL
from jaxcontam.methods.sharded_t import METHOD as SHARDED_T
from jaxcontam.methods.sharded_t import N_SHARDS
from jaxcontam.methods.stratified import METHOD as STRATIFIED
from jaxcontam.stats.all_orders import n_stratum_orders
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.power_design import (
    PowerDesign,
    direction_design,
    drawn_design,
    pair_design,
    reversal_design,
    stratum_sizes,
)
from jaxcontam.stats.strata import stratum_size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """A file as far as a plan needs it.

    Attributes:
        n_examples: N.
        example_tokens: Mean ids of an example, separator included.
        context: Tokens that the model reads at once.
        symmetry: Correlation by chance of pair [i, j] with [j, i].
    """

    n_examples: int
    example_tokens: float
    context: int
    symmetry: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What scoring costs.

    Attributes:
        n_sequences: Sequences, or pairs.
        n_targets: Target tokens, before equal sequences are scored once.
        n_read: Tokens that pass through the model: windows overlap by half.
    """

    n_sequences: int
    n_targets: float
    n_read: float


def has_free_orders(name: str) -> bool:
    """Whether `--n-orders` changes the test."""
    return _DEFAULT_ORDERS[name] not in (None, 1)


def fewest_examples(name: str) -> int:
    """Examples that the design needs."""
    return _FEWEST_EXAMPLES[name]


def power_design(name: str, file: FilePlan, n_orders: int | None) -> PowerDesign:
    """Strata and orders of a test, by the same rules as for a real file.

    Args:
        name: One of `PLANNED`.
        file: Its size.
        n_orders: m; None is the method's own.
    """
    m = n_orders if has_free_orders(name) and n_orders else _DEFAULT_ORDERS[name]
    return PLANNED[name](file, m or 0)


def scored_design(
    name: str,
    n_examples: int,
    n_strata: int,
    n_orders: int,
    *,
    symmetry: float = 0.0,
) -> PowerDesign | None:
    """The design of a test of a real file; None for tests that cannot be planned.

    Args:
        name: A row of METHODS.
        n_examples: N.
        n_strata: Strata that the file was split into.
        n_orders: m.
        symmetry: As in `FilePlan`.
    """
    if n_strata < 1 or n_examples < 2 * n_strata:
        return None
    if name == ADJACENCY.name and n_examples >= 3 * n_strata:
        return pair_design(
            n_examples, n_strata, symmetry=symmetry, log10_orders=_log10_orders
        )
    if name == DIRECTION.name and n_examples >= 3 * n_strata:
        return direction_design(n_examples, n_strata, symmetry=symmetry)
    if name == REVERSAL.name:
        return reversal_design(n_examples, n_strata, symmetry=symmetry)
    if name == STRATIFIED.name:
        return drawn_design(n_examples, n_strata, n_orders)
    if name == PERMUTATION.name:
        return drawn_design(n_examples, n_strata, n_orders, rule="rank")
    if name == SHARDED_T.name:
        return drawn_design(n_examples, n_strata, n_orders, rule="t")
    return None


def workload(name: str, file: FilePlan, design: PowerDesign) -> Workload:
    """Cost of a design of `power_design`."""
    tokens = file.example_tokens
    if name == DIRECTION.name:
        length = run_length(file.n_examples)
        n_pairs = sum(
            count * int(needed_pairs(runs_of(size, length)).sum())
            for size, count in stratum_sizes(file.n_examples, _n_pair_strata(file))
        )
        return Workload(
            n_sequences=n_pairs, n_targets=n_pairs * tokens, n_read=n_pairs * tokens
        )
    if design.n_orders is None:
        n_pairs = sum(k.count * k.size * (k.size - 1) for k in design.kinds)
        return Workload(
            n_sequences=n_pairs, n_targets=n_pairs * tokens, n_read=n_pairs * tokens
        )
    n_sequences = design.n_strata * (design.n_orders + 1)
    n_used = sum(kind.count * kind.size for kind in design.kinds)
    n_targets = n_used * (design.n_orders + 1) * tokens
    longest = max((kind.size for kind in design.kinds), default=0) * tokens
    windowed = name in (PERMUTATION.name, SHARDED_T.name) and longest > file.context - 1
    return Workload(
        n_sequences=n_sequences,
        n_targets=n_targets,
        n_read=n_targets * (2 if windowed else 1),
    )


def _adjacency(file: FilePlan, n_orders: int) -> PowerDesign:
    del n_orders
    return pair_design(
        file.n_examples,
        _n_pair_strata(file),
        symmetry=file.symmetry,
        log10_orders=_log10_orders,
    )


def _direction(file: FilePlan, n_orders: int) -> PowerDesign:
    del n_orders
    return direction_design(
        file.n_examples, _n_pair_strata(file), symmetry=file.symmetry
    )


def _n_pair_strata(file: FilePlan) -> int:
    return math.ceil(file.n_examples / ADJACENCY.size)


def _log10_orders(size: int) -> float:
    return math.log10(n_stratum_orders(np.zeros(size, np.int64)))


def _stratified(file: FilePlan, n_orders: int) -> PowerDesign:
    return drawn_design(file.n_examples, _n_strata(file, n_orders), n_orders)


def _reversal(file: FilePlan, n_orders: int) -> PowerDesign:
    return reversal_design(
        file.n_examples,
        _n_strata(file, n_orders, limit=LARGEST_STRATUM),
        symmetry=file.symmetry,
    )


def _permutation(file: FilePlan, n_orders: int) -> PowerDesign:
    return drawn_design(file.n_examples, 1, n_orders, rule="rank")


def _sharded_t(file: FilePlan, n_orders: int) -> PowerDesign:
    n_shards = min(N_SHARDS, file.n_examples // 2)
    return drawn_design(file.n_examples, n_shards, n_orders, rule="t")


def _n_strata(file: FilePlan, n_orders: int, *, limit: int | None = None) -> int:
    n_ids = math.ceil(file.n_examples * file.example_tokens)
    size = stratum_size(file.n_examples, n_ids, file.context, n_orders, limit=limit)
    return math.ceil(file.n_examples / size)


PLANNED: Mapping[str, Callable[[FilePlan, int], PowerDesign]] = {
    DIRECTION.name: _direction,
    ADJACENCY.name: _adjacency,
    STRATIFIED.name: _stratified,
    REVERSAL.name: _reversal,
    SHARDED_T.name: _sharded_t,
    PERMUTATION.name: _permutation,
}
"""Tests that can be planned: (file, m) -> design."""

_DEFAULT_ORDERS: Mapping[str, int | None] = {
    ADJACENCY.name: None,
    DIRECTION.name: None,
    **{
        method.name: method.default_orders
        for method in (STRATIFIED, REVERSAL, SHARDED_T, PERMUTATION)
    },
}
_FEWEST_EXAMPLES = {
    method.name: method.fewest_examples
    for method in (DIRECTION, ADJACENCY, STRATIFIED, REVERSAL, SHARDED_T, PERMUTATION)
}
# A t-test needs two shards of two.
_FEWEST_EXAMPLES[SHARDED_T.name] = 4
