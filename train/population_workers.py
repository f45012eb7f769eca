"""Tasks in worker processes, one per core, that keep the memory they free.

A worker that fails or dies costs its current task only.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# If this many tasks fail before one succeeds, the rest would too.
_HOPELESS = 3
# Parameters of mallopt(3), from malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_NEVER_TRIM = 2**31 - 1
_LARGEST_HEAP_BLOCK = 10**9
_GROW_BY = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why a task has no result.

    Attributes:
        reason: One line.
        details: Traceback, where there is one.
    """

    reason: str
    details: str = ""


class _Worker:
    """A process pinned to one core, and its current task."""

    def __init__(self, opener: Callable[[Any], Callable], core: int | None):
        context = multiprocessing.get_context("spawn")
        self.core, self.task, self.is_dead = core, None, False
        self.pipe, theirs = context.Pipe()
        # The job follows by the pipe: what is started with it would be waited for, for
        # good if it dies meanwhile.
        self.process = context.Process(target=_work, args=(theirs, opener), daemon=True)
        with _pinned(core), _ignoring_ctrl_c():
            self.process.start()
        # Else the pipe would not end when the process does.
        theirs.close()

    def send(self, task: Any) -> None:
        """Send the job, then a task; the death of the process shows in `receive`."""
        self.task = task
        with contextlib.suppress(ConnectionError):
            self.pipe.send(task)

    def receive(self) -> Any:
        """The outcome of the task; a failure if the process died of it."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            self.is_dead = True
            self.pipe.close()
            return Failure(f"its process ended with code {self.process.exitcode}")

    def stop(self) -> None:
        """Terminate the process."""
        if self.is_dead:
            return
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def over_processes(
    opener: Callable[[Any], Callable[[Any], Any]],
    job: Any,
    tasks: Iterable[Any],
    *,
    n_processes: int,
) -> Iterator[tuple[Any, Any]]:
    """Run tasks in processes of their own, each pinned to a core.

    The order of results is that of completion. When the caller stops early, or is
    interrupted, the processes are ended.

    Args:
        opener: Called once in each process with the job; returns what runs a task.
            A function of a module, as is everything that is sent.
        job: Sent to each process.
        tasks: Tasks, pulled when a process is free.
        n_processes: No more than there are tasks.

    Yields:
        A task and its result, or a `Failure`. If none of the first tasks succeeds,
        those that are left are not tried.
    """
    waiting, cores = iter(tasks), _cores()
    workers: list[_Worker] = []
    n_done = n_failed = 0

    def assign(worker: _Worker) -> None:
        for task in itertools.islice(waiting, 1):
            worker.send(task)
            return
        workers.remove(worker)
        worker.stop()

    try:
        # All of them first: they get ready while the first task is made, and a large
        # one is not sent before its process reads.
        for i in range(n_processes):
            workers.append(_Worker(opener, cores[i % len(cores)]))
        for worker in workers:
            worker.send(job)
        for worker in tuple(workers):
            assign(worker)
        while workers:
            pipes = [worker.pipe for worker in workers]
            for pipe in multiprocessing.connection.wait(pipes):
                worker = next(w for w in workers if w.pipe is pipe)
                task = worker.task
                outcome = worker.receive()
                is_failure = isinstance(outcome, Failure)
                n_failed, n_done = n_failed + is_failure, n_done + (not is_failure)
                yield task, outcome
                if not n_done and n_failed >= _HOPELESS:
                    return
                if worker.is_dead:
                    workers.remove(worker)
                    worker = _Worker(opener, worker.core)
                    worker.send(job)
                    workers.append(worker)
                assign(worker)
    finally:
        for worker in workers:
            worker.stop()


def in_this_process(
    opener: Callable[[Any], Callable[[Any], Any]], job: Any, tasks: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Run tasks here, one after the other; one that fails costs no other one.

    Yields:
        A task and its result, or a `Failure`.
    """
    run = None
    for task in tasks:
        run = opener(job) if run is None else run
        yield task, _outcome(run, task)


def n_cores() -> int:
    """Cores that this process may use."""
    return len(_cores())


def _work(pipe: Any, opener: Callable[[Any], Callable]) -> None:
    """Run tasks until the pipe closes."""
    run = fault = None
    try:
        run = opener(pipe.recv())
    except EOFError:
        return
    except Exception as e:
        fault = _failure(e)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            task = pipe.recv()
            pipe.send(fault if run is None else _outcome(run, task))


def _outcome(run: Callable[[Any], Any], task: Any) -> Any:
    """The result of a task, or why it has none."""
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
    return [None] * (os.cpu_count() or 1)


@contextlib.contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Let processes that start in the block ignore Ctrl-C; their parent handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
    mallopt(_TRIM_THRESHOLD, _NEVER_TRIM)
    mallopt(_TOP_PAD, _GROW_BY)
