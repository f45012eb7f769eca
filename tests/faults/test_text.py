"""Texts and flags in odd forms: Windows line ends, odd Unicode, none at all."""

import json
import shutil

import pytest

from jaxcontam.cli.main import main
from jaxcontam.members.known_texts import load_labelled
from jaxcontam.proof.command import read_matrix
from jaxcontam.replication.instances import load_prompts
from jaxcontam.replication.recorded import read_recorded
from tests.faults.fuzzed import RECORDED, jsonl, table
from train.plan import read_plan

pytestmark = pytest.mark.unoptimised

ODD = [
    "\u2028 and \u2029 are no line ends, \x85 and \x0b neither",
    "combining e\u0301, wide \uff21, joined \U0001f469\u200d\U0001f680",
    "right to left \u202eabc\u202c, zero \ufeff width, private \ue000",
    "unassigned \U000e0fff, last \U0010ffff, replaced \ufffd",
    "\u0130\u0131\u1e9e\ufb01 change their length in lower case",
]


def numbers(path):
    return read_matrix(path).tolist()


def labelled(path):
    found = load_labelled(path, text_field="question", label_field="label")
    return found.texts, found.labels


def guided(path):
    return load_prompts("summary", path).guided


def pieces(path):
    return [(i.first_piece, i.second_piece) for i in read_recorded(path).instances]


def planned(path):
    (path.parent / "quiz.txt").write_text("a\nb\nc\n")
    return [(one.name, one.copies) for one in read_plan(path)]


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("m.csv", b"1,2\n3,4\n", numbers),
        ("t.jsonl", jsonl([{"question": "a", "label": 1}] * 2), labelled),
        ("r.csv", table([RECORDED] * 2), pieces),
        ("p.toml", b'[summary]\nguided = "{input} of"\ngeneral = "{input}"\n', guided),
        ("p.toml", b'[[sets]]\nfile = "quiz.txt"\ncopies = 2\n', planned),
    ],
)
def test_windows_line_ends_change_nothing(tmp_path, name, content, read):
    path = tmp_path / name
    content = content.replace(b"\r\n", b"\n")
    path.write_bytes(content)
    plain = read(path)
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert read(path) == plain


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
    words = ["score", str(model), str(path), "--text-field", "text", "--out", str(out)]
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
