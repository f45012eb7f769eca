"""Processes of one JAX run: they join, agree on small facts, and end together.

    with joined(distributed):   # before any device is used
        ...

For training, and for scoring where one copy of the weights is larger than a host. Every
process runs the same command; process 0 prints and writes. What ends one process ends
the others (`jax.distributed`), and the scheduler starts them again.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxcontam.errors import InputError, StorageError

if TYPE_CHECKING:
    import numpy as np

# Without a sign of life a process counts as lost, and JAX ends the others.
_SILENCE_SECONDS = 30
# Parameters of mallopt(3), from malloc.h: map no block below 1 GB, grow by 1 MiB, and
# never trim.
_MALLOPT = {-3: 10**9, -1: 2**31 - 1, -2: 2**20}


@contextlib.contextmanager
def joined(distributed: bool) -> Iterator[None]:
    """Join the processes of this run; they leave together.

    Args:
        distributed: Whether there are other processes. Which: what JAX detects (TPU
            pods, SLURM, MPI, GKE), or the environment variables
            JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and
            JAX_PROCESS_ID.

    Raises:
        InputError: If no other processes can be found.
        RuntimeError: If a device was used before.
    """
    if not distributed:
        yield
        return
    count, index = map(_number, ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
    import jax

    # It would take SIGTERM, which a run answers by a checkpoint.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            num_processes=count,
            process_id=index,
            heartbeat_timeout_seconds=_SILENCE_SECONDS,
        )
    except ValueError as e:
        raise InputError(
            f"the other processes of this run are not known ({e})",
            hint="set on every host, for 4 processes: "
            "JAX_COORDINATOR_ADDRESS=HOST:PORT (of process 0), JAX_NUM_PROCESSES=4, "
            "JAX_PROCESS_ID=0 to 3",
        ) from e
    try:
        yield
        # JAX's own end waits for minutes, and a report may take longer.
        barrier("end")
    except KeyboardInterrupt:
        jax.distributed.shutdown()
        raise
    except BaseException as e:
        # The others may wait in a collective, where JAX's own end would wait for them.
        atexit.register(_leave, _exit_code(e))
        raise
    else:
        jax.distributed.shutdown()


def process_index() -> int:
    """Index of this process; 0 where it is alone."""
    return _place()[0]


def process_count() -> int:
    """Processes that are joined; 1 where this one is alone."""
    return _place()[1]


def is_first() -> bool:
    """True if this process prints and writes."""
    return process_index() == 0


def barrier(name: str) -> None:
    """Wait until every process is here."""
    if process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def gather(values: "np.ndarray") -> "np.ndarray":
    """(n_processes, ...) the values of every process, of one shape and dtype."""
    if process_count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(values)


def broadcast_bytes(data: bytes) -> bytes:
    """Process 0's bytes, in every process; those of the others are ignored."""
    if process_count() == 1:
        return data
    import numpy as np
    from jax.experimental import multihost_utils

    n = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    own = np.frombuffer(data, np.uint8) if is_first() else np.zeros(n, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(own), np.uint8).tobytes()


def _place() -> tuple[int, int]:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return 0, 1
    return jax.process_index(), jax.process_count()


def _number(name: str) -> int | None:
    word = os.environ.get(name)
    if word is None:
        return None
    if not (word.isascii() and word.isdecimal()):
        raise InputError(f"{name} must be a whole number (got {word!r})")
    return int(word)


def _exit_code(error: BaseException) -> int:
    """Exit code of the command line, which takes no part in this end."""
    if isinstance(error, InputError):
        return 2
    if isinstance(error, StorageError):
        return 3
    # Another one that is no error stops a process that was asked to.
    return int(isinstance(error, Exception))


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def cpu_cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Tell glibc not to return memory: a third of a small model's training time on CPU.

    XLA's CPU backend asks for large buffers at every step. glibc maps them from the
    kernel and gives them back each time, so that much of the cost is page faults. Only
    for small models: what loading a large one frees would stay in the process too. Does
    nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)
