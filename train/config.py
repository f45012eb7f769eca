"""What is trained and how: one configuration, which a manifest records.

Every command takes a preset and changes it by flags. An option is one field: of the
optimiser in `train.optimizer`, of the loss in `train.loss`, of the data in
`train.filters`, of the batch in `Config`. Its flag, its place in the manifest and the
refusal to resume with another value follow from the field.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxcontam.data.templates import typed_newlines
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.config import DecoderConfig, RopeScaling, gpt2_shape, llama_shape
from jaxcontam.orders.methods import order_method
from jaxcontam.reports.flags import check_positive
from jaxcontam.scoring.parts import parse_mesh
from train.audits import DEFAULT_TESTS
from train.filters import READ_ALL, Data
from train.flops import forward_flops
from train.loss import PLAIN, Compute
from train.optimizer import Optimizer
from train.options import AT_LEAST_1, check_options, option, option_flags
from train.report import check_audit_flags

PARTS = {"data": Data, "optimizer": Optimizer, "compute": Compute}
"""Fields of `Config` that have options of their own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model to train and how; `name` is that of the preset or start model."""

    name: str
    decoder: DecoderConfig
    model_type: str = "llama"
    batch_rows: int = option(..., "Rows a step, over all devices", AT_LEAST_1)
    row_tokens: int | None = option(
        None, "Targets of a row (default: the model's context)", AT_LEAST_1
    )
    isolate_documents: bool = option(
        False, "Keep attention within each document and planted copy"
    )
    data: Data = READ_ALL
    optimizer: Optimizer
    compute: Compute = PLAIN

    @property
    def context(self) -> int:
        """Targets of a training row."""
        return self.decoder.context if self.row_tokens is None else self.row_tokens

    @property
    def step_tokens(self) -> int:
        """Targets of a step."""
        return self.batch_rows * self.context

    @property
    def step_flops(self) -> float:
        """Floating-point operations of a step, at least.

        Three times the forward pass: the backward pass makes two products for each of
        its products. What rematerialisation computes again is not counted.
        """
        return 3 * forward_flops(self.decoder, [self.context] * self.batch_rows)

    def changed(self, **fields: Any) -> "Config":
        """This configuration with other values of its options."""
        given = {name: value for name, value in fields.items() if value is not None}
        if given.get("isolate_documents") and self.decoder.delta is not None:
            raise InputError(
                "--isolate-documents: layers of a delta rule read on across documents"
            )
        row_tokens = given.get("row_tokens", 0)
        if row_tokens > self.decoder.context:
            raise InputError(
                f"--row-tokens must be at most the model's context of "
                f"{self.decoder.context}, got {row_tokens}"
            )
        # An option may have the name of its part.
        parts = {}
        for name in PARTS:
            part = getattr(self, name)
            own = {field.name for field in dataclasses.fields(part)} & given.keys()
            parts[name] = dataclasses.replace(part, **{n: given.pop(n) for n in own})
        return dataclasses.replace(self, **given, **parts)


def _llama(
    name: str, V: int, D: int, L: int, H: int, F: int, T: int, rows: int, rate: float
) -> Config:
    """LLaMA shape of vocabulary V, width D, L layers, H heads, MLP F, context T."""
    decoder = llama_shape(
        vocab_size=V, d_model=D, n_layers=L, n_heads=H, d_ff=F, context=T
    )
    optimizer = Optimizer(peak_rate=rate)
    return Config(name=name, decoder=decoder, batch_rows=rows, optimizer=optimizer)


def _gpt2(
    name: str, D: int, L: int, H: int, T: int, rows: int, rate: float, compute: Compute
) -> Config:
    """GPT-2 shape of width D, L layers, H heads, context T."""
    return Config(
        name=name,
        decoder=gpt2_shape(
            vocab_size=50257, d_model=D, n_layers=L, n_heads=H, context=T
        ),
        batch_rows=rows,
        optimizer=Optimizer(peak_rate=rate),
        compute=compute,
        model_type="gpt2",
    )


_BF16 = Compute(dtype="bfloat16")
_BF16_REMAT = Compute(dtype="bfloat16", remat=True)
# The shape of TinyLlama, arXiv:2401.02385, table 1: 1.1 B parameters.
_TINY_LLAMA = _llama("llama-1b", 32_000, 2048, 22, 32, 5632, 2048, 256, 4e-4)

PRESETS: Mapping[str, Config] = {
    preset.name: preset
    for preset in (
        # For tests: learns in seconds, detects nothing.
        _llama("pulse", 512, 32, 2, 2, 64, 64, 4, 5e-3),
        # The quickstart's: 0.73 M parameters.
        _llama("tiny", 4096, 96, 3, 4, 256, 128, 4, 4e-3),
        # For populations: learns repeated sets in 1,000 steps. Two rows of 64 are a
        # quarter faster on a CPU than one of 128, and a pair of examples fits.
        _llama("0.16m", 1024, 64, 2, 4, 168, 64, 2, 3e-3),
        # An hour on two cores for some 8 M tokens: 5.8 M parameters.
        _llama("5m", 4096, 256, 6, 8, 688, 256, 8, 2e-3),
        # Two thirds of its weights are the embedding.
        _gpt2("30m", 384, 6, 6, 512, 8, 1e-3, PLAIN),
        # The GPT-2 family as Oren et al. trained it on contaminated text. Rates: Brown
        # et al. 2020, arXiv:2005.14165, table 2.1.
        _gpt2("124m", 768, 12, 12, 1024, 64, 6e-4, _BF16),
        _gpt2("350m", 1024, 24, 16, 1024, 128, 3e-4, _BF16_REMAT),
        _gpt2("774m", 1280, 36, 20, 1024, 256, 2.5e-4, _BF16_REMAT),
        _gpt2("1.4b", 1536, 48, 24, 2048, 256, 2e-4, _BF16_REMAT),
        dataclasses.replace(
            _TINY_LLAMA,
            decoder=dataclasses.replace(_TINY_LLAMA.decoder, n_kv_heads=4, tied=False),
            compute=_BF16_REMAT,
        ),
    )
}


DEFAULT_PRESET = "tiny"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Preset:
    preset: str | None = None
    """Shape of the model: pulse, tiny, 0.16m, 5m, 30m, 124m, 350m, 774m, 1.4b,
    llama-1b (default: tiny)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFlags(option_flags((Config, *PARTS.values())), _Preset):
    """A preset, and fields of its configuration that are to be others."""

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        check_options(self, ConfigFlags)

    def configured(self, base: Config | None = None) -> Config:
        """The preset, or another configuration, with what the flags change."""
        base = PRESETS[self.preset or DEFAULT_PRESET] if base is None else base
        given = {name: getattr(self, name) for name in _FLAGS}
        if self.separator is not None:
            given["separator"] = typed_newlines(self.separator)
        return base.changed(**given)


_FLAGS = tuple(one.name for one in dataclasses.fields(ConfigFlags) if one.metadata)


def changes(config: Config, usual: Config) -> dict[str, Any]:
    """Options whose values are not the usual ones, in the order of their flags."""
    pairs = [(config, usual)]
    pairs += [(getattr(config, name), getattr(usual, name)) for name in PARTS]
    found = {
        field.name: getattr(now, field.name)
        for now, before in pairs
        for field in dataclasses.fields(now)
        if field.metadata and getattr(now, field.name) != getattr(before, field.name)
    }
    return {name: found[name] for name in _FLAGS if name in found}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What of the texts a run reads, and what it does beside its steps."""

    background_tokens: int | None = None
    """Take random documents up to this many tokens (default: all, once)."""
    epochs: int | None = None
    """Go through that background this often, each time in another order (default:
    once)."""
    steps: int | None = None
    """Train this many steps: as much background, once or more, as that takes."""
    validation_tokens: int | None = None
    """Hold random documents of this many tokens out of training, and tell their loss
    along it (default: none)."""
    validate_every: int | None = None
    """Every N steps (default: 20 times in all)."""
    allow_overlap: bool = False
    """Train although a control stands in what is trained on."""
    audit_at: tuple[float, ...] = ()
    """Test every set after these shares of training, such as 0.25 0.5 1.0."""
    audit_every: int | None = None
    """And after every N steps."""
    audit_tests: tuple[str, ...] = DEFAULT_TESTS
    """Order tests of these audits."""
    checkpoint_steps: int | None = None
    """Save a checkpoint every N steps (default: as often as saving takes 2 % of the
    time, at least every half hour)."""
    keep_every: int | None = None
    """Keep the checkpoints at these steps, for python -m train.export."""
    peak_tflops: float | None = None
    """Peak of all devices together, to print the share reached (MFU)."""
    profile: int | None = None
    """Write a profile of N steps, after the first two, to profile/ in --out, for XProf
    or Perfetto."""
    cache: Path | None = None
    """Folder of tokenised corpora (default: jaxcontam/tokens in the user's cache)."""
    mesh: str | None = None
    """How devices share the work, such as data=4,fsdp=2: weights divided between 2
    devices, 4 times over (default: all of them on every device)."""
    checkpoints: str | None = None
    """Folder or gs:// address that keeps checkpoints, and at the end the model, where
    the disk of --out may be lost (default: --out). One run at a time may use it,
    which is checked in folders only."""
    prepared: str | None = None
    """Folder or gs:// address of the data of this run, which the same command with
    --stop-after-data filled before: no text is read."""
    stop_after_data: bool = False
    """Fill --prepared and end: on a machine without accelerators."""

    def __post_init__(self) -> None:
        parse_mesh(self.mesh)
        check_positive(self, "background_tokens", "epochs", "steps")
        check_positive(self, "validation_tokens", "validate_every")
        if self.validate_every is not None and self.validation_tokens is None:
            raise InputError("--validate-every goes with --validation-tokens")
        if self.steps is not None and (self.background_tokens or self.epochs):
            raise InputError(
                "--steps says how much background is read: no --background-tokens and "
                "no --epochs"
            )
        if self.stop_after_data and self.prepared is None:
            raise InputError(
                "--stop-after-data goes with --prepared", hint="a folder or gs://..."
            )
        check_positive(self, "checkpoint_steps", "keep_every", "profile")
        if self.peak_tflops is not None and not self.peak_tflops > 0:
            raise InputError(f"--peak-tflops must be above 0, got {self.peak_tflops}")
        check_audit_flags(self.audit_at, self.audit_every)
        for name in self.audit_tests:
            order_method(name)


def config_to_json(config: Config) -> dict[str, Any]:
    """Fields of a configuration as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def config_from_json(fields: Mapping[str, Any]) -> Config:
    """A configuration from its JSON; an option that it lacks has its default."""
    # JSON has no tuples.
    shape: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields["decoder"].items()
    }
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    parts = {name: part(**(fields.get(name) or {})) for name, part in PARTS.items()}
    return Config(**{**fields, **parts, "decoder": DecoderConfig(**shape)})


OTHER_VERSION = (AttributeError, KeyError, TypeError, ValueError)
"""Errors of `config_from_json` for what another version stored."""


def recipe_now(recipe: Any, **data: Any) -> Any:
    """A stored configuration in the fields of this version, to compare it with another.

    An option that is new here, at its default, resumes a run that did not have it.
    `data` has options of `Data` that older recipes lack. What is no configuration
    stays as it is.
    """
    try:
        return config_to_json(config_from_json({"data": data} | recipe))
    except OTHER_VERSION:
        return recipe
