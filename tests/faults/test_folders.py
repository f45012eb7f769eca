"""Folders that a run writes to: full, closed, shared, linked, or killed half-way."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from jaxcontam.cli.main import main
from jaxcontam.models.hub import fingerprint_files
from tests.faults.folders import contents, said
from tests.faults.fuzzed import RECORDED, table

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
    assert main(["verify", "out"]) == 0


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


def test_a_clock_that_jumps_keeps_a_model_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, names = tmp_path / "weights", set()
    for stamp in (0, 1_000, 5_000_000_000, 1_000):
        path.write_bytes(b"one")
        os.utime(path, (stamp, stamp))
        for now in (0.0, 9e9):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            names.add(fingerprint_files([path], "tokenizer"))
    assert len(names) == 1
    path.write_bytes(b"two")
    os.utime(path, (1_000, 1_000))
    assert fingerprint_files([path], "tokenizer") not in names


def test_an_interruption_while_a_report_is_written_keeps_the_old_one(
    files, monkeypatch, capsys
):
    words = ["prove", "m.csv", "--out", "out"]
    assert main(words) == 0
    before = contents(files / "out")

    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    assert main([*words, "--seed", "1", "--overwrite"]) == 130
    assert "interrupted; run the same command again" in capsys.readouterr().err
    assert contents(files / "out") == before
