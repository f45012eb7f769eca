"""Compiled programs on disk, so that a second process does not compile them again."""

import hashlib
import os
from pathlib import Path

import jax

from jaxcontam.scoring.identity import cpu_cores, cpu_kind

# Programs that compile faster than this are not worth a file.
_MIN_SECONDS = 0.1


def keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's cache folder.

    A folder that the user chose (JAX_COMPILATION_CACHE_DIR, or `jax.config`) stays, and
    a folder that cannot be written is done without. The folder may be deleted.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        folder = compiled_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    # JAX would warn of each program that it cannot write.
    if not os.access(folder, os.W_OK | os.X_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)


def compiled_in() -> str | None:
    """The folder in which JAX keeps what it compiles now; None if it keeps nothing."""
    return jax.config.values["jax_compilation_cache_dir"]


def compiled_folder() -> Path:
    """`jaxcontam/xla/DIGEST` in the user's cache folder.

    The digest is of the CPU and of how many of its cores this process has. JAX's own
    key has no core count, by which XLA splits sums when it compiles, so a program of
    another count could give other bits; and a home that machines share may hold
    programs with instructions that another CPU lacks.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    where = f"{cpu_kind()}\n{cpu_cores()}\n{os.environ.get('NPROC', '')}"
    digest = hashlib.sha256(where.encode()).hexdigest()[:16]
    return Path(base) / "jaxcontam" / "xla" / digest
