"""What tests of meshes run in processes of their own.

The number of devices is fixed when JAX is first used, so each of these processes has
its own. Each task writes what it found to the file that is named first:

    eight OUT                     on eight devices of one process
    families OUT FOLDER           on four devices; what it finds it asserts
    family_scores OUT             on four devices
    half OUT FOLDER PORT PROCESS  on two devices of each of two processes
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jax
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from jaxcontam.models import weights
from jaxcontam.models.checkpoint import load_decoder
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import ROWS, mesh_sharding, weight_name
from jaxcontam.scoring import mesh as mesh_module
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
from tests.support.decoders import spread

ROOT = Path(__file__).resolve().parents[2]
V, D, LAYERS, CONTEXT = 1100, 32, 2, 64
# Of one device, in the comparison to the bit.
ROWS_OF_A_DEVICE, LENGTH = 2, 64
_COLLECTIVES = "all-gather|all-reduce|all-to-all|reduce-scatter|collective-[a-z]+"


def started(*arguments, n_devices):
    """A process of this file on so many virtual devices, running."""
    devices = f"--xla_force_host_platform_device_count={n_devices}"
    own = {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    words = [sys.executable, __file__, *map(str, arguments)]
    how = {"cwd": ROOT, "stdout": pipe, "stderr": pipe, "text": True}
    return subprocess.Popen(words, env=os.environ | own, **how)


def decoder(d_ff=64):
    shape = llama_shape(
        vocab_size=V, d_model=D, n_layers=LAYERS, n_heads=4, d_ff=d_ff, context=CONTEXT
    )
    return spread(shape, loc=0.0, scale=0.1)


def placed(word):
    """The decoder on a mesh of all devices."""
    graphdef, state = nnx.split(decoder())
    return nnx.merge(graphdef, on_mesh(state, device_mesh(parse_mesh(word)))[0])


def drawn(low, high, n, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(low, high + 1, size=n)
    return [rng.integers(0, V, size=length).astype(np.int32) for length in lengths]


def sequences():
    """Rows of one padded length; the longest text has two windows."""
    return [*drawn(50, 65, 19), *drawn(113, 113, 1)]


def groups():
    """Prefixes with two continuations each, of one padded length."""
    ids = drawn(18, 24, 11, seed=1)
    return [
        PairGroup(ids[i], (ids[i - 1], ids[i - 2]), i, (i - 1, i - 2))
        for i in range(len(ids))
    ]


def token_scores(decoder):
    """Log-probabilities, means, variances and tops, flat."""
    return _flat(local_scorer(decoder, moments=True).tokens(sequences()))


def pair_scores(decoder):
    """Log-probabilities of continuations, flat."""
    found = local_scorer(decoder).pairs.logprobs(groups()).logprobs
    return _flat([part for group in found for part in group])


def norms(decoder):
    """Norms of gradients."""
    return gradient_norms(decoder, drawn(18, 24, 5), batch_tokens=48).norms


KINDS = {"tokens": token_scores, "pairs": pair_scores, "norms": norms}


def compiled(shape, mesh, n_rows=16):
    """The kernel's compiled program for a decoder of a shape; nothing is allocated."""
    graphdef, state = nnx.split(
        nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
    )
    sharding = mesh_sharding(state, mesh)

    def placed(shape, dtype, spec):
        where = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=where)

    state = jax.tree.map(
        lambda leaf, spec: placed(leaf.shape, leaf.dtype, spec),
        state,
        sharding.specs(state),
    )
    ids = placed((n_rows, LENGTH), np.int32, ROWS)
    lowered = mesh_module._tokens.lower(
        graphdef, mesh, sharding, False, state, ids, ids
    )
    return lowered.compile()


def _flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def _rows_together(devices, ids):
    """Tokens' scores and moments of rows that these devices share."""
    mesh = device_mesh(MeshShape(), devices)
    forward = sharded_forward(*nnx.split(decoder()), mesh, moments=True)
    return np.stack([np.asarray(part) for part in forward(ids, ids)])


def eight(out):
    assert len(jax.devices()) == 8
    found = {"data=8 tokens": token_scores(placed("data=8"))}
    for kind in ("tokens", "pairs"):
        word = "data=2,fsdp=4"
        found[f"{word} {kind}"] = KINDS[kind](placed(word))
    weights = jax.tree.leaves(nnx.state(placed("data=2,fsdp=4")))
    found["devices of weights"] = [len(one.sharding.device_set) for one in weights]
    ids = np.stack(drawn(LENGTH, LENGTH, 8 * ROWS_OF_A_DEVICE, seed=2))
    found["together"] = _rows_together(None, ids)
    alone = [_rows_together(jax.devices()[:1], rows) for rows in np.split(ids, 8)]
    found["alone"] = np.concatenate(alone, axis=1)
    # Many layers beside a small vocabulary, as in a large model.
    shape = llama_shape(
        vocab_size=64, d_model=64, n_layers=24, n_heads=4, d_ff=128, context=64
    )
    whole = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
    found["bytes"] = sum(4 * leaf.size for leaf in jax.tree.leaves(nnx.state(whole)))
    for word in ("data=8", "fsdp=8"):
        program = compiled(shape, device_mesh(parse_mesh(word)))
        memory = program.memory_analysis()
        sent = re.findall(rf"= .*? ({_COLLECTIVES})(?:-start)?\(", program.as_text())
        found[f"{word} collectives"] = np.array(sent, "U20")
        found[f"{word} kept"] = memory.argument_size_in_bytes
        found[f"{word} needed"] = memory.temp_size_in_bytes
    np.savez(out, **found)


def families(out, folder):
    """Each family's file read whole, and in halves on two pairs of devices."""
    from tests.support.decoders import weights
    from tests.support.family_files import RAW, drawn, raw_config, write

    mesh = device_mesh(parse_mesh("data=2,fsdp=2"))
    for model_type, dtype in itertools.product(RAW, ("float32", "bfloat16")):
        raw = raw_config(model_type, tie_word_embeddings=True)
        place = Path(folder) / f"{model_type}-{dtype}"
        write(drawn(raw, dtype=dtype), raw, place)
        with counted_bytes() as read:
            whole = weights(load_decoder(place, dtype=dtype))
            read_whole = sum(read)
            read.clear()
            state = nnx.state(load_decoder(place, dtype=dtype, mesh=mesh))
        # No part is read twice for two copies.
        assert sum(read) == read_whole > 0, place
        halves, kernels = set(), {name for name in whole if name.endswith(".kernel")}
        for path, part in jax.tree.leaves_with_path(state):
            name = weight_name(path)
            assert np.array_equal(np.asarray(part), whole.pop(name)), (place, name)
            if all(2 * own.data.size == part.size for own in part.addressable_shards):
                halves.add(name)
        assert not whole, place
        divided = {*dict(mesh_sharding(state, mesh).axes)}
        assert {"embedding", *kernels} <= halves == divided
    np.savez(out)


def family_scores(out):
    """Each family's scores on one device and on a mesh that divides its weights."""
    from tests.support.family_files import RAW, drawn, raw_config

    found = {}
    ids = np.random.default_rng(0).integers(0, 300, (8, 8)).astype(np.int32)
    for model_type in RAW:
        graphdef, state = nnx.split(drawn(raw_config(model_type)))
        # As drawn, weights of 1 make scores that no float32 sum resolves.
        state = jax.tree.map(lambda leaf: 0.2 * leaf, state)
        for name, mesh, rows in (
            ("one", device_mesh(MeshShape(), jax.devices()[:1]), ids[:2]),
            ("mesh", device_mesh(MeshShape(fsdp=2)), ids),
        ):
            forward = sharded_forward(graphdef, state, mesh, moments=False)
            scores = np.asarray(forward(rows, rows).logprobs)
            found[f"{model_type} {name}"] = scores[:2]
    np.savez(out, **found)


def half(out, folder, port, process):
    jax.distributed.initialize(
        f"127.0.0.1:{port}", num_processes=2, process_id=int(process)
    )
    assert (len(jax.local_devices()), len(jax.devices())) == (2, 4)
    found = {}
    with counted_bytes() as read:
        for word in ("fsdp=4", "data=2,fsdp=2"):
            read.clear()
            model = load_decoder(Path(folder), mesh=device_mesh(parse_mesh(word)))
            found[f"{word} read"] = sum(read)
            found |= {f"{word} {kind}": score(model) for kind, score in KINDS.items()}
    np.savez(out, **found)
    jax.distributed.shutdown()


@contextlib.contextmanager
def counted_bytes():
    """Within it, the bytes of each read of a part of a tensor."""
    opened, read = weights.open_tensors, []

    class Counted:
        """A file, or a tensor in it."""

        def __init__(self, opened):
            self._opened = opened

        def __getattr__(self, name):
            return getattr(self._opened, name)

        def get_slice(self, name):
            return Counted(self._opened.get_slice(name))

        def __getitem__(self, cut):
            part = self._opened[cut]
            read.append(part.nbytes)
            return part

    @contextlib.contextmanager
    def counted(path):
        with opened(path) as handle:
            yield Counted(handle)

    with mock.patch.object(weights, "open_tensors", counted):
        yield read


if __name__ == "__main__":
    tasks = [eight, families, family_scores, half]
    {task.__name__: task for task in tasks}[sys.argv[1]](*sys.argv[2:])
