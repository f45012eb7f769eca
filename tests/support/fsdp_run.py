"""A run on 8 virtual devices, by several meshes: started by tests, not collected."""

import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.checkpoints import Checkpoints
from train.config import PRESETS, Compute, Config
from train.data import Rows, row_batches
from train.loop import Watch, compiled_step, train
from train.step import abstract_params, fresh_decoder, placed, whole_decoder

N_STEPS = 12
PULSE = dataclasses.replace(PRESETS["pulse"], batch_rows=16)
MESHES = {"1x1": (1, 1), "8x1": (8, 1), "2x4": (2, 4), "1x8": (1, 8)}
WIDE = dataclasses.replace(PULSE.decoder, d_model=128, d_ff=512, n_layers=6)
WAYS = {
    "micro": Compute(micro_batches=2),
    "remat": Compute(remat=True),
    "bfloat16": Compute(dtype="bfloat16"),
}


def mesh_of(name: str):
    data, model = MESHES[name]
    return device_mesh(MeshShape(data, model), jax.devices()[: data * model])


def fresh(config: Config, name: str):
    return fresh_decoder(config.decoder, seed=7, mesh=mesh_of(name))


def run(config: Config, name: str, folder: Path | None = None, stop: int | None = None):
    """Losses of one start of a run and the decoder after it."""
    losses: dict[int, float] = {}
    seen = iter(range(1, N_STEPS + 1))
    ids = np.random.default_rng(0).integers(0, 512, 20_000, dtype=np.int32)
    starts = np.random.default_rng(1).permutation(312)[: 16 * N_STEPS] * 64
    checkpoints = None if folder is None else Checkpoints(folder, config=config)
    trained = train(
        config,
        fresh(config, name),
        row_batches(Rows(ids, starts, 64), batch_rows=16, n_steps=N_STEPS),
        n_steps=N_STEPS,
        mesh=mesh_of(name),
        checkpoints=checkpoints,
        watch=Watch(
            steps=lambda before, found: losses.update(
                enumerate(found["loss"].tolist(), before + 1)
            )
        ),
        should_stop=lambda: next(seen) == stop,
    )
    if checkpoints is not None:
        checkpoints.close()
    return losses, trained.decoder


def share(state) -> float:
    """Of the bytes of some arrays, the part that the first device holds."""
    leaves = jax.tree.leaves(state)
    here = sum(leaf.addressable_data(0).nbytes for leaf in leaves)
    return here / sum(leaf.nbytes for leaf in leaves)


def gap(one, other) -> float:
    pairs = zip(*(jax.tree.leaves(nnx.state(d)) for d in (one, other)), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def first_step(config: Config, name: str):
    """Weights, the optimiser's first state and the step of a mesh."""
    graphdef, params = nnx.split(fresh(config, name))
    first_state, update = compiled_step(graphdef, config, N_STEPS, mesh_of(name))
    return params, first_state(params), update


def compiled(name: str, *, remat: bool) -> dict[str, object]:
    """What the compiler says of a step of a wider model; nothing is run."""
    config = dataclasses.replace(PULSE, decoder=WIDE, compute=Compute(remat=remat))
    params, state, update = first_step(config, name)
    rows = jax.ShapeDtypeStruct((16, 65), np.int32)
    program = update.lower(params, state, rows).compile()
    memory, text = program.memory_analysis(), program.as_text()
    kinds = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")
    return {
        "weights": 4 * sum(one.size for one in jax.tree.leaves(abstract_params(WIDE))),
        "argument": memory.argument_size_in_bytes,
        "temp": memory.temp_size_in_bytes,
        "collectives": {
            kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in kinds
        },
    }


def drawn_run(seed: int, folder: Path) -> dict[str, Any]:
    """Losses of a run that stops at a random step and goes on on another mesh."""
    rng = np.random.default_rng(seed)
    first, second = rng.choice(list(MESHES), 2).tolist()
    n, remat = int(rng.choice([1, 2])), bool(rng.integers(2))
    compute = Compute(micro_batches=n, remat=remat)
    stop = int(rng.integers(1, N_STEPS))
    config = dataclasses.replace(PULSE, compute=compute)
    losses, _ = run(config, first, folder, stop)
    rest, _ = run(config, second, folder)
    about = f"{first} to {second} at {stop}, {compute}"
    return {"about": about, "losses": losses | rest, "n_first": len(losses)}


def main(folder: Path, *names: str) -> None:
    """Runs on these meshes; with 2x4 random ones too, else other ways to compute."""
    runs = {name: run(PULSE, name) for name in names}
    losses = {name: one for name, (one, _) in runs.items()}
    decoders = {name: decoder for name, (_, decoder) in runs.items()}
    found: dict[str, Any] = {
        "losses": losses,
        "shares": {name: share(nnx.state(one)) for name, one in decoders.items()},
        "gaps": {name: gap(one, decoders["1x1"]) for name, one in decoders.items()},
    }
    if "2x4" in names:
        divided = decoders["2x4"]
        whole = whole_decoder(divided)
        found["state_share"] = share(first_step(PULSE, "2x4")[1])
        found["fresh"] = gap(fresh(PULSE, "2x4"), fresh(PULSE, "1x1"))
        found["whole"] = gap(whole, divided)
        found["placed"] = share(placed(nnx.state(whole), mesh_of("2x4")))
        found["drawn"] = [drawn_run(i, folder / f"drawn-{i}") for i in range(4)]
    else:
        for (way, compute), mesh in itertools.product(WAYS.items(), ("1x1", "2x4")):
            config = dataclasses.replace(PULSE, compute=compute)
            losses[f"{way} {mesh}"], _ = run(config, mesh)
        found["compiled"] = {
            f"{mesh} {remat}": compiled(mesh, remat=remat)
            for mesh in ("1x1", "1x8")
            for remat in (False, True)
        }
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
