"""Checkpoints: what is written is read back, and what does not fit is named."""

import dataclasses
import json
import pickle
import re
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint, load_decoder, save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from train.tokenizer import train_tokenizer

VOCAB = 300

LLAMA = llama_shape(
    vocab_size=VOCAB, d_model=16, n_layers=2, n_heads=4, d_ff=18, context=24
)
LLAMA_FULL = dataclasses.replace(
    LLAMA,
    n_kv_heads=2,
    head_dim=6,
    rope_theta=500_000.0,
    norm_eps=3e-6,
    activation="gelu_tanh",
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    tied=False,
)
GPT2 = dataclasses.replace(
    LLAMA,
    positions="learned",
    norm="layer",
    norm_eps=1e-4,
    activation="gelu",
    gated=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
)
# Names start with the model_type.
SHAPES = {
    "llama": LLAMA,
    "llama_full": LLAMA_FULL,
    "gpt2": GPT2,
    "gpt2_untied": dataclasses.replace(GPT2, tied=False),
}


def drawn(config, seed=0):
    """A decoder with every weight drawn anew, so that no two are alike."""
    decoder = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def fill(leaf):
        return jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32))

    nnx.update(decoder, jax.tree.map(fill, nnx.state(decoder)))
    return decoder


def weights(decoder):
    """Path -> array, of every weight."""
    found = jax.tree.leaves_with_path(nnx.state(decoder))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def assert_same_weights(decoder, expected):
    found, expected = weights(decoder), weights(expected)
    assert found.keys() == expected.keys()
    for path, values in found.items():
        np.testing.assert_array_equal(values, expected[path], err_msg=path)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["the cat sat on the mat", "a dog and a cat"] * 3, VOCAB)


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    """Folder of each shape of SHAPES; not to be written to."""
    root = tmp_path_factory.mktemp("saved")
    for name, config in SHAPES.items():
        model_type = name.split("_")[0]
        save_checkpoint(drawn(config), tokenizer, root / name, model_type=model_type)
    return root


@pytest.fixture
def copy(saved, tmp_path):
    """Copies the folder of a shape to where a test may damage it."""

    def copied(name="llama", to="model"):
        return Path(shutil.copytree(saved / name, tmp_path / to))

    return copied


def edit_config(folder, *, drop=(), **fields):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | fields
    kept = {field: value for field, value in raw.items() if field not in drop}
    path.write_text(json.dumps(kept))


def edit_tensors(folder, edit):
    """Rewrite the weights as `edit` returns them."""
    path = folder / "model.safetensors"
    save_file(edit(load_file(path)), path)


def refusal(load, folder):
    """The message of the InputError that loading gives."""
    with pytest.raises(InputError) as caught:
        load(folder)
    message = str(caught.value)
    assert message.count("\n") == 0
    return message


@pytest.mark.parametrize("name", SHAPES)
def test_saved_decoder_comes_back_equal(name, saved):
    loaded = load_decoder(saved / name)
    assert loaded.config == SHAPES[name]
    assert_same_weights(loaded, drawn(SHAPES[name]))


def test_checkpoint_holds_name_prefix_tokenizer_and_size(saved, tokenizer):
    checkpoint = load_checkpoint(str(saved / "llama"))
    assert checkpoint.name == "llama"
    assert checkpoint.prefix_id == tokenizer.bos_token_id
    assert checkpoint.config == LLAMA
    found = checkpoint.tokenizer.encode(" cat", add_special_tokens=False).ids
    assert found == tokenizer(" cat", add_special_tokens=False)["input_ids"]
    D, F, L = 16, 18, 2
    block = 4 * D * D + 3 * D * F + 2 * D
    assert checkpoint.n_parameters == VOCAB * D + L * block + D


@pytest.mark.parametrize(
    ("fields", "theta"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}}, 7e5),
        ({"rope_theta": 700_000}, 7e5),
        ({"rope_theta": 7e5, "rope_scaling": None}, 7e5),
        ({}, 1e4),
    ],
    ids=["nested", "flat", "flat, no scaling", "absent"],
)
def test_old_and_new_rope_settings_give_the_same_theta(fields, theta, copy):
    folder = copy("llama_full")
    edit_config(folder, drop={"rope_parameters"} - fields.keys(), **fields)
    assert load_decoder(folder).config.rope_theta == theta


@pytest.mark.parametrize("name", ["gpt2", "gpt2_untied", "llama"])
def test_names_without_the_family_prefix_load(name, copy):
    folder = copy(name)
    prefix = "transformer." if name.startswith("gpt2") else "model."
    edit_tensors(
        folder, lambda t: {key.removeprefix(prefix): x for key, x in t.items()}
    )
    assert_same_weights(load_decoder(folder), drawn(SHAPES[name]))


@pytest.mark.parametrize(
    ("name", "buffers"),
    [
        ("gpt2", ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"]),
        ("llama", ["model.layers.1.self_attn.rotary_emb.inv_freq"]),
    ],
)
def test_buffers_that_hold_no_weights_are_ignored(name, buffers, copy):
    folder = copy(name)
    extra = {buffer: np.ones((1, 1, 3, 3), np.float32) for buffer in buffers}
    edit_tensors(folder, lambda t: t | extra)
    assert_same_weights(load_decoder(folder), drawn(SHAPES[name]))


def test_tied_head_that_repeats_the_embedding_loads(copy):
    folder = copy()
    edit_tensors(
        folder, lambda t: t | {"lm_head.weight": t["model.embed_tokens.weight"]}
    )
    assert_same_weights(load_decoder(folder), drawn(LLAMA))


def test_shards_load_as_the_one_file_does(copy):
    folder = copy("llama_full")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    weight_map = {name: shards[i % 3] for i, name in enumerate(tensors)}
    for shard in shards:
        part = {name: tensors[name] for name in tensors if weight_map[name] == shard}
        save_file(part, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert_same_weights(load_decoder(folder), drawn(LLAMA_FULL))
    (folder / shards[1]).unlink()
    assert f"{shards[1]} is missing" in refusal(load_decoder, folder)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_narrow_weights_load_as_their_exact_float32_values(dtype, copy):
    folder = copy()
    edit_tensors(folder, lambda t: {name: x.astype(dtype) for name, x in t.items()})
    exact = weights(drawn(LLAMA))
    for path, found in weights(load_decoder(folder)).items():
        assert found.dtype == np.float32
        expected = exact[path].astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(found, expected, err_msg=path)


def test_unknown_tensor_is_named(copy):
    folder = copy()
    extra = {"model.layers.0.self_attn.q_norm.weight": np.ones(4, np.float32)}
    edit_tensors(folder, lambda t: t | extra)
    assert f"unknown tensors: {next(iter(extra))}" in refusal(load_decoder, folder)


def test_layers_beyond_the_configured_ones_are_unknown_tensors(copy):
    folder = copy()
    edit_config(folder, num_hidden_layers=1)
    wanted = r"unknown tensors: model\.layers\.1\.\S+, .* and 4 more$"
    assert re.search(wanted, refusal(load_decoder, folder))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "model.norm.weight"),
        ("llama_full", "lm_head.weight"),
        ("llama_full", "model.layers.1.self_attn.k_proj.bias"),
        ("gpt2", "transformer.h.1.ln_2.bias"),
    ],
)
def test_missing_tensor_is_named(name, tensor, copy):
    folder = copy(name)
    edit_tensors(folder, lambda t: {key: x for key, x in t.items() if key != tensor})
    assert f"missing tensors: {tensor}" in refusal(load_decoder, folder)


@pytest.mark.parametrize(
    ("tensor", "found", "wanted"),
    [
        ("model.norm.weight", (15,), (16,)),
        ("model.embed_tokens.weight", (VOCAB + 1, 16), (VOCAB, 16)),
        ("model.layers.1.input_layernorm.weight", (16, 1), (16,)),
    ],
)
def test_tensor_of_the_wrong_shape_is_named_with_both(tensor, found, wanted, copy):
    folder = copy()
    edit_tensors(folder, lambda t: t | {tensor: np.ones(found, np.float32)})
    message = refusal(load_decoder, folder)
    assert f"{tensor} has shape {found}, config.json says {wanted}" in message


@pytest.mark.parametrize(
    ("name", "fields", "named"),
    [
        ("llama", {"model_type": "lama"}, "unknown model_type 'lama'"),
        ("llama", {"hidden_size": None}, "no field 'hidden_size'"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse"),
    ],
)
def test_setting_that_is_not_supported_is_named(name, fields, named, copy):
    folder = copy(name)
    edit_config(folder, **fields)
    assert named in refusal(load_decoder, folder)


def test_config_that_is_missing_or_not_json_is_named(copy):
    folder = copy()
    for data in (b"{", b"\xff", b"[" * 100_000):
        (folder / "config.json").write_bytes(data)
        assert "config.json: not JSON" in refusal(load_decoder, folder)
    (folder / "config.json").unlink()
    assert refusal(load_decoder, folder) == f"{folder}: no config.json"


def test_folder_without_weights_names_the_file_it_looked_for(copy):
    folder = copy()
    (folder / "model.safetensors").unlink()
    wanted = f"{folder}: no weights (model.safetensors is missing)"
    assert refusal(load_decoder, folder) == wanted


@pytest.mark.parametrize("kept", [0, 7, 200, -4])
def test_truncated_weights_name_the_file(kept, copy):
    folder = copy()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{path}: not a safetensors file" in refusal(load_decoder, folder)


def test_folder_without_tokenizer_is_refused(copy):
    folder = copy()
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert f"{folder}: no tokenizer" in refusal(load_checkpoint, str(folder))


def test_tokenizer_with_more_tokens_than_the_model_is_refused(copy):
    folder = copy()
    save_checkpoint(drawn(dataclasses.replace(LLAMA, vocab_size=200)), None, folder)
    size = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    message = refusal(load_checkpoint, str(folder))
    assert f"has id {size - 1}, the model has 200 rows" in message


def test_path_that_is_a_file_or_does_not_exist_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    for path, message in ((file, "not a model"), (tmp_path / "no", "no such model")):
        assert f"{message} directory" in refusal(load_checkpoint, str(path))


@dataclasses.dataclass
class Marker:
    """Unpickling one writes a file."""

    path: Path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickled_weights_are_refused_unopened_with_a_way_to_convert(copy, tmp_path):
    folder, mark = copy(), tmp_path / "ran"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Marker(mark)))
    with pytest.raises(InputError, match=r"pickled weights \(pytorch_model.bin\)") as e:
        load_checkpoint(str(folder))
    assert "jaxcontam convert" in e.value.hint
    assert not mark.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert mark.exists()  # it would have


def test_code_that_a_checkpoint_brings_does_not_run(copy, tmp_path):
    folder, mark = copy(), tmp_path / "ran"
    source = f"open({str(mark)!r}, 'w')\nclass Evil: pass\n"
    (folder / "evil_code.py").write_text(source)
    auto_map = {
        "AutoConfig": "evil_code.Evil",
        "AutoModelForCausalLM": "evil_code.Evil",
        "AutoTokenizer": ["evil_code.Evil", "evil_code.Evil"],
    }
    edit_config(folder, auto_map=auto_map)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": auto_map}))
    assert_same_weights(load_checkpoint(str(folder)).decoder, drawn(LLAMA))
    assert not mark.exists()
    assert not any("evil_code" in name for name in sys.modules)


def test_fingerprint_survives_a_rename_and_a_rewrite(saved, copy, tokenizer):
    first = load_checkpoint(str(saved / "llama"))
    renamed = load_checkpoint(str(copy(to="other")))
    assert (first.name, renamed.name) == ("llama", "other")
    assert renamed.fingerprint == first.fingerprint
    again = copy(to="again")
    save_checkpoint(drawn(LLAMA), tokenizer, again)
    assert load_checkpoint(str(again)).fingerprint == first.fingerprint


def test_fingerprint_changes_with_one_weight_or_one_setting(saved, copy):
    def nudged(tensors):
        scale_D = tensors["model.norm.weight"]
        scale_D[3] = np.nextafter(scale_D[3], np.float32(9))
        return tensors

    weight, setting = copy(to="weight"), copy(to="setting")
    edit_tensors(weight, nudged)
    edit_config(setting, rms_norm_eps=2e-5)
    found = [load_checkpoint(str(f)) for f in (saved / "llama", weight, setting)]
    assert len({checkpoint.fingerprint for checkpoint in found}) == 3
