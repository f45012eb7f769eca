"""A model of any family that is read can be written, its config.json as it was."""

import dataclasses

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from jaxcontam.models.checkpoint import (
    load_checkpoint,
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from tests.support.decoders import assert_same_weights, weights
from tests.support.family_files import RAW, VOCAB, drawn, raw_config, write
from train.tokenizer import train_tokenizer


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
            drawn(raw), None, tmp_path, model_type=model_type, raw_config=raw | change
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model_type", RAW)
def test_without_fields_a_plain_shape_is_written_or_refused(model_type, tmp_path):
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
