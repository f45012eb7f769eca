"""Flags of the model that is scored: where it runs, what it costs, on which devices."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from jaxcontam.commands.flags import StoreFlags, check_positive, flag_of
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import PREFIX, parse_api
from jaxcontam.scoring.api.options import CONCURRENCY, ApiOptions
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
"""Value of `--shard` that judges what all shares have scored."""

_LM_EVAL_PREFIX = "lm_eval:"
_API_FLAGS = tuple(field.name for field in dataclasses.fields(ApiOptions))
# A text without a second id has nothing to score.
_LEAST_CONTEXT = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiFlags(StoreFlags):
    """What may be said of a model that is named `api:URL#NAME`."""

    tokenizer: Path | None = None
    """For an api: model: folder with its tokenizer, whose ids are sent (default: text
    is sent, and the server's own tokens are scored)."""
    context: int | None = None
    """For an api: model: its context in tokens (default: of config.json beside the
    tokenizer, or 2,048); in characters where text is sent (default: 4,096)."""
    concurrency: int = CONCURRENCY
    """For an api: model: requests that are under way at once."""
    price_in: float | None = None
    """For an api: model: price of a million tokens of prompts."""
    price_out: float | None = None
    """For an api: model: price of a million tokens of answers."""
    budget: float | None = None
    """For an api: model: most that the run may cost, at these prices."""

    @property
    def api_options(self) -> ApiOptions:
        """The same for `open_model`."""
        return ApiOptions(**{name: getattr(self, name) for name in _API_FLAGS})


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags(ApiFlags):
    """What may be said of a model, wherever it runs, and of the devices here."""

    mesh: str | None = None
    """How devices share the work, such as data=4,model=2: 4 copies of the model, each
    divided between 2 devices (default: a copy on every device)."""
    shard: str | None = None
    """Score part I of N (I/N, from 0/N) into --store and end; the same command without
    it finds all parts and judges. auto: as SLURM, an indexed job or a TPU pod says;
    merge: judge, and refuse if a part is missing."""
    distributed: bool = False
    """One of the processes of a pod: each scores its part into a store that all see,
    the first judges. A model larger than a host: they score it together."""

    @property
    def mesh_shape(self) -> MeshShape:
        """The mesh as numbers."""
        return parse_mesh(self.mesh)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringFlags(DeviceFlags):
    """Flags of a command that scores with one model."""

    model: Positional[str]
    """Model directory in Hugging Face layout, hub name org/name, or api:URL#NAME."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device_flags(self, self.model)


def is_api(model: str | None) -> bool:
    """Whether a word names a model behind a server."""
    return model is not None and model.startswith(PREFIX)


def runs_here(model: str) -> bool:
    """Whether a word names weights, which give more than log-probabilities."""
    return not model.startswith((PREFIX, _LM_EVAL_PREFIX))


def check_device_flags(command: DeviceFlags, model: str | None) -> None:
    """Refuse flags that do not fit the kind of model, before anything slow.

    Args:
        command: Its flags.
        model: The word that names the model, or None.

    Raises:
        InputError: If a flag is of another kind of model, a number is out of its
            range, the mesh or the share is misspelled, a share has no store, or the
            word names no server.
    """
    parse_mesh(command.mesh)
    _check_share(command)
    is_here = model is not None and runs_here(model)
    for field in dataclasses.fields(DeviceFlags):
        if getattr(command, field.name) == field.default:
            continue
        if field.name in _API_FLAGS and not is_api(model):
            raise InputError(
                f"{flag_of(field.name)} goes with a model behind a server",
                hint="such as api:https://host/v1#name",
            )
        is_of_devices = field.name in ("mesh", "shard", "distributed")
        is_of_weights = is_of_devices or field.name in ("dtype", "batch_tokens")
        if is_of_weights and not is_here and (is_of_devices or model is not None):
            raise InputError(
                f"{flag_of(field.name)} goes with a model directory",
                hint="configure this on the server",
            )
    if model is not None and is_api(model):
        _check_server_flags(command, model)


def _check_share(command: DeviceFlags) -> None:
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
        reference = getattr(command, "reference", None) or ()
        named = (reference,) if isinstance(reference, str) else reference
        if not all(map(runs_here, named)):
            raise InputError(f"--{name}: --reference must be a model directory")
    if command.shard and command.distributed:
        raise InputError("--shard and --distributed contradict each other")


def _check_server_flags(command: ApiFlags, model: str) -> None:
    parse_api(model, flag="MODEL")
    check_positive(command, "concurrency")
    if command.context is not None and command.context < _LEAST_CONTEXT:
        raise InputError(
            f"--context must be at least {_LEAST_CONTEXT}, got {command.context}"
        )
    for name in ("price_in", "price_out", "budget"):
        value = getattr(command, name)
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{flag_of(name)} must be at least 0, got {value}")
    has_prices = (command.price_in or 0) + (command.price_out or 0) > 0
    if command.budget is not None and not (command.budget > 0 and has_prices):
        raise InputError(
            "--budget needs to be above 0, and --price-in or --price-out",
            hint="prices of 1 make it a number of million tokens",
        )


def open_for(
    command: DeviceFlags,
    word: str,
    *,
    plan_only: bool = False,
    beside: "OpenModel | None" = None,
) -> "OpenModel":
    """Open a model as a command's flags say.

    Args:
        command: Its flags.
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
        api=command.api_options if word == getattr(command, "model", None) else None,
        mesh=command.mesh_shape,
        plan_only=plan_only,
        division=division,
    )


def _share(command: DeviceFlags) -> Share | None:
    """What this process scores; None is everything."""
    if command.shard not in (None, MERGE):
        return parse_share(command.shard)
    return share_of_process(command.mesh_shape) if command.distributed else None
