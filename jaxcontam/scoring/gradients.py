"""Per-sequence gradient norms in bounded memory.

Dimension key
    B  sequences of a batch, a multiple of the copies of the weights
    S  input positions
    P  positions whose logits are in memory at once
    D  model width
    V  vocabulary
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from jaxcontam.models.attention import softcapped
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import DATA_AXIS, FSDP_AXIS, WeightSharding, weight_name
from jaxcontam.progress import Progress
from jaxcontam.scoring.mesh import on_mesh, over_mesh, rows_on_mesh, weights_mesh
from jaxcontam.scoring.rows import fill, rows_of
from jaxcontam.scoring.run_batches import Batch, NonFiniteScoreError, Work, plan_batches
from jaxcontam.scoring.shares import Division, Together, divided_batches, division_on
from jaxcontam.scoring.store import RowKeys, ScoreStore

_POSITIONS = 128
# Devices that share the weights take the same row, so that a sum over them is the
# gradient of one sequence.
_ROWS = PartitionSpec(DATA_AXIS)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GradientNorms:
    """L2 norms over all weights, (n_sequences,); `n_cached` targets were stored."""

    norms: np.ndarray
    n_cached: int


def gradient_norms(
    decoder: Decoder,
    sequences: Sequence[np.ndarray],
    *,
    batch_tokens: int,
    store: ScoreStore | None = None,
    division: Division | Together | None = None,
    progress: Progress | None = None,
) -> GradientNorms:
    """L2 norm of the gradient of each sequence's mean loss by all weights.

    Tied weights count once. Gradients have the dtype of the weights, their squares are
    summed in float32. A sequence longer than the context is cut to its start.
    """
    context = decoder.config.context
    read = [ids[:context] for ids in sequences]
    rows = rows_of(read, context)
    graphdef, state = nnx.split(decoder)
    mesh = weights_mesh(state)
    batches = plan_batches(
        [row.length for row in rows],
        context=context,
        batch_tokens=batch_tokens,
        n_devices=mesh.shape[DATA_AXIS],
    )
    # Gradients of one batch take at most 256 MiB, or are of one sequence.
    n_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    at_once = max(1, (1 << 28) // n_bytes)
    placed, sharding = on_mesh(state, mesh)

    def start(batch: Batch) -> jax.Array:
        inputs_BS, targets_BS = fill(batch, rows, read)
        lengths_B = np.ones(batch.n_rows, np.int32)
        lengths_B[: len(batch.rows)] = [rows[i].length for i in batch.rows]
        on = rows_on_mesh(mesh, _ROWS, inputs_BS, targets_BS, lengths_B)
        return _norms(graphdef, mesh, sharding, at_once, placed, *on)

    def finish(batch: Batch, found: Any) -> list[np.ndarray]:
        norms_B = np.asarray(found)
        for place, i in enumerate(batch.rows):
            if not np.isfinite(norms_B[place]):
                raise NonFiniteScoreError(i, 0)
        return [norms_B[place : place + 1] for place in range(len(batch.rows))]

    def keys(batch: Batch, store: RowKeys) -> list[bytes]:
        shape = (batch.n_rows, batch.length, at_once)
        return [store.row_key("gradient_norm", shape, 0, read[i]) for i in batch.rows]

    work = Work[Batch, np.ndarray](
        keys=keys,
        start=start,
        finish=finish,
        to_bytes=lambda value: value.astype("<f4", copy=False).tobytes(),
        from_bytes=lambda _, __, data: np.frombuffer(data, "<f4"),
    )
    norms, n_cached, done = np.zeros(len(sequences)), 0, 0
    total = sum(row.length for row in rows)
    for batch, values, cached in divided_batches(
        batches, work, store, division_on(mesh, division)
    ):
        for i, (value,) in zip(batch.rows, values, strict=True):
            norms[i] = value
            done += rows[i].length
            n_cached += cached * rows[i].length
        if progress is not None:
            progress(done, total)
    return GradientNorms(norms, n_cached)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _norms(
    graphdef: nnx.GraphDef,
    mesh: Mesh,
    sharding: WeightSharding,
    at_once: int,
    state: nnx.State,
    *batch: jax.Array,
) -> jax.Array:
    """Norms of a batch, `[B]`; each copy of the weights takes its own rows."""
    divided = dict(sharding.axes)

    def norms(state, inputs_BS, targets_BS, lengths_B) -> jax.Array:
        def one(row: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            gradients = jax.grad(_mean_loss, argnums=1)(graphdef, state, *row, sharding)
            whole, parts = jnp.zeros(()), jnp.zeros(())
            for path, leaf in jax.tree.leaves_with_path(gradients):
                square = jnp.square(leaf.astype(jnp.float32)).sum()
                if weight_name(path) in divided:
                    # The gradient of a gathered weight is the sum over the devices
                    # that gathered it, and each took the same row.
                    parts += square / mesh.shape[FSDP_AXIS] ** 2
                else:
                    whole += square
            return jnp.sqrt(
                whole + (jax.lax.psum(parts, FSDP_AXIS) if divided else parts)
            )

        with jax.default_matmul_precision(nnx.merge(graphdef, state).precision):
            return jax.lax.map(
                one, (inputs_BS, targets_BS, lengths_B), batch_size=at_once
            )

    return over_mesh(mesh, sharding, _ROWS, norms)(state, *batch)


def _mean_loss(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    inputs_S: jax.Array,
    targets_S: jax.Array,
    length: jax.Array,
    sharding: WeightSharding,
) -> jax.Array:
    """Mean of minus log p over the first `length` targets, nats."""
    (S,) = inputs_S.shape
    decoder: Decoder = nnx.merge(graphdef, sharding.gather(state))
    hidden_SD = decoder(inputs_S[None], remat=True, sharding=sharding)[0]
    head_VD = decoder.head_VD
    n_blocks = -(-S // _POSITIONS)
    P = min(S, _POSITIONS)
    pad = n_blocks * P - S
    blocks_BPD = jnp.pad(hidden_SD, ((0, pad), (0, 0))).reshape(n_blocks, P, -1)
    targets_BP = jnp.pad(targets_S, (0, pad)).reshape(n_blocks, P)

    # The backward pass recomputes the logits: saved, they would be [S, V].
    @jax.checkpoint
    def logprobs(block: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden_PD, targets_P = block
        logits_PV = jax.lax.dot_general(
            hidden_PD.astype(head_VD.dtype),
            head_VD,
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        logits_PV = softcapped(logits_PV, decoder.config.logit_softcap)
        own_P = jnp.take_along_axis(logits_PV, targets_P[:, None], axis=-1)[:, 0]
        return own_P - jax.nn.logsumexp(logits_PV, axis=-1)

    logprobs_S = jax.lax.map(logprobs, (blocks_BPD, targets_BP)).reshape(-1)[:S]
    counts_S = jnp.arange(S) < length
    return -jnp.sum(logprobs_S, where=counts_S) / length.astype(jnp.float32)
