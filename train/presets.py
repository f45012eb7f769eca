"""Model presets: shape, batch and learning rate by name."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, RopeScaling, gpt2_shape, llama_shape
from train.flops import forward_flops
from train.step import PLAIN, Compute, Schedule


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model to train and how.

    Attributes:
        name: As typed after `--preset`.
        decoder: Its shape.
        batch_rows: Rows of `context` targets a step, over all devices.
        peak_rate: Largest learning rate.
        schedule: Learning-rate schedule after warm-up.
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

    @property
    def step_flops(self) -> float:
        """Floating-point operations of a step, at least.

        Three times the forward pass: the backward pass makes two products for each of
        its products. What rematerialisation computes again is not counted.
        """
        return 3 * forward_flops(self.decoder, [self.context] * self.batch_rows)

    def changed(
        self,
        *,
        batch_rows: int | None = None,
        row_tokens: int | None = None,
        peak_rate: float | None = None,
        schedule: Schedule | None = None,
        dtype: Literal["float32", "bfloat16"] | None = None,
        remat: bool | None = None,
        n_micro: int | None = None,
    ) -> "Preset":
        """This preset with what the user's flags change; None keeps a field.

        Raises:
            InputError: If rows are longer than the model's context.
        """
        if (row_tokens or 0) > self.decoder.context:
            raise InputError(
                f"--row-tokens must be at most the model's context of "
                f"{self.decoder.context}, got {row_tokens}"
            )
        return dataclasses.replace(
            self,
            batch_rows=batch_rows or self.batch_rows,
            row_tokens=row_tokens or self.row_tokens,
            peak_rate=peak_rate or self.peak_rate,
            schedule=schedule or self.schedule,
            compute=Compute(
                dtype=dtype or self.compute.dtype,
                remat=self.compute.remat if remat is None else remat,
                n_micro=n_micro or self.compute.n_micro,
            ),
        )


def _llama(
    name: str, V: int, D: int, L: int, H: int, F: int, T: int, rows: int, rate: float
) -> Preset:
    """LLaMA shape of vocabulary V, width D, L layers, H heads, MLP F, context T."""
    decoder = llama_shape(
        vocab_size=V, d_model=D, n_layers=L, n_heads=H, d_ff=F, context=T
    )
    return Preset(name=name, decoder=decoder, batch_rows=rows, peak_rate=rate)


def _gpt2(
    name: str, D: int, L: int, H: int, T: int, rows: int, rate: float, compute: Compute
) -> Preset:
    """GPT-2 shape of width D, L layers, H heads, context T."""
    return Preset(
        name=name,
        decoder=gpt2_shape(
            vocab_size=50257, d_model=D, n_layers=L, n_heads=H, context=T
        ),
        batch_rows=rows,
        peak_rate=rate,
        compute=compute,
        model_type="gpt2",
    )


_BF16 = Compute(dtype="bfloat16")
_BF16_REMAT = Compute(dtype="bfloat16", remat=True)
# The shape of TinyLlama, arXiv:2401.02385, table 1: 1.1 B parameters.
_TINY_LLAMA = _llama("llama-1b", 32_000, 2048, 22, 32, 5632, 2048, 256, 4e-4)

PRESETS: Mapping[str, Preset] = {
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


def preset_to_json(preset: Preset) -> dict[str, Any]:
    """Fields of a preset as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(preset)))


def preset_from_json(fields: Mapping[str, Any]) -> Preset:
    """A preset from what `preset_to_json` gave, read back from JSON."""
    # JSON has no tuples.
    shape: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields["decoder"].items()
    }
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**shape["rope_scaling"])
    return Preset(
        **{
            **fields,
            "decoder": DecoderConfig(**shape),
            "compute": Compute(**fields["compute"]),
        }
    )
