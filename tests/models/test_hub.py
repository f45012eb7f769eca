"""Models by their hub name, digests of their files, and the cache that keeps them."""

import hashlib
import json
import os
import time

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from jaxcontam.errors import InputError
from jaxcontam.models import checkpoint, hub
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    model_directory,
    save_checkpoint,
)
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.hub import fingerprint_files
from tests.support.decoders import spread
from tests.support.family_files import RAW
from tests.support.refused import refusal
from train.tokens import train_tokenizer

OLD = 1_600_000_000


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files that count as settled: the clock stands a minute later."""
    now = time.time()
    monkeypatch.setattr(hub.time, "time", lambda: now + 60)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = [tmp_path / "config.json", tmp_path / "model.safetensors"]
    for path in paths:
        path.write_bytes(path.name.encode())
        os.utime(path, (OLD, OLD))
    return paths


def cached(files):
    path = files[0].parent / "cache/jaxcontam/digests.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def test_fingerprint_is_the_digest_of_digests(files):
    parts = [hashlib.sha256(path.read_bytes()).digest() for path in files]
    expected = hashlib.sha256(b"".join(parts) + b"tokens").hexdigest()
    assert fingerprint_files(files, "tokens") == f"sha256:{expected}"
    assert fingerprint_files(files, "others") != f"sha256:{expected}"


def test_file_is_hashed_once_until_it_changes(files, monkeypatch):
    hashed = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda f, n: hashed.append(f.name) or digest(f, n)
    )
    first = fingerprint_files(files, "")
    assert len(hashed) == 2
    assert fingerprint_files(files, "") == first
    assert len(hashed) == 2
    # Same size, and a time of its own or that of all files, as archives set them.
    for name, time_ns in ((b"MODEL.safetensors", 1), (b"moDEL.safetensors", 0)):
        files[1].write_bytes(name)
        os.utime(files[1], ns=(OLD * 10**9, OLD * 10**9 + time_ns))
        assert fingerprint_files(files, "") != first
    assert len(hashed) == 4


def test_file_that_was_written_just_now_is_not_trusted_to_stay(files):
    later = time.time()
    os.utime(files[1], (later, later))
    fingerprint_files(files, "")
    assert [key.split(":")[0] for key in cached(files)] == [str(files[0])]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', "null", "none", "file"])
def test_cache_that_is_damaged_is_done_without(files, text, monkeypatch):
    first = fingerprint_files(files, "")
    path = files[0].parent / "cache/jaxcontam/digests.json"
    wrong = json.dumps(dict.fromkeys(cached(files), "zz"))
    path.write_text(text.replace("none", wrong))
    if text == "file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    assert fingerprint_files(files, "") == first
    assert text == "file" or len(cached(files)) == 2


def test_model_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    config = FAMILIES["gpt2"].read_config(RAW["gpt2"])
    save_checkpoint(
        spread(config), train_tokenizer(["abc"], 300), folder, model_type="gpt2"
    )
    read = checkpoint.read_weights

    def read_and_change(*args, **kwargs):
        decoder = read(*args, **kwargs)
        (folder / "config.json").touch()
        return decoder

    monkeypatch.setattr(checkpoint, "read_weights", read_and_change)
    with pytest.raises(InputError, match="changed while it was read"):
        load_checkpoint(str(folder))


NAME = "org/model"


def answer(kind, status):
    request = httpx2.Request("GET", "https://huggingface.co")
    return kind("403\n\nlong words", response=httpx2.Response(status, request=request))


def test_no_code_and_no_pickle_is_asked_for(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **flags: asked.append((name, flags)) or str(tmp_path),
    )
    assert model_directory(NAME) == tmp_path
    ((name, flags),) = asked
    assert name == NAME
    assert flags.pop("revision") is None
    kept = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.model"]
    kept += ["model.safetensors.index.json", "merges.txt"]
    left = ["modeling_own.py", "pytorch_model.bin", "consolidated.safetensors"]
    left += ["onnx/config.json"]
    found = huggingface_hub.utils.filter_repo_objects([*kept, *left], **flags)
    assert list(found) == kept


def test_a_revision_pins_a_model(monkeypatch, tmp_path):
    def download(name, *, revision, **flags):
        if revision != "v1":
            raise answer(errors.RevisionNotFoundError, 404)
        return str(tmp_path / name / revision)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert model_directory(f"{NAME}@v1") == tmp_path / NAME / "v1"
    with pytest.raises(InputError, match="org/model: the hub has no revision 'v2'"):
        model_directory(f"{NAME}@v2")


@pytest.mark.parametrize(
    ("failure", "message", "hint"),
    [
        (answer(errors.GatedRepoError, 403), "who accepted its terms", "co/org/model"),
        (answer(errors.RepositoryNotFoundError, 404), "or a private one", "auth login"),
        (errors.LocalEntryNotFoundError("no"), "cannot be reached", "download org/mod"),
        (ConnectionError("broken\npipe"), "not on the hub (broken)", ""),
        (ValueError(), "not on the hub (ValueError)", ""),
    ],
)
def test_refusal_is_one_line_with_a_way_out(monkeypatch, failure, message, hint):
    def fail(name, **flags):
        raise failure

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    said, told = refusal(model_directory, NAME)
    assert said.startswith(f"{NAME}: ") and message in said and hint in told
