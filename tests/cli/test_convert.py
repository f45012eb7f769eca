"""`jaxcontam convert`: pickled weights become safetensors, and run no code."""

import os
import pickle
import shlex
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.hub import convert_hint
from jaxcontam.terminal_text import printable
from tests.faults.folders import assert_nothing_is_obeyed, confined, said
from tests.faults.test_folders import room
from tests.support.membership_model import fast_tokenizer

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
    assert said.startswith(
        f"jaxcontam: error: {path}: not read: it holds more than tensors"
    )
    assert not mark.exists() and not (tmp_path / "new").exists()
    pickle.loads(pickle.dumps(Marker(mark)))
    assert mark.exists()  # it would have


def test_a_hub_name_is_converted_by_its_name_and_revision():
    folder = Path("cache/models--yonatano--contam-1.4b/snapshots/abc")
    line = "jaxcontam convert yonatano/contam-1.4b@abc contam-1.4b-safetensors;"
    assert line in convert_hint(folder)


@pytest.fixture
def pickled(tmp_path):
    """A folder whose pickle is honest, in the middle of what is left alone."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}\n")
    torch.save({"a": torch.arange(6.0)}, folder / "pytorch_model.bin")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/secret.txt").write_text("a secret")
    return folder


def saved(found, **options):
    """What pickles something."""
    return lambda path: torch.save(found, path, **options)


def packed(path):
    """An archive whose parts are zeros, deflated."""
    torch.save({"a": torch.zeros(1 << 20)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def link(to):
    """What makes a link."""
    return lambda path: path.symlink_to(to)


ONE = torch.ones(1)
PIPE, LINK = (
    "a pipe or a device",
    "a link to something other than a file within the folder",
)
DAMAGED = "not read: it holds more than tensors, or is damaged"
BIN = "pytorch_model.bin"
SHARED = torch.ones(3000).as_strided((2000, 1000), (1, 1))


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("notes.txt", link("/dev/zero"), PIPE),
        ("notes.txt", link("/dev/urandom"), PIPE),
        ("pipe", os.mkfifo, PIPE),
        (BIN, os.mkfifo, PIPE),
        (BIN, link("/dev/zero"), PIPE),
        ("assets", link("../foreign"), LINK),
        ("assets", link("/usr"), LINK),
        ("a.txt", link("../foreign/secret.txt"), LINK),
        ("tokenizer.json", link("/etc/passwd"), LINK),
        ("self", link("."), LINK),
        ("up", link(".."), LINK),
        ("loop", link("loop"), LINK),
        ("nowhere.json", link("missing"), LINK),
        ("pytorch_model-2.bin", link("../foreign/secret.txt"), LINK),
        ("additional_chat_templates", link("../foreign"), LINK),
        (BIN, saved({f"w{i}": ONE.expand(200_000_000) for i in range(20)}), DAMAGED),
        (BIN, saved({"w": ONE.expand(9_999)}), DAMAGED),
        (BIN, saved({"w": SHARED}), DAMAGED),
        (BIN, packed, DAMAGED),
        (BIN, saved([ONE]), DAMAGED),
        (BIN, saved({"a": 1}), DAMAGED),
        (BIN, saved({3: ONE}), DAMAGED),
        (BIN, saved({"a": torch.ones(9, device="meta")}), DAMAGED),
        (BIN, saved({"a": torch.eye(9).to_sparse()}), DAMAGED),
        (BIN, saved({"a": ONE.expand(9**8)}, pickle_protocol=2), DAMAGED),
        (
            BIN,
            saved({"a": ONE.expand(9**8)}, _use_new_zipfile_serialization=False),
            DAMAGED,
        ),
        (BIN, lambda path: path.write_bytes(b"PK\x03\x04"), DAMAGED),
        ("pytorch_model-2.bin", saved({"a": ONE}), "holds 'a', as pytorch_model-2.saf"),
    ],
)
def test_a_hostile_folder_is_refused_and_leaves_no_part(
    pickled, capsys, name, make, words
):
    (pickled / name).unlink(missing_ok=True)
    make(pickled / name)
    before = sorted(pickled.parent.iterdir())
    with confined():
        message = said(["convert", pickled, pickled.parent / "new"], capsys)
    assert words in message
    assert sorted(pickled.parent.iterdir()) == before


def test_small_files_of_the_folder_are_copied_and_the_rest_is_named(pickled, capsys):
    files = {"vocab.txt": "a\n", "LICENSE": "free", "model.py": "1 / 0"}
    files |= {"additional_chat_templates/rag.jinja": "{{ messages }}"}
    (pickled / "additional_chat_templates").mkdir()
    for name, text in files.items():
        (pickled / name).write_text(text)
    (pickled / "merges.txt").symlink_to("vocab.txt")
    (pickled / "checkpoint-1").mkdir()
    torch.save({}, pickled / "optimizer.pt")
    with (pickled / "train.log").open("wb") as file:
        file.truncate(1 << 40)
    out = pickled.parent / "new"
    assert main(["convert", str(pickled), str(out)]) == 0
    wanted = "1 tensors as safetensors; not copied: checkpoint-1, optimizer.pt, train"
    assert wanted in capsys.readouterr().out
    made = {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file()
    }
    del made["pytorch_model.safetensors"], made["model.safetensors.index.json"]
    expected = {**files, "merges.txt": "a\n", "config.json": "{}\n"}
    assert made == {name: text.encode() for name, text in expected.items()}
    assert not any(path.is_symlink() for path in out.rglob("*"))


def test_names_of_what_is_left_out_are_shown_and_not_obeyed(pickled, capsys):
    name = "a\x1b[2J\u202e\nb\udcff.pt"
    (pickled / name).write_text("")
    out = pickled.parent / "new\x1b[31m"
    assert main(["convert", str(pickled), str(out)]) == 0
    said = capsys.readouterr().out
    assert_nothing_is_obeyed(said)
    assert printable(out) in said and said.endswith(f"not copied: {printable(name)}\n")


def test_a_snapshot_of_the_hub_is_converted_and_no_other_blob(tied, tmp_path, capsys):
    root = tmp_path / "models--a--b"
    folder = root / "snapshots/0123"
    folder.mkdir(parents=True)
    (root / "blobs").mkdir()
    for path in (tied / "pickled").iterdir():
        (root / "blobs" / path.name).write_bytes(path.read_bytes())
        (folder / path.name).symlink_to(root / "blobs" / path.name)
    out = tmp_path / "new"
    assert main(["convert", str(folder), str(out)]) == 0
    capsys.readouterr()
    for path in (tied / "pickled").glob("*.json"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    (root / "secret").write_text("")
    (folder / "a.txt").symlink_to(root / "secret")
    assert LINK in said(["convert", folder, tmp_path / "other"], capsys)


def test_a_disk_that_is_full_leaves_no_half_model(pickled, tmp_path, capsys):
    torch.save({"a": torch.arange(6000.0)}, pickled / "pytorch_model.bin")
    with room(9000):
        message = said(["convert", pickled, tmp_path / "new"], capsys)
    assert "cannot be written" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "model"]
