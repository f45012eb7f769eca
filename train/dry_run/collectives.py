"""Collectives of a traced program, each counted as often as the loops around it run.

They are counted before compilation: a CPU's compiler sends float32 in place of
bfloat16, and XLA's cost analysis counts the body of a loop once.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend import core

_KINDS = {
    "all_gather": "all-gather",
    "all_gather_invariant": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "ppermute": "collective-permute",
    "all_to_all": "all-to-all",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """All collectives of one kind along the same mesh axes.

    Attributes:
        kind: XLA's name of the operation.
        axes: Mesh axes along which devices take part.
        group: Devices that take part in each.
        count: Executions in one step.
        bytes: Size of the whole array, summed over all executions: what was gathered,
            or what was summed before it is scattered.
    """

    kind: str
    axes: tuple[str, ...]
    group: int
    count: int
    bytes: int


def traced_collectives(jaxpr: Any, sizes: Mapping[str, int]) -> tuple[Collective, ...]:
    """Count the collectives of a jaxpr.

    Args:
        jaxpr: The traced program.
        sizes: Devices along each mesh axis; along one device nothing is sent.
    """
    counts: collections.Counter = collections.Counter()
    n_bytes: collections.Counter = collections.Counter()
    for kind, axes, size, times in _walk(jaxpr, 1):
        axes = tuple(axis for axis in axes if sizes[axis] > 1)
        if axes:
            counts[kind, axes] += times
            n_bytes[kind, axes] += times * size
    return tuple(
        Collective(
            kind=kind,
            axes=axes,
            group=math.prod(sizes[axis] for axis in axes),
            count=count,
            bytes=n_bytes[kind, axes],
        )
        for (kind, axes), count in sorted(counts.items())
    )


def _walk(jaxpr: Any, times: int) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    """Kind, axes, bytes and executions of each collective."""
    for equation in jaxpr.eqns:
        params = equation.params
        if kind := _KINDS.get(equation.primitive.name):
            axes = params.get("axes", params.get("axis_name"))
            arrays = equation.outvars if kind == "all-gather" else equation.invars
            size = sum(
                math.prod(one.aval.shape) * one.aval.dtype.itemsize for one in arrays
            )
            yield kind, axes if isinstance(axes, tuple) else (axes,), size, times
        is_scan = equation.primitive.name == "scan"
        for inner in _inner_jaxprs(list(params.values())):
            yield from _walk(inner, times * (params["length"] if is_scan else 1))


def _inner_jaxprs(value: Any) -> Iterator[Any]:
    """Jaxprs within a parameter of an equation."""
    if isinstance(value, core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, core.Jaxpr):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _inner_jaxprs(one)
