"""A run on 8 virtual devices, by several meshes: started by tests, not collected."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxcontam.models.config import DecoderConfig
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.checkpoints import Checkpoints
from train.loop import Watch, compiled_step, train
from train.presets import PRESETS, Preset
from train.rows import Rows, row_batches
from train.step import Compute, abstract_params, fresh_decoder, placed, whole_decoder

N_STEPS = 12
PULSE = dataclasses.replace(PRESETS["pulse"], batch_rows=16)
MESHES = {"1x1": (1, 1), "8x1": (8, 1), "2x4": (2, 4), "1x8": (1, 8)}
WIDE = DecoderConfig(
    **{**dataclasses.asdict(PULSE.decoder), "d_model": 128, "d_ff": 512, "n_layers": 6}
)


def mesh_of(name: str):
    data, model = MESHES[name]
    return device_mesh(MeshShape(data, model), jax.devices()[: data * model])


def run(preset: Preset, name: str, folder: Path | None = None, stop: int | None = None):
    """Losses of one start of a run and the decoder after it."""
    losses: dict[int, float] = {}
    seen = iter(range(1, N_STEPS + 1))
    ids = np.random.default_rng(0).integers(0, 512, 20_000, dtype=np.int32)
    starts = np.random.default_rng(1).permutation(312)[: 16 * N_STEPS] * 64
    mesh = mesh_of(name)
    checkpoints = None if folder is None else Checkpoints(folder, preset=preset)
    trained = train(
        preset,
        fresh_decoder(preset.decoder, seed=7, mesh=mesh),
        row_batches(Rows(ids, starts, 64), batch_rows=16, n_steps=N_STEPS),
        n_steps=N_STEPS,
        mesh=mesh,
        checkpoints=checkpoints,
        watch=Watch(
            losses=lambda before, found: losses.update(
                enumerate(found.tolist(), before + 1)
            )
        ),
        should_stop=lambda: next(seen) == stop,
    )
    if checkpoints is not None:
        checkpoints.close()
    return losses, trained.decoder


def share(leaves) -> float:
    """Of the bytes of some arrays, the part that the first device holds."""
    here = sum(leaf.addressable_data(0).nbytes for leaf in leaves)
    return here / sum(leaf.nbytes for leaf in leaves)


def lies(decoder) -> float:
    """Share of the weights that one device holds."""
    return share(jax.tree.leaves(nnx.state(decoder)))


def state_share(name: str) -> float:
    """Share of the optimiser's first state that one device holds."""
    mesh = mesh_of(name)
    graphdef, params = nnx.split(fresh_decoder(PULSE.decoder, seed=7, mesh=mesh))
    first_state, _ = compiled_step(graphdef, PULSE, N_STEPS, mesh)
    return share(jax.tree.leaves(first_state(params)))


def gap(one, other) -> float:
    pairs = zip(*(jax.tree.leaves(nnx.state(d)) for d in (one, other)), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def compiled(name: str, *, remat: bool) -> dict[str, object]:
    """What the compiler says of a step of a wider model; nothing is run."""
    preset = dataclasses.replace(PULSE, decoder=WIDE, compute=Compute(remat=remat))
    mesh = mesh_of(name)
    decoder = fresh_decoder(WIDE, seed=0, mesh=mesh)
    graphdef, params = nnx.split(decoder)
    first_state, update = compiled_step(graphdef, preset, 10, mesh)
    rows = jax.ShapeDtypeStruct((16, 65), np.int32)
    state = first_state(params)
    program = update.lower(params, state, rows).compile()
    memory = program.memory_analysis()
    text = program.as_text()
    return {
        "weights": sum(
            4 * leaf.size for leaf in jax.tree.leaves(abstract_params(WIDE))
        ),
        "argument": memory.argument_size_in_bytes,
        "temp": memory.temp_size_in_bytes,
        "collectives": {
            kind: len(re.findall(rf" {kind}(?:-start)?\(", text))
            for kind in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")
        },
    }


def drawn_run(seed: int, folder: Path) -> dict[str, Any]:
    """Losses of a run that stops at a random step and goes on on another mesh."""
    rng = np.random.default_rng(seed)
    first, second = rng.choice(list(MESHES), 2).tolist()
    compute = Compute(n_micro=int(rng.choice([1, 2])), remat=bool(rng.integers(2)))
    stop = int(rng.integers(1, N_STEPS))
    preset = dataclasses.replace(PULSE, compute=compute)
    losses, _ = run(preset, first, folder, stop)
    rest, _ = run(preset, second, folder)
    about = f"{first} to {second} at {stop}, {compute}"
    return {"about": about, "losses": losses | rest, "n_first": len(losses)}


def main(folder: Path, *what: str) -> None:
    """Runs on the meshes named, and whatever else is named."""
    meshes = [name for name in what if name in MESHES]
    found: dict[str, Any] = {"losses": {}, "gaps": {}, "shares": {}}
    decoders = {}
    for name in meshes:
        found["losses"][name], decoders[name] = run(PULSE, name)
        found["shares"][name] = lies(decoders[name])
        found["gaps"][name] = gap(decoders[name], decoders["1x1"])
    found["state_shares"] = {"2x4": state_share("2x4")}
    found["fresh"] = gap(
        fresh_decoder(PULSE.decoder, seed=7, mesh=mesh_of("2x4")),
        fresh_decoder(PULSE.decoder, seed=7, mesh=mesh_of("1x1")),
    )
    whole = whole_decoder(decoders["2x4"])
    found["whole"] = gap(whole, decoders["2x4"])
    found["placed"] = lies(placed(nnx.state(whole), mesh_of("2x4")))
    found["restarts"] = {}
    last = "1x1" if len(meshes) > 2 else meshes[-1]
    stops = [*((name, 3) for name in meshes if name != last), (last, None)]
    if last == "1x1":
        stops.insert(0, (last, 3))
    for name, stop in stops:
        losses, _ = run(PULSE, name, folder / "run", stop)
        found["restarts"] |= losses
    if "drawn" in what:
        found["drawn"] = [drawn_run(i, folder / f"drawn-{i}") for i in range(4)]
    if "computes" in what:
        for name, compute in (
            ("micro", Compute(n_micro=2)),
            ("remat", Compute(remat=True)),
            ("bfloat16", Compute(dtype="bfloat16")),
        ):
            preset = dataclasses.replace(PULSE, compute=compute)
            for mesh in ("1x1", "2x4"):
                found["losses"][f"{name} {mesh}"], _ = run(preset, mesh)
    if "sizes" in what:
        found["compiled"] = {
            f"{mesh} {remat}": compiled(mesh, remat=remat)
            for mesh in ("1x1", "1x8")
            for remat in (False, True)
        }
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
