"""Model presets: shape, batch and learning rate by name."""

import dataclasses
from collections.abc import Mapping

from jaxcontam.models.config import DecoderConfig, llama_shape


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model to train and how.

    Attributes:
        name: As typed after `--preset`.
        decoder: Its shape.
        batch_rows: Rows of `decoder.context` targets a step.
        peak_rate: Largest learning rate.
    """

    name: str
    decoder: DecoderConfig
    batch_rows: int
    peak_rate: float


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
    )
}
