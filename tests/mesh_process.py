"""What tests of meshes run in processes of their own.

The number of devices is fixed when JAX is first used, so each of these processes has
its own: `python mesh_process.py OUT` on eight devices of one process, and
`python mesh_process.py OUT FOLDER PORT PROCESS` on two of each of two processes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from jaxcontam.models import weights
from jaxcontam.models.checkpoint import load_decoder
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import ROWS, mesh_layout
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.mesh import (
    MeshShape,
    device_mesh,
    on_mesh,
    parse_mesh,
    sharded_forward,
)
from jaxcontam.scoring.pair_plan import PairGroup

ROOT = Path(__file__).resolve().parent.parent
V, D, LAYERS, CONTEXT = 1100, 32, 2, 64
# Of one device, in the comparison to the bit.
ROWS_OF_A_DEVICE, LENGTH = 2, 24
_COLLECTIVES = (
    "all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute|"
    "collective-broadcast"
)


def started(*arguments, n_devices):
    """A process of this file on so many virtual devices, running."""
    return subprocess.Popen(
        [sys.executable, __file__, *map(str, arguments)],
        env={
            **os.environ,
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def decoder():
    shape = llama_shape(
        vocab_size=V, d_model=D, n_layers=LAYERS, n_heads=4, d_ff=64, context=CONTEXT
    )
    return Decoder(shape, rngs=nnx.Rngs(0))


def drawn(low, high, n, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(low, high + 1, size=n)
    return [rng.integers(0, V, size=length).astype(np.int32) for length in lengths]


def sequences():
    """Rows of two padded lengths; the longest has two windows."""
    return [*drawn(18, 25, 19), *drawn(50, 65, 9), *drawn(90, 90, 1)]


def groups():
    """Prefixes with two continuations each, of one padded length."""
    ids = drawn(18, 24, 11, seed=1)
    return [
        PairGroup(ids[i], (ids[i - 1], ids[i - 2]), i, (i - 1, i - 2))
        for i in range(len(ids))
    ]


def scores(decoder):
    """Flat scores of tokens and of pairs, and norms of gradients."""
    scorer = local_scorer(decoder, moments=True)
    pairs = scorer.pairs.logprobs(groups()).logprobs
    norms = gradient_norms(decoder, drawn(18, 24, 5), batch_tokens=48).norms
    return {
        "tokens": _flat(scorer.tokens(sequences())),
        "pairs": _flat([part for group in pairs for part in group]),
        "norms": norms,
    }


def compiled(shape, mesh, n_rows=16):
    """The kernel's compiled program for a decoder of a shape; nothing is allocated."""
    made = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
    graphdef, state = nnx.split(made)
    layout = mesh_layout(state, mesh)
    state = jax.tree.map(
        lambda leaf, spec: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)
        ),
        state,
        layout.specs(state),
    )
    ids = jax.ShapeDtypeStruct(
        (n_rows, LENGTH), np.int32, sharding=NamedSharding(mesh, ROWS)
    )
    from jaxcontam.scoring import mesh as module

    return module._compiled(graphdef, mesh, layout, False).lower(state, ids, ids)


def _flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def _collectives(program):
    return re.findall(rf"= .*? ({_COLLECTIVES})(?:-start)?\(", program.as_text())


def _rows_alone_and_together():
    """The same rows, those of each device alone on one, and all on eight."""
    graphdef, state = nnx.split(decoder())
    ids = np.stack(drawn(LENGTH, LENGTH, 8 * ROWS_OF_A_DEVICE, seed=2))
    forward = sharded_forward(graphdef, state, device_mesh(MeshShape()), moments=True)
    one = device_mesh(MeshShape(), jax.devices()[:1])
    alone = sharded_forward(graphdef, state, one, moments=True)
    parts = np.split(ids, 8)
    return (
        np.stack([np.asarray(part) for part in forward(ids, ids)]),
        np.concatenate(
            [
                np.stack([np.asarray(part) for part in alone(rows, rows)])
                for rows in parts
            ],
            axis=1,
        ),
    )


def on_eight_devices(out):
    assert len(jax.devices()) == 8
    found = {}
    for word in ("data=8", "data=2,model=4"):
        placed = decoder()
        graphdef, state = nnx.split(placed)
        state, _ = on_mesh(state, device_mesh(parse_mesh(word)))
        found |= {
            f"{word} {k}": v for k, v in scores(nnx.merge(graphdef, state)).items()
        }
    found["together"], found["alone"] = _rows_alone_and_together()
    # Many layers beside a small vocabulary, as in a large model.
    shape = llama_shape(
        vocab_size=64, d_model=64, n_layers=24, n_heads=4, d_ff=128, context=32
    )
    whole = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
    found["bytes"] = sum(4 * leaf.size for leaf in jax.tree.leaves(nnx.state(whole)))
    for word in ("data=8", "data=2,model=4", "model=8"):
        program = compiled(shape, device_mesh(parse_mesh(word))).compile()
        memory = program.memory_analysis()
        found[f"{word} collectives"] = np.array(_collectives(program), "U20")
        found[f"{word} kept"] = memory.argument_size_in_bytes
        found[f"{word} needed"] = memory.temp_size_in_bytes
    np.savez(out, **found)


def of_two_processes(out, folder, port, process):
    jax.distributed.initialize(
        f"127.0.0.1:{port}", num_processes=2, process_id=int(process)
    )
    assert (len(jax.local_devices()), len(jax.devices())) == (2, 4)
    found = {}
    with counted_bytes() as read:
        for word in ("model=4", "data=2,model=2"):
            read.clear()
            placed = load_decoder(Path(folder), mesh=device_mesh(parse_mesh(word)))
            found[f"{word} read"] = sum(read)
            found |= {f"{word} {k}": v for k, v in scores(placed).items()}
    np.savez(out, **found)
    jax.distributed.shutdown()


class counted_bytes:
    """Within it, a list of the bytes of each read of a weight's part."""

    def __enter__(self):
        self.opened, read = weights.safe_open, []

        class Counted(self.opened):
            def get_slice(self, name):
                return _CountedSlice(super().get_slice(name), read)

        weights.safe_open = Counted
        return read

    def __exit__(self, *_):
        weights.safe_open = self.opened


class _CountedSlice:
    def __init__(self, opened, read):
        self.opened, self.read = opened, read

    def get_shape(self):
        return self.opened.get_shape()

    def __getitem__(self, cut):
        part = self.opened[cut]
        self.read.append(part.nbytes)
        return part


if __name__ == "__main__":
    (on_eight_devices if len(sys.argv) == 2 else of_two_processes)(*sys.argv[1:])
