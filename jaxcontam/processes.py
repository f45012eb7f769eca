"""Processes of one JAX run: they join, agree on small facts, and end together.

    with joined(distributed):   # before any device is used
        ...

For training, and for scoring where one copy of the weights is larger than a host. Every
process runs the same command; process 0 prints and writes. What ends one process ends
the others (`jax.distributed`), and the scheduler starts them again. Last pools of
processes on one machine.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any

import numpy as np

from jaxcontam.errors import InputError, StorageError

# Without a sign of life a process counts as lost, and JAX ends the others.
_SILENCE_SECONDS = 30
# If this many tasks fail before one succeeds, the rest would too.
_HOPELESS = 3
_NO_TASK = object()
# Parameters of mallopt(3), from malloc.h: map no block below 1 GB, grow by 1 MiB, and
# never trim.
_MALLOPT = {-3: 10**9, -1: 2**31 - 1, -2: 2**20}

_Opener = Callable[[Any], Callable[[Any], Any]]


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


def gather(values: np.ndarray) -> np.ndarray:
    """(n_processes, ...) the values of every process, of one shape and dtype."""
    if process_count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(values)


def broadcast_bytes(data: bytes) -> bytes:
    """Process 0's bytes, in every process; those of the others are ignored."""
    if process_count() == 1:
        return data
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
        raise InputError(f"{name} must be a whole number (it is {word!r})")
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


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, unless they are ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def signal_of(error: BaseException | None) -> int:
    """The signal behind a KeyboardInterrupt; Python's own does not say it."""
    number = next(iter(error.args), None) if error is not None else None
    return number if isinstance(number, int) else signal.SIGINT


def interrupted(error: KeyboardInterrupt, name: str = "jaxcontam") -> int:
    """Say that the command can be run again; returns the exit code, as of a shell."""
    print(f"\n{name}: interrupted; run the same command again", file=sys.stderr)
    return 128 + signal_of(error)


def cpu_cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent() -> None:
    """End this process when its parent is killed: its queue alone would not."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None, "a worker"
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def ignoring_ctrl_c() -> Iterator[None]:
    """Let processes that start in the block ignore Ctrl-C; their parent handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why a task has no result: in one line, and the traceback where there is one."""

    reason: str
    details: str = ""


def over_processes(
    opener: _Opener, job: Any, tasks: Iterable[Any], *, n_processes: int
) -> Iterator[tuple[Any, Any]]:
    """Run tasks in processes of their own, each pinned to a core.

    The order of results is that of completion. A process that fails or dies costs its
    current task only. When the caller stops early, or is interrupted, all are ended.

    Args:
        opener: Called once in each process with the job; returns what runs a task.
            A function of a module, as is everything that is sent.
        job: Sent to each process.
        tasks: Pulled when a process is free.
        n_processes: No more than there are tasks.

    Yields:
        A task and its result, or a `Failure`. If none of the first tasks succeeds,
        those that are left are not tried.
    """
    waiting, cores = iter(tasks), _cores()
    workers: set[_Worker] = set()
    running: dict[Future, tuple[_Worker, Any]] = {}
    n_done = n_failed = 0

    def started(core: int | None) -> _Worker:
        workers.add(worker := _Worker(opener, job, core))
        return worker

    def assign(worker: _Worker) -> None:
        task = next(waiting, _NO_TASK)
        if task is not _NO_TASK:
            running[worker.submit(task)] = worker, task
            return
        workers.remove(worker)
        worker.stop()

    try:
        # All of them first: they get ready while the first task is made.
        for worker in [started(cores[i % len(cores)]) for i in range(n_processes)]:
            assign(worker)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                worker, task = running.pop(future)
                if is_dead := isinstance(future.exception(), BrokenProcessPool):
                    workers.remove(worker)
                    worker.pool.shutdown()  # waits for the exit code
                    code = worker.process.exitcode
                    outcome = Failure(f"its process ended with code {code}")
                else:
                    outcome = future.result()
                is_failure = isinstance(outcome, Failure)
                n_failed, n_done = n_failed + is_failure, n_done + (not is_failure)
                yield task, outcome
                if not n_done and n_failed >= _HOPELESS:
                    return
                assign(started(worker.core) if is_dead else worker)
    finally:
        for worker in workers:
            worker.stop()


def in_this_process(
    opener: _Opener, job: Any, tasks: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Run tasks here, one after the other; yields what `over_processes` does."""
    run = None
    for task in tasks:
        run = opener(job) if run is None else run
        yield task, _outcome(run, task)


class _Worker:
    """An executor of one process, pinned to a core: its death breaks no other's."""

    def __init__(self, opener: _Opener, job: Any, core: int | None):
        self.core = core
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        others = multiprocessing.active_children()
        with _pinned(core), ignoring_ctrl_c():
            # Not by `initargs`: they are written before the process is watched, for
            # good if it dies over a large job.
            self.pool.submit(_open, opener, job)
        (self.process,) = {*multiprocessing.active_children()} - {*others}

    def submit(self, task: Any) -> Future:
        try:
            return self.pool.submit(_work, task)
        except BrokenProcessPool as e:
            dead: Future = Future()
            dead.set_exception(e)
            return dead

    def stop(self) -> None:
        self.process.terminate()
        self.pool.shutdown(cancel_futures=True)


# Runs the tasks of this process, where it is a worker.
_run: Callable[[Any], Any]


def _open(opener: _Opener, job: Any) -> None:
    """Prepare this process; what cannot be opened fails every task."""
    global _run
    try:
        _run = opener(job)
    except Exception as e:
        fault = _failure(e)
        _run = lambda task: fault  # noqa: E731


def _work(task: Any) -> Any:
    return _outcome(_run, task)


def _outcome(run: Callable[[Any], Any], task: Any) -> Any:
    try:
        return run(task)
    except Exception as e:
        return _failure(e)


def _failure(error: Exception) -> Failure:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return Failure(reason, "".join(traceback.format_exception(error)))


def _cores() -> Sequence[int | None]:
    """Numbers of the cores; None stands for one that cannot be chosen."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [None] * cpu_cores()


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """Pin processes that are started in the block to one core.

    JAX and BLAS size their thread pools by the cores that they see when they start; a
    model trained by one thread has the same bits however many processes there are.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def keep_freed_memory() -> None:
    """Tell glibc not to return memory: a third of a small model's training time on CPU.

    XLA's CPU backend asks for large buffers at every step. glibc maps them from the
    kernel and gives them back each time, so that much of the cost is page faults. Only
    for small models: what loading a large one frees would stay in the process too. Does
    nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)
