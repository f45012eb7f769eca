"""The loss: cross-entropy through a fused head, with no `[N, V]` array.

Without a gradient it is the mean of what the scoring kernel gives. The gradients of the
head and of the hidden states are linear in the loss, so they are computed beside it,
piece by piece, while the logits of the piece are at hand: three matrix products for
each piece, as without the fusion, and nothing to keep.

To add a term: its flag as a field of `Compute`, its sum and slope in `_by_pieces`, and
its name among the numbers that `batch_loss` returns beside the loss. They reach
metrics.jsonl and training.html by that name, which none of the log's own fields may
have. What is held out is measured without a gradient, and so without the term.

Dimension key
    B  rows of a device, or of a micro-batch
    T  targets a row
    N  positions
    C  positions of a piece
    D  model width
    V  vocabulary
    W  vocabulary with the padding of an accelerator
"""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import softcapped
from jaxcontam.models.sharding import WeightSharding, weight_name
from jaxcontam.scoring.kernel import target_scores
from train.options import AT_LEAST_1, option

# Bytes of a piece's logits; measured flat from 16 to 128 MB on a CPU. Each piece reads
# and writes the head's gradient once. On an H100 that is 184 us for 50,257 words and a
# width of 1,536, beside products of 220 us a piece of 64 MB, 1,760 us a piece of 512 MB
# (arithmetic, not measured).
PIECE_BYTES_CPU = 1 << 26
PIECE_BYTES_ACCELERATOR = 1 << 29
# Rows and columns that matrix units take at once.
_LANES = 128


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How the loss and its gradients are computed; weights are always float32."""

    dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Matmul precision (default: the preset's)"
    )
    remat: bool = option(
        False,
        "Rematerialise blocks in the backward pass: less memory, more time (default: "
        "the preset's)",
    )
    micro_batches: int = option(
        1, "Split a batch into this many parts: less memory", AT_LEAST_1
    )


PLAIN = Compute()
"""float32, one micro-batch, no rematerialisation: for small models."""

# At most as many layers are compiled one by one on a CPU.
_FEW_LAYERS = 4

Numbers = dict[str, jax.Array]
"""Scalars by name that are reported beside the loss."""


def batch_loss(
    params: nnx.State,
    batch_BT: jax.Array,
    *,
    graphdef: nnx.GraphDef,
    compute: Compute,
    layout: WeightSharding,
    first_id: int | None,
) -> tuple[jax.Array, Numbers]:
    """Mean negative log-probability of each row's ids after its first, nats."""
    if compute.dtype != "float32":
        params = _cast_kernels(params, compute.dtype)
    # Cast before the all-gather: half the bytes are sent.
    decoder = nnx.merge(graphdef, layout.gather(params))
    # A scan copies what its layers save: on an H200 a quarter of a step's bytes, on a
    # CPU a tenth of a small model's time. But where a layer is computed or gathered
    # again, the scan keeps both times apart; and many layers take long to compile.
    is_plain = not compute.remat and not layout.axes
    platform = decoder.hardware.platform
    is_few = platform == "cpu" and decoder.config.n_layers <= _FEW_LAYERS
    inputs_BT, segments_BT = batch_BT[:, :-1], None
    if first_id is not None:
        segments_BT = jnp.cumsum(inputs_BT == first_id, axis=1)
    hidden_BTD = decoder(
        inputs_BT,
        remat=compute.remat,
        unroll=is_plain and (is_few or platform == "cuda"),
        sharding=layout,
        segments_BT=segments_BT,
    )
    loss: Any = head_loss(
        hidden_BTD.reshape(-1, hidden_BTD.shape[-1]),
        decoder.head_VD.astype(compute.dtype),
        batch_BT[:, 1:].reshape(-1),
        decoder.config.logit_softcap,
        platform,
    )
    return loss, {}


def _cast_kernels(params: nnx.State, dtype: str) -> nnx.State:
    """Cast the kernels to another dtype.

    The embedding stays float32 and is cast only as a head: the gradients of thousands
    of equal tokens would be lost in a bfloat16 sum over one of its rows.
    """

    def cast(path, leaf: jax.Array) -> jax.Array:
        return leaf.astype(dtype) if weight_name(path).endswith("kernel") else leaf

    return jax.tree.map_with_path(cast, params)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def head_loss(
    hidden_ND: jax.Array,
    head_VD: jax.Array,
    targets_N: jax.Array,
    softcap: float | None = None,
    platform: str = "cpu",
) -> jax.Array:
    """Mean negative log-probability of targets, nats, float32: `target_scores`'.

    Beside its gradient it is computed by other pieces, and equal within 1e-6. Products
    take the hidden states in the head's dtype. With a softcap logits x become
    cap * tanh(x / cap). The size of a piece is chosen for the platform.

    Source:
        Gradients within the forward pass: Hsu et al. 2024, Liger Kernel,
        arXiv:2410.10989, section 3.2.
    """
    scores = target_scores(
        hidden_ND,
        head_VD,
        targets_N,
        moments=False,
        softcap=softcap,
        platform=platform,
    )
    return -scores.logprobs.mean()


def _forward(hidden_ND, head_VD, targets_N, softcap, platform):
    loss, *gradients = _by_pieces(hidden_ND, head_VD, targets_N, softcap, platform)
    return loss, tuple(gradients)


def _backward(softcap, platform, gradients, cotangent):
    hidden_ND, head_VD = gradients
    return (
        (cotangent * hidden_ND).astype(hidden_ND.dtype),
        (cotangent * head_VD).astype(head_VD.dtype),
        None,
    )


head_loss.defvjp(_forward, _backward)


def _by_pieces(
    hidden_ND: jax.Array,
    head_VD: jax.Array,
    targets_N: jax.Array,
    softcap: float | None,
    platform: str,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The loss, and its gradients by the hidden states and by the head."""
    N, D = hidden_ND.shape
    V, _ = head_VD.shape
    C = _piece_size(N, V, platform)
    W = V if platform == "cpu" else -(-V // _LANES) * _LANES
    # Once: else each product of each piece would be padded by itself.
    head_WD = head_VD if W == V else jnp.pad(head_VD, ((0, W - V), (0, 0)))
    is_word_W = jnp.arange(W) < V
    n_pieces = -(-N // C)
    padding = n_pieces * C - N
    pieces = (
        jnp.pad(hidden_ND, ((0, padding), (0, 0))).reshape(n_pieces, C, D),
        jnp.pad(targets_N, (0, padding)).reshape(n_pieces, C),
        (jnp.arange(n_pieces * C) < N).reshape(n_pieces, C),
    )

    def step(carry, piece):
        total, head_gradient_WD = carry
        hidden_CD, targets_C, counts_C = piece
        raw_CW = _product(hidden_CD.astype(head_WD.dtype), head_WD, (1, 1))
        logits_CW = softcapped(raw_CW, softcap)
        known_CW = logits_CW
        if W > V:
            known_CW = jnp.where(is_word_W[None], logits_CW, -jnp.inf)
        top_C = known_CW.max(axis=-1)
        weights_CW = jnp.exp(known_CW - top_C[:, None])
        sums_C = weights_CW.sum(axis=-1)
        is_target_CW = jnp.arange(W)[None] == targets_C[:, None]
        target_C = jnp.sum(logits_CW, axis=-1, where=is_target_CW)
        losses_C = jnp.log(sums_C) + top_C - target_C
        total += jnp.sum(losses_C, where=counts_C)
        share_C = jnp.where(counts_C, 1.0 / N, 0.0)
        slope_CW = weights_CW * (share_C / sums_C)[:, None]
        slope_CW -= jnp.where(is_target_CW, share_C[:, None], 0.0)
        if softcap is not None:
            slope_CW *= 1.0 - jnp.square(logits_CW / softcap)
        slope_CW = slope_CW.astype(head_WD.dtype)
        gradient_CD = _product(slope_CW, head_WD, (1, 0))
        hidden_CD = hidden_CD.astype(head_WD.dtype)
        head_gradient_WD += _head_gradient(slope_CW, hidden_CD, platform)
        return (total, head_gradient_WD), gradient_CD.astype(hidden_ND.dtype)

    # Like the states, so that within `shard_map` they count as each device's own.
    zeros = functools.partial(jnp.zeros_like, hidden_ND, dtype=jnp.float32)
    start = zeros(shape=()), zeros(shape=(W, D))
    (total, head_gradient_WD), gradients = jax.lax.scan(step, start, pieces)
    gradient_ND = gradients.reshape(n_pieces * C, D)[:N]
    return total / N, gradient_ND, head_gradient_WD[:V].astype(head_VD.dtype)


def _head_gradient(
    slope_CW: jax.Array, hidden_CD: jax.Array, platform: str
) -> jax.Array:
    """(W, D) gradient of the head by the logits' slopes."""
    if platform != "cpu":
        return _product(slope_CW, hidden_CD, (0, 0))
    # The product with the words as columns has the same bits in a third to two thirds
    # of the time for heads of some thousand words; the barrier keeps it so.
    gradient_DW = _product(hidden_CD, slope_CW, (0, 0))
    return jax.lax.optimization_barrier(gradient_DW).T


def _piece_size(n: int, vocab_size: int, platform: str) -> int:
    """Positions of a piece: equal pieces, the largest within the budget, or 128."""
    n_bytes = PIECE_BYTES_CPU if platform == "cpu" else PIECE_BYTES_ACCELERATOR
    largest = max(1, n_bytes // (4 * vocab_size))
    n_pieces = -(-n // largest)
    size = -(-n // n_pieces)
    return size if platform == "cpu" else -(-size // _LANES) * _LANES


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Sum over one axis of each, added up in float32."""
    contracted = ((axes[0],), (axes[1],))
    return jax.lax.dot_general(
        a, b, (contracted, ((), ())), preferred_element_type=jnp.float32
    )
