"""Times that can be compared: one core, interleaved rounds, ratios within a round.

Seconds of a shared machine drift by more than what is asked here; ways that take turns
drift together.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_PEAK_SHAPE = (4096, 768, 3072)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Ways that were timed side by side.

    Attributes:
        seconds: Of each way, one a round.
        warm_seconds: Of each way's warm-up, compilation included.
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
