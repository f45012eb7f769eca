"""`jaxcontam convert`: pickled weights become safetensors, and run no code."""

import pickle
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.cli import main
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.hub import convert_hint
from tests.membership_model import fast_tokenizer

torch = pytest.importorskip("torch")


class Marker:
    """Unpickling one makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    """A GPT-2, whose head is its embedding, as safetensors and as two pickles."""
    from transformers import GPT2Config, GPT2LMHeadModel

    root = tmp_path_factory.mktemp("gpt2")
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=320)
    made = GPT2LMHeadModel(config)
    made.save_pretrained(root / "safe")
    fast_tokenizer().save_pretrained(root / "safe")
    (root / "pickled").mkdir()
    for path in (root / "safe").iterdir():
        if path.name != "model.safetensors":
            (root / "pickled" / path.name).write_bytes(path.read_bytes())
    state = made.state_dict()
    head, wte = state["lm_head.weight"], state["transformer.wte.weight"]
    assert head.data_ptr() == wte.data_ptr()
    first = {name: state[name] for name in ("lm_head.weight", "transformer.wte.weight")}
    rest = {name: value for name, value in state.items() if name not in first}
    for i, part in enumerate((first, rest), 1):
        torch.save(part, root / f"pickled/pytorch_model-0000{i}-of-00002.bin")
    return root


def test_line_of_the_refusal_makes_the_model_that_was_pickled(
    tied, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="only pickled weights") as refused:
        load_checkpoint(str(tied / "pickled"))
    line = refused.value.hint.split(": ", 1)[1].split(";")[0]
    program, *words = shlex.split(line)
    assert program == "jaxcontam"
    assert main(words) == 0
    assert "as safetensors" in capsys.readouterr().out
    found, wanted = (
        jax.tree.leaves(nnx.state(load_checkpoint(str(folder)).decoder))
        for folder in (words[-1], tied / "safe")
    )
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not [*Path(words[-1]).glob("*.bin")]
    assert main(words) == 2
    assert "holds a model" in capsys.readouterr().err


def test_code_in_a_pickle_does_not_run(tied, tmp_path, capsys):
    folder, mark = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    path = folder / "pytorch_model.bin"
    torch.save({"weight": Marker(mark)}, path)
    assert main(["convert", str(folder), str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"jaxcontam: error: {path}: more than tensors")
    assert not mark.exists() and not (tmp_path / "new").exists()
    pickle.loads(pickle.dumps(Marker(mark)))
    assert mark.exists()  # it would have


def test_a_hub_name_is_converted_by_its_name_and_revision():
    folder = Path("cache/models--yonatano--contam-1.4b/snapshots/abc")
    line = "jaxcontam convert yonatano/contam-1.4b@abc contam-1.4b-safetensors;"
    assert line in convert_hint(folder)


def test_a_folder_without_pickles_is_refused(tied, tmp_path, capsys):
    assert main(["convert", str(tied / "safe"), str(tmp_path / "new")]) == 2
    assert "no pytorch_model.bin" in capsys.readouterr().err
