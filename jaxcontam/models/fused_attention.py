"""Attention as one kernel, on the hardware that has one for the case.

A fused kernel keeps the scores on the chip: no `[T, T]` array is written to memory, and
masked blocks are skipped. cuDNN's serves bfloat16 on NVIDIA GPUs, the
splash kernel both dtypes on TPUs. All else is computed in blocks (`attention`).

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of the prefix that all sequences share
    N  tokens of the batch, N = B * T
    G  key and value heads
    R  query heads a key head serves
    H  query heads, H = G * R
    E  width of a head
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxcontam.models.config import DecoderConfig

Kernel = Literal["blocks", "cudnn", "splash"]

# Shorter rows are one small block, which the kernels would pad.
_SHORTEST = 128
# The first generation that cuDNN's flash attention runs on.
_AMPERE = (8, 0)
# Lanes of a TPU's registers, of which splash's blocks are multiples.
_LANES = 128
_LAYOUTS = ("q_layout", "k_layout", "v_layout")


@dataclasses.dataclass(frozen=True, slots=True)
class Hardware:
    """Device properties that decide between attention kernels.

    The capability is of a CUDA device; (0, 0) elsewhere.
    """

    platform: str
    kind: str = ""
    capability: tuple[int, int] = (0, 0)


def hardware() -> Hardware:
    """Hardware of JAX's default device, read outside of traced functions."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    # Another process's devices are of the same kind, and do not say all of it.
    device = chosen
    if not isinstance(device, jax.Device):
        device = jax.local_devices(backend=chosen)[0]
    return hardware_of(device)


def hardware_of(device: Any) -> Hardware:
    """Hardware of a device, which may be compiled for and absent."""
    if device.platform != "gpu":
        return Hardware(device.platform, device.device_kind)
    # CUDA's are numbers, such as 9.0; ROCm names an architecture, such as gfx942. A
    # card that is compiled for and absent has no other sign.
    major, _, minor = str(device.compute_capability).partition(".")
    if not major.isdigit():
        return Hardware("rocm", device.device_kind)
    return Hardware("cuda", device.device_kind, (int(major), int(minor or 0)))


# On-chip memory for a fusion, in KiB: products read their operands several times within
# XLA's default, 16 MiB of the 128 of a v5e. That of a v6e is what AXLearn sets.
_FUSION_KIB = {"TPU v5 lite": "65536", "TPU v6 lite": "98304"}


def compiler_options(on: Hardware) -> dict[str, str]:
    """What XLA is asked for on such devices."""
    limit = _FUSION_KIB.get(on.kind)
    return {} if limit is None else {"xla_tpu_scoped_vmem_limit_kib": limit}


def kernel_of(config: DecoderConfig, dtype: str, on: Hardware) -> Kernel:
    """Attention kernel for long rows without a prefix."""
    if config.attention_sinks or config.latent is not None:
        return "blocks"
    # Their matrix units take no bfloat16 from a Pallas kernel (jax-ml/jax issue 18595).
    if on.platform == "tpu" and on.kind not in ("TPU v2", "TPU v3"):
        return "splash"
    # cuDNN's widest head, on Hopper and before.
    widest = 256 if on.capability >= (9, 0) else 128
    if (
        on.platform == "cuda"
        and on.capability >= _AMPERE
        and dtype == "bfloat16"
        and config.attention_softcap is None
        and config.head_dim % 8 == 0
        and config.head_dim <= widest
    ):
        return "cudnn"
    return "blocks"


def kernel_of_rows(config: DecoderConfig, dtype: str, T: int, on: Hardware) -> Kernel:
    """Attention kernel for rows of T tokens."""
    return "blocks" if T < _SHORTEST else kernel_of(config, dtype, on)


def fuses_prefix(
    config: DecoderConfig, dtype: str, T: int, P: int, on: Hardware
) -> bool:
    """True if rows of T tokens after a prefix of P are cuDNN's."""
    is_plain = _windows(config, P + T) == [None]
    is_cudnn = is_plain and kernel_of_rows(config, dtype, T, on) == "cudnn"
    return is_cudnn and _cudnn_calls() is not None


@functools.cache
def _cudnn_calls() -> Any:
    """JAX's own calls of cuDNN; None in a version that keeps them elsewhere.

    This is the one private name of JAX that is imported, tried with 0.11.2. The public
    function rounds log-sum-exps to the operands' dtype, by up to 1/16 in bfloat16.
    """
    try:
        from jax._src.cudnn import fused_attention_stablehlo
    except ImportError:
        return None
    return fused_attention_stablehlo


def attend_fused(
    kernel: Kernel,
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    config: DecoderConfig,
    window: jax.Array | None = None,
) -> jax.Array:
    """Causal attention of whole sequences by `cudnn` or `splash`, `[B, T, G, R, E]`.

    Queries and keys come rotated. A kernel is compiled for each distinct window of the
    model at T, and `window`, the layer's, an int32 scalar, chooses; None if all layers
    see equally far. Scores and the softmax are float32; the mixed values are rounded to
    the operands' dtype, which is what the output projection reads.
    """
    B, T, G, R, E = q_BTGRE.shape
    sizes, which = _windows(config, T), None
    if window is not None and len(sizes) > 1:
        which = (window > jnp.array([size for size in sizes if size is not None])).sum()
    mixed_BTHE = _FUSED[kernel](
        q_BTGRE.reshape(B, T, G * R, E),
        k_BTGE,
        v_BTGE,
        which,
        scale=attention_scale(config),
        softcap=config.attention_softcap,
        windows=sizes,
    )
    return mixed_BTHE.reshape(B, T, G, R, E).astype(jnp.float32)


def _chosen(
    which: jax.Array | None,
    windows: Sequence[int | None],
    kernel_of_window: Callable[[int | None], Callable[..., jax.Array]],
    *operands: jax.Array,
) -> jax.Array:
    """Result of the kernel of one of the windows; None where there is one."""
    kernels = [kernel_of_window(window) for window in windows]
    if which is None:
        (kernel,) = kernels
        return kernel(*operands)
    return jax.lax.switch(which, kernels, *operands)


def attention_scale(config: DecoderConfig) -> float:
    """Scale of the products of queries and keys."""
    return config.attention_scale or config.head_dim**-0.5


def _windows(config: DecoderConfig, T: int) -> list[int | None]:
    """Distinct windows of the layers at T tokens, ascending; None hides nothing."""
    sizes = {size or T for size in config.windows or (None,)}
    return [*sorted(size for size in sizes if size < T)] + [None] * (max(sizes) >= T)


def attend_cudnn(
    q_BTHE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    which: jax.Array | None,
    *,
    scale: float,
    softcap: float | None,
    windows: Sequence[int | None],
) -> jax.Array:
    """Attention by cuDNN, `[B, T, H, E]`; JAX itself would choose `xla`.

    `which` of the windows is the layer's; None where there is one.
    """
    if softcap is not None:
        raise ValueError("cuDNN's attention has no soft cap")

    def kernel(window: int | None) -> Callable[..., jax.Array]:
        return functools.partial(
            jax.nn.dot_product_attention,
            scale=scale,
            is_causal=True,
            # To the left the window counts the tokens before the query's own.
            local_window_size=None if window is None else (window - 1, 0),
            implementation="cudnn",
        )

    return _chosen(which, windows, kernel, q_BTHE, k_BTGE, v_BTGE)


def attend_after_prefix(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    keys_PGE: jax.Array,
    values_PGE: jax.Array,
    length: jax.Array,
    config: DecoderConfig,
) -> jax.Array:
    """Causal attention of rows that share a prefix, `[B, T, G, R, E]` float32.

    Two calls of cuDNN, one to the rows' own tokens and one to the prefix, for which all
    queries are those of one row, so that its keys are never copied. They are merged by
    their log-sum-exps: no array of scores is written. `length`, at least 1, is the
    prefix's tokens without padding. No layer has a window within P + T, nor a soft cap.
    """
    B, T, G, R, E = q_BTGRE.shape
    calls, scale = _cudnn_calls(), attention_scale(config)
    attend = functools.partial(
        calls.dot_product_attention, scale=scale, return_residual=True
    )
    masks = calls.MaskType
    q_BTHE = q_BTGRE.reshape(B, T, G * R, E)
    own_BTHE, own_BHT = attend(q_BTHE, k_BTGE, v_BTGE, mask_type=masks.CAUSAL)
    far_1NHE, far_1HN = attend(
        q_BTHE.reshape(1, B * T, G * R, E),
        keys_PGE[None],
        values_PGE[None],
        # A number that vmap has an axis for, as JAX's batching of this call asks.
        q_seqlen=(0 * length + B * T)[None],
        kv_seqlen=length[None],
        mask_type=masks.PADDING,
    )
    far_BTHE = far_1NHE.reshape(own_BTHE.shape).astype(jnp.float32)
    far_BTH = far_1HN[0].T.reshape(B, T, G * R)
    # Share of the own tokens in the sum of both softmaxes.
    share_BTH1 = jax.nn.sigmoid(jnp.moveaxis(own_BHT, 1, 2) - far_BTH)[..., None]
    mixed_BTHE = far_BTHE + share_BTH1 * (own_BTHE.astype(jnp.float32) - far_BTHE)
    return mixed_BTHE.reshape(B, T, G, R, E)


def attend_splash(
    q_BTHE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    which: jax.Array | None,
    *,
    scale: float,
    softcap: float | None,
    windows: Sequence[int | None],
    interpret: bool = False,
) -> jax.Array:
    """Attention by the splash kernel of Pallas, `[B, T, H, E]`.

    Rows are padded to whole blocks, and the padding is its own segment. float32
    operands are multiplied at the default matmul precision at tracing (the scorer sets
    the highest); bfloat16 operands are multiplied exactly, and the softmax weights are
    rounded to bfloat16. The scale is applied to the queries before they are rounded.
    `which` is as for cuDNN. `interpret` runs the kernel on any device, slowly.
    """
    attend = functools.partial(
        _splash, softcap=softcap, windows=windows, interpret=interpret
    )
    scaled_BTHE = (q_BTHE.astype(jnp.float32) * scale).astype(q_BTHE.dtype)
    if q_BTHE.dtype == jnp.float32:
        return attend(scaled_BTHE, k_BTGE, v_BTGE, which)
    return _at_one_pass(attend, scaled_BTHE, k_BTGE, v_BTGE, which)


def _splash(q_BTHE, k_BTGE, v_BTGE, which, *, softcap, windows, interpret):
    # Pallas takes seconds to import, and only a TPU needs it.
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as splash,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_mask as masks,
    )

    _, T, H, E = q_BTHE.shape
    padded_T = -(-T // _LANES) * _LANES
    # Half the lanes or a multiple of them: widths that the kernel is known to support.
    padded_E = _LANES // 2 if E <= _LANES // 2 else -(-E // _LANES) * _LANES
    # The largest block is the one that MaxText uses; wide heads take a smaller one, so
    # that all blocks of the gradient fit the 16 MB of on-chip memory.
    is_wide = padded_E * q_BTHE.dtype.itemsize > 512
    block = math.gcd(padded_T, 256 if is_wide else 512)
    # Tokens fill the lanes where heads do not.
    layouts = splash.QKVLayout
    layout = layouts.SEQ_MINOR if padded_E < _LANES else layouts.HEAD_DIM_MINOR
    names = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq")
    names += ("block_kv_dq",)
    segments = None
    if padded_T > T:
        is_padding_T = (jnp.arange(padded_T) >= T).astype(jnp.int32)
        segments = splash.SegmentIds(is_padding_T, is_padding_T)

    def kernel(window: int | None) -> Callable[..., jax.Array]:
        shape = (padded_T, padded_T)
        mask = (
            masks.CausalMask(shape)
            if window is None
            else masks.LocalMask(shape, window_size=(window - 1, 0), offset=0)
        )
        # Its declared type is that of a call that returns log-sums, too.
        of_row: Any = splash.make_splash_mha_single_device(
            masks.MultiHeadMask([mask] * H),
            block_sizes=splash.BlockSizes(
                **dict.fromkeys(names, block), **dict.fromkeys(_LAYOUTS, layout)
            ),
            attn_logits_soft_cap=softcap,
            interpret=interpret,
        )
        return jax.vmap(lambda q, k, v: of_row(q, k, v, segment_ids=segments))

    def heads_first(x_BTHE: jax.Array) -> jax.Array:
        wider = ((0, 0), (0, padded_T - T), (0, 0), (0, padded_E - E))
        return jnp.moveaxis(jnp.pad(x_BTHE, wider), 1, 2)

    # Turned outside of the choice, where products can be asked for the same.
    operands = map(heads_first, (q_BTHE, k_BTGE, v_BTGE))
    mixed_BHTE = _chosen(which, windows, kernel, *operands)
    return jnp.moveaxis(mixed_BHTE, 1, 2)[:, :T, :, :E]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _at_one_pass(
    attend: Callable[..., jax.Array], *operands: jax.Array | None
) -> jax.Array:
    """`attend` with one exact pass of bfloat16; more do not compile (issue 21408)."""
    with _one_pass():
        return attend(*operands)


def _one_pass_forward(attend, *operands):
    with _one_pass():
        return jax.vjp(attend, *operands)


def _one_pass_backward(attend, vjp, cotangent):
    with _one_pass():
        return vjp(cotangent)


_at_one_pass.defvjp(_one_pass_forward, _one_pass_backward)


def _one_pass() -> contextlib.AbstractContextManager:
    return jax.default_matmul_precision("default")


_FUSED = {"cudnn": attend_cudnn, "splash": attend_splash}


HIGHEST = "highest"
"""No operand is rounded; a TPU takes six passes of its unit for it."""

THREE_PASSES = "TF32_TF32_F32_X3"
"""float32 in three products of TF32, which the matrix units of GPUs multiply.

Each operand is split into two parts of 11 bits; the product of both small parts, 2**-22
of the whole, is left out.
"""


def matmul_precision(dtype: str, on: Hardware) -> str:
    """Matmul precision that a decoder's products are computed at.

    JAX's own default rounds float32 operands to TF32 on GPUs and to bfloat16 on TPUs.
    At the highest precision a GPU leaves its matrix units idle.
    """
    if dtype == "float32" and on.platform == "cuda" and on.capability >= _AMPERE:
        return THREE_PASSES
    return HIGHEST
