"""Times that can be compared: one core, interleaved rounds, ratios within a round.

Seconds of a shared machine drift by more than what is asked here; ways that take turns
drift together.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, gpt2_shape

_PEAK_SHAPE = (4096, 768, 3072)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Ways that were timed side by side.

    Attributes:
        seconds: Seconds of each way, one a round.
        warm_seconds: Seconds of each way's warm-up, compilation included.
        last: What each way returned in the last round.
    """

    seconds: dict[str, list[float]]
    warm_seconds: dict[str, float]
    last: dict[str, Any]

    def ratio(self, slow: str, fast: str) -> float:
        """How often `fast` would run while `slow` does; median of the rounds."""
        return median_ratio(self.seconds[slow], self.seconds[fast])

    def median(self, way: str) -> float:
        """Median seconds of a way."""
        return statistics.median(self.seconds[way])


def interleaved(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    warm: Mapping[str, Callable[[], Any]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed:
    """Time ways in turn, round after round.

    Args:
        ways: What is timed.
        rounds: At least 1.
        warm: What warms a way up, where the way itself need not run in full.
        clock: Seconds.
    """
    warmed = {}
    for name, way in ways.items():
        start = clock()
        (way if warm is None else warm.get(name, way))()
        warmed[name] = clock() - start
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    last: dict[str, Any] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            start = clock()
            last[name] = way()
            seconds[name].append(clock() - start)
    return Timed(seconds, warmed, last)


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def sgemm_peaks(rounds: int = 5) -> dict[str, float]:
    """Best float32 product of 4096 x 768 x 3072, GFLOP/s, by library."""
    import jax
    import jax.numpy as jnp
    import torch

    m, k, n = _PEAK_SHAPE
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    torch_a, torch_b = torch.from_numpy(a), torch.from_numpy(b)
    jax_a, jax_b = jnp.asarray(a), jnp.asarray(b)
    product = jax.jit(jnp.matmul)
    timed = interleaved(
        {
            "jax": lambda: product(jax_a, jax_b).block_until_ready(),
            "torch": lambda: torch_a @ torch_b,
        },
        rounds,
    )
    return {
        name: 2e-9 * m * k * n / min(times) for name, times in timed.seconds.items()
    }


def pin_to_one_core() -> None:
    """Both libraries size their thread pools when they are imported."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def memory_mb(field: str) -> float:
    """A field of /proc/self/status, such as VmRSS (now) or VmHWM (peak)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1.024e-3


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


def versions() -> str:
    """Versions of both rivals and of what they build on."""
    found = []
    for name in ("jax", "jaxlib", "torch", "transformers"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def random_ids(vocab_size: int, lengths: list[int], *, seed: int) -> list[np.ndarray]:
    """One int32 array of ids a length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(vocab_size, size=n, dtype=np.int32) for n in lengths]


def real_lengths(n: int, *, tiny: bool) -> list[int]:
    """Lengths of texts: log-normal, median 60 ids, sigma 0.8, cut to 8 to 512."""
    median, longest = (20, 64) if tiny else (60, 512)
    drawn = np.random.default_rng(0).lognormal(np.log(median), 0.8, n)
    return np.clip(np.round(drawn), 8, longest).astype(int).tolist()
