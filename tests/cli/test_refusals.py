"""What a user cannot have costs one line: exit 2, at most one hint, nothing written.

The rows are in refusals.toml: [words, what the line holds, what the hint holds, files].
A group gives words and files to all its rows; a file may be a list of bytes or a link,
and one that is false is removed.
"""

import contextlib
import dataclasses
import importlib
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from jaxcontam import progress
from jaxcontam.cli.main import COMMANDS, GONE, flags_of, main
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.report_files import write_files, write_report
from tests.support.report_documents import audit_report, order_result

pytestmark = pytest.mark.unoptimised


def _rows():
    """(words, line, hint, files, scene) of each row, and of each word that left."""
    for place, new in GONE.items():
        line = f"there is no {place.split()[-1]} any more: {new}\n"
        # What a command needs beside a flag is not asked for first.
        typed = f"{_command_of(place, new)} {place}".strip()
        yield pytest.param(f"{typed} x", line, "", {}, None, id=typed)
    path = Path(__file__).with_name("refusals.toml")
    for group in tomllib.loads(path.read_text(encoding="utf-8"))["group"]:
        for words, line, *more in group["rows"]:
            hint = "".join(one for one in more if isinstance(one, str))
            files = [one for one in more if isinstance(one, dict)]
            files = {name: text for one in files for name, text in one.items()}
            files = group.get("files", {}) | files
            typed = f"{group['words']} {words}".strip()
            name = typed.removeprefix("python -m ").split()[0]
            yield pytest.param(
                typed, line, hint, files, group.get("scene"), id=f"{name}: {line}"
            )


def _command_of(place, new):
    """A command that had a flag, where several had: it has the new one."""
    if not place.startswith("--") or place == "--completion":
        return ""
    for name, command in COMMANDS.items():
        known, is_own = flags_of(command), f"{name} {place}" in GONE
        has_new = new.split()[0] in known or not new.startswith("--")
        if has_new and not is_own and place not in known:
            return name
    raise AssertionError(f"no command has {new}")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folder of a model that knows nothing; read only."""
    from jaxcontam.models.checkpoint import save_checkpoint
    from tests.support.membership_model import fast_tokenizer, fresh_decoder

    folder = tmp_path_factory.mktemp("refusals") / "tiny"
    save_checkpoint(fresh_decoder(), fast_tokenizer(), folder)
    return str(folder)


def _audits():
    """An audit of two benchmarks, and one of another model of that name."""
    clean = order_result("arc_easy-test", verdict="no evidence", p_adjusted=0.4)
    report = audit_report(order_result("boolq"), clean, model="m")
    write_report(report, {}, Path("runs/one"))
    other = dataclasses.replace(report.model, fingerprint="sha256:other")
    report = audit_report(order_result("boolq"), model="m", seed=1)
    write_report(dataclasses.replace(report, model=other), {}, Path("other/one"))


def _changed():
    """The same, whose numbers somebody changed."""
    _audits()
    path = Path("runs/one/report.json")
    path.write_text(path.read_text().replace("no evidence", "inconclusive"))


def _report():
    """A whole report of one test, with its evidence."""
    report = audit_report(order_result(verdict="contaminated"))
    write_files(report, {ARCHIVE_NAME: archive_bytes([None])}, Path("my report"))


def _canaries():
    """Secrets of both kinds."""
    keyed = "32 --chat rows.jsonl --secret seed.json"
    for words in ("5 --n-held-out 95 --secret s.txt --held-out h.txt", keyed):
        assert main(["canary", "--make", *words.split()]) == 0


_SCENES = {
    "audits": _audits,
    "canaries": _canaries,
    "changed": _changed,
    "report": _report,
}


def _contents():
    """What the folder holds."""
    return {
        path: path.read_bytes() if path.is_file() else path.is_symlink()
        for path in sorted(Path().rglob("*"))
    }


def _run(words, patch):
    if words[:2] != ["python", "-m"]:
        return "jaxcontam", main(words)
    patch.setattr(sys, "argv", words[2:])
    return words[2], importlib.import_module(words[2]).main()


@pytest.mark.parametrize(("words", "line", "hint", "files", "scene"), list(_rows()))
def test_it_costs_one_line(
    words, line, hint, files, scene, request, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    # A slow machine says what it waits for.
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_THE_FIRST", 60.0)
    if scene:
        _SCENES[scene]()
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if isinstance(text, dict):
            path.symlink_to(text["link"])
        elif text is not False:
            path.write_bytes(text.encode() if isinstance(text, str) else bytes(text))
    if "{tiny}" in words:
        words = words.replace("{tiny}", request.getfixturevalue("tiny"))
    before = _contents()
    capsys.readouterr()
    name, code = _run(shlex.split(words), monkeypatch)
    said = capsys.readouterr()
    error, *hints = said.err.splitlines()
    assert (code, said.out) == (2, ""), said.err
    assert error.startswith(f"{name}: error: ") and len(hints) <= 1, said.err
    assert all(one.startswith("  hint: ") for one in hints)
    assert line in f"{error}\n" and hint in "".join(hints)
    assert _contents() == before
