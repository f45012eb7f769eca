"""What XLA's TPU compiler makes of our programs, for chips that are not here.

Every fusion of a compiled program carries the compiler's own estimate of its cycles.
Multiplied by the trips of its loops they are an estimate of time, by a cost model that
knows no other traffic: they compare programs and find copies, and are no measurement.
Pallas calls (attention by splash) carry none and are not in the sums.

Needs libtpu (`pip install -e '.[tpu]'`) and no TPU.
"""

import collections
import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from eval.speed.measure import Table
from eval.speed.subjects import is_operand, subject
from eval.study import say
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.config import DecoderConfig
from jaxcontam.scoring.parts import MeshShape

# Kind of a chip -> its name in a slice's, and its clock in Hz.
_CHIPS = {
    "v5e": ("v5litepod", 1.5e9),
    "v6e": ("v6e", 1.75e9),
}
# Chips of a slice -> its sides.
_SIDES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"}
SLICES = [f"{kind}-{n}" for kind in _CHIPS for n in _SIDES]
"""Slices that can be compiled for."""
# Tokens of a batch, as accelerators score them; pairs of direction at the default seam,
# a few tokens of frame among them.
_BATCH_TOKENS = 1 << 14
_PREFIX, _SCORED, _CONTINUATIONS = 112, 64, 3

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CONDITION = re.compile(r"condition=%?([\w.-]+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_SHAPE = re.compile(r"(pred|[a-z]+\d+)\[([\d,]*)\]")
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_COLLECTIVES += ("collective-permute",)


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """An instruction of a compiled program.

    Attributes:
        kind: product, copy, collective, a Pallas call, or other.
        times: How often it runs, loops multiplied.
        cycles: Of all these runs; 0 where there is no estimate.
        n_bytes: Of its result, in one run.
    """

    kind: str
    times: int
    cycles: int
    n_bytes: int


def costs(text: str) -> Iterator[Cost]:
    """Costs of an optimised HLO module, times the trips of the loops around them."""
    bodies: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    entry, own = "", ""
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            own = found[2]
            entry = own if found[1] else entry
        elif found := _INSTRUCTION.match(line):
            bodies[own].append((found[2], found[3], found[4]))

    def trips(rest: str) -> int:
        if found := _TRIPS.search(rest):
            return int(found[1])
        condition = _CONDITION.search(rest)
        tests = [] if condition is None else bodies[condition[1]]
        bounds = [
            re.match(r"(\d+)\)", rest) for _, op, rest in tests if op == "constant"
        ]
        return max((int(bound[1]) for bound in bounds if bound), default=1)

    @functools.cache
    def has(name: str, *ops: str) -> bool:
        for _, op, rest in bodies[name]:
            called = _CALLED.search(rest)
            inner = op == "fusion" and called is not None and has(called[1], *ops)
            if op in ops or inner:
                return True
        return False

    def kind(op: str, rest: str) -> str:
        called = _CALLED.search(rest) if op == "fusion" else None
        if op in ("convolution", "dot"):
            return "product"
        if called is not None and has(called[1], "convolution", "dot"):
            return "product"
        # What begins is counted where it is done.
        if op.removesuffix("-done") in _COLLECTIVES:
            return "collective"
        if op == "custom-call" and (target := _TARGET.search(rest)):
            return "Pallas call" if target[1] == "tpu_custom_call" else "other"
        is_copy = op.startswith("copy") or (
            called is not None and moves_alone(called[1])
        )
        return "copy" if is_copy else "other"

    def moves_alone(name: str) -> bool:
        moves = {"copy", "transpose", "bitcast", "reshape", "parameter", "tuple"}
        return {op for _, op, _ in bodies[name]} <= moves

    def walk(name: str, times: int) -> Iterator[Cost]:
        for shape, op, rest in bodies[name]:
            called = _CALLED.search(rest)
            if called is not None and op in ("while", "call"):
                yield from walk(
                    called[1], times * trips(rest) if op == "while" else times
                )
                continue
            if op == "conditional" and (branches := _BRANCHES.search(rest)):
                # One of them runs: the costliest is counted.
                names = branches[1].replace("%", "").split(", ")
                found = [list(walk(name, times)) for name in names]
                yield from max(found, key=lambda own: sum(x.cycles for x in own))
                continue
            estimate = _CYCLES.search(rest)
            cycles = times * int(estimate[1]) if estimate else 0
            own = kind(op, rest)
            if cycles or own in ("collective", "Pallas call"):
                yield Cost(own, times, cycles, _n_bytes(shape))

    yield from walk(entry, 1)


def _n_bytes(shape: str) -> int:
    """Bytes of a result; of a tuple those of all its parts."""
    total = 0
    for kind, sides in _SHAPE.findall(shape):
        bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
        total += bits * math.prod(map(int, filter(None, sides.split(",")))) // 8
    return total


def measure_compiled(slice_name: str, *, tiny: bool) -> Table:
    """A row a program: estimated ms by kind, GB of memory and of collectives.

    A program that the compiler refuses says why, and the others go on.
    """
    from train.dry_run import peak_bytes

    devices, hertz = absent_devices(slice_name)
    found: Table = {}
    for name, compile_it in _programs(devices, tiny=tiny).items():
        say(f"eval.speed: {name}")
        try:
            program = compile_it()
        except RuntimeError as e:
            found[name] = {"failed": str(e).splitlines()[0]}
            continue
        own = list(costs(program.as_text()))
        ms = {
            kind: sum(cost.cycles for cost in own if cost.kind == kind) * 1e3 / hertz
            for kind in ("product", "copy", "other")
        }
        moved = [cost for cost in own if cost.kind == "collective"]
        found[name] = {
            "ms": sum(ms.values()),
            **{f"{kind} ms": value for kind, value in ms.items()},
            "Pallas calls": sum(c.times for c in own if c.kind == "Pallas call"),
            "collectives GB": 1e-9 * sum(cost.times * cost.n_bytes for cost in moved),
            "memory GB": 1e-9 * peak_bytes(program),
        }
    return found


def absent_devices(name: str) -> tuple[list[Any], float]:
    """Devices of a slice that is not here, such as v5e-64, and their clock in Hz.

    Raises:
        InputError: If there is no such slice, or no compiler for it.
    """
    if name not in SLICES:
        raise unknown_name("slice", name, SLICES)
    kind, _, n = name.partition("-")
    pod, hertz = _CHIPS[kind]
    try:
        import libtpu  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise InputError(
            "libtpu, which compiles for a TPU, is not installed",
            hint="pip install -e '.[tpu]'",
        ) from e
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", f"{pod}-8")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # Another process may have it, another compilation or a run.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    # A slice of one chip is not a part of a host with four.
    host = {"chips_per_host_bounds": (1, 1, 1)} if n == "1" else {}
    found = topologies.get_topology_desc(
        f"{kind}:{_SIDES[int(n)]}", platform="tpu", **host
    )
    return list(found.devices), hertz


def _programs(devices: list[Any], *, tiny: bool) -> dict[str, Callable[[], Any]]:
    """What is compiled, by name: programs for all devices."""
    n = len(devices)
    found: dict[str, Callable[[], Any]] = {}
    # The last one's windows are of 512 tokens.
    for size, fsdp, T in (
        ("1.4b", 1, 512),
        ("7b", min(4, n), 512),
        ("1b_262k", 1, 2048),
    ):
        found[f"score {size}, fsdp={fsdp}, rows of {T}"] = functools.partial(
            _rows, subject(size, tiny=tiny).config, fsdp, 64 if tiny else T, devices
        )
    config = subject("1.4b", tiny=tiny).config
    found["pairs 1.4b"] = functools.partial(_pairs, config, devices, tiny=tiny)
    found["train 1.4b"] = functools.partial(_training, devices, tiny=tiny)
    return found


def _rows(config: DecoderConfig, fsdp: int, T: int, devices: list[Any]) -> Any:
    from jaxcontam.scoring.mesh import compiled_tokens

    mesh, graphdef, state, sharding = _placed(config, fsdp, devices)
    ids = _ids((len(devices) * _BATCH_TOKENS // T, T), mesh)
    score = compiled_tokens(graphdef, mesh, sharding, False)
    return score.lower(state, ids, ids).compile()


def _pairs(config: DecoderConfig, devices: list[Any], *, tiny: bool) -> Any:
    from jaxcontam.scoring.mesh import compiled_pairs

    mesh, graphdef, state, sharding = _placed(config, 1, devices)
    K, P, T = (2, 32, 16) if tiny else (_CONTINUATIONS, _PREFIX, _SCORED)
    at_once = 2 if tiny else _BATCH_TOKENS // (P + K * T)
    shapes = (at_once * len(devices), P), (at_once * len(devices),)
    arrays = [_ids(shape, mesh) for shape in (*shapes, (shapes[0][0], K, T))]
    score = compiled_pairs(graphdef, mesh, sharding, at_once)
    return score.lower(state, *arrays).compile()


def _training(devices: list[Any], *, tiny: bool) -> Any:
    from train.config import PRESETS
    from train.dry_run import compiled

    config = PRESETS["pulse" if tiny else "1.4b"]
    n = len(devices)
    rows = {"batch_rows": n * (1 if tiny else 4), "micro_batches": 1}
    shape = MeshShape(n // min(4, n), min(4, n))
    return compiled(config.changed(**rows), shape, devices)


def _placed(config: DecoderConfig, fsdp: int, devices: list[Any]) -> Any:
    """Mesh, graph definition, shapes of the weights in bfloat16, and their sharding."""
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import abstract_decoder
    from jaxcontam.models.fused_attention import hardware_of
    from jaxcontam.models.sharding import mesh_sharding
    from jaxcontam.scoring.mesh import device_mesh

    mesh = device_mesh(MeshShape(None, fsdp), devices)
    graphdef, state = nnx.split(abstract_decoder(config, hardware_of(devices[0])))
    sharding = mesh_sharding(state, mesh)

    def placed(path: Any, leaf: Any, spec: Any) -> Any:
        dtype = "bfloat16" if is_operand(path) else leaf.dtype
        where = jax.sharding.NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=where)

    state = jax.tree.map_with_path(placed, state, sharding.specs(state))
    return mesh, graphdef, state, sharding


def _ids(shape: tuple[int, ...], mesh: Any) -> Any:
    import jax

    from jaxcontam.models.sharding import ROWS

    where = jax.sharding.NamedSharding(mesh, ROWS)
    return jax.ShapeDtypeStruct(shape, "int32", sharding=where)
