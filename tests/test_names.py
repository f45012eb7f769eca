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
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.terminal import json_text, printable, shell_line

pytestmark = [
    pytest.mark.unoptimised,
    pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux"),
]

# Begins as a flag does, moves the cursor, turns the reading direction, ends a line,
# and holds what a shell reads.
HOSTILE = "-a\x1b[2J\u202e\nb '\"$HOME\\`!*\x85"
NO_TEXT = os.fsdecode(b"a\xff\xfeb")
OBEYED = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


@pytest.mark.parametrize(
    "name",
    [
        *(
            HOSTILE,
            NO_TEXT,
            "plain.jsonl",
            "",
            "a b",
            "it's",
            "-x",
            "--out",
            "\n",
            "\t",
        ),
        *(
            "\x1b",
            "a\u202eb",
            "\\",
            "\\'",
            "$(id)",
            "!!",
            "~",
            "é",
            "名\u3000前",
            "\x9b",
        ),
        *("a\u200bb", "a\xadb", "a\x01f", "a\x1b0", "\U000e0041"),
    ],
)
def test_a_line_to_copy_gives_bash_the_name_itself(name):
    line = shell_line([name])
    assert line.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line} end"], capture_output=True, check=True
    )
    assert done.stdout.split(b"\0") == [os.fsencode(name), b"end", b""]


def test_a_name_is_shown_on_one_line_of_visible_characters():
    assert printable(HOSTILE) == r"-a\x1b[2J\u202e\nb '" + '"$HOME\\`!*\\x85'
    assert printable(Path(NO_TEXT)) == r"a\udcff\udcfeb"
    assert printable("Größe 名前.jsonl") == "Größe 名前.jsonl"
    text = json_text({HOSTILE: [NO_TEXT]})
    assert not OBEYED.search(text) and json.loads(text) == {HOSTILE: [NO_TEXT]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of no skill; one id a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    shape = llama_shape(
        vocab_size=256, d_model=16, n_layers=1, n_heads=2, d_ff=32, context=128
    )
    folder = tmp_path_factory.mktemp("models") / "plain"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    save_checkpoint(Decoder(shape, rngs=nnx.Rngs(0)), fast, folder)
    return folder


@pytest.fixture(params=[HOSTILE, NO_TEXT], ids=["hostile", "no_text"])
def typed(request, model, tmp_path, monkeypatch, capfd):
    """Runs a command in a folder of files of one name; returns what it printed."""
    monkeypatch.chdir(tmp_path)
    name = f"./{request.param}"
    rng = random.Random(0)
    rows = [" ".join(f"w{rng.randrange(300)}" for _ in range(6)) for _ in range(24)]
    fields = [
        {"question": row, "input": row, "label": i % 2} for i, row in enumerate(rows)
    ]
    Path(f"{name}.jsonl").write_text("".join(json.dumps(f) + "\n" for f in fields))
    Path(f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    items = "".join(f"i{i},{i % 2},{i // 2 % 2}\n" for i in range(40))
    for ending in ("published", "other"):
        Path(f"{name}-{ending}.csv").write_text(f"item,M,B\n{items}")
    np.savetxt(
        f"{name}-m.csv", np.random.default_rng(0).normal(size=(5, 20)), "%f", ","
    )
    # Libraries that open a model's folder take names that are text alone.
    folder = f"{name}-model" if request.param != NO_TEXT else str(model)
    if folder != str(model):
        shutil.copytree(model, folder)

    def run(*words, code=0):
        words = [word.replace("MODEL", folder).replace("NAME", name) for word in words]
        found = main(words)
        out, err = capfd.readouterr()
        assert found == code, err
        assert not OBEYED.search(out + err)
        if code:
            assert err.count("\n") <= 2 and err.startswith("jaxcontam: error: ")
        return out, err

    yield run
    for path in Path().rglob("*"):
        if path.name in ("report.json", "report.html", "results.csv", "result.json"):
            assert not OBEYED.search(path.read_text(encoding="utf-8")), path


def pasted(line):
    """The words of a line as bash hands them to a command."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True
    )
    return list(map(os.fsdecode, done.stdout.split(b"\0")[:-1]))


def test_an_audit_and_all_that_follows_it(typed):
    flags = ("--text-field", "question", "--tests", "direction", "--score-anyway")
    typed("audit", "MODEL", "NAME.jsonl", *flags, "--out", "NAME-out")
    (folder,) = Path().glob("*-out")
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    # What is to be run again names the very files.
    assert Path(document["command"][2]).is_file()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert document["results"][0]["benchmark"] == printable(folder.name[:-4])
    assert "contamination report" in page.lower()
    typed("verify", "NAME-out")
    typed("report", "NAME-out")
    typed("plan", "--pilot", "NAME-out")
    name, word = folder.name[:-4], document["model"]["name"]
    if name != NO_TEXT:
        # A harness calls the model what its folder is called.
        word = f"{name}-model"
    with Path("board.csv").open("w", newline="") as file:
        file.write("model,benchmark,score\n")
        csv.writer(file).writerow([word, printable(name), 1])
    typed("annotate", "board.csv", "--audit", "NAME-out")
    annotated = Path("board.annotated.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(annotated.splitlines())
    assert row["contamination_report"].lstrip("'").startswith(printable(folder))
    added = [cell for column, cell in row.items() if "contamination" in column]
    assert added and all(cell.isprintable() for cell in added)


def test_a_field_is_named_on_one_line_and_in_flags_to_copy(typed, request):
    (path,) = Path().glob("*.jsonl")
    field = request.node.callspec.params["typed"]
    rng = random.Random(0)
    texts = (" ".join(rng.choices("abcdefghij", k=9)) for _ in range(120))
    rows = [{"question": text, field: "abc"[i // 40]} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--text-field", "question", "--tests", "adjacency")
    out, err = typed("audit", "MODEL", "NAME.jsonl", *words)
    assert f"  neighbours of equal {printable(field)}\n" in out + err
    (flags,) = re.findall(r"remedy: (?s:.*?)\((--.*)\)\n", out + err)
    assert pasted(flags) == ["--group-field", field]


def test_a_release_and_its_proof(typed):
    seed = ("--seed-file", "NAME.seed.json")
    out, _ = typed("release", "NAME.jsonl", *seed)
    words = pasted(out.partition("Test a model with: ")[2].splitlines()[0])
    assert Path(words[3]).is_file() and Path(words[5]).is_file()
    assert not any(word.startswith("-a") for word in words)
    typed("release", "NAME-released.jsonl", *seed, "--check")
    field = ("--text-field", "question", "--tests", "direction")
    typed("audit", "MODEL", "NAME-released.jsonl", *seed, *field, "--out", "NAME-out")
    typed("verify", "NAME-out")


def test_canaries(typed):
    texts = ("--secret", "NAME.s.txt", "--held-out", "NAME.h.txt")
    typed("canary", "--make", "3", "--n-held-out", "30", *texts)
    typed("canary", "MODEL", *texts, "--out", "NAME-out")
    typed("verify", "NAME-out")


def test_texts_and_matrices(typed):
    field = ("--text-field", "question")
    typed("membership", "MODEL", "NAME.jsonl", *field, "--out", "NAME-texts")
    typed("verify", "NAME-texts")
    typed("report", "NAME-texts")
    typed("prove", "NAME-m.csv")
    typed("prove", "NAME-m.csv", "--out", "NAME-proof")
    typed("verify", "NAME-proof")


def test_searches_and_answers(typed):
    fields = ("--text-field", "question", "--benchmark-field", "question")
    Path("corpus").mkdir()
    (path,) = Path().glob("*.jsonl")
    shutil.copy(path, Path("corpus", path))
    typed("overlap", "corpus", "NAME.jsonl", *fields, "--out", "NAME-found")
    typed("overlap", "NAME.jsonl", "NAME.jsonl", *fields, "--out", "NAME-alone")
    ask = ("--task", "plain", "--k", "4", "--new-tokens", "4", "--out", "NAME-asked")
    typed("replicate", "MODEL", "NAME.txt", *ask)
    typed("verify", "NAME-asked")
    scores = ("--scores", "--reference", "B", "--out", "NAME-scores")
    files = ("NAME-published.csv", "--against", "NAME-other.csv")
    typed("inflation", "M", *files, *scores)
    typed("verify", "NAME-scores")


def test_missing_files_are_one_line(typed):
    for words in (
        ("audit", "MODEL", "NAME.gone"),
        ("membership", "NAME-gone", "NAME.txt"),
        ("verify", "NAME-gone"),
        ("annotate", "NAME.gone.csv", "--audit", "NAME-gone"),
        ("overlap", "NAME-gone", "NAME.jsonl"),
        ("prove", "NAME.gone.npy"),
        ("release", "NAME.gone", "--seed-file", "NAME.seed"),
        ("membership", "MODEL", "NAME.gone"),
        ("replicate", "--recorded", "NAME.gone.csv"),
        ("canary", "MODEL", "--secret", "NAME.gone", "--held-out", "NAME.gone"),
        ("inflation", "M", "NAME.gone", "--against", "NAME.gone", "--scores"),
        ("plan", "--pilot", "NAME-gone"),
    ):
        typed(*words, code=2)
