"""What a compiled program launches, moves and multiplies, read in its optimised HLO.

Counts, not times. A loop's body counts as often as it runs; what a fusion reads of a
stacked weight is the layer's slice.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_CONDITION = re.compile(r"condition=%?([\w.-]+)")
_PRECISION = re.compile(
    r"algorithm=(\w+)|operand_precision=\{(\w+)|"
    r'operand_precision":\["(?!DEFAULT)(\w+)"[^}]*"algorithm":"ALG_UNSET'
    r'|"algorithm":"ALG_(?!UNSET)(\w+)'
)
_LIBRARY_PRODUCT = re.compile(r'custom_call_target="(__cublas\$|__cudnn\$fmha)')
# They name or order values, and start nothing.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
_FREE |= {"partition-id", "replica-id", "domain", "opt-barrier", "iota"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Counts of one run of a program on one device.

    Attributes:
        launches: Kernels and copies that are started.
        loops: Turns of each loop and the launches of one turn: of a layer forward, of
            a piece of the head, of a layer backward.
        moved_bytes: Read and written by them; what stays in a cache counts, too.
        products: Number of products by the dtypes of operands and sum, as they stand in
            the text, whether a loop repeats them or not.
    """

    launches: int
    loops: tuple[tuple[int, int], ...]
    moved_bytes: int
    products: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    text: str


def read_program(text: str) -> Program:
    """Read the text of a compiled program, from `Compiled.as_text`."""
    bodies, entry = _computations(text)
    types = {one.name: one.type for body in bodies.values() for one in body}
    products: collections.Counter[str] = collections.Counter()
    for body in bodies.values():
        products.update(_product(one, types) for one in body if _is_product(one))
    loops: list[tuple[int, int]] = []

    def run(name: str) -> tuple[int, int]:
        """Launches and bytes of a computation; notes its loops."""
        launches = moved = 0
        for one in bodies[name]:
            if one.opcode in _FREE or one.opcode.endswith("-done"):
                continue
            times, inner = _runs_inside(one, bodies)
            if inner is not None:
                n, n_bytes = run(inner)
                if one.opcode == "while":
                    loops.append((times, n))
                launches, moved = launches + times * n, moved + times * n_bytes
                continue
            launches += 1
            moved += _moved(one, bodies, types)
        return launches, moved

    launches, moved = run(entry)
    return Program(
        launches=launches,
        loops=tuple(loops),
        moved_bytes=moved,
        products=dict(sorted(products.items())),
    )


def program_lines(program: Program, n_layers: int) -> list[str]:
    """Lines for people: what a compiled program does on one device."""
    layers = [f"{n:,}" for turns, n in program.loops if turns == n_layers]
    products = [f"{n} of {words}" for words, n in program.products.items()]
    return [
        f"  launches {program.launches:,}"
        + (f", {' and '.join(layers)} a layer" if layers else ""),
        f"  read and written {1e-9 * program.moved_bytes:,.1f} GB",
        f"  products in the program: {'; '.join(products)}",
    ]


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    bodies: dict[str, list[_Instruction]] = {}
    entry, body = "", []
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            body = bodies.setdefault(found[2], [])
            entry = found[2] if found[1] else entry
        elif found := _INSTRUCTION.match(line):
            name, type_, opcode, rest = found.groups()
            operands = re.findall(r"%([\w.-]+)", rest.split("), ")[0])
            body.append(_Instruction(name, type_, opcode, tuple(operands), rest))
    return bodies, entry


def _runs_inside(
    one: _Instruction, bodies: Mapping[str, list[_Instruction]]
) -> tuple[int, str | None]:
    """How often an instruction runs which computation as a program of its own."""
    if one.opcode == "conditional" and (found := _BRANCHES.search(one.text)):
        return 1, found[1].split(",")[-1].strip(" %")
    if one.opcode not in ("while", "call") or not (found := _CALLED.search(one.text)):
        return 1, None
    if one.opcode == "call":
        return 1, found[1]
    if trips := _TRIPS.search(one.text):
        return int(trips[1]), found[1]
    # A TPU's compiler does not say; scans count up to a constant of the condition.
    condition = _CONDITION.search(one.text)
    bounds = [
        int(number[0])
        for inner in ([] if condition is None else bodies[condition[1]])
        if inner.opcode == "constant" and (number := re.match(r"\d+", inner.text))
    ]
    return max(bounds, default=1), found[1]


def _is_product(one: _Instruction) -> bool:
    return one.opcode in ("dot", "convolution") or bool(
        _LIBRARY_PRODUCT.search(one.text)
    )


def _product(one: _Instruction, types: Mapping[str, str]) -> str:
    """Such as `bf16 x bf16 -> f32`, with a precision that is not the default."""
    a, b = (_arrays(types[name])[0][0] for name in one.operands[:2])
    found = _PRECISION.search(one.text)
    precision = "" if found is None else f", {found[found.lastindex or 0].lower()}"
    return f"{a} x {b} -> {_arrays(one.type)[0][0]}{precision}"


def _arrays(type_: str) -> list[tuple[str, tuple[int, ...]]]:
    """Dtype and dimensions of each array of a type, which may be a tuple."""
    return [
        (dtype, tuple(int(n) for n in dims.split(",") if n))
        for dtype, dims in _ARRAY.findall(type_)
    ]


def _bytes(type_: str) -> int:
    bits = 0
    for dtype, dims in _arrays(type_):
        width = re.search(r"\d+", dtype)
        bits += math.prod(dims) * (8 if width is None else int(width[0]))
    return bits // 8


def _moved(
    one: _Instruction,
    bodies: Mapping[str, list[_Instruction]],
    types: Mapping[str, str],
) -> int:
    """Bytes that one kernel reads and writes."""
    called = _CALLED.search(one.text) if one.opcode == "fusion" else None
    if called is None:
        if one.opcode == "dynamic-update-slice":
            return 2 * _bytes(types[one.operands[1]])
        if one.opcode == "dynamic-slice":
            return 2 * _bytes(one.type)
        return _bytes(one.type) + sum(_bytes(types[name]) for name in one.operands)
    body, moved, in_place = bodies[called[1]], 0, 0
    for inner in body:
        if inner.opcode == "parameter":
            users = [user for user in body if inner.name in user.operands]
            if users and all(
                user.opcode == "dynamic-slice" and user.operands[0] == inner.name
                for user in users
            ):
                moved += sum(_bytes(user.type) for user in users)
            elif not any(
                user.opcode == "dynamic-update-slice" and user.operands[0] == inner.name
                for user in users
            ):
                moved += _bytes(inner.type)
        elif inner.opcode == "dynamic-update-slice":
            moved += _bytes(types[inner.operands[1]])
            in_place += _bytes(inner.type)
    return moved + max(0, _bytes(one.type) - in_place)
