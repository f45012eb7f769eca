"""What the device can do at best: a chain of large bfloat16 products."""

import math
import time
from collections.abc import Callable

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
