"""Model directories that are damaged: one line, and nothing is scored or changed."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcontam.models.checkpoint import load_checkpoint
from tests.faults.folders import allowed, contents, said
from tests.faults.fuzzed import Target
from tests.faults.mutations import as_json, changed, damaged
from tests.faults.test_fuzz import fuzz

pytestmark = pytest.mark.unoptimised


def refusal(folder, capsys, codes=(2,)):
    """What an audit says of a model; its folder and that of the output stay."""
    out = folder.parent / "out"
    before = contents(folder)
    words = ["audit", folder, folder.parent / "b.txt", "--tests", "reversal"]
    message = said([*words, "--out", out, "--no-store"], capsys, codes=codes)
    assert contents(folder) == before
    assert contents(out) == {}
    return message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(spoilt, capsys, value):
    path = spoilt / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "norm" in name)
    tensors[name] = np.full_like(tensors[name], value)
    save_file(tensors, path)
    assert "not finite" in refusal(spoilt, capsys)


@pytest.mark.parametrize("kind", [np.int8, np.int64, ml_dtypes.float8_e4m3fn])
def test_weights_of_a_quantised_model_are_named(spoilt, capsys, kind):
    path = spoilt / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].astype(kind)
    save_file(tensors, path)
    message = refusal(spoilt, capsys)
    assert f"{name} is of type" in message and "convert the model to" in message


def test_a_first_token_beyond_the_vocabulary_is_refused(spoilt, capsys):
    path = spoilt / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "bos_token": None, "eos_token": None}))
    path = spoilt / "config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "bos_token_id": 10**12}))
    message = refusal(spoilt, capsys)
    assert "token 'before a text' has id 1e+12, the model has 280 rows" in message


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff" * 99, b"[" * 99_999, bytes(99)]
)
def test_a_file_of_another_kind_is_refused(spoilt, capsys, name, content):
    (spoilt / name).write_bytes(content)
    assert str(spoilt) in refusal(spoilt, capsys)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        *(
            ({name: 2**size}, words)
            for name in ("num_hidden_layers", "hidden_size", "vocab_size")
            for size, words in ((40, "must be at most"), (20, "the files hold"))
        ),
        ({"model_type": "mixtral", "num_local_experts": 2**20}, "the files hold"),
    ],
)
def test_a_config_of_a_giant_is_refused_before_it_is_built(
    spoilt, capsys, fields, words
):
    path = spoilt / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    assert words in refusal(spoilt, capsys)


def header(data):
    """The header of a file of tensors, and what follows it."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(fields, rest):
    """A file of tensors with another header."""
    text = as_json(fields)
    return len(text).to_bytes(8, "little") + text + rest


def model_targets(model):
    """Name of a file -> what is fuzzed: each file of a model, the others sound."""
    weights = (model / "model.safetensors").read_bytes()
    fields, rest = header(weights)
    tokenizer = json.loads((model / "tokenizer.json").read_text())

    def reader(name):
        def run(folder, content):
            copy = shutil.copytree(model, folder / "tiny")
            (copy / name).write_bytes(content)
            before = contents(folder)
            allowed(lambda: load_checkpoint(str(copy)))
            assert contents(folder) == before

        return run

    cases = {
        "model.safetensors": damaged(weights)
        | changed(fields).map(lambda found: with_header(found, rest)),
        "tokenizer.json": changed(
            {name: part for name, part in tokenizer.items() if name != "model"}
        ).map(lambda found: as_json({**found, "model": tokenizer["model"]}))
        | damaged(as_json(tokenizer)),
        "generation_config.json": changed({"eos_token_id": [1, 2]}).map(as_json),
    }
    return {name: Target(case, reader(name), 1) for name, case in cases.items()}


@pytest.mark.parametrize("a_hundredth", [5, pytest.param(300, marks=pytest.mark.slow)])
def test_a_malformed_model_is_refused_or_read_and_stays(model, a_hundredth):
    for target in model_targets(model).values():
        assert fuzz(target, a_hundredth) >= a_hundredth
