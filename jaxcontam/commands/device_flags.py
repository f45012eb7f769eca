"""Flags of the devices that score, shared by every command that opens a model."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jaxcontam.commands.api_flags import ApiFlags, check_api_flags, runs_here
from jaxcontam.errors import InputError
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh
from jaxcontam.scoring.shares import (
    AUTO,
    Division,
    Share,
    parse_share,
    share_of_process,
)

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel

MERGE = "merge"
"""Of `--shard`: judge what all shares have scored."""


# It continues ApiFlags, since two bases with slots cannot be joined.
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFlags(ApiFlags):
    """What may be said of a model, wherever it runs, and of the devices here."""

    mesh: str | None = None
    """How devices share the work, such as data=4,model=2: 4 copies of the model, each
    divided between 2 devices (default: a copy on every device)."""
    shard: str | None = None
    """Score part I of N (I/N, from 0/N) into --store and end; the same command without
    it finds all parts and judges. auto: as SLURM, an indexed job or a TPU pod says;
    merge: judge, and refuse if a part is missing."""
    distributed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """One of the processes of a pod: each scores its part into a store that all see,
    the first judges. A model larger than a host: they score it together."""

    @property
    def mesh_shape(self) -> MeshShape:
        """The mesh as numbers."""
        return parse_mesh(self.mesh)


def check_device_flags(command: Any, model: str | None) -> None:
    """Refuse flags that do not fit the kind of model, before anything slow.

    Args:
        command: A `DeviceFlags`, with `dtype` and `batch_tokens` beside.
        model: The word that names the model.

    Raises:
        InputError: As `check_api_flags`; or if the mesh or the share is misspelled, a
            share has no store, or devices are spoken of and the model runs elsewhere.
    """
    check_api_flags(command, model)
    parse_mesh(command.mesh)
    if command.shard not in (None, AUTO, MERGE):
        parse_share(command.shard)
    for name in ("shard", "distributed"):
        if not getattr(command, name):
            continue
        if getattr(command, "dry_run", False):
            raise InputError(f"--dry-run is for one process; leave out --{name}")
        if command.no_store:
            raise InputError(
                f"--{name}: what a process scores is kept in a store",
                hint="leave out --no-store",
            )
        reference = getattr(command, "reference", None)
        if reference is not None and not runs_here(reference):
            raise InputError(f"--{name}: --reference must be a model directory")
    if command.shard and command.distributed:
        raise InputError("--shard and --distributed contradict each other")
    if model is not None and runs_here(model):
        return
    for name in ("mesh", "shard", "distributed"):
        if getattr(command, name):
            raise InputError(
                f"--{name} goes with a model directory",
                hint="who runs the model elsewhere chooses its devices there",
            )


def open_for(
    command: Any,
    word: str,
    *,
    plan_only: bool = False,
    beside: "OpenModel | None" = None,
) -> "OpenModel":
    """Open a model as a command's flags say.

    Args:
        command: A `DeviceFlags`, with `model` and `dtype` beside.
        word: Names the model: the command's own, or one to compare with, whose server
            no flag speaks of.
        plan_only: See `open_model`.
        beside: The model that this one is compared with; both are divided as one run.

    Raises:
        InputError: See `open_model`.
    """
    # JAX and transformers are imported once the input is known to be good.
    from jaxcontam.scoring.opened import open_model

    division = None if beside is None else beside.division
    if division is None:
        division = Division(_share(command), merges=command.shard == MERGE)
    return open_model(
        word,
        dtype=command.dtype,
        api=command.api_options if word == command.model else None,
        mesh=command.mesh_shape,
        plan_only=plan_only,
        division=division,
    )


def _share(command: Any) -> Share | None:
    """What this process scores; None is everything."""
    if command.shard not in (None, MERGE):
        return parse_share(command.shard)
    return share_of_process(command.mesh_shape) if command.distributed else None
