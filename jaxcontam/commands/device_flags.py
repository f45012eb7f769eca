"""Flags of the devices that score, shared by every command that opens a model."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jaxcontam.commands.api_flags import ApiFlags, check_api_flags, runs_here
from jaxcontam.errors import InputError
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel


# It continues ApiFlags, since two bases with slots cannot be joined.
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFlags(ApiFlags):
    """What may be said of a model, wherever it runs, and of the devices here."""

    mesh: str | None = None
    """How devices share the work, such as data=4,model=2: 4 copies of the model, each
    divided between 2 devices (default: a copy on every device)."""
    distributed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """This is one of several processes that score together, one on each host."""

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
        InputError: As `check_api_flags`; or if the mesh is misspelled, or devices are
            spoken of and the model runs elsewhere.
    """
    check_api_flags(command, model)
    parse_mesh(command.mesh)
    if command.distributed and getattr(command, "dry_run", False):
        raise InputError("--dry-run is for one process; leave out --distributed")
    if model is not None and runs_here(model):
        return
    for name in ("mesh", "distributed"):
        if getattr(command, name):
            raise InputError(
                f"--{name} goes with a model directory",
                hint="who runs the model elsewhere chooses its devices there",
            )


def open_for(command: Any, word: str, *, plan_only: bool = False) -> "OpenModel":
    """Open a model as a command's flags say.

    Args:
        command: A `DeviceFlags`, with `model` and `dtype` beside.
        word: Names the model: the command's own, or one to compare with, whose server
            no flag speaks of.
        plan_only: See `open_model`.

    Raises:
        InputError: See `open_model`.
    """
    # JAX and transformers are imported once the input is known to be good.
    from jaxcontam.scoring.opened import open_model

    return open_model(
        word,
        dtype=command.dtype,
        api=command.api_options if word == command.model else None,
        mesh=command.mesh_shape,
        plan_only=plan_only,
    )
