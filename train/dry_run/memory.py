"""Memory of a training step on each device, by a formula: what takes how much.

The most is alive at one of three moments: while the loss is taken (logits and the
head's gradient), within the backward pass of a block, or when the gradients are summed
over copies of the model. What the state needs is exact. What lives within a block is
a number of arrays for each width in it; the numbers are fitted to the analysis of XLA's
CPU compiler at 24 shapes of two families, and to that of its TPU compiler at one.

Dimension key
    N  positions that a device reads at once
    T  positions of a row
    D  model width
    V  vocabulary
"""

import dataclasses
import functools
from typing import Any, Literal

import jax

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.sharding import divided_axis, weight_name
from train.loss import PIECE_BYTES_ACCELERATOR, PIECE_BYTES_CPU
from train.placement import abstract_params
from train.presets import Preset

Platform = Literal["cpu", "gpu", "tpu"]
Moment = Literal["loss", "block", "sums"]

_FLOAT = 4
# Queries of a block where gradients are taken, and its arrays of scores alive at once.
_QUERY_BLOCK = 128
_SCORE_ARRAYS = 2.75
# Widths of a block's arrays: the stream's, queries with keys and values, heads
# together, what the feed-forward layer multiplies up to, and what it multiplies down.
_ALIVE = (6.0, 3.0, 0.0, 2.5, 1.5)
_KEPT = (6.0, 1.0, 2.0, 1.0, 1.0)
# More is kept where all but what was gathered is: a product with and without its bias.
_KEPT_BY_POLICY = 1.35
# Share of these that bfloat16 leaves; a CPU's products make float32 copies.
_ROUNDED_KEPT = 0.7
_ROUNDED_ALIVE, _ROUNDED_ALIVE_CPU = 0.5, 0.9
# Rows as short as this are one block anywhere.
_SHORT_ROW = 128


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Bytes on each device at the moment that needs most.

    Attributes:
        weights: float32, this device's part.
        optimizer: Its two averages.
        gradients: This device's part, and the sums over micro-batches.
        activations: What the forward pass keeps for the backward pass.
        block: What lives within one block, attention's scores included.
        gathered: Weights that are whole for a while: of a layer, or the embedding and
            the head; and their gradients.
        logits: A piece of them.
        moment: Which of the three this is.
    """

    weights: int
    optimizer: int
    gradients: int
    activations: int
    block: int
    gathered: int
    logits: int
    moment: Moment

    @property
    def state(self) -> int:
        """What lives from step to step."""
        return self.weights + self.optimizer

    @property
    def total(self) -> int:
        """All of it."""
        parts = dataclasses.asdict(self)
        return sum(part for part in parts.values() if isinstance(part, int))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WeightCounts:
    """How many weights a decoder has, by how they are treated.

    Attributes:
        divided: Along the mesh's model axis.
        whole: On every device.
        layers: Kernels of all blocks among the divided.
        heads: Embedding and head among the divided.
    """

    divided: int
    whole: int
    layers: int
    heads: int

    @property
    def total(self) -> int:
        """All weights."""
        return self.divided + self.whole


@functools.lru_cache(maxsize=64)
def weight_counts(config: DecoderConfig, n_parts: int) -> WeightCounts:
    """Count a decoder's weights as a model axis of so many devices treats them."""
    divided = whole = layers = heads = 0
    for path, leaf in jax.tree.leaves_with_path(abstract_params(config)):
        name = weight_name(path)
        if divided_axis(name, leaf.shape, n_parts) is None:
            whole += leaf.size
            continue
        divided += leaf.size
        if name.endswith("kernel"):
            layers += leaf.size
        else:
            heads += leaf.size
    return WeightCounts(divided=divided, whole=whole, layers=layers, heads=heads)


def step_memory(
    preset: Preset, *, data: int, model: int, platform: Platform = "cpu"
) -> StepMemory:
    """What one step takes on each device of a mesh.

    Args:
        preset: Model, rows and how to compute.
        data: Copies of the model.
        model: Devices that divide each copy.
        platform: On a TPU, and on a GPU in bfloat16, attention is one kernel whose
            scores never reach memory.
    """
    config, compute = preset.decoder, preset.compute
    counts = weight_counts(config, model)
    rounds = compute.dtype != "float32"
    rows = preset.batch_rows / (data * model * compute.n_micro)
    N = rows * preset.context
    part = counts.divided / model + counts.whole
    head = config.vocab_size * config.d_model * _FLOAT

    alive = _FLOAT * N * _width(config, _ALIVE)
    if not _is_fused(preset, platform):
        alive += _SCORE_ARRAYS * _score_bytes(config, rows, preset.context)
    if rounds:
        alive *= _ROUNDED_ALIVE_CPU if platform == "cpu" else _ROUNDED_ALIVE
    kept = _FLOAT * N * config.d_model * config.n_layers
    if not compute.remat:
        each = _width(config, _KEPT)
        if model > 1:
            each = _KEPT_BY_POLICY * each + _width(config, _with_bias(config))
        kept = _FLOAT * N * each * config.n_layers
        kept *= _ROUNDED_KEPT if rounds else 1.0

    kernels = counts.layers / model if model > 1 else _kernel_weights(config)
    # Of bfloat16 kernels: the rounded copy and the gradient, two bytes each.
    gradients = _FLOAT * kernels
    sums = _FLOAT * part if compute.n_micro > 1 else 0.0
    layer = _FLOAT * _kernel_weights(config) / config.n_layers if model > 1 else 0.0
    layer *= 0.5 if rounds else 1.0
    piece = PIECE_BYTES_CPU if platform == "cpu" else PIECE_BYTES_ACCELERATOR
    piece = min(piece, N * config.vocab_size * _FLOAT)
    whole = (1 if config.tied else 2) if model > 1 else 0
    hidden = 4 * _FLOAT * N * config.d_model

    moments: dict[Moment, dict[str, float]] = {
        "loss": {
            "gradients": gradients + sums,
            "activations": kept + hidden,
            "block": 0.0,
            # Embedding and head whole, the head's gradient, and on a CPU what a piece
            # adds to it; a TPU adds in place.
            "gathered": head * (1 + whole + (platform == "cpu")),
            "logits": piece,
        },
        "block": {
            "gradients": gradients + sums,
            "activations": kept,
            "block": alive,
            "gathered": layer + (head if config.tied or model == 1 else head / model),
            "logits": 0.0,
        },
        "sums": {
            # All are handed over at once, beside their sums.
            "gradients": _FLOAT * part * (2 if data > 1 else 1) + sums,
            "activations": 0.0,
            "block": 0.0,
            "gathered": 2 * head if model > 1 else 0.0,
            "logits": 0.0,
        },
    }
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts: dict[str, Any] = {k: round(v) for k, v in moments[moment].items()}
    return StepMemory(
        weights=round(_FLOAT * part),
        optimizer=round(2 * _FLOAT * part),
        moment=moment,
        **parts,
    )


def _is_fused(preset: Preset, platform: Platform) -> bool:
    if preset.context < _SHORT_ROW or platform == "cpu":
        return False
    return platform == "tpu" or preset.compute.dtype == "bfloat16"


@functools.lru_cache(maxsize=64)
def _kernel_weights(config: DecoderConfig) -> int:
    return sum(
        leaf.size
        for path, leaf in jax.tree.leaves_with_path(abstract_params(config))
        if weight_name(path).endswith("kernel")
    )


def _with_bias(config: DecoderConfig) -> tuple[float, ...]:
    """Arrays that a bias is added to, by their widths."""
    fed = float(config.mlp_bias)
    return (config.output_bias + fed, float(config.qkv_bias), 0.0, fed, 0.0)


def _width(config: DecoderConfig, arrays: tuple[float, ...]) -> float:
    """Numbers at each position, from how many arrays there are of each width."""
    heads = config.n_heads * config.head_dim
    widths = (
        config.d_model,
        heads + 2 * config.n_kv_heads * config.head_dim,
        heads,
        config.d_ff * (2 if config.gated else 1),
        config.d_ff,
    )
    return sum(n * width for n, width in zip(arrays, widths, strict=True))


def _score_bytes(config: DecoderConfig, rows: float, T: int) -> float:
    """float32 scores of all blocks of queries, each with the keys up to its end."""
    seen = sum(
        (min(start + _QUERY_BLOCK, T) - start) * min(start + _QUERY_BLOCK, T)
        for start in range(0, T, _QUERY_BLOCK)
    )
    return _FLOAT * rows * config.n_heads * seen
