"""Presets: as large as their names say, writable, and kept in JSON."""

import jax
import pytest
from flax import nnx

from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from train.presets import PRESETS, preset_from_json, preset_to_json

# Published sizes of GPT-2 and TinyLlama; the others follow from their names.
MILLIONS = {
    "0.16m": 0.16,
    "tiny": 0.73,
    "5m": 5.8,
    "30m": 30,
    "124m": 124,
    "350m": 354.8,
    "774m": 774,
    "1.4b": 1_440,
    "llama-1b": 1_100,
}


@pytest.mark.parametrize("name", MILLIONS)
def test_a_preset_has_as_many_parameters_as_it_says(name):
    preset = PRESETS[name]
    decoder = nnx.eval_shape(lambda: Decoder(preset.decoder, rngs=nnx.Rngs(0)))
    n = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))
    assert n == pytest.approx(1e6 * MILLIONS[name], rel=0.02)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_comes_back_from_its_family_and_from_json(name):
    preset = PRESETS[name]
    family = FAMILIES[preset.model_type]
    assert family.read_config(family.write_config(preset.decoder)) == preset.decoder
    assert preset_from_json(preset_to_json(preset)) == preset
