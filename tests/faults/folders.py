"""What a fault must leave as it was, and how a refusal must look."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from jaxcontam.cli.main import main
from jaxcontam.data.files import limited_memory
from jaxcontam.errors import InputError, StorageError

ROOT = Path(__file__).resolve().parents[2]
OF_HERE = {**os.environ, "PYTHONPATH": str(ROOT)}


def child(*words, **more):
    """A process of Python that ran with these words."""
    words = [sys.executable, *map(str, words)]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(words, env=OF_HERE, text=True, **out | more)


def contents(folder):
    """Every name below a folder, with a digest of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


def said(words, capsys, *, codes=(2,)):
    """Standard error of a command that must fail: one line, at most with a hint."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code in codes, captured
    lines = captured.err.splitlines()
    errors = [line for line in lines if line.startswith("jaxcontam: error: ")]
    assert len(errors) == 1, captured.err
    assert lines.index(errors[0]) >= len(lines) - 2
    assert len(lines) == lines.index(errors[0]) + 1 or lines[-1].startswith("  hint: ")
    assert "Traceback" not in captured.err
    assert_nothing_is_obeyed(captured.err + captured.out)
    return captured.err


def assert_nothing_is_obeyed(text):
    """No character that moves a cursor or turns the reading direction."""
    assert [c for c in text if (ord(c) < 32 and c not in "\n\t")] == []
    assert [c for c in text if 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066"] == []


def allowed(run):
    """Run what may refuse its input, but fail in no other way."""
    with contextlib.suppress(InputError, StorageError):
        run()


class LateError(BaseException):
    """The time is over; no reader takes it for a fault of its file."""


@contextlib.contextmanager
def confined(*, n_bytes=1 << 30, seconds=120):
    """A block that may take so much memory more, and so much time."""

    def late(*_):
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        with limited_memory(n_bytes):
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
