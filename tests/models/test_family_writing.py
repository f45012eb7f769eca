"""A model of any family that is read can be written, its config.json as it was."""

import dataclasses
import json

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from tests.support.family_files import RAW, VOCAB, drawn, raw_config, weights, write
from train.tokenizer import train_tokenizer


def assert_same_weights(found, expected):
    found, expected = weights(found), weights(expected)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_every_family_is_tried():
    assert RAW.keys() == FAMILIES.keys()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", RAW)
def test_written_model_is_read_back_to_the_bit(model_type, tied, tmp_path):
    raw = raw_config(model_type, tie_word_embeddings=tied)
    decoder = drawn(raw)
    write(decoder, raw, tmp_path)
    again = load_decoder(tmp_path)
    assert again.config == decoder.config
    assert again.config.tied == tied
    assert_same_weights(again, decoder)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert (FAMILIES[model_type].head in names) == (not tied)


@pytest.mark.parametrize("model_type", RAW)
def test_config_fields_are_written_as_they_were(model_type, tmp_path):
    raw = raw_config(model_type)
    write(drawn(raw), raw, tmp_path)
    assert read_config_fields(tmp_path) == raw


def test_older_dtype_and_names_of_code_files_are_not_kept(tmp_path):
    old = {"torch_dtype": "float16", "auto_map": {"AutoConfig": "code.Config"}}
    raw = raw_config("llama")
    given = {name: value for name, value in raw.items() if name != "dtype"} | old
    write(drawn(raw), given, tmp_path)
    assert read_config_fields(tmp_path) == raw


def test_token_ids_of_the_config_stay_beside_a_tokenizer(tmp_path):
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 3, VOCAB)
    raw = raw_config("llama", bos_token_id=11)
    assert tokenizer.bos_token_id != 11
    write(drawn(raw), raw, tmp_path, tokenizer)
    assert read_config_fields(tmp_path) == raw
    assert load_checkpoint(str(tmp_path)).prefix_id == tokenizer.bos_token_id


def test_bfloat16_decoder_is_written_as_its_float32_values(tmp_path):
    raw = raw_config("gpt_neox")
    decoder = drawn(raw, dtype="bfloat16")
    assert {value.dtype.name for value in weights(decoder).values()} == {
        "bfloat16",
        "float32",
    }
    write(decoder, raw, tmp_path)
    found = load_file(tmp_path / "model.safetensors").values()
    assert {value.dtype for value in found} == {np.dtype(np.float32)}
    assert_same_weights(load_decoder(tmp_path, dtype="bfloat16"), decoder)


def test_neox_file_holds_query_key_and_value_of_each_head_in_turn(tmp_path):
    raw = raw_config("gpt_neox")
    decoder = drawn(raw)
    write(decoder, raw, tmp_path)
    H, E = decoder.config.n_heads, decoder.config.head_dim
    ours = weights(decoder)["blocks.attention.qkv.kernel"][1].T
    expected = [
        ours[part * H * E + h * E + e]
        for h in range(H)
        for part in range(3)
        for e in range(E)
    ]
    found = load_file(tmp_path / "model.safetensors")
    name = "gpt_neox.layers.1.attention.query_key_value.weight"
    np.testing.assert_array_equal(found[name], expected)


def test_rows_of_padding_are_written_as_zeros_and_change_nothing(tmp_path):
    raw = raw_config("opt")
    decoder = drawn(raw)
    write(decoder, raw, tmp_path)
    path, name = tmp_path / "model.safetensors", "model.decoder.embed_positions.weight"
    tensors = load_file(path)
    positions = tensors[name].copy()
    assert positions.shape == (2 + 32, 18)
    assert (positions[:2] == 0).all()
    assert (positions[2:] == weights(decoder)["position_embedding"]).all()
    positions[:2] = 9.0
    save_file(tensors | {name: positions}, path)
    assert_same_weights(load_decoder(tmp_path), decoder)


@pytest.mark.parametrize("value", [1e-30, 2.0**-25, 0.1, -1.0])
def test_gemma_scale_is_one_more_than_the_file_says_and_loses_no_bit(value, tmp_path):
    raw = raw_config("gemma2")
    first, second = tmp_path / "first", tmp_path / "second"
    write(drawn(raw), raw, first)
    tensors = load_file(first / "model.safetensors")
    scale_D = np.full(20, value, np.float32)
    save_file(tensors | {"model.norm.weight": scale_D}, first / "model.safetensors")
    decoder = load_decoder(first)
    write(decoder, raw, second)
    found = load_file(second / "model.safetensors")["model.norm.weight"]
    np.testing.assert_array_equal(found, scale_D)
    # Signs have a mean square of 1, so that the norm leaves them as they are.
    signs_D = np.where(np.arange(20) % 2, 1.0, -1.0).astype(np.float32)
    normed_D = decoder.final_norm(jnp.asarray(signs_D))
    # 1e-6: the norm's eps moves the values by half of itself.
    np.testing.assert_allclose(normed_D, signs_D * (1 + scale_D), rtol=1e-6, atol=0)


def test_new_decoder_starts_with_norms_of_scale_one():
    config = FAMILIES["gemma2"].read_config(raw_config("gemma2"))
    for offset in (0.0, 1.0):
        shape = dataclasses.replace(config, norm_offset=offset)
        found = weights(Decoder(shape, rngs=nnx.Rngs(0)))
        assert (found["final_norm.scale"] + offset == 1).all()


@pytest.mark.parametrize(
    ("model_type", "change", "message"),
    [
        ("llama", {"max_position_embeddings": 64}, "must have the decoder's shape"),
        ("mistral", {"sliding_window": None}, "must have the decoder's shape"),
        ("gpt2", {"tie_word_embeddings": False}, "must have the decoder's shape"),
        ("qwen2", {"model_type": "qwen3"}, "must be of model_type 'qwen2', got 'qwen3"),
        ("opt", {"model_type": None}, "must be of model_type 'opt', got None"),
    ],
)
def test_fields_of_another_model_are_refused(model_type, change, message, tmp_path):
    raw = raw_config(model_type)
    with pytest.raises(ValueError, match=message):
        save_checkpoint(
            drawn(raw),
            None,
            tmp_path / "model",
            model_type=model_type,
            raw_config=raw | change,
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model_type", RAW)
def test_without_fields_a_family_writes_its_plain_shape_or_says_why_not(
    model_type, tmp_path
):
    decoder = drawn(raw_config(model_type))
    if FAMILIES[model_type].write_config is None:
        message = "written only with the config.json fields that the model was read"
    else:
        # GPT-2 has no rotation, and a LLaMA no windows.
        message = f"no {model_type} has this shape"
        wrong = {"rope_theta": 1e3, "windows": (3, None)}
        decoder.config = dataclasses.replace(decoder.config, **wrong)
    with pytest.raises(ValueError, match=message):
        save_checkpoint(decoder, None, tmp_path, model_type=model_type)
    assert not list(tmp_path.iterdir())


def test_narrow_files_without_a_prefix_come_back_whole(tmp_path):
    raw = raw_config("gemma2", dtype="bfloat16")
    first, second = tmp_path / "first", tmp_path / "second"
    write(drawn(raw), raw, first)
    exact = load_file(first / "model.safetensors")
    narrow = {name: x.astype(ml_dtypes.bfloat16) for name, x in exact.items()}
    bare = {name.removeprefix("model."): x for name, x in narrow.items()}
    save_file(bare, first / "model.safetensors")
    (first / "config.json").write_text(json.dumps(raw))
    write(load_decoder(first), read_config_fields(first), second)
    found = load_file(second / "model.safetensors")
    assert found.keys() == narrow.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, narrow[name].astype(np.float32))
    assert read_config_fields(second) == raw | {"dtype": "float32"}


def test_each_expert_has_tensors_of_its_own(tmp_path):
    raw = raw_config("mixtral")
    decoder = drawn(raw)
    write(decoder, raw, tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.block_sparse_moe.experts.2"
    up_DF = weights(decoder)["blocks.mlp.up.kernel"][1, 2]
    np.testing.assert_array_equal(found[f"{name}.w1.weight"], up_DF[:, :14].T)
    np.testing.assert_array_equal(found[f"{name}.w3.weight"], up_DF[:, 14:].T)
    down_FD = weights(decoder)["blocks.mlp.down.kernel"][1, 2]
    np.testing.assert_array_equal(found[f"{name}.w2.weight"], down_FD.T)
    save_file(
        {k: v for k, v in found.items() if k != f"{name}.w2.weight"},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(InputError, match=rf"missing tensors: {name}.w2.weight"):
        load_decoder(tmp_path)
