"""Where a run is kept: what can't be written is refused before anything slow."""

import types

import pytest
from etils.epath import backend

from jaxcontam.cli.main import run_command
from jaxcontam.errors import InputError, StorageError
from train.run_folder import alone, keep_at_home, run_home


def test_a_file_or_an_unknown_address_is_no_home(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for word in (str(file), str(file / "below")):
        with pytest.raises(InputError, match=f"--checkpoints {word}: cannot be"):
            run_home(word, tmp_path)
    with pytest.raises(InputError, match="an address begins with gs://, s3://"):
        run_home("foo://x", tmp_path)


def test_a_home_that_can_be_written_stays_empty(tmp_path):
    assert list(run_home(str(tmp_path / "home"), tmp_path).iterdir()) == []


class HttpError(Exception):
    """As of a library that reads buckets: no OSError."""


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (FileNotFoundError("b/nosuch"), InputError, 2),
        (PermissionError("not yours"), InputError, 2),
        (ImportError("Please install gcsfs"), InputError, 2),
        (OSError("Forbidden: https://storage"), StorageError, 3),
        (HttpError("503 Service Unavailable"), StorageError, 3),
        (ConnectionError("no route"), StorageError, 3),
    ],
)
def test_a_bucket_is_written_to_before_anything_slow(
    tmp_path, error, kind, code, monkeypatch
):
    def refuse(path, mode):
        raise error

    # Folders need no making there: that succeeds in a bucket that is not there.
    bucket = types.SimpleNamespace(makedirs=lambda path, exist_ok: None, open=refuse)
    monkeypatch.setattr(backend.fsspec_backend, "fs", lambda path: bucket)
    with pytest.raises(kind, match="--checkpoints gs://b/run: cannot be written"):
        run_home("gs://b/run", tmp_path)
    assert run_command(lambda: run_home("gs://b/run", tmp_path)) == code


def test_what_a_run_does_not_have_goes_from_its_home(tmp_path):
    out, home = tmp_path / "out", run_home(str(tmp_path / "home"), tmp_path)
    out.mkdir()
    (out / "new").write_text("1")
    for name in ("new", "old"):
        (home / name).write_text("0")
    keep_at_home(out, home, "new", "old")
    assert [(path.name, path.read_text()) for path in home.iterdir()] == [("new", "1")]


def test_a_folder_without_locks_is_trained_in_all_the_same(tmp_path, monkeypatch):
    def flock(handle, kind):
        raise OSError("not supported")

    asked = []
    monkeypatch.setattr("fcntl.flock", lambda *words: asked.append(1) or flock(*words))
    with alone(tmp_path, "--out"):
        (tmp_path / "trained").touch()
    assert asked and (tmp_path / "trained").exists()
