"""How the tests' programs are compiled: plainly, or optimised as users' are."""

import contextlib
import os

import jax

_UNOPTIMISED = "jax_disable_most_optimizations"


def compiles_plainly():
    """Whether XLA leaves out most of its optimisations now."""
    return jax.config.values[_UNOPTIMISED]


def compile_from_now(*, plainly):
    """Compile so in this process and in child processes that it starts."""
    if plainly != compiles_plainly():
        # Optimised programs sum in another order: none is left over.
        jax.clear_caches()
        jax.config.update(_UNOPTIMISED, plainly)
    os.environ[_UNOPTIMISED.upper()] = str(int(plainly))


@contextlib.contextmanager
def compiling(*, plainly):
    """Compile so within the block, and as before after it."""
    before = compiles_plainly()
    compile_from_now(plainly=plainly)
    try:
        yield
    finally:
        compile_from_now(plainly=before)
