"""Bad input on the command line: one line, a hint, exit 2, nothing half-written."""

import json
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return path

    return write


@pytest.fixture
def model(pulse, tmp_path):
    """A copy of the small model, to be spoilt."""
    return shutil.copytree(pulse / "model", tmp_path / "model")


@pytest.mark.parametrize("bos", [True, False])
def test_score_gives_an_empty_text_empty_lists(model, file, bos, tmp_path, capsys):
    if not bos:
        for name in ("config", "tokenizer_config"):
            config = model / f"{name}.json"
            fields = json.loads(config.read_text())
            kept = {k: v for k, v in fields.items() if k[:4] not in ("bos_", "eos_")}
            config.write_text(json.dumps(kept))
    rows = [{"text": text} for text in ("", "a", "line one", "")]
    lines = [json.dumps(row) + "\n" for row in rows]
    path = file("x.jsonl", "".join([*lines[:2], "\n", *lines[2:]]))
    out = tmp_path / "scores.jsonl"
    words = ["score", str(model), str(path), "--text-field", "text", "--out", str(out)]
    assert main(words) == 0
    told = [f"{out}: 4 texts", "x: 1 blank line left out"]
    assert capsys.readouterr().out.splitlines() == told
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    assert (found[0]["prefix_id"] is None) == (not bos)
    for row in found:
        for name in ("logprobs", "means", "variances"):
            assert len(row[name]) == len(row["token_ids"])
    assert found[0]["token_ids"] == found[3]["token_ids"] == []
    assert None not in found[2]["logprobs"][1:]


def test_separator_typed_with_a_backslash_is_a_line_feed(pulse, file, tmp_path):
    numbers = np.random.default_rng(0).permutation(30)
    path = file("x.txt", "".join(f"line {i}\n" for i in numbers))
    documents = []
    for out, separator in ((tmp_path / "a", "\n"), (tmp_path / "b", "\\n")):
        words = ["audit", str(pulse / "model"), str(path), "--separator", separator]
        assert main([*words, "--out", str(out)]) == 0
        documents.append(json.loads((out / "report.json").read_text()))
    assert documents[0]["results"] == documents[1]["results"]
    # A folder that is called model has the name of its parent.
    assert documents[0]["model"]["name"] == pulse.name


def test_report_names_the_flags_that_make_it_again(file):
    path = file("m.csv", "1,2\n3,4\n")
    out = path.parent / "out"
    flags = ["--seed", "5", "--out", str(out), "--boundaries", "2.0"]
    assert main(["prove", str(path), *flags]) == 0
    command = json.loads((out / "report.json").read_text())["command"]
    assert command == ["prove", str(path), *flags]
