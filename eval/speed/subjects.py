"""Shapes that are timed, the same weights for both rivals, and what a device does."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval.speed.measure import import_torch
from eval.study import data_file
from jaxcontam.models.config import DecoderConfig, gpt2_shape, llama_shape
from jaxcontam.models.families import FAMILIES
from train.config import PRESETS

CPU_SIZES = ("124m", "30m")
"""Shapes that are timed on one core."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model and how much work a round on an accelerator is.

    Attributes:
        config: Its shape.
        n_texts: Texts of one context each that are scored in a round.
        n_rows: Rows of one context each that a training step reads.
        remat: Whether training computes each block again, on both sides.
        micro_batches: Parts that a training step reads its rows in, on both sides.
    """

    config: DecoderConfig
    n_texts: int = 0
    n_rows: int = 0
    remat: bool = False
    micro_batches: int = 1


def _subject(given: dict[str, Any]) -> Subject:
    """A model of a preset's shape, or of LLaMA's or GPT-2's with these sizes."""
    if preset := given.pop("preset", None):
        return Subject(config=PRESETS[preset].decoder, **given)
    if shape := given.pop("llama", None):
        config = dataclasses.replace(llama_shape(**shape), tied=False)
        return Subject(config=config, **given)
    return Subject(config=gpt2_shape(**given.pop("gpt2")), **given)


_TABLE = {
    scale: {size: _subject(given) for size, given in sizes.items()}
    for scale, sizes in data_file(__file__).items()
}


def subject(size: str, *, tiny: bool) -> Subject:
    """A shape by its name; a tiny one has its form alone."""
    return _TABLE["tiny" if tiny else "full"][size]


def torch_device(*, on_cpu: bool) -> str | None:
    """Device of the rival: the CPU, or the GPU; None is nowhere.

    Raises:
        InputError: If it is to run on the CPU and is not installed.
    """
    if on_cpu:
        import_torch()
        return "cpu"
    try:
        import torch
    except ImportError:
        return None
    return "cuda" if torch.cuda.is_available() else None


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
        )


def opened_torch(folder: Path, device: str, dtype: Any) -> Any:
    """Transformers' model of a checkpoint."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )
    return model.to(device)


@functools.lru_cache(maxsize=1)
def decoder_of(size: str, *, tiny: bool) -> Any:
    """A decoder with random float32 weights, the same in each call."""
    from flax import nnx

    from jaxcontam.models.decoder import Decoder

    return Decoder(subject(size, tiny=tiny).config, rngs=nnx.Rngs(0))


def random_decoder(config: DecoderConfig, *, on: Any = None) -> Any:
    """Our decoder with random weights, bfloat16 operands, made on the device."""
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from jaxcontam.models.fused_attention import hardware
    from jaxcontam.models.sharding import weight_name

    on = on or hardware()

    def make() -> Decoder:
        return Decoder(config, rngs=nnx.Rngs(0), on=on)

    graphdef, _ = nnx.split(nnx.eval_shape(make))

    def rounded(path, leaf):
        name = weight_name(path)
        is_operand = name.endswith("kernel") or name in ("embedding", "head")
        return leaf.astype("bfloat16") if is_operand else leaf

    @jax.jit
    def fill():
        return jax.tree.map_with_path(rounded, nnx.state(make()))

    return nnx.merge(graphdef, fill())


_Sides = tuple[int, int, int]
# Sides of the products whose best rate is called the peak: (rows, inner, columns).
_CPU_PRODUCT: _Sides = (4096, 768, 3072)
_PRODUCT: _Sides = (8192, 8192, 8192)
_TINY_PRODUCT: _Sides = (256, 256, 256)
# Products of one call on an accelerator: none waits for the host.
_CHAIN = 16


def peaks(rounds: int, device: str | None, *, tiny: bool) -> dict[str, float]:
    """Best FLOP/s of matrix products by library: what either side could reach.

    One float32 product on the CPU; a chain of square bfloat16 ones on an accelerator.

    Args:
        rounds: Products, or chains, of which the best counts.
        device: Torch's; None measures JAX alone.
        tiny: Small products.
    """
    found = {"jax": jax_peak(rounds, tiny=tiny)}
    if device is not None:
        found["torch"] = torch_peak(rounds, device, tiny=tiny)
    return found


def _product(on_cpu: bool, tiny: bool) -> tuple[int, int, int, str, int]:
    """Sides, dtype, and how many products follow one another."""
    if on_cpu and not tiny:
        return *_CPU_PRODUCT, "float32", 1
    return *(_TINY_PRODUCT if tiny else _PRODUCT), "bfloat16", _CHAIN


def jax_peak(rounds: int, *, tiny: bool) -> float:
    """Best FLOP/s of JAX."""
    import jax
    import jax.numpy as jnp

    m, k, n, dtype, chain = _product(jax.default_backend() == "cpu", tiny)
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

    seconds = _best(lambda: products(a, b).block_until_ready(), rounds)
    return 2.0 * m * k * n * chain / seconds


def torch_peak(rounds: int, device: str, *, tiny: bool) -> float:
    """Best FLOP/s of torch on the same device."""
    import torch

    m, k, n, dtype, chain = _product(device == "cpu", tiny)
    generator = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randn(
            *shape, generator=generator, device=device, dtype=getattr(torch, dtype)
        )
        for shape in ((m, k), (k, n))
    )
    b /= math.sqrt(k)

    def products() -> None:
        c = a
        for _ in range(chain):
            c = c @ b
        # The copy to the host waits for the products.
        c[0, 0].item()

    return 2.0 * m * k * n * chain / _best(products, rounds)


def _best(products: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest call after the first."""
    products()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        products()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
