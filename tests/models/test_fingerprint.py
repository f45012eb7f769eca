"""Digests of model files, and the cache that saves hashing them again."""

import hashlib
import json
import os
import time

import pytest

from jaxcontam.errors import InputError
from jaxcontam.models import checkpoint, hub
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.hub import fingerprint_files
from tests.support.decoders import spread
from tests.support.family_files import RAW
from train.tokenizer import train_tokenizer

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
    # Same size, another time of change.
    files[1].write_bytes(b"MODEL.safetensors")
    os.utime(files[1], ns=(OLD * 10**9, OLD * 10**9 + 1))
    assert fingerprint_files(files, "") != first
    assert len(hashed) == 3


def test_file_that_was_written_just_now_is_not_trusted_to_stay(files):
    later = time.time()
    os.utime(files[1], (later, later))
    fingerprint_files(files, "")
    assert [key.split(":")[0] for key in cached(files)] == [str(files[0])]


def test_file_of_equal_size_and_modification_time_is_another_file(files):
    """Archives set the modification times of all their files alike."""
    first = fingerprint_files(files, "")
    files[1].write_bytes(b"MODEL.safetensors")
    os.utime(files[1], (OLD, OLD))
    assert fingerprint_files(files, "") != first


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', "null", "none"])
def test_damaged_cache_is_done_without(files, text):
    first = fingerprint_files(files, "")
    path = files[0].parent / "cache/jaxcontam/digests.json"
    path.write_text(
        text.replace("none", json.dumps(dict.fromkeys(cached(files), "zz")))
    )
    assert fingerprint_files(files, "") == first
    assert len(cached(files)) == 2


def test_cache_that_cannot_be_written_stops_nothing(files, monkeypatch, tmp_path):
    first = fingerprint_files(files, "")
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert fingerprint_files(files, "") == first


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
