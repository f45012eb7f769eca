"""The models that are timed: one shape, in JAX and in torch, with the same weights."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, gpt2_shape

SIZES = ("124m", "30m")

_WIDTHS = {"124m": (768, 12, 12), "30m": (384, 6, 6)}
_TINY_WIDTHS = {"124m": (48, 2, 4), "30m": (32, 2, 4)}


def shape_of(size: str, *, tiny: bool) -> DecoderConfig:
    """GPT-2's smallest shape, or one with half its width and layers.

    The smaller one has 30 M parameters, two thirds of them in the embedding. A tiny one
    is for a pulse run.
    """
    D, L, H = (_TINY_WIDTHS if tiny else _WIDTHS)[size]
    return gpt2_shape(
        vocab_size=1200 if tiny else 50257,
        d_model=D,
        n_layers=L,
        n_heads=H,
        context=1024,
    )


@functools.lru_cache(maxsize=1)
def decoder_of(size: str, *, tiny: bool):
    """A decoder with random float32 weights, the same in each call."""
    from flax import nnx

    from jaxcontam.models.decoder import Decoder

    return Decoder(shape_of(size, tiny=tiny), rngs=nnx.Rngs(0))


def n_parameters(decoder) -> int:
    """Weights, tied ones counted once."""
    import jax
    from flax import nnx

    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """One model in four forms.

    Attributes:
        folder: Its checkpoint.
        exact: Decoder, float32.
        rounded: Decoder with bfloat16 operands.
        torch_exact: transformers' model, float32.
        torch_rounded: The same in bfloat16 throughout.
    """

    folder: Path
    exact: Any
    rounded: Any
    torch_exact: Any
    torch_rounded: Any


@contextlib.contextmanager
def subject(size: str, *, tiny: bool) -> Iterator[Subject]:
    """Write a random model, open it four times.

    Raises:
        InputError: If torch is not installed.
    """
    torch = import_torch()
    from transformers import AutoModelForCausalLM

    from jaxcontam.models.checkpoint import load_decoder, save_checkpoint

    exact = decoder_of(size, tiny=tiny)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        save_checkpoint(exact, None, folder, model_type="gpt2")
        theirs = [
            AutoModelForCausalLM.from_pretrained(
                directory, dtype=dtype, attn_implementation="sdpa"
            ).eval()
            for dtype in (torch.float32, torch.bfloat16)
        ]
        yield Subject(folder, exact, load_decoder(folder, dtype="bfloat16"), *theirs)


def import_torch():
    """Torch on one thread.

    Raises:
        InputError: If it is not installed.
    """
    try:
        import torch
    except ImportError as e:
        raise InputError(
            "torch is not installed", hint="pip install -e '.[test]'"
        ) from e
    torch.set_num_threads(1)
    return torch


def random_ids(vocab_size: int, lengths: list[int], *, seed: int) -> list[np.ndarray]:
    """One int32 array of ids a length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(vocab_size, size=n, dtype=np.int32) for n in lengths]


def real_lengths(n: int, *, tiny: bool) -> list[int]:
    """Lengths of texts: log-normal, median 60 ids, sigma 0.8, cut to 8 to 512."""
    median, longest = (20, 64) if tiny else (60, 512)
    drawn = np.random.default_rng(0).lognormal(np.log(median), 0.8, n)
    return np.clip(np.round(drawn), 8, longest).astype(int).tolist()
