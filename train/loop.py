"""The training loop: steps over batches, with checkpoints, and an end at any step.

Dimension key
    B  rows a step
    T  targets a row
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import grain
import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import compiler_options, hardware, hardware_of
from jaxcontam.models.sharding import ROWS
from jaxcontam.processes import is_first
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.checkpoints import Checkpoints
from train.config import Config
from train.loss import Numbers
from train.step import (
    abstract_params,
    build_step,
    isolated_id,
    mean_loss,
    param_shardings,
    placed,
    state_shardings,
)

OfSteps = dict[str, np.ndarray]
"""Numbers of `Step.update` by name, each an array of one a step."""

# Steps dispatched ahead of the host: the device is never idle, and stops soon.
_STEPS_AHEAD = 2
# Steps before those of a profile: the first compiles.
_UNPROFILED = 2
# Losses are fetched this often; a report of each would wait for the device.
_STEPS_A_FETCH = 16
# Share of the time that checkpoints without a step of their own may stop training for;
# seconds between two of them, at least, and at most, however long one takes.
_SAVING_SHARE = 0.02
_SECONDS_BETWEEN = 60.0, 1800.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Callbacks of a training run.

    Attributes:
        steps: Called with the steps done before and the numbers of the next ones, in
            order, each step once; after a restart from the checkpoint's step on.
        audit: Called with a step and the decoder after it.
        validation: Called with a step and what measures the mean loss of the rows that
            are held out, which every process has to call.
    """

    steps: Callable[[int, OfSteps], None] = lambda before, metrics: None
    audit: Callable[[int, Decoder], None] = lambda step, decoder: None
    audit_steps: Collection[int] = ()
    validation: Callable[[int, Callable[[], float]], object] = lambda _, loss: loss()
    validation_steps: Collection[int] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """State of a run when training returns."""

    decoder: Decoder
    step: int
    finished: bool


def train(
    config: Config,
    decoder: Decoder,
    batches: grain.DatasetIterator,
    *,
    n_steps: int,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    checkpoint_steps: int | None = None,
    first_id: int | None = None,
    validation: Callable[[], Iterable[np.ndarray]] = tuple,
    watch: Watch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    profile: tuple[Path, int] | None = None,
) -> Trained:
    """Train on one batch a step, resuming from the newest checkpoint if there is one.

    The weights do not depend on when checkpoints are written or where a run was cut.

    Args:
        decoder: On the mesh or equal on every process; its buffers are donated.
        batches: Yields (B, T + 1) int32 rows of this process.
        checkpoint_steps: Save every N steps; None is as often as saving takes 2 % of
            the time, by the clock of process 0.
        first_id: Id that begins each document; used if the configuration isolates them.
        validation: Gives the batches that are held out, rows of this process.
        should_stop: When true in any process after a step, all save and return: of
            several processes three steps later, if there are as many left.
        profile: Folder of a profile of this process, and number of steps in it.
    """
    watch = watch or Watch()
    mesh = training_mesh() if mesh is None else mesh
    check_rows(config, mesh)
    graphdef, params = nnx.split(decoder)
    place: Callable[[np.ndarray], Any] = lambda batch_BT: batch_BT  # noqa: E731
    if mesh is not None:
        params = placed(params, mesh)
        rows = NamedSharding(mesh, ROWS)
        place = functools.partial(jax.make_array_from_process_local_data, rows)
    first_state, update = compiled_step(graphdef, config, n_steps, mesh, first_id)

    def validate(step: int) -> None:
        measure = compiled_loss(graphdef, config, mesh, first_id)

        def loss() -> float:
            losses = [measure(params, place(batch)) for batch in validation()]
            return float(np.mean(jax.device_get(losses)))

        watch.validation(step, loss)

    told = _Told(mesh)
    done = (checkpoints and checkpoints.newest()) or 0
    if checkpoints is not None and done:
        # Deleted first, since the device may have no room for both.
        shapes = _deleted(params, first_state)
        params, opt_state = checkpoints.restore(done, *shapes, batches)
    else:
        opt_state = first_state(params)
    fetched = _Fetched(done, watch.steps)
    if done == 0 and 0 in watch.validation_steps:
        validate(0)
    saved_at, seconds_between = time.monotonic(), _SECONDS_BETWEEN[0]
    for step in _profiled(range(done + 1, n_steps + 1), profile):
        batch = place(next(batches))
        params, opt_state, metrics = update(params, opt_state, batch, *told.riding())
        told.add(metrics)
        fetched.add(metrics)
        done = step
        if step in watch.validation_steps:
            fetched.flush()
            validate(step)
        if step in watch.audit_steps:
            fetched.flush()
            watch.audit(step, nnx.merge(graphdef, params))
        is_late = time.monotonic() - saved_at >= seconds_between
        is_stopped, is_due = told.by_all(should_stop(), is_late)
        if checkpoint_steps is not None:
            is_due = step % checkpoint_steps == 0
        if checkpoints is None:
            if is_stopped:
                break
            continue
        if is_stopped or (is_due and step < n_steps) or checkpoints.is_kept(step):
            fetched.flush()
            begin = time.monotonic()
            checkpoints.save(step, params, opt_state, batches)
            told.saved()
            saved_at = time.monotonic()
            shortest, longest = _SECONDS_BETWEEN
            seconds_between = (saved_at - begin) / _SAVING_SHARE
            seconds_between = min(longest, max(shortest, seconds_between))
        if is_stopped:
            break
    fetched.flush()
    if checkpoints is not None:
        checkpoints.wait()
    return Trained(nnx.merge(graphdef, params), done, done == n_steps)


def _profiled(steps: Iterable[int], profile: tuple[Path, int] | None) -> Iterator[int]:
    """The steps; a profile is written while some are asked for, or to their end."""
    if profile is None:
        yield from steps
        return
    folder, n = profile
    rest = iter(steps)
    yield from itertools.islice(rest, _UNPROFILED)
    with jax.profiler.trace(folder):
        yield from itertools.islice(rest, n)
    yield from rest


def training_mesh(shape: MeshShape | None = None) -> Mesh | None:
    """The devices of all processes; None where there is only one.

    Without a shape each holds a copy of the model.
    """
    mesh = device_mesh(shape or MeshShape())
    return mesh if mesh.size > 1 else None


def check_rows(config: Config, mesh: Mesh | None) -> None:
    """Refuse a batch that devices and micro-batches cannot share out."""
    n_devices = 1 if mesh is None else mesh.size
    n_parts = n_devices * config.compute.micro_batches
    if config.batch_rows % n_parts:
        raise InputError(
            f"a step has {config.batch_rows} rows, which do not divide by "
            f"{n_devices} devices x {config.compute.micro_batches} micro-batches",
            hint=f"--batch-rows {-(-config.batch_rows // n_parts) * n_parts}",
        )


@functools.lru_cache(maxsize=4)
def compiled_step(
    graphdef: nnx.GraphDef,
    config: Config,
    n_steps: int,
    mesh: Mesh | None,
    first_id: int | None = None,
) -> tuple[Any, Any]:
    """Compile `build_step`, once per shape of run.

    Gives weights -> the optimiser's state, and `Step.update`, which donates both. Over
    several processes the latter takes what each device's process says, `_Told.riding`,
    and its numbers have under `told` what any of them did.
    """
    step = build_step(graphdef, config, n_steps, first_id=first_id, mesh=mesh)
    on = hardware() if mesh is None else hardware_of(mesh.devices.flat[0])
    jitted = functools.partial(
        jax.jit, donate_argnums=(0, 1), compiler_options=compiler_options(on)
    )
    if mesh is None:
        return jax.jit(step.optimizer.init), jitted(step.update)

    def update(params: Any, opt_state: Any, batch_BT: jax.Array, said: Any = None):
        *state, numbers = step.update(params, opt_state, batch_BT)
        if said is not None:
            numbers |= {"told": said.any(axis=0)}
        return *state, numbers

    # Explicit, since the compiler would replicate what depends on no sharded array.
    shapes = abstract_params(config.decoder)
    state = state_shardings(step.optimizer, shapes, mesh)
    out = (param_shardings(shapes, mesh), state, NamedSharding(mesh, PartitionSpec()))
    return (
        jax.jit(step.optimizer.init, out_shardings=state),
        jitted(update, out_shardings=out),
    )


@functools.lru_cache(maxsize=4)
def compiled_loss(
    graphdef: nnx.GraphDef, config: Config, mesh: Mesh | None, first_id: int | None
) -> Any:
    """Compile (weights, batch_BT) -> the mean cross-entropy, nats per token."""
    measure = functools.partial(
        mean_loss,
        graphdef,
        compute=config.compute,
        mesh=mesh,
        first_id=isolated_id(config, first_id),
    )
    return jax.jit(measure)


def _deleted(params: nnx.State, first_state: Any) -> tuple[Any, Any]:
    """Delete the weights; returns shapes and shardings of weights and state."""
    (first, *_) = jax.tree.leaves(params)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        # On one device the state has no sharding of its own: the weights' is used.
        sharding = leaf.sharding or first.sharding
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    state = jax.tree.map(shape, first_state.eval_shape(params))
    shapes = jax.tree.map(shape, params)
    for leaf in jax.tree.leaves(params):
        leaf.delete()
    return shapes, state


class _Told:
    """Whether to stop and to save, which all processes must do after the same step.

    One process alone may be told to stop, and hosts have clocks of their own. What each
    says rides in its next step and is read `_STEPS_AHEAD` steps later, when the device
    has long had it: no step waits for a host. A process that is alone waits for none.
    """

    def __init__(self, mesh: Mesh | None):
        self._mesh = mesh if mesh is not None and mesh.is_multi_process else None
        self._said = np.zeros(2, bool)
        self._waiting: collections.deque[Any] = collections.deque()
        # Of those that wait, the first that were said before the last checkpoint.
        self._n_before = 0

    def riding(self) -> tuple[jax.Array, ...]:
        """What a step takes beside its batch: (n_devices, 2) bool, or nothing."""
        if self._mesh is None:
            return ()
        said = np.tile(self._said, (len(self._mesh.local_devices), 1))
        sharding = NamedSharding(self._mesh, ROWS)
        return (jax.make_array_from_process_local_data(sharding, said),)

    def add(self, numbers: Numbers) -> None:
        """Keep what all said in a step."""
        if self._mesh is not None:
            self._waiting.append(numbers.pop("told"))

    def by_all(self, stops: bool, is_due: bool) -> tuple[bool, bool]:
        """Whether any process stops, and whether by process 0 a checkpoint is due."""
        self._said = np.array([stops, is_due and is_first()])
        if self._mesh is None:
            return stops, is_due
        if len(self._waiting) <= _STEPS_AHEAD:
            return False, False
        any_stops, any_due = np.asarray(self._waiting.popleft()).tolist()
        is_before, self._n_before = self._n_before > 0, max(0, self._n_before - 1)
        return any_stops, any_due and not is_before

    def saved(self) -> None:
        """What was due before this checkpoint no longer is."""
        self._said[1], self._n_before = False, len(self._waiting)


class _Fetched:
    """Numbers of steps on the device, fetched in blocks."""

    def __init__(self, done: int, report: Callable[[int, OfSteps], None]):
        self._done, self._report = done, report
        self._waiting: list[Numbers] = []

    def add(self, numbers: Numbers) -> None:
        self._waiting.append(numbers)
        if len(self._waiting) > _STEPS_AHEAD:
            self._waiting[-1 - _STEPS_AHEAD]["loss"].block_until_ready()
        if len(self._waiting) >= _STEPS_A_FETCH:
            self._fetch(self._waiting[:-_STEPS_AHEAD])

    def flush(self) -> None:
        self._fetch(self._waiting)

    def _fetch(self, steps: Sequence[Numbers]) -> None:
        if not steps:
            return
        host = jax.device_get(list(steps))
        names = sorted(host[0], key=lambda name: (name != "loss", name))
        found = {name: np.array([one[name] for one in host]) for name in names}
        self._report(self._done, found)
        lost = np.flatnonzero(~np.isfinite(found["loss"]))
        if len(lost):
            raise InputError(
                f"training diverged: the loss of step {self._done + lost[0] + 1} is "
                f"{found['loss'][lost[0]]}",
                hint="lower the learning rate (--peak-rate)",
            )
        self._done += len(steps)
        self._waiting = self._waiting[len(steps) :]


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_request() -> Iterator[list[int]]:
    """Keep SIGTERM and Ctrl-C for the block, which looks at them when it can.

    A second Ctrl-C interrupts at once. Outside of the main thread, which alone receives
    signals, nothing changes.

    Yields:
        Numbers of the signals that came, so far none.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: do not wait for the checkpoint
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, receive) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
