"""Checkpoints of a training run: weights, optimiser, place in the data.

Orbax writes each beside the others and renames it when it is complete; in a bucket,
where nothing is renamed, it adds a file that says so. A run killed at any moment finds
its last whole one.
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import grain
import jax
from etils import epath
from flax import nnx

from jaxcontam.errors import InputError, StorageError
from jaxcontam.models.decoder import Decoder, abstract_decoder
from jaxcontam.processes import broadcast_bytes, is_first
from train.config import OTHER_VERSION, Config, config_from_json, config_to_json

CHECKPOINTS_DIR = "checkpoints"

_STATE, _META = "state", "meta"
# TensorStore's status codes for unreachable bytes, as against wrong ones.
_UNREACHED = (
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
    "CANCELLED",
)


class Checkpoints:
    """The checkpoints of one run, newest last."""

    def __init__(
        self,
        run_dir: Any,
        *,
        config: Config,
        keep_every: int | None = None,
        before_save: Callable[[], None] = lambda: None,
    ):
        """Name the folder; the first checkpoint creates it.

        Args:
            run_dir: Several processes have to see the same one.
            config: Written beside the weights, for `restore_params`.
            keep_every: Steps; checkpoints at its multiples are never deleted, of the
                others only the last two are kept.
            before_save: Called first, for what must be there when a checkpoint is.
        """
        self._run_dir, self._config = run_dir, config
        self._keep_every, self._before_save = keep_every, before_save
        self._opened: Any = None

    def close(self) -> None:
        """Wait for the last write and release."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _manager(self) -> Any:
        """Orbax's, once it is needed: most small runs never save."""
        if self._opened is None:
            import orbax.checkpoint as ocp

            self._opened = ocp.CheckpointManager(
                _folder(self._run_dir),
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=2,
                    keep_period=self._keep_every,
                    enable_async_checkpointing=True,
                ),
            )
        return self._opened

    def is_kept(self, step: int) -> bool:
        """Whether a checkpoint at this step was asked for and is never deleted."""
        return self._keep_every is not None and step % self._keep_every == 0

    def save(
        self,
        step: int,
        params: nnx.State,
        opt_state: Any,
        batches: grain.DatasetIterator,
    ) -> None:
        """Start an asynchronous save; training may continue."""
        import orbax.checkpoint as ocp

        self._before_save()
        self._manager.save(
            step,
            args=ocp.args.Composite(
                **{
                    _STATE: ocp.args.StandardSave(_flat((params, opt_state))),
                    _META: ocp.args.JsonSave(
                        {
                            "step": step,
                            "keep_every": self._keep_every,
                            "config": config_to_json(self._config),
                            # Alike for all processes, however many there will be.
                            "batches": batches.get_state(),
                        }
                    ),
                }
            ),
            force=True,
        )

    def newest(self) -> int | None:
        """Step of the newest checkpoint, the same in every process; None for none."""
        steps = saved_steps(self._run_dir)
        # A file system of several hosts may show a folder to one of them first.
        told = broadcast_bytes(str(steps[-1] if steps else "").encode())
        return int(told) if told else None

    def restore(
        self, step: int, params: Any, opt_state: Any, batches: grain.DatasetIterator
    ) -> tuple[Any, Any]:
        """Weights and the optimiser's state at a step, on the devices of `params`.

        `batches` go on after that step.

        Raises:
            InputError: If the checkpoint is damaged.
            StorageError: If it cannot be read now.
        """
        import orbax.checkpoint as ocp

        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, (params, opt_state))
        try:
            found = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    **{
                        _STATE: ocp.args.StandardRestore(_flat(abstract)),
                        _META: ocp.args.JsonRestore(),
                    }
                ),
            )
        except Exception as e:
            reason = _read_error(e, self._run_dir / CHECKPOINTS_DIR / str(step))
            if reason is None:
                raise
            raise reason from e
        batches.set_state(found[_META]["batches"])
        leaves = found[_STATE]
        return jax.tree.map_with_path(
            lambda path, _: leaves[_name(path)], (params, opt_state)
        )

    def wait(self) -> None:
        """Return when everything is on disk."""
        if self._opened is not None:
            self._opened.wait_until_finished()


def restore_params(
    run_dir: Any, step: int | None = None
) -> tuple[Config, int, Decoder]:
    """Config, step and decoder at a checkpoint of a run, for export."""
    import orbax.checkpoint as ocp

    folder = _folder(run_dir)
    steps = saved_steps(run_dir)
    if not steps:
        raise InputError(f"{folder}: no checkpoints", hint="--keep-every keeps some")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise InputError(
            f"{folder}: no checkpoint at step {step}",
            hint=f"there are: {', '.join(map(str, steps))}",
        )
    meta = json.loads((folder / str(step) / _META / "metadata").read_text())
    try:
        config = config_from_json(meta["config"])
    except OTHER_VERSION as e:
        raise InputError(
            f"{folder}: a configuration of another version ({e})",
            hint="python -m train.export of the version that trained it",
        ) from e
    decoder = abstract_decoder(config.decoder)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device),
        nnx.state(decoder),
    )
    with ocp.PyTreeCheckpointer() as reader:
        flat = _flat((wanted,))
        leaves = reader.restore(
            folder / str(step) / _STATE,
            args=ocp.args.PyTreeRestore(
                item=flat,
                restore_args=jax.tree.map(
                    lambda leaf: ocp.ArrayRestoreArgs(sharding=leaf.sharding), flat
                ),
                partial_restore=True,
            ),
        )
    (filled,) = jax.tree.map_with_path(lambda path, _: leaves[_name(path)], (wanted,))
    nnx.update(decoder, filled)
    return config, step, decoder


def kept_every(run_dir: Any) -> int | None:
    """`keep_every` of the newest checkpoint of a run; None if there is none.

    As process 0 finds it, in every process: they all save at the same steps.
    """
    found = None
    if is_first() and (steps := saved_steps(run_dir)):
        path = run_dir / CHECKPOINTS_DIR / str(steps[-1]) / _META / "metadata"
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text()).get("keep_every")
    return json.loads(broadcast_bytes(json.dumps(found).encode()))


def saved_steps(run_dir: Any) -> list[int]:
    """Steps of the complete checkpoints of a run, ascending."""
    folder = run_dir / CHECKPOINTS_DIR
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.name.isdigit()]
    if not found:
        return []
    import orbax.checkpoint as ocp

    # What is half-written has a longer name, or in a bucket no file that says it is all
    # there.
    whole = ocp.utils.is_checkpoint_finalized
    return sorted(int(path.name) for path in found if whole(path))


def _read_error(error: Exception, folder: Any) -> InputError | StorageError | None:
    """The user's message for a checkpoint that was not read; None for a bug.

    Only missing or wrong bytes are called damaged, since the cure is to delete them.
    """
    words = str(error).strip()
    first_line = (words.splitlines() or [type(error).__name__])[0][:200]
    is_unreached = any(status in words for status in _UNREACHED)
    if isinstance(error, (FileNotFoundError, NotADirectoryError, KeyError)) or (
        isinstance(error, ValueError) and not is_unreached
    ):
        return InputError(
            f"{folder}: a damaged checkpoint ({first_line})",
            hint="delete this folder: the run goes on from the one before it",
        )
    is_of_bucket = "://" in str(folder) and type(error).__module__ != "builtins"
    if isinstance(error, (OSError, ValueError)) or (
        # Libraries that read buckets have types of their own; XLA's is no such error.
        is_of_bucket and not isinstance(error, RuntimeError)
    ):
        return StorageError(
            f"{folder}: cannot be read now ({first_line})",
            hint="the checkpoint may be whole: may this machine read there? Then run "
            "the same command again",
        )
    return None


def _folder(run_dir: Any) -> Any:
    """The checkpoints' folder as Orbax wants it: an absolute path or a URL."""
    folder = epath.Path(run_dir) / CHECKPOINTS_DIR
    return folder if "://" in str(folder) else folder.absolute()


def _flat(trees: Any) -> dict[str, Any]:
    """Arrays by their dotted names, independent of the classes that hold them."""
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(trees)}


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
