"""The shapes that are timed, the same weights for both rivals, and the device."""

import dataclasses
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from eval.study import data_file
from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, gpt2_shape, llama_shape
from train.presets import PRESETS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model and how much work a round is.

    Attributes:
        config: Its shape.
        n_texts: Texts of one context each that are scored in a round.
        n_rows: Rows of one context each that a training step reads.
        remat: Whether training computes each block again, on both sides.
        n_micro: Parts that a training step reads its rows in, on both sides.
    """

    config: DecoderConfig
    n_texts: int
    n_rows: int
    remat: bool = False
    n_micro: int = 1


def _subject(given: dict[str, Any]) -> Subject:
    """A model of a preset's shape, or of LLaMA's or GPT-2's with these sizes."""
    if preset := given.pop("preset", None):
        return Subject(config=PRESETS[preset].decoder, **given)
    if shape := given.pop("llama", None):
        config = dataclasses.replace(llama_shape(**shape), tied=False)
        return Subject(config=config, **given)
    return Subject(config=gpt2_shape(**given.pop("gpt2")), **given)


_TABLE = data_file(__file__)
_SUBJECTS, _TINY = (
    {size: _subject(given) for size, given in _TABLE[scale].items()}
    for scale in ("full", "tiny")
)
# An 80 GB device can keep the activations of two rows: some 45 bytes a token, layer and
# unit of width, 14 GB beside 26 GB of weights, gradients and the optimiser's state.
KEPT = "1.4b_kept"
for _sizes, _parts in ((_SUBJECTS, 4), (_TINY, 2)):
    _sizes[KEPT] = dataclasses.replace(_sizes["1.4b"], remat=False, n_micro=_parts)


def subject(size: str, *, tiny: bool) -> Subject:
    """A shape by its name; a tiny one has its form alone."""
    return (_TINY if tiny else _SUBJECTS)[size]


def torch_device(*, tiny: bool) -> str | None:
    """Where the rival runs: on the GPU, in a pulse run on the CPU; None is nowhere.

    Raises:
        InputError: If a pulse run finds no torch.
    """
    try:
        import torch
    except ImportError as e:
        if not tiny:
            return None
        raise InputError(
            "torch is not installed", hint="pip install -e '.[test]'"
        ) from e
    if tiny:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else None


def torch_model(config: DecoderConfig, device: str, dtype: Any) -> Any:
    """A model of transformers with random weights, made on the device."""
    import torch
    import transformers

    if config.positions == "learned":
        theirs = transformers.GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    else:
        theirs = transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            max_position_embeddings=config.context,
            rms_norm_eps=config.norm_eps,
            tie_word_embeddings=config.tied,
        )
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            theirs, dtype=dtype, attn_implementation="sdpa"
        )


def same_decoder(model: Any) -> Any:
    """Our decoder with the weights of a torch model, bfloat16 operands."""
    from jaxcontam.models.checkpoint import load_decoder

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_decoder(Path(folder), dtype="bfloat16")


def random_decoder(
    config: DecoderConfig, *, dtype: str = "bfloat16", on: Any = None
) -> Any:
    """Our decoder with random weights, operands of a dtype, made on the device."""
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
        return leaf.astype(dtype) if is_operand else leaf

    @jax.jit
    def fill():
        return jax.tree.map_with_path(rounded, nnx.state(make()))

    return nnx.merge(graphdef, fill())


# How JAX and torch say that a device's memory does not suffice, both by a RuntimeError.
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "out of memory")


def in_fresh_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, called in a process that ends after it.

    Raises:
        MemoryError: If the device's memory did not suffice.
        BrokenProcessPool: If the process was killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found, fault = pool.submit(_tried, work, *arguments).result()
    if fault is not None:
        raise MemoryError(fault)
    return found


def _tried(work: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """What it returns, or the first line of what memory was short of."""
    try:
        return work(*arguments), None
    except RuntimeError as e:
        if any(words in str(e) for words in _EXHAUSTED):
            return None, str(e).splitlines()[0]
        raise


def peak_memory_gb() -> float | None:
    """Most memory that JAX has used on the device; None where it is not counted."""
    import jax

    found = jax.local_devices()[0].memory_stats() or {}
    n_bytes = found.get("peak_bytes_in_use")
    return None if n_bytes is None else 1e-9 * n_bytes


def device() -> dict[str, Any]:
    """The device that JAX computes on."""
    import jax

    first = jax.devices()[0]
    n = jax.device_count()
    return {"platform": first.platform, "kind": first.device_kind, "n": n}


_SIDE, _TINY_SIDE = 8192, 256
# Products of one call: none waits for the host.
_CHAIN = 16


def jax_peak(rounds: int, *, tiny: bool) -> float:
    """Best FLOP/s of JAX."""
    import jax
    import jax.numpy as jnp

    n = _TINY_SIDE if tiny else _SIDE
    a, b = (
        jax.random.normal(key, (n, n), jnp.bfloat16)
        for key in jax.random.split(jax.random.key(0))
    )

    # Random numbers that keep their scale from product to product: zeros draw less
    # power, and a device runs faster on them.
    b /= math.sqrt(n)

    @jax.jit
    def chain(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, _CHAIN, lambda _, a: jnp.matmul(a, b), a)

    return _best(lambda: chain(a, b).block_until_ready(), n, rounds)


def torch_peak(rounds: int, device: str, *, tiny: bool) -> float:
    """Best FLOP/s of torch on the same device."""
    import torch

    n = _TINY_SIDE if tiny else _SIDE
    generator = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randn(n, n, generator=generator, device=device, dtype=torch.bfloat16)
        for _ in range(2)
    )
    b /= math.sqrt(n)

    def chain() -> None:
        c = a
        for _ in range(_CHAIN):
            c = c @ b
        # The copy to the host waits for the products.
        c[0, 0].item()

    return _best(chain, n, rounds)


def _best(chain: Callable[[], object], n: int, rounds: int) -> float:
    chain()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        chain()
        seconds.append(time.perf_counter() - start)
    return 2.0 * n**3 * _CHAIN / min(seconds)
