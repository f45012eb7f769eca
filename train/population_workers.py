"""One process a core, one model at a time: CPU form of a population.

A process that fails or dies costs the model that it was making and no other one.
"""

import contextlib
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Where the first so many models all fail, the rest would too.
_HOPELESS = 3


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
    """A process pinned to one core, and the task that it is at."""

    def __init__(self, opener: Callable[[Any], Callable], job: Any, core: int | None):
        context = multiprocessing.get_context("spawn")
        self.core, self.task = core, None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, opener, job), daemon=True
        )
        with _pinned(core):
            self.process.start()
        # Else the pipe would not end when the process does.
        theirs.close()

    def send(self, task: Any) -> None:
        self.task = task
        self.pipe.send(task)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def over_processes(
    opener: Callable[[Any], Callable[[Any], Any]],
    job: Any,
    tasks: Sequence[Any],
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
        tasks: What is run.
        n_processes: At most; no more than tasks are started.

    Yields:
        A task and its result, or a `Failure`. If none of the first tasks succeeds,
        those that are left are not tried, and fail so.
    """
    waiting = deque(tasks)
    cores = _cores()
    workers = [
        _Worker(opener, job, cores[i % len(cores)])
        for i in range(min(n_processes, len(tasks)))
    ]
    n_done = n_failed = 0
    try:
        for worker in workers:
            worker.send(waiting.popleft())
        while workers:
            pipes = [worker.pipe for worker in workers]
            for pipe in multiprocessing.connection.wait(pipes):
                worker = next(w for w in workers if w.pipe is pipe)
                task = worker.task
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    worker.process.join()
                    outcome = Failure(
                        f"its process ended with code {worker.process.exitcode}"
                    )
                    workers.remove(worker)
                    worker.stop()
                    if waiting and (n_done or n_failed + 1 < _HOPELESS):
                        worker = _Worker(opener, job, worker.core)
                        workers.append(worker)
                if isinstance(outcome, Failure):
                    n_failed += 1
                else:
                    n_done += 1
                yield task, outcome
                if not n_done and n_failed >= _HOPELESS:
                    while waiting:
                        yield waiting.popleft(), Failure("not tried")
                if worker not in workers:
                    continue
                if waiting:
                    worker.send(waiting.popleft())
                else:
                    workers.remove(worker)
                    worker.stop()
    finally:
        for worker in workers:
            worker.stop()


def n_cores() -> int:
    """Cores that this process may use."""
    return len(_cores())


def _work(pipe: Any, opener: Callable[[Any], Callable], job: Any) -> None:
    """What a process does: tasks, until the pipe ends or it is terminated."""
    # Ctrl-C goes to all processes of a terminal; the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = None
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            task = pipe.recv()
            try:
                run = opener(job) if run is None else run
                outcome = run(task)
            except Exception as e:
                outcome = Failure(
                    f"{type(e).__name__}: {e}".splitlines()[0], traceback.format_exc()
                )
            pipe.send(outcome)


def _cores() -> Sequence[int | None]:
    """Numbers of the cores; None stands for one that cannot be chosen."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [None] * (os.cpu_count() or 1)


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """What is started meanwhile runs on one core, from its first instruction on.

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
