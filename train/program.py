"""A training step compiled for absent devices: its memory, and what the program does.

Nothing is allocated. What it launches, moves and multiplies is read in its optimised
HLO: counts, not times. A loop's body counts as often as it runs; what a fusion reads of
a stacked weight is the layer's slice.
"""

import collections
import dataclasses
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.models.fused_attention import Hardware, hardware_of
from jaxcontam.models.sharding import DATA_AXIS, MODEL_AXIS, ROWS
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.hardware import compiled_for
from train.loop import compiled_step
from train.presets import Preset
from train.step import abstract_params, adamw, param_shardings, state_shardings

# Length of the learning-rate schedule; it changes no shape.
_N_STEPS = 1000
_FLOAT = 4
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """Memory of one compiled training step on each device, by its compiler's analysis.

    Attributes:
        compiler: `cpu`, `gpu` or `tpu`.
        argument_bytes: Weights, optimiser state and rows.
        peak_bytes: Largest memory at any time, arguments included; None if refused.
        seconds: Time to compile.
        refused: The compiler's reason for making no such step, or None.
        program: What the step launches, moves and multiplies; None if refused, or from
            the CPU's compiler, whose program says nothing of another device's.
    """

    compiler: str
    argument_bytes: int
    peak_bytes: int | None
    seconds: float
    refused: str | None = None
    program: Program | None = None


def compiled_memory(
    preset: Preset, model: int, devices: Sequence[Any]
) -> CompiledMemory:
    """Compile the step as a run makes it, and read the compiler's memory analysis."""
    begun, compiler = time.monotonic(), devices[0].platform
    memory = refused = program = None
    mesh = device_mesh(MeshShape(model=model), devices)
    lowered = _traced_step(preset, mesh, hardware_of(devices[0])).lower()
    try:
        compiled = compiled_for(lowered, devices[0])
        memory = compiled.memory_analysis()
        if compiler != "cpu":
            program = read_program(compiled.as_text())
    except jax.errors.JaxRuntimeError as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        refused = str(e).splitlines()[0]
    return CompiledMemory(
        compiler=compiler,
        argument_bytes=0 if memory is None else memory.argument_size_in_bytes,
        peak_bytes=None if memory is None else _peak(memory, compiler),
        seconds=round(time.monotonic() - begun, 1),
        refused=refused,
        program=program,
    )


def _peak(memory: Any, compiler: str) -> int:
    if compiler == "tpu":
        # Its temporary part counts gaps between arrays as well.
        return memory.peak_memory_in_bytes
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return peak + memory.output_size_in_bytes - memory.alias_size_in_bytes


def state_bytes(preset: Preset, model: int) -> int:
    """Weights, two moments and gradients of a device, float32: no step needs less.

    Raises:
        InputError: If `model` devices cannot share the weights.
    """
    mesh: Any = AbstractMesh((1, model), (DATA_AXIS, MODEL_AXIS), (AxisType.Auto,) * 2)
    shapes = abstract_params(preset.decoder)
    n_weights = jax.tree.map(
        lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)),
        shapes,
        param_shardings(shapes, mesh),
    )
    return 4 * _FLOAT * sum(jax.tree.leaves(n_weights))


def divides(preset: Preset, model: int) -> bool:
    """Whether `model` devices can share the weights."""
    try:
        state_bytes(preset, model)
    except InputError:
        return False
    return True


def _traced_step(preset: Preset, mesh: Any, on: Hardware) -> Any:
    """The step as a run jits it."""
    graphdef, shapes = nnx.split(abstract_decoder(preset.decoder, on))
    optimizer = adamw(preset.peak_rate, _N_STEPS, shapes, schedule=preset.schedule)
    rows = jax.ShapeDtypeStruct((preset.batch_rows, preset.context + 1), "int32")
    arguments = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        (shapes, jax.eval_shape(optimizer.init, shapes), rows),
        (
            param_shardings(shapes, mesh),
            state_shardings(optimizer, shapes, mesh),
            NamedSharding(mesh, ROWS),
        ),
    )
    _, update = compiled_step(graphdef, preset, _N_STEPS, mesh)
    return update.trace(*arguments)
