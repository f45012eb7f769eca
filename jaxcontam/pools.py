"""Pools of processes on one machine, of which one may die."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from jaxcontam.processes import cpu_cores

# If this many tasks fail before one succeeds, the rest would too.
_HOPELESS = 3
_NO_TASK = object()

_Opener = Callable[[Any], Callable[[Any], Any]]


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
