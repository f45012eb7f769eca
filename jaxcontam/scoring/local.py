"""A scorer over a model of our own."""

import os

import jax
from flax import nnx

from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder
from jaxcontam.results import DeviceInfo, ModelInfo
from jaxcontam.scoring.kernel import PRECISION
from jaxcontam.scoring.mesh import data_mesh, sharded_forward
from jaxcontam.scoring.scorer import Scorer

# A batch that keeps a CPU's caches warm, and one that fills an accelerator.
_BATCH_TOKENS = {"cpu": 512}
_BATCH_TOKENS_ACCELERATOR = 16_384


def local_scorer(
    decoder: Decoder, *, batch_tokens: int | None = None, moments: bool = False
) -> Scorer:
    """Score with a decoder, rows split over all devices.

    Args:
        decoder: The model.
        batch_tokens: Tokens of a batch on one device; None chooses by platform.
        moments: Also compute means and variances.
    """
    graphdef, state = nnx.split(decoder)
    config: DecoderConfig = decoder.config
    if batch_tokens is None:
        batch_tokens = _BATCH_TOKENS.get(
            jax.default_backend(), _BATCH_TOKENS_ACCELERATOR
        )
    mesh = data_mesh()
    return Scorer(
        sharded_forward(graphdef, state, mesh, moments=moments),
        context=config.context,
        batch_tokens=batch_tokens,
        n_devices=mesh.size,
    )


def device_info() -> DeviceInfo:
    """The device that `local_scorer` uses."""
    devices = jax.devices()
    return DeviceInfo(
        platform=devices[0].platform,
        kind=devices[0].device_kind,
        n=len(devices),
        cpu_cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
    )


def model_info(checkpoint: Checkpoint) -> ModelInfo:
    """What a report says of the model."""
    return ModelInfo(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        n_parameters=checkpoint.n_parameters,
        dtype="float32",
        precision=PRECISION,
        context=checkpoint.config.context,
    )
