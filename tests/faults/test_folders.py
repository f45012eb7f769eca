"""What a run writes to: full, closed, shared, linked, failing, killed half-way."""

import contextlib
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
from tests.faults.folders import contents, said
from tests.faults.fuzzed import RECORDED, table
from tests.support.report_documents import audit_report, order_result
from tests.support.store_process import IDENTITY
from train.config import PRESETS
from train.export import write_model
from train.tokens import train_tokenizer

pytestmark = pytest.mark.unoptimised

NOBODY = 65534
COMMANDS = {
    "prove": "prove m.csv --out",
    "replicate": "replicate --recorded r.csv --out",
    "overlap": "overlap docs b.txt --out",
}


def write_inputs(folder):
    """Inputs of commands that need no model."""
    (folder / "m.csv").write_text("3,1,2\n5,4,1\n2,2,0\n1,0,3\n")
    (folder / "r.csv").write_bytes(table([RECORDED] * 4))
    (folder / "b.txt").write_text("one two three\nfour five six\n")
    (folder / "docs").mkdir()
    (folder / "docs/d.jsonl").write_text('{"text": "one two three"}\n')


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The folder of these inputs, from which commands are run."""
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def room(n_bytes):
    """A disk on which no file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("n_bytes", [0, 300])
def test_a_full_disk_is_one_line_and_what_stood_there_stays(
    files, command, n_bytes, capsys
):
    words = [*COMMANDS[command].split(), "out"]
    assert main(words) == 0
    # Another input under the same --out, so that no byte can be taken over.
    (files / "m.csv").write_text("1,0\n2,5\n" * 9)
    (files / "r.csv").write_bytes(table([RECORDED] * 9))
    (files / "b.txt").write_text("seven eight\nnine ten\n" * 3)
    before = contents(files / "out")
    with room(n_bytes):
        assert "cannot be written (" in said(words, capsys)
    assert contents(files / "out") == before
    assert main(words) == 0
    assert contents(files / "out") != before


@pytest.fixture
def closed():
    """A folder that this process may read and not write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("below", ["", "new"])
def test_a_read_only_folder_is_one_line_and_stays_empty(closed, below, capsys):
    with tempfile.TemporaryDirectory() as own, contextlib.chdir(own):
        write_inputs(Path(own))
        for words in COMMANDS.values():
            message = said([*words.split(), closed / below], capsys)
            assert "cannot be" in message and str(closed) in message
    assert list(closed.iterdir()) == []


_WRITES = """
import sys
from pathlib import Path
from jaxcontam.reports.report_files import replace_bytes

for _ in range(40):
    replace_bytes(Path(sys.argv[1]), sys.argv[2].encode() * 100_000)
"""


def test_two_runs_in_one_folder_leave_one_whole_report(tmp_path):
    out = tmp_path / "report.json"
    words = [sys.executable, "-c", _WRITES, str(out)]
    runs = [subprocess.Popen([*words, seed]) for seed in "12"]
    assert [run.wait() for run in runs] == [0, 0]
    assert out.read_bytes() in (b"1" * 100_000, b"2" * 100_000)
    assert list(tmp_path.iterdir()) == [out]


def test_links_lead_to_inputs_and_outputs_and_stay_links(files, capsys):
    (files / "real").mkdir()
    (files / "out").symlink_to("real", target_is_directory=True)
    (files / "l.csv").symlink_to("m.csv")
    assert main(["prove", "l.csv", "--out", "out"]) == 0
    assert (files / "out").is_symlink() and (files / "l.csv").is_symlink()
    assert (files / "real/report.json").is_file()
    assert main(["verify", "out"]) == main(["verify", "out/report.json"]) == 0


def test_a_folder_that_links_to_itself_is_searched_once(files, capsys):
    (files / "docs/again").symlink_to(".", target_is_directory=True)
    assert main([*COMMANDS["overlap"].split(), "o"]) == 0
    document = json.loads((files / "o/overlap.json").read_text())
    assert document["corpus"]["n_documents"] == 1


def test_a_clock_that_jumps_changes_no_number(files, monkeypatch, capsys):
    def results(out):
        assert main(["prove", "m.csv", "--out", out]) == 0
        document = json.loads(Path(out, "report.json").read_text())
        assert document["wall_seconds"] >= 0
        return document["results"]

    plain = results("a")
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 2e9 * (-1) ** next(jumps))
    for stamp in (0, 5_000_000_000):
        os.utime(files / "m.csv", (stamp, stamp))
        assert results("b") == plain


def test_an_interruption_while_a_report_is_written_keeps_the_old_one(
    files, monkeypatch, capsys
):
    words = ["prove", "m.csv", "--out", "out"]
    assert main(words) == 0
    before = contents(files / "out")

    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    assert main(words) == 130
    assert "interrupted; run the same command again" in capsys.readouterr().err
    assert contents(files / "out") == before


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
