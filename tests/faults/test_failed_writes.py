"""Writes, renames and fsyncs that fail: nothing half-written is read as whole."""

import contextlib
import errno
import os

import numpy as np
import pytest
from flax import nnx

from jaxcontam.cli.main import main, run_command
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.recompute import digest_faults
from jaxcontam.reports.report_files import (
    PAGE_NAME,
    read_document,
    replace_bytes,
    write_report,
    write_sums,
)
from jaxcontam.scoring.store import ScoreStore
from tests.faults.folders import contents
from tests.faults.test_folders import room
from tests.support.report_documents import audit_report, order_result
from tests.support.store_process import IDENTITY
from train.export import write_model
from train.presets import PRESETS
from train.tokenizer import train_tokenizer

pytestmark = pytest.mark.unoptimised

_PRESET = PRESETS["pulse"]


class Reports:
    """Each file of a folder is one report's, and a mixture is found."""

    def write(self, out, number):
        report = audit_report(order_result(), seed=number)
        report = write_report(report, {ARCHIVE_NAME: archive_bytes([None])}, out)
        replace_bytes(out / PAGE_NAME, b"page %d" % number)
        write_sums(report, out)

    def check(self, out, number, before):
        document = read_document(out / "report.json")
        faults = digest_faults(out, document, ARCHIVE_NAME)
        assert faults or contents(out) == before
        assert not list(out.glob("*.partial"))


class Batches:
    """A row of a store is as it was given, or is not there."""

    def rows(self, number):
        keys = [bytes([number, i]) * 16 for i in range(3)]
        return [(key, key[::-1] * 3) for key in keys]

    def write(self, out, number):
        ScoreStore(out, IDENTITY).commit(self.rows(number))

    def check(self, out, number, before):
        store = ScoreStore(out, IDENTITY)
        for key, value in self.rows(number):
            assert store.values([key]) in (None, [value])
        assert store.holds([key for key, _ in self.rows(0)])


class Exports:
    """A model's folder holds one model, or is not there."""

    def __init__(self):
        self.tokenizer = train_tokenizer(["some words"], 300)

    def decoder(self, number):
        return Decoder(_PRESET.decoder, rngs=nnx.Rngs(number))

    def write(self, out, number):
        model = self.decoder(number), self.tokenizer, out / "model"
        write_model(*model, model_type=_PRESET.model_type)

    def check(self, out, number, before):
        if (out / "model").exists():
            found = load_checkpoint(str(out / "model")).decoder.embedding
            written = (self.decoder(n).embedding for n in (0, number))
            assert any(np.array_equal(found[...], one[...]) for one in written)


@contextlib.contextmanager
def failing(name, at, monkeypatch):
    """The call of this number fails; gives the calls that were made."""
    real, calls = getattr(os, name), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == at + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield calls


@pytest.mark.parametrize(
    ("kind", "fault", "at_least"),
    [
        # Five files of a report; files of a model, its folder takes one name.
        (Reports, "write", 5),
        (Reports, "fsync", 5),
        (Reports, "replace", 5),
        (Batches, "write", 3),
        (Exports, "write", 4),
        (Exports, "fsync", 4),
        (Exports, "rename", 1),
    ],
)
def test_what_fails_at_any_call_leaves_nothing_that_looks_whole(
    kind, fault, at_least, tmp_path, monkeypatch, capsys
):
    written, out = kind(), tmp_path / "out"
    written.write(out, 0)
    before, n_failed = contents(out), 0
    # A byte less than each file needs, and the first bytes of one.
    sizes = {path.stat().st_size - 1 for path in out.rglob("*") if path.is_file()}
    for at in sorted({0, 1, 40, *sizes}) if fault == "write" else range(20):
        with room(at) if fault == "write" else failing(fault, at, monkeypatch) as calls:
            code = run_command(lambda: written.write(out, 1))
        message = capsys.readouterr().err
        if code:
            n_failed += 1
            assert code in (2, 3) and "cannot be written (" in message
            assert len(message.splitlines()) <= 2
            written.check(out, 1, before)
        elif calls is not None and len(calls) <= at:
            break
        # Another run ends what this one could not.
        written.write(out, 0)
        assert contents(out) == before or kind is Batches
    assert n_failed >= at_least


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("release x.txt --seed-file seed.json", "seed.json"),
        ("canary --make 3 --secret s.txt --held-out h.txt", "h.txt"),
    ],
)
def test_a_full_disk_names_the_file_and_leaves_none(
    words, named, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("a\nb\n")
    before = contents(tmp_path)
    with room(300):
        assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(
        f"jaxcontam: error: {named}: cannot be written (File too large)\n"
        "  hint: nothing was written"
    )
    assert contents(tmp_path) == before
