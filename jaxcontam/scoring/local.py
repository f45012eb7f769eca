"""A scorer over a model of our own."""

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import hardware, kernel_of, kernel_of_rows
from jaxcontam.models.sharding import FSDP_AXIS
from jaxcontam.processes import cpu_cores
from jaxcontam.scoring.identity import ScoreIdentity, cpu_kind, scoring_code
from jaxcontam.scoring.kernel import VERSION
from jaxcontam.scoring.mesh import (
    device_mesh,
    on_mesh,
    sharded_forward,
    sharded_pairs,
    weights_mesh,
)
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.parts import MeshShape
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.shares import Division, division_on
from jaxcontam.scoring.store import ScoreStore

# What the environment can ask of the compiler and of the libraries that it calls.
_SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "NPROC")


def checkpoint_scorer(
    checkpoint: Checkpoint,
    *,
    store: Path | None,
    batch_tokens: int | None = None,
    moments: bool = False,
    division: Division | None = None,
) -> Scorer:
    """`local_scorer` of a checkpoint, with a store if a folder is given."""
    identity = score_identity(checkpoint, moments=moments)
    return local_scorer(
        checkpoint.decoder,
        batch_tokens=batch_tokens,
        moments=moments,
        store=None if store is None else ScoreStore(store, identity),
        division=division,
    )


def local_scorer(
    decoder: Decoder,
    *,
    batch_tokens: int | None = None,
    moments: bool = False,
    store: ScoreStore | None = None,
    division: Division | None = None,
) -> Scorer:
    """Score with a decoder, rows split over all devices.

    Devices are those of the mesh on which the weights lie, or all of this process where
    they lie on one. `batch_tokens` are those of one device. The store is this
    decoder's. `division` is None where there is one process, or where the weights span
    processes, which then score together.
    """
    graphdef, state = nnx.split(decoder)
    mesh = weights_mesh(state)
    state, _ = on_mesh(state, mesh)
    shared: dict[str, Any] = {
        "context": decoder.config.context,
        "batch_tokens": batch_tokens or default_batch_tokens(),
        "n_devices": mesh.size,
        "store": store,
        "division": division_on(mesh, division),
        "few_shapes": mesh.devices.flat[0].platform != "cpu",
    }
    pairs = PairScorer(sharded_pairs(graphdef, state, mesh), **shared)
    forward = sharded_forward(graphdef, state, mesh, moments=moments)
    return Scorer(forward, pairs=pairs, moments=moments, **shared)


def default_batch_tokens() -> int:
    """Tokens that keep a CPU's caches warm, or fill an accelerator."""
    return 512 if jax.default_backend() == "cpu" else 16_384


def score_identity(checkpoint: Checkpoint, *, moments: bool) -> ScoreIdentity:
    """Identity of a checkpoint's scores: what they depend on here and now."""
    mesh = weights_mesh(nnx.state(checkpoint.decoder))
    device = device_info(mesh)
    is_cpu = device.platform == "cpu"
    client = mesh.devices.flat[0].client
    return ScoreIdentity(
        model=checkpoint.fingerprint,
        prefix_id=checkpoint.prefix_id,
        context=checkpoint.config.context,
        moments=moments,
        dtype=checkpoint.decoder.dtype,
        precision=checkpoint.decoder.precision,
        attention=kernel_of(checkpoint.config, checkpoint.decoder.dtype, hardware()),
        kernel=VERSION,
        code=scoring_code(),
        platform=device.platform,
        # JAX calls every CPU `cpu`, and different ones round differently.
        device=cpu_kind() if is_cpu else device.kind,
        n_devices=device.n,
        n_model=device.n_model,
        cpu_threads=device.cpu_cores if is_cpu else None,
        compiler=f"jax {jax.__version__}, "
        f"jaxlib {importlib.metadata.version('jaxlib')}, {client.platform_version}",
        settings=tuple(
            f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ
        ),
    )


def device_info(mesh: Mesh | None = None) -> DeviceInfo:
    """The devices that `local_scorer` uses."""
    if mesh is None:
        mesh = device_mesh(MeshShape(), jax.local_devices())
    device = mesh.devices.flat[0]
    return DeviceInfo(
        platform=device.platform,
        kind=device.device_kind,
        n=mesh.size,
        cpu_cores=cpu_cores(),
        n_model=mesh.shape[FSDP_AXIS],
    )


def model_info(checkpoint: Checkpoint) -> ModelInfo:
    """Facts on the model for a report; its attention is that of rows of its context."""
    config, dtype = checkpoint.config, checkpoint.decoder.dtype
    attention = kernel_of_rows(config, dtype, config.context, hardware())
    return ModelInfo(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        n_parameters=checkpoint.n_parameters,
        dtype=dtype,
        precision=checkpoint.decoder.precision,
        context=config.context,
        attention=None if attention == "blocks" else attention,
    )
