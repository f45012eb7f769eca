"""LoRA adapters against PEFT's formula, computed on the base's weights in float64."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint, load_decoder, save_checkpoint
from tests.support.decoders import LLAMA, assert_same_weights, spread
from tests.support.membership_model import fast_tokenizer

MODULES = [f"model.layers.{i}.{name}" for i in (0, 1) for name in ("self_attn.q_proj",)]
MODULES += ["model.layers.1.mlp.down_proj"]
RANK = 3


@pytest.fixture
def folders(tmp_path):
    """A base model and an adapter of it, by their folders."""
    base, own = tmp_path / "base", tmp_path / "adapter"
    save_checkpoint(
        spread(dataclasses.replace(LLAMA, n_layers=2)), fast_tokenizer(), base
    )
    rng = np.random.default_rng(0)
    tensors = {}
    for module in MODULES:
        n_out, n_in = load_file(base / "model.safetensors")[f"{module}.weight"].shape
        for part, shape in (("A", (RANK, n_in)), ("B", (n_out, RANK))):
            name = f"base_model.model.{module}.lora_{part}.weight"
            tensors[name] = rng.normal(size=shape).astype(np.float32)
    own.mkdir()
    save_file(tensors, own / "adapter_model.safetensors")
    write(own, base)
    return base, own


def write(own, base, **changes):
    fields = {"peft_type": "LORA", "r": RANK, "lora_alpha": 12, "bias": "none"}
    fields |= {"base_model_name_or_path": str(base)} | changes
    (own / "adapter_config.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("changes", "scales"),
    [
        ({}, (4.0, 4.0)),
        ({"use_rslora": True}, (12 / RANK**0.5,) * 2),
        ({"alpha_pattern": {"mlp.down_proj": 6}}, (4.0, 2.0)),
    ],
)
def test_weights_are_the_bases_with_the_low_rank_changes(folders, changes, scales):
    base, own = folders
    write(own, base, **changes)
    held = load_file(own / "adapter_model.safetensors")
    merged = load_file(base / "model.safetensors")
    for module in MODULES:
        down, up = (
            held[f"base_model.model.{module}.lora_{part}.weight"] for part in "AB"
        )
        scale = scales[module.endswith("down_proj")]
        merged[f"{module}.weight"] += up @ down * np.float32(scale)
    found = load_checkpoint(str(own))
    plain = load_checkpoint(str(base))
    assert found.fingerprint != plain.fingerprint
    assert found.name == "adapter"
    save_file(merged, base / "model.safetensors", metadata={"format": "pt"})
    assert_same_weights(found.decoder, load_decoder(base))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "IA3"}, "not a plain LoRA adapter"),
        ({"use_dora": True}, "not a plain LoRA adapter"),
        ({"r": 0}, "not a plain LoRA adapter"),
        ({"rank_pattern": {"^model.*q_proj": 2}}, "not a plain LoRA adapter"),
        ({"alpha_pattern": {"q_proj": "2"}}, "not a plain LoRA adapter"),
        ({"base_model_name_or_path": None}, "names no base model"),
        ({"base_model_name_or_path": "/no/such/base"}, "/no/such/base: no such model"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused(folders, changes, words):
    base, own = folders
    write(own, base, **changes)
    with pytest.raises(InputError, match=words):
        load_checkpoint(str(own))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda held: {n.replace(".1.", ".7."): x for n, x in held.items()}, "changes"),
        (lambda held: {n: x for n, x in held.items() if "lora_A" in n}, "has shape"),
        (lambda held: {n: x[:, :-1] for n, x in held.items()}, "has shape"),
        (lambda held: held | {"model.norm.weight": np.ones(3, "f4")}, "has shape"),
    ],
)
def test_an_adapter_of_another_model_is_refused(folders, change, words):
    _, own = folders
    path = own / "adapter_model.safetensors"
    held = {
        name: np.ascontiguousarray(x) for name, x in change(load_file(path)).items()
    }
    save_file(held, path)
    with pytest.raises(InputError, match=words):
        load_checkpoint(str(own))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match="not a safetensors file"):
        load_checkpoint(str(own))


def test_a_model_beside_an_adapter_or_other_shards_is_not_chosen_silently(folders):
    base, _ = folders
    (base / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"a model .* and an adapter"):
        load_checkpoint(str(base))
    (base / "adapter_config.json").unlink()
    shards = {"weight_map": {"a": "model-1.safetensors"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(shards))
    with pytest.raises(InputError, match="which names others"):
        load_checkpoint(str(base))
