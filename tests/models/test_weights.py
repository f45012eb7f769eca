"""Weights that do not fit their config: refused by name, never scored with."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder

pytestmark = pytest.mark.unoptimised

LAYER = "model.layers.0."


@pytest.fixture
def model(pulse, tmp_path):
    return shutil.copytree(pulse / "model", tmp_path / "model")


@pytest.fixture
def spoil(model):
    """Change tensors or config fields of the small model; returns its folder."""

    def change(tensors=None, **fields):
        weights = load_file(model / "model.safetensors")
        weights |= tensors or {}
        save_file(weights, model / "model.safetensors")
        config = json.loads((model / "config.json").read_text()) | fields
        (model / "config.json").write_text(json.dumps(config))
        return model

    return change


def test_head_that_is_called_tied_and_is_not_is_refused(model, spoil):
    embedding = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    load_decoder(spoil({"lm_head.weight": embedding}))
    with pytest.raises(InputError, match=r"lm_head\.weight differs"):
        load_decoder(spoil({"lm_head.weight": embedding + 1.0}))


def test_gate_and_up_of_unequal_width_are_refused_by_name(spoil):
    # 63 + 65 rows fill the joined 128, and would be split in the wrong place.
    tensors = {
        f"{LAYER}mlp.gate_proj.weight": np.zeros((63, 32), np.float32),
        f"{LAYER}mlp.up_proj.weight": np.zeros((65, 32), np.float32),
    }
    message = r"gate_proj\.weight has shape \(63, 32\), config\.json says \(64, 32\)"
    with pytest.raises(InputError, match=message):
        load_decoder(spoil(tensors))


@pytest.mark.parametrize("shape", [(32, 31), (), (32,)])
def test_one_part_of_a_joined_weight_is_named(spoil, shape):
    name = f"{LAYER}self_attn.k_proj.weight"
    with pytest.raises(InputError, match=r"k_proj\.weight has shape"):
        load_decoder(spoil({name: np.zeros(shape, np.float32)}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": 3}, "n_kv_heads must divide n_heads"),
        ({"hidden_size": "24"}, "hidden_size must be a positive integer, got '24'"),
        ({"rope_parameters": {"rope_type": "ntk"}}, "rope_type 'ntk'"),
        ({"hidden_act": "mish"}, "unknown activation 'mish'"),
        ({"model_type": 3}, r"no model_type \(found 3\)"),
    ],
)
def test_config_that_does_not_fit_names_its_file(spoil, fields, message):
    with pytest.raises(InputError, match=message) as caught:
        load_decoder(spoil(**fields))
    assert "config.json: " in str(caught.value)


@pytest.mark.parametrize(
    "weight_map", [[], None, {"a": 3}, {"a": "../../other/model.safetensors"}]
)
def test_index_that_is_none_is_refused(model, weight_map):
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(InputError, match="not an index of weights"):
        load_decoder(model)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": -1}, "num_key_value_heads must be a positive integer"),
        ({"num_key_value_heads": True}, "must be a positive integer, got True"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps must be a positive number, got 'x'"),
        ({"tie_word_embeddings": []}, "tie_word_embeddings must be true or false"),
        ({"rope_parameters": {"rope_type": "linear"}}, "no field 'factor'"),
        ({"rope_parameters": "linear"}, "rope settings must be an object"),
        ({"rope_theta": 0}, "rope_theta must be a positive number"),
    ],
)
def test_field_of_a_wrong_kind_is_one_line(spoil, fields, message):
    with pytest.raises(InputError, match=message) as caught:
        load_decoder(spoil(**fields))
    assert "config.json" in str(caught.value)
