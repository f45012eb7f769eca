"""Flags, checks and words that commands share."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tyro
from tyro.conf import Positional

from jaxcontam.arguments import check_min_effect as check_min_effect
from jaxcontam.arguments import check_seed as check_seed
from jaxcontam.arguments import flag_of as flag_of
from jaxcontam.arguments import path_word, store_folder, words_of
from jaxcontam.data.journal import lock
from jaxcontam.data.model_files import is_score_file
from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import PREFIX, parse_api
from jaxcontam.scoring.api.budget import CONCURRENCY, ApiOptions, Budget
from jaxcontam.scoring.parts import (
    MeshShape,
    parse_mesh,
    parse_share,
    share_of_process,
)

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel, SequenceScorer

STORE_DIR = "store"
"""Folder of scores under `--out`."""
MERGE = "merge"
"""Value of `--shard` that judges what all shares have scored."""
POD = "pod"
"""Value of `--shard` for processes that find each other."""
NO_STORE = "none"
"""Value of `--store` that keeps no scores."""

# Fields that change what is printed, or where, and not what is computed.
_PRINTING = {"json", "shard"}
# As in `scoring.opened`, whose imports are slow.
_LM_EVAL_PREFIX, _VLLM_PREFIX = "lm_eval:", "vllm:"
# Fields that change where and at what price something is computed.
_WORKING = {
    *("out", "store", "mesh", "dry_run", "concurrency", "price", "budget"),
    "retry_refused",
}
_OF_SERVERS = ("tokenizer", "context", "concurrency", "price", "budget")
# What a command asks comes first in its help, then its texts, its report, servers, and
# devices.
_LAST = (
    *("text", "fields", "no_header", "separator", "max_example_tokens", "limit"),
    "sample",
    *("min_effect", "seed", "out", "dry_run", "explain", "json"),
    *("tokenizer", "concurrency", "price", "budget", "retry_refused"),
    *("context", "dtype", "store", "mesh", "shard"),
)
_T = TypeVar("_T")
# A text without a second id has nothing to score.
_LEAST_CONTEXT = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """The end of every chain of checks; no slots: two bases of slots cannot join."""

    def __post_init__(self) -> None:
        """Refuse values that would fail later, before anything slow."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags(Flags):
    """Flags of a command that writes a report."""

    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""
    out: Path | None = None
    """Folder for the report (default: runs/COMMAND/NAME-DIGEST)."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        super().__post_init__()

    def folder(self, command: str, name: str, digest: str = "") -> Path:
        """Folder of what was asked: of a name, on what has this `sha256:` digest."""
        ending = f"-{digest[7:15]}" if digest else ""
        return self.out or Path("runs") / command / f"{name}{ending}"

    def report_folder(self, command: str, name: str, *decides: str) -> Path:
        """Folder of a report; `decides` is all that does beside the flags."""
        from jaxcontam.data.benchmark import fingerprint

        names = {field.name for field in dataclasses.fields(self)}
        flags = words_of(self, sorted(names - _PRINTING - _WORKING))
        return self.folder(command, name, fingerprint([*decides, *flags]))

    def made_folder(self, command: str, model: "OpenModel", digest: str) -> Path:
        """Make the folder of a report on a model."""
        from jaxcontam.reports.report_files import make_folder

        out = self.report_folder(command, model.name, digest, model.info.fingerprint)
        make_folder(out)
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class DtypeFlags(Flags):
    """Precision of a model's arithmetic."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision; bfloat16 is less accurate but faster, on a GPU several
    times."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags(Flags, RecordText):
    """The text of each record of a file."""

    no_header: bool = False
    """Read the first row of a .csv or .tsv file as an example too; columns are called
    column_1, column_2, ..."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstTextsFlags(TextFlags):
    """Number of texts that are read from a file."""

    limit: int | None = None
    """Use only the first N records of a file."""

    def __post_init__(self) -> None:
        check_positive(self, "limit")
        super().__post_init__()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpendingFlags(Flags):
    """Limits of requests to a server, and of their cost."""

    concurrency: int = CONCURRENCY
    """For an api: model: simultaneous requests."""
    price: str | None = None
    """For an api: model: prices IN,OUT per million tokens of prompts and of answers."""
    budget: float | None = None
    """For an api: model: maximum cost of the run, at these prices."""

    def check_spending(self) -> None:
        """Refuse what no server can be asked for."""
        check_positive(self, "concurrency")
        prices = prices_of(self.price)
        if len(prices) == 1 and self.hour_price is None:
            raise InputError(
                f"--price {self.price}: a server has two, IN,OUT",
                hint="give one number, the price per hour of a device, only to audit "
                "--dry-run of a model directory",
            )
        if self.budget is not None:
            if not 0 <= self.budget < math.inf:
                raise InputError(f"--budget must be at least 0, got {self.budget}")
            if not (self.budget > 0 and sum(prices) > 0):
                raise InputError(
                    "--budget needs to be above 0, and --price IN,OUT",
                    hint="--price 1,1 makes it a number of million tokens",
                )

    @property
    def hour_price(self) -> float | None:
        """Price of a device's hour, where a command says what a model here costs."""
        return None

    @property
    def limits(self) -> Budget:
        """Budget and prices of a server."""
        both = () if self.hour_price is not None else prices_of(self.price)
        price_in, price_out = both or (0.0, 0.0)
        return Budget(max_cost=self.budget, price_in=price_in, price_out=price_out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags(SpendingFlags, DtypeFlags):
    """Flags for the computation and storage of scores, for servers and for devices."""

    store: str | None = None
    """Folder of scores, from which a rerun resumes (default: next to the report); none
    keeps no scores."""
    tokenizer: Path | None = None
    """For an api: model: folder with its tokenizer, whose ids are sent (default: text
    is sent, and the server's own tokens are scored)."""
    context: int | None = None
    """Tokens that the model reads at once (default: from its config.json; for longrope
    the original context, above which all texts use the long factors). For an api: model
    likewise, or 2,048; in characters if text is sent (default: 4,096)."""
    mesh: str | None = None
    """Division of the work among devices, such as data=4,fsdp=2: 4 copies of the model,
    each divided between 2 devices (default: a copy on every device)."""
    shard: str | None = None
    """Score part I of N (I/N, from 0/N) into --store and exit; the same command without
    --shard finds all parts and judges. merge: judge, and refuse if a part is missing.
    pod: one of the processes of a pod; each scores its part into a store that all see,
    and the first judges. A model larger than a host is scored by all together."""

    def __post_init__(self) -> None:
        folder = self.store_in(None)
        if folder is not None and folder.exists() and not folder.is_dir():
            raise InputError(
                f"{self.store}: is a file", hint="name a folder with --store"
            )
        super().__post_init__()

    def store_in(self, default: Path | None) -> Path | None:
        """Folder in which scores are kept, as the flags say; None keeps none."""
        return None if self.store == NO_STORE else store_folder(self.store) or default

    @property
    def api_options(self) -> ApiOptions:
        """Options of a server, for `load`."""
        return ApiOptions(
            tokenizer=self.tokenizer,
            context=self.context,
            concurrency=self.concurrency,
            limits=self.limits,
        )

    @property
    def mesh_shape(self) -> MeshShape:
        """The mesh as numbers."""
        return parse_mesh(self.mesh)

    def scorer(self, model: "OpenModel", out: Path) -> "SequenceScorer":
        """The scorer of a model, with its store."""
        return model.make_scorer(store=self.store_of(model, out))

    def store_of(self, model: "OpenModel", out: Path) -> Path | None:
        """The store that the flags name, or one in `--out`, or beside all reports."""
        if getattr(self, "out", None) is not None:
            return self.store_in(out / model.store_name)
        return self.store_in(out.parent / f"{model.name}-store")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringFlags(DeviceFlags):
    """Flags of a command that scores with one model."""

    model: Positional[str]
    """Model directory in Hugging Face layout, .gguf file, hub name org/name,
    api:URL#NAME, or vllm:NAME."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device_flags(self, self.model)


def prices_of(word: str | None) -> tuple[float, ...]:
    """The one or two numbers of --price."""
    try:
        found = tuple(map(float, word.split(","))) if word is not None else ()
    except ValueError:
        found = (math.nan,)
    if len(found) > 2 or not all(0 <= price < math.inf for price in found):
        raise InputError(f"--price must be IN,OUT, each at least 0, got {word}")
    return found


def check_positive(command: Any, *names: str) -> None:
    """Refuse fields below 1, named as the flags that the user typed; None passes."""
    for name in names:
        value = getattr(command, name)
        if value is not None and value < 1:
            raise InputError(f"{flag_of(name)} must be at least 1, got {value}")


def runs_here(model: str) -> bool:
    """True if a word names weights, which give more than log-probabilities."""
    is_elsewhere = model.startswith((PREFIX, _LM_EVAL_PREFIX, _VLLM_PREFIX))
    return not is_elsewhere and not is_score_file(model)


def check_device_flags(command: DeviceFlags, model: str | None) -> None:
    """Refuse flags that do not fit the kind of model, before anything slow."""
    parse_mesh(command.mesh)
    _check_share(command)
    is_here = model is not None and runs_here(model)
    is_served = model is not None and model.startswith(PREFIX)
    has_context = model is not None and (is_here or model.startswith(_VLLM_PREFIX))
    for field in dataclasses.fields(DeviceFlags):
        if getattr(command, field.name) == field.default:
            continue
        fits_both = field.name == "context" and has_context
        fits_both |= (
            field.name == "price" and is_here and command.hour_price is not None
        )
        if field.name in _OF_SERVERS and not (is_served or fits_both):
            raise InputError(
                f"{flag_of(field.name)} goes with a model behind a server",
                hint="such as api:https://host/v1#name",
            )
        is_of_devices = field.name in ("mesh", "shard")
        is_of_weights = is_of_devices or field.name == "dtype"
        if is_of_weights and not is_here and (is_of_devices or model is not None):
            raise InputError(
                f"{flag_of(field.name)} goes with a model directory",
                hint="configure this where the model runs",
            )
    if model is not None and is_served:
        _check_server_flags(command, model)


def _check_share(command: DeviceFlags) -> None:
    if command.shard is None:
        return
    if command.shard not in (MERGE, POD):
        parse_share(command.shard)
    if getattr(command, "dry_run", False):
        raise InputError("--dry-run is for one process; leave out --shard")
    if command.store == NO_STORE:
        raise InputError(
            "--shard: the scores of a process are kept in a store",
            hint="leave out --store none",
        )
    if not all(map(runs_here, _references(command))):
        flag = "--references" if hasattr(command, "references") else "--reference"
        raise InputError(f"--shard: {flag} must be a model directory")


def _references(command: Any) -> tuple[str, ...]:
    one = getattr(command, "reference", None)
    return getattr(command, "references", () if one is None else (one,))


def check_references(command: Any) -> None:
    """Refuse a reference that is no model before anything slow is done with another."""
    if not (here := [*filter(runs_here, _references(command))]):
        return
    from jaxcontam.models.checkpoint import check_model
    from jaxcontam.scoring.opened import about_reference

    with about_reference():
        for word in here:
            check_model(word)


def _check_server_flags(command: DeviceFlags, model: str) -> None:
    parse_api(model, flag="MODEL")
    command.check_spending()
    if command.context is not None and command.context < _LEAST_CONTEXT:
        raise InputError(
            f"--context must be at least {_LEAST_CONTEXT}, got {command.context}"
        )


def open_for(
    command: DeviceFlags,
    word: str,
    *,
    plan_only: bool = False,
    weights: bool = True,
    beside: "OpenModel | None" = None,
) -> "OpenModel":
    """Open a model as a command's flags say; see `load`.

    No flag speaks of the server of any but the command's own model. `beside` is the
    model that this one is compared with; both are divided as one run.
    """
    # JAX and transformers are imported once the input is known to be good.
    from jaxcontam.scoring.load import load
    from jaxcontam.scoring.shares import Division

    own = getattr(command, "model", None)
    if beside is None or (division := beside.division) is None:
        share = None
        if command.shard == POD:
            share = share_of_process(command.mesh_shape)
        elif command.shard not in (None, MERGE):
            share = parse_share(command.shard)
        division = Division(share, merges=command.shard == MERGE)
    return load(
        word,
        dtype=command.dtype,
        api=command.api_options if word == own else None,
        mesh=command.mesh_shape,
        plan_only=plan_only,
        weights=weights,
        division=division,
        beside=None if word == own else own,
    )


@contextlib.contextmanager
def own_folder(name: str, command: Any) -> Iterator[None]:
    """Keep other runs out of `--out`, and a report there that other words made.

    Without `--out` the folder's name already tells runs apart. Shares of one run meet
    in their store and write no report.
    """
    from jaxcontam.reports.report_files import make_folder

    out = getattr(command, "out", None)
    shared = getattr(command, "shard", None) not in (None, MERGE)
    is_folder = name in ("audit", "overlap") or isinstance(command, ReportFlags)
    if out is None or not is_folder or shared or getattr(command, "dry_run", False):
        yield
        return
    made = [place for place in (out, *out.parents) if not place.exists()]
    make_folder(out)
    handle = os.open(out, os.O_RDONLY)
    try:
        lock(handle, out)
        if name != "overlap":
            _keep_other_report(name, command)
        yield
    finally:
        os.close(handle)
        # A run that ended before it wrote anything leaves no folder.
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def _keep_other_report(name: str, command: Any) -> None:
    from jaxcontam.reports.page import command_line
    from jaxcontam.reports.report_files import REPORT_NAME, read_document

    out = command.out
    if not (out / REPORT_NAME).is_file():
        return
    own = [name]
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if is_positional(field) and value:
            own += map(path_word, value if isinstance(value, tuple) else [value])
    own += flags_of(command)
    document = read_document(out / REPORT_NAME)
    found = list(map(str, document.get("command", ())))
    # A file that was refused has no result to lose.
    if document.get("results") and sorted(found) != sorted(own):
        raise InputError(
            f"{out}: holds the report of another run ({command_line(found)})",
            hint=f"name another folder with --out, or remove {out / REPORT_NAME}: what "
            "was scored and answered is kept",
        )


def flags_of(command: Any) -> tuple[str, ...]:
    """The flags that differ from their defaults, as they were typed."""
    fields = [one for one in dataclasses.fields(command) if not is_positional(one)]
    return words_of(command, [one.name for one in fields if one.name not in _PRINTING])


def in_order(command: type[_T]) -> type[_T]:
    """Order the fields of a command as its help lists them: first what it is about."""
    fields = command.__dict__["__dataclass_fields__"]
    for name in _LAST:
        if name in fields:
            fields[name] = fields.pop(name)
    return command


def is_positional(field: dataclasses.Field) -> bool:
    """True if a field is typed without a flag before it."""
    return tyro.conf.Positional in getattr(field.type, "__metadata__", ())
