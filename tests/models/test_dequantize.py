"""Quantised safetensors against weights packed by loops from the formats' words."""

import dataclasses
import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcontam.cli.doctor import model_findings
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint, load_decoder, save_checkpoint
from tests.support.decoders import LLAMA, assert_same_weights, spread
from tests.support.membership_model import fast_tokenizer

# 40 and 56 are multiples of eight, and none of 16, the group and the block.
HEADS = dict(n_heads=5, n_kv_heads=5, head_dim=8)
SHAPE = dataclasses.replace(LLAMA, n_layers=2, d_model=40, d_ff=56, **HEADS)
GROUP = 16
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
GPTQ = dict(quant_method="gptq", bits=4, group_size=GROUP)
FORMS = {
    "fp8": dict(quant_method="fp8", weight_block_size=[16, 16], fmt="e4m3"),
    "fp8, one scale": dict(quant_method="fp8", activation_scheme="static"),
    "gptq": GPTQ | dict(desc_act=False),
    "gptq, in any order": GPTQ | dict(desc_act=True, checkpoint_format="gptq_v2"),
    "gptq, 8 bits, one group": GPTQ | dict(bits=8, group_size=-1),
    "awq": dict(quant_method="awq", bits=4, group_size=GROUP, version="gemm"),
}


def eights(words, bits, columns=None):
    """(rows, n) numbers -> (rows, n / per word) int32, lowest bits first."""
    per_word = 32 // bits
    columns = columns or range(per_word)
    packed = np.zeros((len(words), words.shape[1] // per_word), np.uint32)
    for row in range(packed.shape[0]):
        for word in range(packed.shape[1]):
            for place, column in enumerate(columns):
                value = int(words[row, word * per_word + column])
                packed[row, word] |= np.uint32(value << (bits * place))
    return packed.astype(np.int32)


def fp8(shape, rng, form):
    """Parts of a weight on disk, and what they stand for in float64."""
    values = rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn)
    block = form.get("weight_block_size")
    sizes = [-(-n // one) for n, one in zip(shape, block or shape, strict=True)]
    scales = rng.uniform(0.5, 2.0, sizes).astype(np.float32)
    exact = values.astype(np.float64)
    for row in range(shape[0]):
        for column in range(shape[1]):
            place = (row // block[0], column // block[1]) if block else (0, 0)
            exact[row, column] *= scales[place]
    parts = {"weight": values, "weight_scale_inv": scales}
    if not block:
        parts["weight_scale_inv"] = scales.reshape(())
        parts["activation_scale"] = np.ones((), np.float32)
    return parts, exact


def integers(shape, rng, form):
    n_out, n_in = shape
    bits, group = form["bits"], form["group_size"]
    n_groups = 1 if group == -1 else -(-n_in // group)
    of_input = np.arange(n_in) // (n_in if group == -1 else group)
    if form.get("desc_act"):
        rng.shuffle(of_input)
    q = rng.integers(0, 1 << bits, (n_in, n_out))
    zeros = rng.integers(1, 1 << bits, (n_groups, n_out))
    scales = rng.uniform(0.01, 0.1, (n_groups, n_out)).astype(np.float16)
    exact = np.zeros(shape)
    for i in range(n_in):
        g = of_input[i]
        exact[:, i] = (q[i] - zeros[g]) * scales[g].astype(np.float64)
    if form["quant_method"] == "awq":
        words, zeros = (eights(x, 4, AWQ_COLUMNS) for x in (q, zeros))
        return {"qweight": words, "qzeros": zeros, "scales": scales}, exact
    words = np.ascontiguousarray(eights(q.T, bits).T)
    less = 0 if form.get("checkpoint_format") == "gptq_v2" else 1
    parts = {"qweight": words, "qzeros": eights(zeros - less, bits), "scales": scales}
    # Of a layer without a bias; AutoGPTQ writes one for every layer.
    parts |= {"g_idx": of_input.astype(np.int32), "bias": np.zeros(n_out, np.float16)}
    return parts, exact


@pytest.fixture
def folders(tmp_path):
    """Write a quantised model and the same in float32, by a form."""

    def made(form, **changes):
        form = FORMS[form] | changes
        plain, packed = tmp_path / "plain", tmp_path / "packed"
        save_checkpoint(spread(SHAPE), fast_tokenizer(), plain)
        tensors = load_file(plain / "model.safetensors")
        rng, stored = np.random.default_rng(0), {}
        pack = fp8 if form["quant_method"] == "fp8" else integers
        for name, values in tensors.items():
            module = name.removesuffix(".weight")
            if values.ndim < 2 or "embed" in name:
                stored[name] = values
                continue
            parts, exact = pack(values.shape, rng, form)
            stored |= {f"{module}.{part}": x for part, x in parts.items()}
            tensors[name] = exact.astype(np.float32)
        save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
        shutil.copytree(plain, packed)
        save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
        raw = json.loads((plain / "config.json").read_text())
        raw["quantization_config"] = form
        (packed / "config.json").write_text(json.dumps(raw))
        return plain, packed

    return made


@pytest.mark.parametrize("form", FORMS)
def test_quantised_weights_are_the_numbers_that_they_stand_for(folders, form):
    plain, packed = folders(form)
    assert_same_weights(load_decoder(packed), load_decoder(plain))


def test_fp8_blocks_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    parts, exact = fp8((32, 48), np.random.default_rng(1), FORMS["fp8"])
    values = torch.from_numpy(parts["weight"].view(np.uint8)).view(torch.float8_e4m3fn)
    scales = torch.from_numpy(parts["weight_scale_inv"])
    found = Fp8Dequantize(None)._dequantize_one(values, scales, torch.float32)
    np.testing.assert_array_equal(found.numpy(), exact.astype(np.float32))


def test_the_quantisation_is_named(folders):
    _, packed = folders("gptq")
    assert load_checkpoint(str(packed)).quantisation == "GPTQ, 4 bits"
    ((_, found, _),) = model_findings(str(packed))
    assert "safetensors (GPTQ, 4 bits), dequantised" in found


@pytest.mark.parametrize(
    ("form", "changes", "words"),
    [
        ("awq", {"version": "gemv"}, "'awq' of 4 bits and format 'gemv'"),
        ("gptq", {"bits": 3}, "'gptq' of 3 bits"),
        ("gptq", {"bits": 4.0}, r"'gptq' of 4\.0 bits"),
        ("gptq", {"dynamic": {"down": {"bits": 8}}}, "settings than plain ones"),
        ("gptq", {"group_size": 8}, "parts do not fit"),
        ("gptq", {"bits": 8}, "shape|parts do not fit"),
        ("fp8", {"weight_block_size": [8, 8]}, "parts do not fit"),
        ("fp8", {"weight_block_size": None}, "parts do not fit"),
        ("fp8", {"fmt": "e5m2"}, "'fp8' is not supported"),
        ("fp8", {"quant_method": "compressed-tensors"}, "'compressed-tensors' is not"),
    ],
)
def test_a_form_that_is_not_read_is_named(folders, form, changes, words):
    _, packed = folders(form)
    raw = json.loads((packed / "config.json").read_text())
    raw["quantization_config"] |= changes
    (packed / "config.json").write_text(json.dumps(raw))
    with pytest.raises(InputError, match=words) as caught:
        load_decoder(packed)
    assert "\n" not in str(caught.value)
    assert "serve the model" in caught.value.hint or "shape" in str(caught.value)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [("g_idx", 3, "parts do not fit"), ("qzeros", -1, "zeros below 0")],
)
def test_parts_that_say_nothing_are_refused(folders, part, value, words):
    _, packed = folders("gptq")
    tensors = load_file(packed / "model.safetensors")
    name = f"model.layers.0.self_attn.q_proj.{part}"
    tensors[name] = np.full_like(tensors[name], value)
    save_file(tensors, packed / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=words):
        load_decoder(packed)
