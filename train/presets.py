"""Model presets: shape, batch and learning rate by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import (
    DecoderConfig,
    RopeScaling,
    gpt2_shape,
    llama_shape,
)
from train.step import PLAIN, Compute, Schedule


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model to train and how.

    Attributes:
        name: As typed after `--preset`.
        decoder: Its shape.
        batch_rows: Rows of `context` targets a step, over all devices.
        peak_rate: Largest learning rate.
        schedule: Of the learning rate.
        compute: How a step is computed.
        model_type: Family whose tensor names and config the model is saved with.
        row_tokens: Targets of a row; None is the decoder's context.
    """

    name: str
    decoder: DecoderConfig
    batch_rows: int
    peak_rate: float
    schedule: Schedule = "cosine"
    compute: Compute = PLAIN
    model_type: str = "llama"
    row_tokens: int | None = None

    @property
    def context(self) -> int:
        """Targets of a training row."""
        return self.decoder.context if self.row_tokens is None else self.row_tokens

    @property
    def step_tokens(self) -> int:
        """Targets of a step."""
        return self.batch_rows * self.context


_ACCELERATOR = Compute(dtype="bfloat16", remat=True)


def _gpt2(
    name: str,
    D: int,
    L: int,
    H: int,
    *,
    context: int,
    batch_rows: int,
    peak_rate: float,
    compute: Compute,
) -> Preset:
    shape = gpt2_shape(
        vocab_size=50257, d_model=D, n_layers=L, n_heads=H, context=context
    )
    return Preset(
        name=name,
        decoder=shape,
        batch_rows=batch_rows,
        peak_rate=peak_rate,
        compute=compute,
        model_type="gpt2",
    )


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        # For tests: learns in seconds, detects nothing.
        Preset(
            name="pulse",
            decoder=llama_shape(
                vocab_size=512, d_model=32, n_layers=2, n_heads=2, d_ff=64, context=64
            ),
            batch_rows=4,
            peak_rate=5e-3,
        ),
        # The quickstart's: 0.73 M parameters.
        Preset(
            name="tiny",
            decoder=llama_shape(
                vocab_size=4096,
                d_model=96,
                n_layers=3,
                n_heads=4,
                d_ff=256,
                context=128,
            ),
            batch_rows=4,
            peak_rate=4e-3,
        ),
        # Of populations: learns repeated sets in 1,000 steps. Two rows of 64 are a
        # quarter faster on a CPU than one of 128, and a pair of examples fits.
        Preset(
            name="0.16m",
            decoder=llama_shape(
                vocab_size=1024,
                d_model=64,
                n_layers=2,
                n_heads=4,
                d_ff=168,
                context=64,
            ),
            batch_rows=2,
            peak_rate=3e-3,
        ),
        # An hour on two cores for some 8 M tokens: 5.8 M parameters.
        Preset(
            name="5m",
            decoder=llama_shape(
                vocab_size=4096,
                d_model=256,
                n_layers=6,
                n_heads=8,
                d_ff=688,
                context=256,
            ),
            batch_rows=8,
            peak_rate=2e-3,
        ),
        # Two thirds of its weights are the embedding.
        _gpt2(
            "30m",
            384,
            6,
            6,
            context=512,
            batch_rows=8,
            peak_rate=1e-3,
            compute=PLAIN,
        ),
        # The GPT-2 family as Oren et al. trained it on contaminated text: 124 M, 350 M,
        # 774 M and, with 48 layers of width 1,536, 1.4 B. Rates: Brown et al. 2020,
        # arXiv:2005.14165, table 2.1.
        _gpt2(
            "124m",
            768,
            12,
            12,
            context=1024,
            batch_rows=64,
            peak_rate=6e-4,
            compute=Compute(dtype="bfloat16"),
        ),
        _gpt2(
            "350m",
            1024,
            24,
            16,
            context=1024,
            batch_rows=128,
            peak_rate=3e-4,
            compute=_ACCELERATOR,
        ),
        _gpt2(
            "774m",
            1280,
            36,
            20,
            context=1024,
            batch_rows=256,
            peak_rate=2.5e-4,
            compute=_ACCELERATOR,
        ),
        _gpt2(
            "1.4b",
            1536,
            48,
            24,
            context=2048,
            batch_rows=256,
            peak_rate=2e-4,
            compute=_ACCELERATOR,
        ),
        # The shape of TinyLlama, arXiv:2401.02385, table 1: 1.1 B parameters.
        Preset(
            name="llama-1b",
            decoder=dataclasses.replace(
                llama_shape(
                    vocab_size=32_000,
                    d_model=2048,
                    n_layers=22,
                    n_heads=32,
                    d_ff=5632,
                    context=2048,
                ),
                n_kv_heads=4,
                tied=False,
            ),
            batch_rows=256,
            peak_rate=4e-4,
            compute=_ACCELERATOR,
        ),
    )
}


def preset_to_json(preset: Preset) -> dict[str, Any]:
    """Fields of a preset as JSON values."""
    return dataclasses.asdict(preset)


def preset_from_json(fields: Mapping[str, Any]) -> Preset:
    """A preset from what `preset_to_json` gave, read back from JSON."""
    shape = dict(fields["decoder"])
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    shape["windows"] = tuple(shape["windows"])
    return Preset(
        **{
            **fields,
            "decoder": DecoderConfig(**shape),
            "compute": Compute(**fields["compute"]),
        }
    )
