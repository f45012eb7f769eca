"""Odd texts: whole in what is written, no commands to a terminal or a page."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys

import pytest
from rich.table import Table
from rich.text import Text

from jaxcontam.cli.main import main, run_command
from jaxcontam.errors import InputError
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.figure import Interval, intervals_plot
from jaxcontam.reports.report_files import REPORT_NAME, sealed_text, write_files
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text, visible
from tests.faults.folders import assert_nothing_is_obeyed, child, said
from tests.faults.fuzzed import RECORDED, table
from tests.support.report_documents import audit_report, order_result

pytestmark = pytest.mark.unoptimised

ODD = [
    "\u2028 and \u2029 are no line ends, \x85 and \x0b neither",
    "combining e\u0301, wide \uff21, joined \U0001f469\u200d\U0001f680",
    "right to left \u202eabc\u202c, zero \ufeff width, private \ue000",
    "unassigned \U000e0fff, last \U0010ffff, replaced \ufffd",
    "\u0130\u0131\u1e9e\ufb01 change their length in lower case",
]


def test_odd_characters_come_through_a_whole_command(tmp_path, capsys):
    path, out = tmp_path / "odd \u202e\U0001f600.csv", tmp_path / "out"
    path.write_bytes(table([{**RECORDED, "second_piece": text} for text in ODD]))
    words = ["replicate", "--recorded", str(path), "--seed", "5", "--out", str(out)]
    assert main(words) == 0
    assert main(["verify", str(out)]) == 0
    assert "\u202e" not in capsys.readouterr().out
    assert json.loads((out / "report.json").read_text())["command"] == words
    lines = (out / "texts.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    found = [json.loads(line)["second_piece"] for line in lines]
    # Pieces stand without the blanks around them.
    assert found == [text.strip() for text in ODD]


@pytest.mark.parametrize("bos", [True, False])
def test_score_gives_an_empty_text_empty_lists(pulse, bos, tmp_path, capsys):
    model = shutil.copytree(pulse / "model", tmp_path / "model")
    for name in () if bos else ("config.json", "tokenizer_config.json"):
        fields = json.loads((model / name).read_text())
        kept = {k: v for k, v in fields.items() if k[:4] not in ("bos_", "eos_")}
        (model / name).write_text(json.dumps(kept))
    texts, out = ["", "a", "line one", ""], tmp_path / "scores.jsonl"
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    path = tmp_path / "x.jsonl"
    path.write_text("".join([*lines[:2], "\n", *lines[2:]]))
    words = ["score", str(model), str(path), "--text", "text", "--out", str(out)]
    assert main(words) == 0
    told = [f"{out}: 4 texts", "x: 1 blank line left out"]
    assert capsys.readouterr().out.splitlines() == told
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in found] == texts
    assert (found[0]["prefix_id"] is None) == (not bos)
    for row in found:
        for name in ("logprobs", "means", "variances"):
            assert len(row[name]) == len(row["token_ids"])
    assert found[0]["token_ids"] == found[3]["token_ids"] == []
    assert None not in found[2]["logprobs"][1:]


def test_separator_typed_with_a_backslash_is_a_line_feed(pulse, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("".join(f"line {c}\n" for c in "hbkdagljcfei"))
    documents = []
    for out, separator in ((tmp_path / "a", "\n"), (tmp_path / "b", "\\n")):
        words = ["audit", str(pulse / "model"), str(path), "--separator", separator]
        assert main([*words, "--out", str(out)]) == 0
        documents.append(json.loads((out / "report.json").read_text()))
    assert documents[0]["results"] == documents[1]["results"]
    # A folder that is called model has the name of its parent.
    assert documents[0]["model"]["name"] == pulse.name


HOSTILE = "<script>alert(1)</script>\x1b[2J\x1b]0;x\x07\x9b31m\u202e[/red]$^$&amp;"
# As the name of a file, which holds no slash.
NAME = HOSTILE.replace("/", "")
INTERRUPTED = "jaxcontam: interrupted; run the same command again\n"


def test_visible_text_has_no_character_that_is_obeyed():
    every = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2100), 0xD800]))
    shown = visible(every)
    assert_nothing_is_obeyed(shown)
    assert shown.encode()
    assert visible(shown) == shown
    assert visible("naïve 東京 \U0001f600\tx\n") == "naïve 東京 \U0001f600\tx\n"
    value = {"name": HOSTILE, "half": "\ud800", "plain": "東京"}
    assert_nothing_is_obeyed(json_text(value))
    assert json.loads(json_text(value)) == value
    assert "東京" in json_text(value)


def test_a_sentence_is_broken_between_words_on_a_terminal_alone():
    for is_terminal, wanted in ((True, "ok one\n   two\n"), (False, "ok one two\n")):
        stream = io.StringIO()
        console = Terminal(file=stream, width=8, force_terminal=is_terminal)
        console.tell("ok one two", indent=3)
        assert stream.getvalue() == wanted


def test_a_terminal_shows_what_it_prints():
    grids = [Table(title=HOSTILE), Table(), Table()]
    for grid, column, cell in zip(grids, "ab*", "a*b", strict=True):
        grid.add_column(column.replace("*", HOSTILE))
        grid.add_row(cell.replace("*", HOSTILE))
    for printable in (HOSTILE, Text(HOSTILE), *grids):
        stream = io.StringIO()
        Terminal(file=stream, width=300).print(printable)
        printed = stream.getvalue()
        assert_nothing_is_obeyed(printed)
        # A title is folded to the width of its table.
        shown = "".join(printed.split())
        assert "\\x1b[2J" in shown and "[/red]" in shown


def test_names_in_a_picture_are_no_formulas():
    names = ["$\\frac{x$", "$^$", "模型"]
    about = {"value": 1, "low": 0, "high": 2, "colour": "black"}
    rows = [Interval(name=name, **about) for name in names]
    picture = intervals_plot(rows, "AUC", nothing=0)
    assert all(f">{name}</text>" in picture for name in names)


def test_an_error_is_one_line_of_readable_length(capsys):
    def fail():
        raise InputError(f"{HOSTILE}\n{'x' * 10**6}\nthe end", hint=HOSTILE)

    assert run_command(fail) == 2
    said = capsys.readouterr().err
    assert_nothing_is_obeyed(said)
    assert len(said.splitlines()) == 2
    assert "the end" in said and len(said) < 5_000


def assert_folder_runs_nothing(out, capsys, codes=(0,)):
    """What commands say of a report, and its page, obey none of its words."""
    for command in ("verify", "report"):
        assert main([command, str(out)]) in codes
    captured = capsys.readouterr()
    assert_nothing_is_obeyed(captured.out + captured.err)
    text = (out / "report.html").read_text()
    assert "<script>alert" not in text
    # In text, and not as part of the page: once for each `&`.
    assert "&lt;script&gt;" in text
    return captured.err


def test_replicate_shows_completions_as_text(tmp_path, capsys):
    path = tmp_path / f"{NAME}.csv"
    row = {**RECORDED, "second_piece": HOSTILE, "generated_guided_completion": HOSTILE}
    path.write_bytes(table([row] * 4))
    words = ["replicate", "--recorded", str(path), "--out", str(tmp_path / "out")]
    for more in ([], ["--json"]):
        assert main([*words, *more]) == 0
    assert_folder_runs_nothing(tmp_path / "out", capsys)


def test_audit_shows_names_and_texts_of_a_benchmark(pulse, tmp_path, capsys):
    path, out = tmp_path / f"{NAME}.jsonl", tmp_path / "out"
    lines = [json.dumps({"text": f"{HOSTILE} {i}", HOSTILE: i}) for i in range(12)]
    path.write_text("".join(f"{line}\n" for line in lines))
    words = ["audit", str(pulse / "model"), str(path), "--tests", "reversal"]
    words += ["--out", str(out)]
    assert "\\x1b[2J" in said([*words, "--group-field", "none"], capsys)
    # Numbers rise: it is refused, and then scored anyway.
    for more in ("", "--json"):
        assert main([*words, *more.split()]) == 0
    for more in ("--dry-run", "--dry-run --json", "", "--json"):
        assert main([*words, "--order", "anyway", *more.split()]) == 0
    assert "not scored" in assert_folder_runs_nothing(out, capsys)


def test_words_of_a_report_from_elsewhere_are_shown(pulse, tmp_path, capsys):
    shutil.copy(pulse / ARCHIVE_NAME, tmp_path)
    document = json.loads((pulse / REPORT_NAME).read_text())
    for row in document["results"]:
        row["benchmark"] += HOSTILE
        if "warnings" in row:
            row["warnings"] = [HOSTILE]
        for test in row.get("pretests", []):
            test["name"] += HOSTILE
    document["model"]["name"] = HOSTILE
    document["command"] += [HOSTILE]
    (tmp_path / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")
    assert_folder_runs_nothing(tmp_path, capsys, codes=(0, 3))


CLEANS_UP = """
import signal, sys, time
from jaxcontam.cli import main as cli

class Cleaned:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run():
    Cleaned()
    time.sleep(60)

cli.main = lambda: cli.run_command(run)
cli.entry_point()
"""


def test_ctrl_c_during_a_clean_up_ends_the_command():
    """Python swallows what a `__del__` or a callback raises; JAX has such callbacks."""
    done = child("-c", CLEANS_UP, timeout=50)
    assert (done.returncode, done.stderr) == (130, f"\n{INTERRUPTED}")


def started(*words):
    """A process of Python, whose output is read as it comes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *words], text=True, **pipes)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_while_python_imports_is_one_line(number, code):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"this run ignores {number.name}, and so would the command: nohup")
    with started("-X", "importtime", "-m", "jaxcontam", "methods") as command:
        assert command.stderr is not None
        # The first of the modules that wait for the signals to be answered.
        next(line for line in command.stderr if "jaxcontam.errors" in line)
        command.send_signal(number)
        said = [line for line in command.stderr if "import time:" not in line]
    assert (command.returncode, said) == (code, ["\n", INTERRUPTED])


@pytest.mark.parametrize("word", ["--version", "methods"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_of_a_pipe_that_goes_away_is_no_error(monkeypatch, word, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with started("-m", "jaxcontam", word) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == ""
    assert command.returncode == 0


MARK = "document.documentElement.dataset.ran=1"
SCRIPTS = (
    f"<script>{MARK}</script></title></style></script><svg onload={MARK}>"
    f"'\"><img src=x onerror={MARK}><details open ontoggle={MARK}>$^$"
)


def shown_by(page, folder):
    """The opening tag of a page after a browser has shown it."""
    # It refuses to run as root in a box of its own.
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    words += [f"--user-data-dir={folder}", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run(
        [*words, page.as_uri()], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"<html[^>]*>", done.stdout)
    assert found is not None and "</body>" in done.stdout
    return found[0]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)
def test_a_browser_runs_nothing_of_a_page(tmp_path):
    name = SCRIPTS.replace("/", "\u2215")
    path = tmp_path / f"{name[:200]}.csv"
    row = {**RECORDED, "second_piece": SCRIPTS, "generated_guided_completion": SCRIPTS}
    path.write_bytes(table([row] * 4))
    out = tmp_path / "replicate"
    assert main(["replicate", "--recorded", str(path), "--out", str(out)]) == 0
    report = audit_report(
        order_result(SCRIPTS, warnings=(SCRIPTS,)), order_result(name), model=SCRIPTS
    )
    _, page = write_files(
        report, {ARCHIVE_NAME: archive_bytes([None, None])}, tmp_path / "audit"
    )
    browser = tmp_path / "browser"
    for shown in (page, out / "report.html"):
        assert "dataset.ran" in shown.read_text()
        assert shown_by(shown, browser) == '<html lang="en">'
    # Were a text not escaped, the page's policy would stop it; without one it runs.
    text = page.read_text().replace("</body>", f"{SCRIPTS}</body>")
    page.write_text(text)
    assert shown_by(page, browser) == '<html lang="en">'
    page.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
    assert shown_by(page, browser) == '<html lang="en" data-ran="1">'
