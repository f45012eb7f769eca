"""Windows line ends and odd Unicode: the same examples, or one clear line."""

import json

import pytest

from jaxcontam.cli.main import main
from jaxcontam.members.known_texts import load_labelled
from jaxcontam.proof.command import read_matrix
from jaxcontam.replication.instances import load_prompts
from jaxcontam.replication.recorded import read_recorded
from jaxcontam.terminal import visible
from tests.faults.folders import contents, said
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
        (
            "p.toml",
            b'[summary]\nguided = "{input} {dataset_name}"\ngeneral = "{input}"\n',
            lambda path: load_prompts("summary", path).guided,
        ),
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
    path = tmp_path / "odd \u202e\U0001f600.csv"
    rows = [{**RECORDED, "second_piece": text} for text in ODD]
    path.write_bytes(table(rows))
    out = tmp_path / "out"
    assert main(["replicate", "--recorded", str(path), "--out", str(out)]) == 0
    assert main(["verify", str(out)]) == 0
    assert "\u202e" not in capsys.readouterr().out
    lines = (out / "texts.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    found = [json.loads(line)["second_piece"] for line in lines]
    # Pieces stand without the blanks around them.
    assert found == [text.strip() for text in ODD]


@pytest.mark.parametrize(
    "content", [b"\xff\xfea\x00", b"\xed\xa0\x80\n", b"a\x80\n", b"caf\xe9\n"]
)
def test_text_that_is_no_utf_8_is_one_line(tmp_path, capsys, content):
    for suffix in (".jsonl", ".json", ".csv", ".tsv", ".txt"):
        (tmp_path / f"b{suffix}").write_bytes(content)
        words = ["audit", "m", tmp_path / f"b{suffix}", "--out", tmp_path / "o"]
        assert visible("UTF-8") in said(words, capsys)
    (tmp_path / "m.csv").write_bytes(content)
    said(["prove", tmp_path / "m.csv", "--out", tmp_path / "o"], capsys)
    said(["replicate", "--recorded", tmp_path / "m.csv"], capsys)
    assert "o" not in contents(tmp_path)
