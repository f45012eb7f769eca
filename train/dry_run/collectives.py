"""What devices send each other in one step, counted with the loops around it.

Counted twice: in the program as it was written, whose types are those that hardware
with bfloat16 sends, and in what a compiler made of it, which joins some of them and, on
a CPU, sends float32 in place of bfloat16.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax.extend import core

_KINDS = {
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "all_gather_invariant": "all-gather",
    "ppermute": "collective-permute",
    "all_to_all": "all-to-all",
}
_BITS = re.compile(r"[a-z]+(\d+)")
_SHAPE = re.compile(r"([a-z]+\d+\w*|pred)\[([\d,]*)\]")
_CALL = re.compile(
    r"= (?P<shapes>.*?) (?P<kind>all-gather|all-reduce|reduce-scatter|all-to-all|"
    r"collective-permute)(?:-start)?\("
)
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_WHILE = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|async_computation)=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONSTANT = re.compile(r"s(?:32|64)\[\]\S* constant\((\d+)\)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """All collectives of one kind among devices along the same axes.

    Attributes:
        kind: As XLA calls it.
        axes: Axes of the mesh along which devices take part; empty where the compiler
            was asked, which knows devices alone.
        group: Devices that take part in each; 0 where it is not told.
        count: Executions in one step.
        bytes: Of the whole array, in all executions: what was gathered, or what was
            summed before it is scattered.
    """

    kind: str
    axes: tuple[str, ...]
    group: int
    count: int
    bytes: int


def traced_collectives(jaxpr: Any, sizes: Mapping[str, int]) -> tuple[Collective, ...]:
    """Collectives that a traced program asks for.

    Args:
        jaxpr: Of the step.
        sizes: Devices along each axis of the mesh; along one there is nothing to send.
    """
    found: collections.Counter = collections.Counter()
    total: collections.Counter = collections.Counter()
    for kind, axes, n_bytes, times in _asked(jaxpr, 1):
        axes = tuple(axis for axis in axes if sizes[axis] > 1)
        if axes:
            found[kind, axes] += times
            total[kind, axes] += times * n_bytes
    return tuple(
        Collective(
            kind=kind,
            axes=axes,
            group=math.prod(sizes[axis] for axis in axes),
            count=count,
            bytes=total[kind, axes],
        )
        for (kind, axes), count in sorted(found.items())
    )


def compiled_collectives(text: str) -> tuple[Collective, ...]:
    """Collectives of a compiled program, from its text.

    Raises:
        ValueError: If the executions of a loop that holds one are not told.
    """
    parts = _computations(text)
    found: collections.Counter = collections.Counter()
    total: collections.Counter = collections.Counter()

    def visit(name: str, times: int) -> None:
        for line in parts.get(name, ()):
            if loop := _WHILE.search(line):
                condition, body = loop.groups()
                if _holds_any(parts, body):
                    visit(body, times * _trips(line, parts.get(condition, ())))
                continue
            if call := _CALL.search(line):
                if _is_among_one(line):
                    continue
                kind = call["kind"]
                found[kind] += times
                total[kind] += times * _sent(line, call["shapes"], kind)
            elif called := _CALLED.search(line):
                visit(called[1], times)

    visit(_entry(text), 1)
    return tuple(
        Collective(kind=kind, axes=(), group=0, count=count, bytes=total[kind])
        for kind, count in sorted(found.items())
    )


def _asked(jaxpr: Any, times: int) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    """Kind, axes, bytes and executions of each collective."""
    for equation in jaxpr.eqns:
        kind = _KINDS.get(equation.primitive.name)
        if kind is not None:
            axes = equation.params.get("axes", equation.params.get("axis_name"))
            whole = equation.outvars if kind == "all-gather" else equation.invars
            n_bytes = sum(_bytes(one.aval) for one in whole)
            yield kind, axes if isinstance(axes, tuple) else (axes,), n_bytes, times
        repeats = equation.params.get("length", 1) if _is_scan(equation) else 1
        for value in equation.params.values():
            for inner in _inner(value):
                yield from _asked(inner, times * repeats)


def _is_scan(equation: Any) -> bool:
    return equation.primitive.name == "scan"


def _inner(value: Any) -> Iterator[Any]:
    """Programs within a parameter of an equation."""
    if isinstance(value, core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, core.Jaxpr):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _inner(one)


def _bytes(aval: Any) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize


def _computations(text: str) -> dict[str, list[str]]:
    """Lines of each computation of an HLO module."""
    parts: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            name = head[1]
            parts[name] = []
        elif name is not None:
            parts[name].append(line)
    return parts


def _entry(text: str) -> str:
    found = re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)
    return found[1] if found else ""


def _holds_any(parts: Mapping[str, list[str]], name: str) -> bool:
    """Whether a computation, or one within it, holds a collective."""
    for line in parts.get(name, ()):
        if _CALL.search(line):
            return True
        inner = _CALLED.findall(line)
        if loop := _WHILE.search(line):
            inner.append(loop[2])
        if any(_holds_any(parts, one) for one in inner):
            return True
    return False


def _trips(line: str, condition: Sequence[str]) -> int:
    """Executions of a loop: as told, or the one bound that its condition names."""
    if told := _TRIPS.search(line):
        return int(told[1])
    bounds = {int(n) for one in condition for n in _CONSTANT.findall(one)}
    if len(bounds) != 1:
        raise ValueError("a loop that sends does not tell how often it runs")
    return bounds.pop()


def _is_among_one(line: str) -> bool:
    """Whether each device is alone in its group, so that nothing is sent."""
    if listed := re.search(r"replica_groups=\{(\{[\d,{} ]*\})\}", line):
        return all("," not in one for one in re.findall(r"\{([\d, ]*)\}", listed[1]))
    numbered = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    return numbered is not None and numbered[2] == "1"


def _sent(line: str, shapes: str, kind: str) -> int:
    """Bytes of the whole array; a scattered one is named by its part."""
    sizes = [_size(*shape) for shape in _SHAPE.findall(shapes)]
    if "-start(" in line and kind == "all-gather":
        # Operands and results stand side by side.
        sizes = sizes[len(sizes) // 2 :]
    return sum(sizes) * (_group_size(line) if kind == "reduce-scatter" else 1)


def _group_size(line: str) -> int:
    if numbered := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(numbered[2])
    listed = re.search(r"replica_groups=\{\{([\d, ]*)\}", line)
    return len(listed[1].split(",")) if listed else 1


def _size(dtype: str, shape: str) -> int:
    told = _BITS.match(dtype)
    bits = int(told[1]) if told else 8  # `pred` alone names none
    return bits * math.prod(int(n) for n in shape.split(",") if n) // 8
