"""Names of files as strangers choose them: shown on one line, and typed again whole."""

import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.terminal_text import json_text, printable, shell_line
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import fast_tokenizer, fresh_decoder

pytestmark = [
    pytest.mark.unoptimised,
    pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux"),
]

# Begins as a flag does, moves the cursor, turns the reading direction, ends a line,
# and holds what a shell reads.
HOSTILE = "-a\x1b[2J\u202e\nb '\"$HOME\\`!*\x85"
NO_TEXT = os.fsdecode(b"a\xff\xfeb")
OBEYED = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


ODD = [HOSTILE, NO_TEXT, "plain.jsonl", "", "a b", "it's", "-x", "--out", "\n", "\t"]
ODD += ["\x1b", "a\u202eb", "\\", "\\'", "$(id)", "!!", "~", "é", "名\u3000前", "\x9b"]
ODD += ["a\u200bb", "a\xadb", "a\x01f", "a\x1b0", "\U000e0041"]


def pasted(line):
    """The words of a line as bash hands them to a command."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True
    )
    return list(map(os.fsdecode, done.stdout.split(b"\0")[:-1]))


@pytest.mark.parametrize("name", ODD)
def test_a_line_to_copy_gives_bash_the_name_itself(name):
    line = shell_line([name])
    assert line.isprintable()
    assert pasted(f"{line} end") == [name, "end"]


def test_a_name_is_shown_on_one_line_of_visible_characters():
    assert printable(HOSTILE) == r"-a\x1b[2J\u202e\nb '" + '"$HOME\\`!*\\x85'
    assert printable(Path(NO_TEXT)) == r"a\udcff\udcfeb"
    assert printable("Größe 名前.jsonl") == "Größe 名前.jsonl"
    text = json_text({HOSTILE: [NO_TEXT]})
    assert not OBEYED.search(text) and json.loads(text) == {HOSTILE: [NO_TEXT]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a model of no skill."""
    folder = tmp_path_factory.mktemp("models") / "plain"
    save_checkpoint(fresh_decoder(), fast_tokenizer(), folder)
    return folder


@pytest.fixture(params=[HOSTILE, NO_TEXT], ids=["hostile", "no_text"])
def typed(request, model, tmp_path, monkeypatch, capfd):
    """Runs a command in a folder of files of one name; returns what it printed."""
    monkeypatch.chdir(tmp_path)
    name = f"./{request.param}"
    rng = random.Random(0)
    rows = [" ".join(f"w{rng.randrange(300)}" for _ in range(6)) for _ in range(24)]
    fields = [{"question": r, "input": r, "label": i % 2} for i, r in enumerate(rows)]
    write_lines(Path(f"{name}.jsonl"), fields)
    Path(f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    items = "".join(f"i{i},{i % 2},{i // 2 % 2}\n" for i in range(40))
    for ending in ("a", "b"):
        Path(f"{name}-{ending}.csv").write_text(f"item,M,B\n{items}")
    matrix = np.random.default_rng(0).normal(size=(5, 20))
    np.savetxt(f"{name}-m.csv", matrix, "%f", ",")
    # Libraries that open a model's folder take names that are text alone.
    if is_text := request.param != NO_TEXT:
        shutil.copytree(model, f"{name}-model")

    def run(line, code=0):
        words = line.replace("MODEL", "NAME-model" if is_text else str(model)).split()
        found = main([word.replace("NAME", name) for word in words])
        out, err = capfd.readouterr()
        assert found == code, err
        assert not OBEYED.search(out + err)
        if code:
            assert err.count("\n") <= 2 and err.startswith("jaxcontam: error: ")
        return out, err

    return run


def written_and_not_obeyed():
    """Files that a person opens of a report, none of which moves a terminal."""
    kinds = (".json", ".jsonl", ".html", ".csv")
    found = [path for path in Path().glob("*-out/*") if path.suffix in kinds]
    for path in found:
        assert not OBEYED.search(path.read_text(encoding="utf-8")), path
    return found


def test_an_audit_and_all_that_follows_it(typed):
    flags = "--text question --tests direction --order anyway --out NAME-out"
    typed(f"audit MODEL NAME.jsonl {flags}")
    (folder,) = Path().glob("*-out")
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    # What is to be run again names the very files.
    assert Path(document["command"][2]).is_file()
    name, word = folder.name[:-4], document["model"]["name"]
    assert document["results"][0]["benchmark"] == printable(name)
    for line in (
        "verify NAME-out",
        "report NAME-out",
        "plan --pilot NAME-out --effect 1",
    ):
        typed(line)
    if name != NO_TEXT:
        # A harness calls the model what its folder is called.
        word = f"{name}-model"
    with Path("board.csv").open("w", newline="") as file:
        file.write("model,benchmark,score\n")
        csv.writer(file).writerow([word, printable(name), 1])
    typed("annotate board.csv --audit NAME-out")
    annotated = Path("board.annotated.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(annotated.splitlines())
    assert row["contamination_report"].lstrip("'").startswith(printable(folder))
    added = [cell for column, cell in row.items() if "contamination" in column]
    assert added and all(cell.isprintable() for cell in added)
    assert written_and_not_obeyed()


def test_a_field_is_named_on_one_line_and_in_flags_to_copy(typed, request):
    (path,) = Path().glob("*.jsonl")
    field = request.node.callspec.params["typed"]
    rng = random.Random(0)
    texts = (" ".join(rng.choices("abcdefghij", k=9)) for _ in range(120))
    rows = [{"question": text, field: "abc"[i // 40]} for i, text in enumerate(texts)]
    write_lines(path, rows)
    out, err = typed("audit MODEL NAME.jsonl --text question --tests adjacency")
    assert f"  neighbours of equal {printable(field)}\n" in out + err
    (flags,) = re.findall(r"-> (--.*)\n", out + err)
    assert pasted(flags) == ["--group-field", field]


def test_a_release_and_its_proof(typed):
    out, _ = typed("release NAME.jsonl --seed-file NAME.seed.json")
    words = pasted(out.partition("Test a model with: ")[2].splitlines()[0])
    assert Path(words[3]).is_file() and Path(words[5]).is_file()
    assert not any(word.startswith("-a") for word in words)
    typed("release NAME-released.jsonl --seed-file NAME.seed.json --check")
    flags = "--order NAME.seed.json --text question --tests direction"
    typed(f"audit MODEL NAME-released.jsonl {flags} --out NAME-out")
    typed("verify NAME-out")
    assert written_and_not_obeyed()


FIELD = "--text question"
FIELDS = f"{FIELD} --corpus-field question"
RUNS = (
    "canary MODEL --secret NAME.s.txt --held-out NAME.h.txt",
    f"membership MODEL NAME.jsonl {FIELD}",
    "prove NAME-m.csv",
    "replicate MODEL NAME.txt --task plain --sample 4 --new-tokens 4",
    "inflation M NAME-a.csv --against NAME-b.csv --scored",
    f"overlap corpus NAME.jsonl {FIELDS}",
    f"overlap NAME.jsonl NAME.jsonl {FIELDS}",
)


@pytest.mark.parametrize("line", RUNS)
def test_no_command_shows_what_a_terminal_obeys(typed, line):
    Path("corpus").mkdir()
    (path,) = Path().glob("*.jsonl")
    shutil.copy(path, Path("corpus", path))
    typed("canary --make 3 --n-held-out 30 --secret NAME.s.txt --held-out NAME.h.txt")
    typed("prove NAME-m.csv")
    typed(f"{line} --out NAME-out")
    if not line.startswith("overlap"):
        typed("verify NAME-out")
        typed("report NAME-out")
    assert written_and_not_obeyed()


def test_missing_files_are_one_line(typed):
    for line in (
        "audit MODEL NAME.gone",
        "verify NAME-gone",
        "overlap NAME-gone NAME.jsonl",
        "prove NAME.gone.npy",
        "release NAME.gone --seed-file NAME.seed",
        "replicate --recorded NAME.gone.csv",
        "plan --pilot NAME-gone",
    ):
        typed(line, code=2)
