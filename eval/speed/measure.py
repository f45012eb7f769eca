"""Times that can be compared: interleaved rounds, ratios within a round.

Seconds of a shared machine drift by more than what is asked here; ways that take turns
drift together.
"""

import dataclasses
import importlib
import importlib.metadata
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Literal

import numpy as np

from jaxcontam.errors import InputError

Device = Literal["cpu", "accelerator"]

Table = dict[str, dict[str, Any]]
"""Row -> column -> a number, or one a round, or a word."""

# How JAX and torch say that a device's memory does not suffice, both by a RuntimeError.
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "out of memory")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Ways that were timed side by side.

    Attributes:
        seconds: Seconds of each way, one a round.
        first_seconds: Seconds of each way's first call, compilation included.
        last: What each way returned in the last round.
    """

    seconds: dict[str, list[float]]
    first_seconds: dict[str, float]
    last: dict[str, Any]

    def ratio(self, slow: str, fast: str) -> float:
        """Seconds of `slow` divided by those of `fast`: the median of the rounds."""
        return median_ratio(self.seconds[slow], self.seconds[fast])


def interleaved(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed:
    """Time ways in turn, round after round; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    last: dict[str, Any] = {}
    for _ in range(1 + rounds):
        for name, way in ways.items():
            start = clock()
            last[name] = way()
            seconds[name].append(clock() - start)
    first_seconds = {name: own.pop(0) for name, own in seconds.items()}
    return Timed(seconds, first_seconds, last)


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def in_fresh_process(
    device: Device, module: str, function: str, *arguments: Any, **more: Any
) -> Any:
    """Result of a function of this package, called in a process that ends after it.

    On a CPU it has one core.

    Raises:
        MemoryError: If the device's memory did not suffice.
        BrokenProcessPool: If the process was killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        call = (device, module, function, arguments, more)
        found, fault = pool.submit(_tried, *call).result()
    if fault is not None:
        raise MemoryError(fault)
    return found


def _tried(
    device: Device, module: str, function: str, arguments: Any, more: Any
) -> tuple[Any, str | None]:
    """Its result, or the first line of an error of memory."""
    # Both libraries size their thread pools when they first compute.
    if device == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    call = getattr(importlib.import_module(f"eval.speed.{module}"), function)
    try:
        return call(*arguments, **more), None
    except RuntimeError as e:
        if any(words in str(e) for words in _EXHAUSTED):
            return None, str(e).splitlines()[0]
        raise


def device_found() -> dict[str, Any]:
    """The device that JAX computes on, asked by a process that lets go of it."""
    return in_fresh_process("accelerator", "measure", "_device")


def _device() -> dict[str, Any]:
    import jax

    first = jax.devices()[0]
    n = jax.device_count()
    return {"platform": first.platform, "kind": first.device_kind, "n": n}


def peak_memory_gb() -> float | None:
    """Most memory that JAX has used on the device; None where it is not counted."""
    import jax

    found = jax.local_devices()[0].memory_stats() or {}
    n_bytes = found.get("peak_bytes_in_use")
    return None if n_bytes is None else 1e-9 * n_bytes


def import_torch() -> Any:
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


def torch_device() -> str | None:
    """Device of the rival: where JAX computes on the CPU, that; None is nowhere.

    Raises:
        InputError: If it is to run on the CPU and is not installed.
    """
    import jax

    if jax.default_backend() == "cpu":
        import_torch()
        return "cpu"
    try:
        import torch
    except ImportError:
        return None
    return "cuda" if torch.cuda.is_available() else None


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
