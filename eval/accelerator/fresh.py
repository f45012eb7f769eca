"""Work in a process of its own: all of a device's memory, and none left behind."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

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


def device() -> dict[str, Any]:
    """The device that JAX computes on."""
    import jax

    first = jax.devices()[0]
    n = jax.device_count()
    return {"platform": first.platform, "kind": first.device_kind, "n": n}
