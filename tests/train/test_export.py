"""Export: a checkpoint's weights, bit for bit, in a directory that others open."""

import json
import os
import sys

import grain
import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.decoder import Decoder
from train.checkpoints import Checkpoints
from train.export import TOKENIZER_DIR, main
from train.presets import PRESETS
from train.tokenizer import train_tokenizer

_PRESET = PRESETS["pulse"]
_STEPS = (10, 20)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run that was killed after its checkpoint of step 20."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer = train_tokenizer(["some words of a corpus"], 300)
    tokenizer.save_pretrained(folder / TOKENIZER_DIR)
    checkpoints = Checkpoints(folder, preset=_PRESET, keep_every=10)
    batches = iter(grain.MapDataset.range(4).to_iter_dataset())
    for step in _STEPS:
        checkpoints.save(step, nnx.state(_decoder(step)), {"count": step}, batches)
    checkpoints.close()
    return folder


def _decoder(step):
    return Decoder(_PRESET.decoder, rngs=nnx.Rngs(step))


def _export(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["train.export", *map(str, words)])
    return main()


@pytest.mark.parametrize(("words", "step"), [((), 20), (("--step", 10), 10)])
def test_exported_weights_are_the_checkpoints_and_replace_those_that_stand_there(
    run_dir, words, step, monkeypatch, capsys
):
    out = run_dir / "exports" / f"step-{step}"
    for _ in range(2):
        assert _export(monkeypatch, run_dir, *words) == 0
        assert capsys.readouterr().out == f"model: {out}\n"
    assert not list(out.parent.glob("*.partial"))
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    found = load_checkpoint(str(out))
    assert found.config == _PRESET.decoder
    assert found.prefix_id == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        nnx.to_pure_dict(nnx.state(found.decoder)),
        nnx.to_pure_dict(nnx.state(_decoder(step))),
    )


def test_files_of_a_model_follow_the_umask(run_dir, tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        assert _export(monkeypatch, run_dir, "--out", tmp_path / "model") == 0
    finally:
        os.umask(before)
    files = {path.name: path for path in (tmp_path / "model").iterdir()}
    assert "model.safetensors" in files
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o640}


def test_what_cannot_be_exported_says_what_can_be(
    run_dir, tmp_path, monkeypatch, capsys
):
    def error(*words):
        assert _export(monkeypatch, *words) == 2
        return capsys.readouterr().err

    said = error(run_dir, "--step", 15)
    assert "no checkpoint at step 15" in said and "there are: 10, 20" in said
    # A folder of something else is kept.
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "is not empty" in error(run_dir, "--out", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    # A finished run without checkpoints names its model.
    (tmp_path / TOKENIZER_DIR).symlink_to(run_dir / TOKENIZER_DIR)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    told = f"hint: the run is finished: its model is {tmp_path}/model"
    assert told in error(tmp_path)
