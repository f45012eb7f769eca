"""Checkpoints: what is written is read back, and what does not fit is named."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from jaxcontam.data.encoding import encode_texts
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from tests.support.decoders import LLAMA, SHAPES, assert_same_weights, spread, weights
from tests.support.family_files import drawn, raw_config, write
from tests.support.refused import refusal
from train.tokens import train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["the cat sat on the mat", "a dog and a cat"] * 3, 300)


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    """Folder of each shape of SHAPES; not to be written to."""
    root = tmp_path_factory.mktemp("saved")
    for name, config in SHAPES.items():
        model_type = name.split("_")[0]
        save_checkpoint(spread(config), tokenizer, root / name, model_type=model_type)
    for raw in map(raw_config, ("gpt_neox", "mixtral")):
        write(drawn(raw), raw, root / raw["model_type"])
    return root


@pytest.fixture
def copy(saved, tmp_path):
    """Copies the folder of a shape to where a test may damage it."""

    def copied(name="llama", to="model"):
        return Path(shutil.copytree(saved / name, tmp_path / to))

    return copied


def edit_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_tensors(folder, edit):
    """Rewrite the weights as `edit` returns them."""
    path = folder / "model.safetensors"
    save_file(edit(load_file(path)), path)


def test_checkpoint_holds_name_prefix_tokenizer_and_size(saved, tokenizer):
    checkpoint = load_checkpoint(str(saved / "llama"))
    assert checkpoint.name == "llama"
    assert checkpoint.prefix_id == tokenizer.bos_token_id
    assert checkpoint.config == LLAMA
    found = checkpoint.tokenizer.encode(" cat", add_special_tokens=False).ids
    assert found == tokenizer(" cat", add_special_tokens=False)["input_ids"]
    D, F, L = 36, 53, 3
    block = 4 * D * D + 3 * D * F + 2 * D
    assert checkpoint.n_parameters == 300 * D + L * block + D


BUFFERS = {
    "gpt2": ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"],
    "gpt2_untied": ["transformer.h.0.attn.bias"],
    "llama": ["model.layers.1.self_attn.rotary_emb.inv_freq"],
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_without_weights_are_ignored_and_a_prefix_may_lack(name, copy):
    folder = copy(name)
    extra = {buffer: np.ones((1, 1, 3, 3), np.float32) for buffer in BUFFERS[name]}
    edit_tensors(folder, lambda t: t | extra)
    assert_same_weights(load_decoder(folder), spread(SHAPES[name]))
    prefix = "model." if name == "llama" else "transformer."
    edit_tensors(folder, lambda t: {k.removeprefix(prefix): x for k, x in t.items()})
    assert_same_weights(load_decoder(folder), spread(SHAPES[name]))


@pytest.mark.parametrize(
    ("model_type", "further", "strange"),
    [
        ("deepseek_v3", "model.layers.2.eh_proj.weight", "model.layers.3.x"),
        ("qwen3_5_text", "mtp.fc.weight", "model.mtp"),
    ],
)
def test_layers_that_guess_later_tokens_are_left_out(
    model_type, further, strange, tmp_path
):
    raw = raw_config(model_type)
    assert model_type != "deepseek_v3" or raw["num_hidden_layers"] == 2
    write(expected := drawn(raw), raw, tmp_path)
    own = load_file(tmp_path / "model.safetensors")
    ones, beside = np.ones((2, 2), np.float32), further.replace("weight", "x")
    edit_tensors(tmp_path, lambda _: own | {further: ones, beside: ones})
    assert_same_weights(load_decoder(tmp_path), expected)
    # The second: a layer of its own that the config does not count.
    for more in ({further: ones, strange: ones}, {beside: ones}):
        edit_tensors(tmp_path, lambda _, more=more: own | more)
        name = [*more][-1]
        assert f"unknown tensors: {name}" in refusal(load_decoder, tmp_path)[0]


def test_tied_head_that_repeats_the_embedding_loads_and_another_is_refused(copy):
    folder, head = copy(), "lm_head.weight"
    edit_tensors(folder, lambda t: t | {head: t["model.embed_tokens.weight"]})
    assert_same_weights(load_decoder(folder), spread(LLAMA))
    edit_tensors(folder, lambda t: t | {head: t[head] + 1})
    assert f"{head} differs" in refusal(load_decoder, folder)[0]


def test_shards_of_float16_load_as_their_exact_float32_values(copy):
    folder = copy("llama_full")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    weight_map = {name: shards[i % 3] for i, name in enumerate(tensors)}
    for shard in shards:
        part = {name: tensors[name] for name in tensors if weight_map[name] == shard}
        save_file({k: x.astype(np.float16) for k, x in part.items()}, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    exact = weights(spread(SHAPES["llama_full"]))
    for path, found in weights(load_decoder(folder)).items():
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, exact[path].astype(np.float16))
    more = load_file(folder / shards[1]) | load_file(folder / shards[2])
    save_file(more, folder / shards[1])
    assert f"as {shards[1]} does" in refusal(load_decoder, folder)[0]
    (folder / shards[1]).unlink()
    assert f"{shards[1]} is missing" in refusal(load_decoder, folder)[0]


LAYER = "model.layers.1."
EMBEDDING, KEYS = "model.embed_tokens.weight", f"{LAYER}self_attn.k_proj.weight"
GATE, UP = (f"{LAYER}mlp.{name}_proj.weight" for name in ("gate", "up"))


def lacks(name, tensor):
    return name, {}, {tensor: None}, f"missing tensors: {tensor}"


def differs(tensor, found, wanted, **more):
    said = f"{tensor} has shape {found}, config.json says {wanted}"
    return "llama", {}, {tensor: found} | more, said


@pytest.mark.parametrize(
    ("name", "fields", "shapes", "message"),
    [
        ("llama", {}, {f"{LAYER}q_norm": 4}, f"unknown tensors: {LAYER}q_norm"),
        ("llama", {"num_hidden_layers": 1}, {}, "unknown tensors: model.layers.1."),
        ("gpt_neox", {"hidden_size": 21}, {}, "has shape"),
        lacks("llama", "model.norm.weight"),
        lacks("llama_full", "lm_head.weight"),
        lacks("llama_full", f"{LAYER}self_attn.k_proj.bias"),
        lacks("gpt2", "transformer.h.1.ln_2.bias"),
        lacks("mixtral", f"{LAYER}block_sparse_moe.experts.2.w2.weight"),
        differs("model.norm.weight", (35,), (36,)),
        differs(EMBEDDING, (301, 36), (300, 36)),
        differs(f"{LAYER}input_layernorm.weight", (36, 1), (36,)),
        # 52 + 54 rows fill the joined 106, and would be split in the wrong place.
        differs(GATE, (52, 36), (53, 36), **{UP: (54, 36)}),
        *(differs(KEYS, shape, (36, 36)) for shape in [(36, 35), (), (36,)]),
    ],
)
def test_weights_that_do_not_fit_are_named(name, fields, shapes, message, copy):
    folder = copy(name)
    edit_json(folder / "config.json", **fields)

    def edit(tensors):
        made = {
            tensor: np.zeros(shape, np.float32)
            for tensor, shape in shapes.items()
            if shape is not None
        }
        return {k: x for k, x in tensors.items() if k not in shapes} | made

    edit_tensors(folder, edit)
    said, hint = refusal(load_decoder, folder)
    assert message in said
    assert said.endswith(" more") == ("num_hidden_layers" in fields)
    # A config that says nothing of it, though the embedding is the head.
    says = '"tie_word_embeddings": true' in hint
    assert says == said.endswith("missing tensors: lm_head.weight")


@pytest.mark.parametrize("kept", [0, 7, 200, -4])
def test_weights_that_are_missing_or_truncated_name_the_file(kept, copy):
    folder = copy()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{path}: not a safetensors file" in refusal(load_decoder, folder)[0]
    path.unlink()
    wanted = f"{folder}: no weights (model.safetensors is missing)"
    assert refusal(load_decoder, folder)[0] == wanted


def test_a_text_is_refused_if_the_model_has_no_row_for_a_token_of_it(copy):
    folder = copy()
    fields = json.loads((folder / "tokenizer.json").read_text())
    size = len(load_checkpoint(str(folder)).tokenizer.get_vocab())
    save_checkpoint(spread(dataclasses.replace(LLAMA, vocab_size=size)), None, folder)
    image = {**fields["added_tokens"][0], "id": size, "content": "<image>"}
    fields["added_tokens"].append(image)
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    tokenizer = load_checkpoint(str(folder)).tokenizer
    (ids,) = encode_texts(tokenizer, ["an image"])
    assert len(ids) and tokenizer.decode(ids.tolist()) == "an image"
    words = f"a text holds the token '<image>', whose id is {size}; the model has"
    assert refusal(encode_texts, tokenizer, ["an <image>"])[0].startswith(words)


def test_tokenizer_that_is_missing_is_refused(copy):
    folder = copy()
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert f"{folder}: no tokenizer" in refusal(load_checkpoint, str(folder))[0]
    for path, message in (("config.json", "not a model"), ("no", "no such model")):
        said = refusal(load_checkpoint, str(folder / path))[0]
        assert f"{message} directory" in said


def test_code_that_a_checkpoint_brings_does_not_run(copy, tmp_path):
    folder, mark = copy(), tmp_path / "ran"
    source = f"open({str(mark)!r}, 'w')\nclass Evil: pass\n"
    (folder / "evil_code.py").write_text(source)
    auto_map = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "evil_code.Evil")
    auto_map["AutoTokenizer"] = ["evil_code.Evil"] * 2
    edit_json(folder / "config.json", auto_map=auto_map)
    edit_json(folder / "tokenizer_config.json", auto_map=auto_map)
    assert_same_weights(load_checkpoint(str(folder)).decoder, spread(LLAMA))
    assert not mark.exists()
    assert not any("evil_code" in name for name in sys.modules)


def test_fingerprint_survives_a_rename_but_no_change(saved, copy, tokenizer):
    def nudged(tensors):
        scale_D = tensors["model.norm.weight"]
        scale_D[3] = np.nextafter(scale_D[3], np.float32(9))
        return tensors

    again, weight, setting = copy(to="again"), copy(to="weight"), copy(to="setting")
    save_checkpoint(spread(LLAMA), tokenizer, again)
    edit_tensors(weight, nudged)
    edit_json(setting / "config.json", rms_norm_eps=2e-5)
    folders = saved / "llama", copy(to="other"), again, weight, setting
    first, renamed, *others = (load_checkpoint(str(folder)) for folder in folders)
    assert (first.name, renamed.name) == ("llama", "other")
    assert renamed.fingerprint == others[0].fingerprint == first.fingerprint
    assert len({one.fingerprint for one in (first, *others[1:])}) == 3


def test_older_dtype_and_names_of_code_files_are_not_kept(tmp_path):
    old = {"torch_dtype": "float16", "auto_map": {"AutoConfig": "code.Config"}}
    raw = raw_config("llama")
    given = {name: value for name, value in raw.items() if name != "dtype"} | old
    write(drawn(raw), given, tmp_path)
    assert read_config_fields(tmp_path) == raw


def test_token_ids_of_the_config_stay_beside_a_tokenizer(tokenizer, tmp_path):
    raw = raw_config("llama", bos_token_id=11)
    assert tokenizer.bos_token_id != 11
    write(drawn(raw), raw, tmp_path, tokenizer)
    assert read_config_fields(tmp_path) == raw
    assert load_checkpoint(str(tmp_path)).prefix_id == tokenizer.bos_token_id


def test_bfloat16_decoder_is_written_as_its_float32_values(tmp_path):
    raw = raw_config("gpt_neox")
    decoder = drawn(raw, dtype="bfloat16")
    kinds = {value.dtype.name for value in weights(decoder).values()}
    assert kinds == {"bfloat16", "float32"}
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


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "gemma2"])
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
