"""Several processes, one run: joining, exchanging bytes, and ending together.

    with joined(distributed):   # before any device is used
        ...

Every process runs the same command. Process 0 prints and writes; the others work. If
one is killed or stops, all stop with one line, so that no host waits for ever.
"""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from jaxcontam import __version__
from jaxcontam.errors import InputError, LostProcessError
from jaxcontam.hosts.link import Link
from jaxcontam.hosts.meeting import accept, connect
from jaxcontam.terminal import visible

__all__ = [
    "LostProcessError",
    "barrier",
    "broadcast_bytes",
    "check_same",
    "gather_bytes",
    "is_first",
    "joined",
    "process_count",
    "process_index",
    "refuse_together",
]

# A process that waits in a collective can't be woken: so long after a loss it is ended.
GRACE_SECONDS = 5.0
EXIT_LOST = 3
# For processes to come at the start; queues start hosts minutes apart.
_WAIT_SECONDS = 300.0
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")

# Of this process; a run is joined once, as the devices are counted once.
_link: Link | None = None


@contextlib.contextmanager
def joined(distributed: bool, *, wait_seconds: float = _WAIT_SECONDS) -> Iterator[None]:
    """Join the processes of this run; all leave together.

    Does nothing unless `distributed`. Where it joins, what the processes other than the
    first print is thrown away until they leave, so that an error is still printed; and
    what libraries print on process 0's standard output goes to standard error, so that
    the command's own words stand there alone.

    Args:
        distributed: Whether there are other processes. Which: the environment variables
            JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and
            JAX_PROCESS_ID, or what JAX detects itself (TPU pods, SLURM, MPI, GKE).
        wait_seconds: For the others to come.

    Raises:
        InputError: If the processes can't be found, or one stopped for its input.
        LostProcessError: If another process is gone or has stopped. On CPUs alone a
            process may be aborted in its place: gloo, which carries the collectives,
            aborts where survivors of a loss are at different ones (exit code 134).
        RuntimeError: If a device was used before.
    """
    global _link
    if not distributed:
        yield
        return
    address, count, process = _place(wait_seconds)
    if count == 1:
        yield
        return
    with contextlib.ExitStack() as stack:
        link, service = _met(address, count, process, wait_seconds)
        stack.callback(link.close)
        stack.enter_context(_own_output(process))
        over = threading.Event()
        stack.callback(over.set)
        threading.Thread(target=_end_if_lost, args=(link, over), daemon=True).start()
        _link = link
        try:
            _initialize(address, count, process)
            yield
            link.finish()
        except BaseException as e:
            _explain(link, e)
            raise
        finally:
            _link = None
            error = sys.exc_info()[1]
            _shut_down(link, service, clean=error is None)
            if isinstance(error, LostProcessError):
                # Libraries' threads still wait for the lost one: taking them down may
                # hang or abort. The last registered is the first that is called.
                atexit.register(_end_at_once)


def refuse_together(error: InputError) -> None:
    """Raise an error that this process found before it joined, as all others do then.

    They would else wait for it. Where no run can be joined, it is raised at once.

    Raises:
        InputError: `error`, always.
    """
    with contextlib.suppress(InputError, LostProcessError):
        if _place(_WAIT_SECONDS)[1] > 1:
            words = visible(f"{error}; waiting for the others, to tell them")
            print(words, file=sys.stderr)
            with joined(True):
                raise error
    raise error


def process_index() -> int:
    """Index of this process; 0 where it is alone."""
    return 0 if _link is None else _link.process


def process_count() -> int:
    """Processes of this run."""
    return 1 if _link is None else _link.count


def is_first() -> bool:
    """Whether this process prints and writes."""
    return process_index() == 0


def barrier(name: str) -> None:
    """Wait until every process is here.

    Raises:
        LostProcessError: If a process is gone.
    """
    if _link is not None:
        _link.gather(b"", name)


def gather_bytes(data: bytes, *, name: str = "bytes") -> list[bytes]:
    """Bytes of every process, by process; the same list in each.

    Args:
        data: Of this process.
        name: Of the exchange: where processes differ, that is noticed.

    Raises:
        LostProcessError: If a process is gone.
        InputError: If the processes are not at the same exchange.
    """
    return [data] if _link is None else _link.gather(data, name)


def broadcast_bytes(data: bytes, *, name: str = "broadcast") -> bytes:
    """Process 0's bytes, in every process; those of the others are ignored."""
    return gather_bytes(data if is_first() else b"", name=name)[0]


def check_same(what: str, words: str) -> None:
    """Refuse processes that work on different things, which no result would show.

    Args:
        what: Is compared.
        words: The same in every process.

    Raises:
        InputError: If a process has others than process 0.
    """
    # Names of files need not be UTF-8.
    told = gather_bytes(words.encode(errors="surrogateescape"), name=what)
    for process, other in enumerate(told):
        if other != told[0]:
            raise InputError(
                f"--distributed: process {process} has another {what} than process 0",
                hint="run the same command on the same files on every host",
            )


def _place(wait_seconds: float) -> tuple[str, int, int]:
    """Address of process 0, number of processes, index of this one.

    Raises:
        InputError: Says what to set.
    """
    address, count, process = map(os.environ.get, _VARIABLES)
    found = (address, _number(_VARIABLES[1], count), _number(_VARIABLES[2], process))
    if None in found:
        # JAX has no public name for what it detects before it initialises.
        from jax._src.clusters import ClusterEnv

        found = ClusterEnv.auto_detect_unset_distributed_params(
            *found, None, None, int(wait_seconds)
        )[:3]
    address, count, process = found
    if address is None or count is None or process is None:
        raise InputError(
            "--distributed: no cluster was detected, and not all of "
            f"{', '.join(_VARIABLES)} are set",
            hint="set on every host, for 4 processes: "
            "JAX_COORDINATOR_ADDRESS=HOST:PORT (of process 0), JAX_NUM_PROCESSES=4, "
            "JAX_PROCESS_ID=0 to 3",
        )
    host, _, port = address.rpartition(":")
    if not host or not _is_number(port) or not 0 < int(port) < 65536:
        raise InputError(
            f"JAX_COORDINATOR_ADDRESS must be HOST:PORT (it is {address!r})"
        )
    if count < 1:
        raise InputError(f"JAX_NUM_PROCESSES must be at least 1 (it is {count})")
    if not 0 <= process < count:
        raise InputError(
            f"JAX_PROCESS_ID must be from 0 to {count - 1}, one less than "
            f"JAX_NUM_PROCESSES (it is {process})"
        )
    return address, count, process


def _number(name: str, word: str | None) -> int | None:
    if word is not None and not _is_number(word):
        raise InputError(f"{name} must be a whole number (it is {word!r})")
    return None if word is None else int(word)


def _is_number(word: str) -> bool:
    """Whether it is decimal digits alone; longer than any count or port is none."""
    return word.isascii() and word.isdecimal() and len(word) < 10


def _met(
    address: str, count: int, process: int, seconds: float
) -> tuple[Link, subprocess.Popen | None]:
    """Connections to the others; process 0 also has started JAX's service."""
    host, _, port = address.rpartition(":")
    if process != 0:
        link = connect(
            host.strip("[]"), int(port), process, count, __version__, seconds
        )
        link.gather(b"", "start")
        return link, None
    link = accept(int(port), count, __version__, seconds)
    try:
        service = _service(port, count)
    except InputError as e:
        link.stop("input", str(e), e.hint)
        raise
    link.gather(b"", "start")
    return link, service


def _service(port: str, count: int) -> subprocess.Popen:
    """JAX's coordination service, running; see `jaxcontam.hosts.coordinator`."""
    script = Path(__file__).with_name("coordinator.py")
    service = subprocess.Popen(
        [sys.executable, "-P", str(script), f"[::]:{port}", str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Its log speaks of tasks that went; the same is said here, in one line.
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process, which ends the service
    )
    assert service.stdout is not None
    if service.stdout.readline() != "ready\n":
        raise InputError(
            f"--distributed: JAX's coordination service does not start on port {port}",
            hint="name another port in JAX_COORDINATOR_ADDRESS",
        )
    return service


def _initialize(address: str, count: int, process: int) -> None:
    import jax

    # It would take SIGTERM for itself.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        address,
        num_processes=count,
        process_id=process,
        # Process 0 of JAX always has a service; this one, at a port that nobody knows,
        # stays idle, and the processes find the one of `_service`.
        coordinator_bind_address="127.0.0.1:0" if process == 0 else None,
    )


def _explain(link: Link, error: BaseException) -> None:
    """Raise what ended the run, or tell the others that this process did.

    Raises:
        LostProcessError: If the error came of the loss of another process: a collective
            fails some moments before the loss is known here.
        InputError: If another process stopped for its input.
    """
    if error is link.error:
        return  # all know it
    if isinstance(error, InputError):
        link.stop("input", str(error), error.hint)
    elif isinstance(error, KeyboardInterrupt):
        link.stop("lost", f"process {link.process} was interrupted")
    else:
        found = link.wait_for_error(2.0)
        if found is not None:
            raise found from error
        said = (str(error).splitlines() or [""])[0]
        link.stop(
            "lost",
            f"process {link.process} stopped: {type(error).__name__}: {said}"[:500],
        )


def _end_if_lost(link: Link, over: threading.Event) -> None:
    """End this process some seconds after a loss, if it has not ended itself."""
    while not over.is_set():
        error = link.wait_for_error(1.0)
        if error is not None and not over.wait(GRACE_SECONDS):
            words = f"jaxcontam: error: {error}\n"
            words += f"  hint: {error.hint}\n" if error.hint else ""
            os.write(2, words.encode(errors="replace"))
            os._exit(2 if isinstance(error, InputError) else EXIT_LOST)


def _end_at_once() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(EXIT_LOST)


def _shut_down(link: Link, service: subprocess.Popen | None, *, clean: bool) -> None:
    """Leave JAX's service, then each other; the service ends last of all.

    A client whose service is gone aborts its process. So after an error the service is
    left alone: it ends by itself, some seconds after this process.
    """
    import jax

    jax.distributed.shutdown()
    if clean:
        link.leave()
    if service is not None:
        assert service.stdin is not None
        with contextlib.suppress(OSError):
            service.stdin.write("end\n" if clean else "")
            service.stdin.close()
        if clean:
            service.wait(20)


@contextlib.contextmanager
def _own_output(process: int) -> Iterator[None]:
    """Standard output for this program's own words, and process 0's alone."""
    with contextlib.ExitStack() as stack:
        if process != 0:
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
            yield
            return
        try:
            is_real = sys.stdout.fileno() == 1
        except (OSError, ValueError, AttributeError):
            is_real = False  # already redirected by a caller
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
        stack.callback(os.close, kept)
        stack.callback(os.dup2, kept, 1)
        if is_real:
            own = open(os.dup(kept), "w", encoding="utf-8", errors="replace")  # noqa: SIM115
            stack.enter_context(own)
            stack.enter_context(contextlib.redirect_stdout(own))
        yield
        sys.stdout.flush()
