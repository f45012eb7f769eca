"""Shapes that are timed, the same weights for both rivals, and what a device does."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from jaxcontam.models.config import DecoderConfig, gpt2_shape, llama_shape
from jaxcontam.models.families import FAMILIES
from train.config import PRESETS

CPU_SIZES = ("124m", "135m", "30m")
"""Shapes that are timed on one core."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model and how much work a round on an accelerator is.

    Attributes:
        config: Its shape.
        n_texts: Texts of one context each that are scored in a round: one to three
            seconds at half of an H100's peak.
        n_rows: Rows of `row_tokens` that a training step reads.
        row_tokens: None is one context.
        remat: Whether training computes each block again, on both sides.
        micro_batches: Parts that a training step reads its rows in, on both sides.
    """

    config: DecoderConfig
    n_texts: int = 4
    n_rows: int = 2
    row_tokens: int | None = None
    remat: bool = False
    micro_batches: int = 1


# An 80 GB device keeps the activations of two rows: some 45 bytes a token, layer and
# unit of width, 14 GB beside 26 GB of weights, gradients and the optimiser's state.
_KEPT = Subject(config=PRESETS["1.4b"].decoder, n_texts=128, n_rows=8, micro_batches=4)
_30M = gpt2_shape(vocab_size=50257, d_model=384, n_layers=6, n_heads=6, context=1024)
# The shape of LLaMA 7B, arXiv:2302.13971, table 2.
_7B = llama_shape(
    vocab_size=32_000,
    d_model=4096,
    n_layers=32,
    n_heads=32,
    d_ff=11_008,
    context=2048,
)
# The shape of SmolLM2-135M, with a context of 1,024; key heads are set below.
_135M = llama_shape(
    vocab_size=49_152,
    d_model=576,
    n_layers=30,
    n_heads=9,
    d_ff=1536,
    context=1024,
)
# That of Gemma 3 1B, whose vocabulary is the largest.
_1B_262K = {
    "vocab_size": 262_144,
    "hidden_size": 1152,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 6912,
    "max_position_embeddings": 2048,
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window_pattern": 6,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
}
_SUBJECTS = {
    "30m": Subject(config=_30M, n_rows=8, row_tokens=512),
    "124m": Subject(config=PRESETS["124m"].decoder, n_texts=512, n_rows=16),
    "135m": Subject(config=dataclasses.replace(_135M, n_kv_heads=3)),
    "1.4b": dataclasses.replace(_KEPT, remat=True, micro_batches=1),
    "1.4b_kept": _KEPT,
    "1b_262k": Subject(config=FAMILIES["gemma3_text"].read_config(_1B_262K)),
    "7b": Subject(config=dataclasses.replace(_7B, tied=False), n_texts=32, n_rows=1),
}


def subject(size: str, *, tiny: bool) -> Subject:
    """A shape by its name; a tiny one has its form alone."""
    found = _SUBJECTS[size]
    if not tiny:
        return found
    small = {"vocab_size": 1200, "d_model": 48, "n_layers": 2, "n_heads": 4}
    if size == "7b":
        llama = llama_shape(**small, d_ff=64, context=64)
        return Subject(config=dataclasses.replace(llama, tied=False))
    return dataclasses.replace(
        found,
        config=gpt2_shape(**small, context=1024 if size in CPU_SIZES else 64),
        n_texts=4,
        n_rows=2,
        row_tokens=32,
        micro_batches=min(2, found.micro_batches),
    )


def torch_model(config: DecoderConfig, device: str, dtype: Any) -> Any:
    """A model of transformers with random weights, made on the device."""
    import torch
    import transformers

    name = "gpt2" if config.positions == "learned" else "llama"
    write_config = FAMILIES[name].write_config
    assert write_config is not None
    theirs = transformers.AutoConfig.for_model(name, **write_config(config))
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            theirs, dtype=dtype, attn_implementation="sdpa"
        ).eval()


def random_decoder(config: DecoderConfig, *, dtype: str = "bfloat16") -> Any:
    """Our decoder with random weights, operands in a dtype, made on the device."""
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from jaxcontam.models.fused_attention import hardware

    on = hardware()

    def make() -> Decoder:
        return Decoder(config, rngs=nnx.Rngs(0), on=on)

    graphdef, _ = nnx.split(nnx.eval_shape(make))

    def rounded(path, leaf):
        return leaf.astype(dtype) if is_operand(path) else leaf

    @jax.jit
    def fill():
        return jax.tree.map_with_path(rounded, nnx.state(make()))

    return nnx.merge(graphdef, fill())


def is_operand(path: Any) -> bool:
    """True if a weight is read in the dtype of the products."""
    from jaxcontam.models.sharding import weight_name

    name = weight_name(path)
    return name.endswith("kernel") or name in ("embedding", "head")


def peaks(rounds: int, device: str | None, *, tiny: bool) -> dict[str, float]:
    """Best FLOP/s of matrix products by library: what either side could reach.

    One float32 product on the CPU; on an accelerator a chain of square bfloat16 ones,
    of which none waits for the host. The best of some rounds; `device` is torch's, None
    measures JAX alone.
    """
    import jax
    import jax.numpy as jnp

    on_cpu = jax.default_backend() == "cpu"
    dtype, chain = ("float32", 1) if on_cpu else ("bfloat16", 16)
    m, k, n = (4096, 768, 3072) if on_cpu else (8192, 8192, 8192)
    if tiny:
        m, k, n = 256, 256, 256
    keys = jax.random.split(jax.random.key(0))
    # Random numbers that keep their scale from product to product: zeros draw less
    # power, and a device runs faster on them.
    a = jax.random.normal(keys[0], (m, k), dtype)
    b = jax.random.normal(keys[1], (k, n), dtype) / math.sqrt(k)

    @jax.jit
    def products(a: jax.Array, b: jax.Array) -> jax.Array:
        for _ in range(chain):
            a = jnp.matmul(a, b)
        return a

    seconds = {"jax": _best(lambda: products(a, b).block_until_ready(), rounds)}
    if device is not None:
        import torch

        theirs = getattr(torch, dtype)
        generator = torch.Generator(device).manual_seed(0)
        left, right = (
            torch.randn(*sides, generator=generator, device=device, dtype=theirs)
            for sides in ((m, k), (k, n))
        )
        right /= math.sqrt(k)

        def torch_products() -> None:
            c = left
            for _ in range(chain):
                c = c @ right
            # The copy to the host waits for the products.
            c[0, 0].item()

        seconds["torch"] = _best(torch_products, rounds)
    return {name: 2.0 * m * k * n * chain / one for name, one in seconds.items()}


def _best(products: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest call after the first."""
    products()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        products()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
