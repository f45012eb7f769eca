"""JAX's persistent compilation cache in the user's cache folder."""

import hashlib
import os
from pathlib import Path

import jax

from jaxcontam.scoring.identity import cpu_cores, cpu_kind

# Programs that compile faster than this are not worth a file.
_MIN_SECONDS = 0.1


def keep_compiled() -> None:
    """Turn on JAX's persistent compilation cache.

    A folder that the user chose (JAX_COMPILATION_CACHE_DIR, or `jax.config`) stays; a
    folder that cannot be written turns it off. The folder may be deleted.
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
    """Folder of the compilation cache; None if it is off."""
    return jax.config.values["jax_compilation_cache_dir"]


def compiled_folder() -> Path:
    """`jaxcontam/xla/DIGEST` in the user's cache folder.

    The digest covers the CPU and the number of cores of this process. JAX's own key has
    no core count, by which XLA splits sums, so a program compiled for another count
    could give other bits; and machines with other CPUs may share the home.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    where = f"{cpu_kind()}\n{cpu_cores()}\n{os.environ.get('NPROC', '')}"
    digest = hashlib.sha256(where.encode()).hexdigest()[:16]
    return Path(base) / "jaxcontam" / "xla" / digest
