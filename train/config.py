"""What is trained and how: one configuration, which a manifest records.

The command line, dry runs and populations take a preset and change it by the flags of
`ConfigFlags`. An option of the optimiser is a field of `Optimizer`, a flag of the same
name, and its use in `train.step`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.config import DecoderConfig, RopeScaling, gpt2_shape, llama_shape
from jaxcontam.orders.methods import order_method
from jaxcontam.reports.flags import check_positive, flag_of
from jaxcontam.scoring.shares import parse_mesh
from train.audits import DEFAULT_TESTS
from train.flops import forward_flops
from train.report import check_audit_flags

Schedule = Literal["cosine", "constant"]
Dtype = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """AdamW on clipped gradients, with a warm-up and a schedule.

    Attributes:
        peak_rate: Largest learning rate.
        schedule: After the warm-up: down a cosine, or constant.
        warmup: Share of the steps in which the rate rises from 0.
        final_rate: Where the cosine ends, as a share of the peak.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        weight_decay: Of kernels alone: norms, biases and embeddings set scales.
        clip_norm: Largest norm of the gradient.
    """

    peak_rate: float
    schedule: Schedule = "cosine"
    warmup: float = 0.05
    final_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How a step is computed; none of it changes a weight, except by rounding.

    Attributes:
        dtype: Of operands of products; weights are always float32. In float32 no
            product is rounded to fewer bits, see `matmul_precision`.
        remat: Rematerialise each block in the backward pass: less memory, more time.
        micro_batches: Parts of a batch, whose gradients are averaged.
    """

    dtype: Dtype = "float32"
    remat: bool = False
    micro_batches: int = 1


PLAIN = Compute()
"""float32, one micro-batch, no rematerialisation: for small models."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model to train and how.

    Attributes:
        name: Of the preset, or of the model that training starts from.
        decoder: Its shape.
        model_type: Family whose tensor names and config the model is saved with.
        batch_rows: Rows of `context` targets a step, over all devices.
        row_tokens: Targets of a row; None is the decoder's context.
        isolate_documents: Attention stays within a document, or a planted copy; else it
            crosses their borders, as everything in a row is one text.
        optimizer: How weights are updated.
        compute: How a step is computed.
    """

    name: str
    decoder: DecoderConfig
    model_type: str = "llama"
    batch_rows: int
    row_tokens: int | None = None
    isolate_documents: bool = False
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
        """This configuration with other values of its fields and of its parts' fields.

        Args:
            **fields: Name -> value; None keeps what there is.

        Raises:
            InputError: If rows are longer than the model's context, or documents cannot
                be isolated.
        """
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
        for name in ("optimizer", "compute"):
            part = getattr(self, name)
            own = {field.name for field in dataclasses.fields(part)} & given.keys()
            new = {field: given.pop(field) for field in own}
            given[name] = dataclasses.replace(given.get(name, part), **new)
        return dataclasses.replace(self, **given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFlags:
    """A preset, and fields of its configuration that are to be others."""

    preset: str | None = None
    """Shape of the model: pulse, tiny, 0.16m, 5m, 30m, 124m, 350m, 774m, 1.4b,
    llama-1b (default: tiny)."""
    batch_rows: int | None = None
    """Rows a step, over all devices (default: the preset's)."""
    row_tokens: int | None = None
    """Targets of a row (default: the model's context)."""
    isolate_documents: Annotated[bool | None, tyro.conf.FlagConversionOff] = None
    """Keep attention within each document and planted copy (default: False)."""
    peak_rate: float | None = None
    """Largest learning rate (default: the preset's)."""
    schedule: Schedule | None = None
    """Learning-rate schedule after the warm-up (default: cosine)."""
    warmup: float | None = None
    """Share of the steps that the warm-up takes (default: 0.05)."""
    final_rate: float | None = None
    """Share of the peak that the cosine ends at (default: 0.1)."""
    beta1: float | None = None
    """AdamW's decay of the first moment (default: 0.9)."""
    beta2: float | None = None
    """AdamW's decay of the second moment (default: 0.95)."""
    weight_decay: float | None = None
    """AdamW's weight decay, of kernels (default: 0.1)."""
    clip_norm: float | None = None
    """Largest norm of the gradient (default: 1)."""
    dtype: Dtype | None = None
    """Matmul precision; weights are always float32 (default: the preset's)."""
    remat: Annotated[bool | None, tyro.conf.FlagConversionOff] = None
    """Rematerialise blocks in the backward pass: less memory, more time (default: the
    preset's)."""
    micro_batches: int | None = None
    """Split a batch into this many parts: less memory (default: 1)."""

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        check_positive(self, "batch_rows", "row_tokens", "micro_batches")
        for name, (words, holds) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not holds(value):
                raise InputError(f"{flag_of(name)} must be {words}, got {value}")

    def configured(self, base: Config | None = None) -> Config:
        """The preset, or another configuration, with what the flags change.

        Raises:
            InputError: If rows are longer than the model's context.
        """
        base = PRESETS[self.preset or DEFAULT_PRESET] if base is None else base
        names = [one.name for one in dataclasses.fields(ConfigFlags)]
        return base.changed(
            **{name: getattr(self, name) for name in names if name != "preset"}
        )


def changes(config: Config, usual: Config) -> dict[str, Any]:
    """Fields of `ConfigFlags` whose values are not the usual ones, in their order."""
    found = {}
    for now, before in (
        (config, usual),
        (config.optimizer, usual.optimizer),
        (config.compute, usual.compute),
    ):
        for field in dataclasses.fields(now):
            value = getattr(now, field.name)
            if value != getattr(before, field.name):
                found[field.name] = value
    names = [one.name for one in dataclasses.fields(ConfigFlags)]
    return {name: found[name] for name in names if name in found}


_ABOVE_0 = ("above 0", lambda value: 0 < value < float("inf"))
_SHARE = ("0 to 1", lambda value: 0 <= value <= 1)
_BELOW_1 = ("at least 0 and below 1", lambda value: 0 <= value < 1)
_RANGES = {
    "peak_rate": _ABOVE_0,
    "warmup": _SHARE,
    "final_rate": _SHARE,
    "beta1": _BELOW_1,
    "beta2": _BELOW_1,
    "weight_decay": ("at least 0", lambda value: 0 <= value < float("inf")),
    "clip_norm": _ABOVE_0,
}

DEFAULT_PRESET = "tiny"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What of the texts a run reads, and what it does beside its steps."""

    background_tokens: int | None = None
    """Take random documents up to this many tokens (default: all, once)."""
    epochs: int | None = None
    """Go through that background this often, each time in another order (default: 1).
    """
    steps: int | None = None
    """Train this many steps: as much background, once or more, as that takes."""
    separator: str = "\n"
    """Text after each example."""
    max_example_tokens: int | None = None
    """Longer examples are cut, separator included."""
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
    tensorboard: bool = False
    """Write scalars for TensorBoard as well."""
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
    """Folder or gs:// address that `python -m train.prepare`, with the same flags,
    filled before: no text is read."""

    def __post_init__(self) -> None:
        parse_mesh(self.mesh)
        check_positive(self, "background_tokens", "max_example_tokens")
        check_positive(self, "epochs", "steps", "validation_tokens", "validate_every")
        if self.validate_every is not None and self.validation_tokens is None:
            raise InputError("--validate-every goes with --validation-tokens")
        if self.steps is not None and (self.background_tokens or self.epochs):
            raise InputError(
                "--steps says how much background is read: no --background-tokens and "
                "no --epochs"
            )
        check_positive(self, "checkpoint_steps", "keep_every")
        if self.peak_tflops is not None and not self.peak_tflops > 0:
            raise InputError(f"--peak-tflops must be above 0, got {self.peak_tflops}")
        check_audit_flags(self.audit_at, self.audit_every)
        for name in self.audit_tests:
            order_method(name)


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


def config_to_json(config: Config) -> dict[str, Any]:
    """Fields of a configuration as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def config_from_json(fields: Mapping[str, Any]) -> Config:
    """A configuration from what `config_to_json` gave, read back from JSON."""
    # JSON has no tuples.
    shape: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields["decoder"].items()
    }
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    parts = {
        "decoder": DecoderConfig(**shape),
        "optimizer": Optimizer(**fields["optimizer"]),
        "compute": Compute(**fields["compute"]),
    }
    return Config(**{**fields, **parts})
