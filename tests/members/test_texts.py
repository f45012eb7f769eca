"""Texts of a membership run: fields, labels and lengths that a reader must know of."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.members.command import Membership
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.known_texts import read_texts
from jaxcontam.reports.archive import read_text_rows
from tests.support.membership_model import MEMBERS, OTHERS


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", ["set.jsonl", "set.csv", "set.parquet"])
def test_rows_of_no_known_format_are_read_as_an_audit_reads_them(name, tmp_path):
    rows = [{"text": f"{i} + 1?", "answer": str(i + 1)} for i in range(12)]
    path = tmp_path / name
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        lines = [f"{row['text']},{row['answer']}\n" for row in rows]
        path.write_text("text,answer\n\n" + "".join(lines))
    else:
        write_rows(path, rows)
    run = read_texts(MembershipDesign(texts=path))
    assert run.texts == load_benchmark(path).texts
    blank, *_ = run.warnings
    assert (blank == "set: 1 blank line left out") == (path.suffix == ".csv")
    told = "each row is a text as it stands, as in audit (it has: text, answer)"
    assert told in run.warnings[-1]
    # Beside rows of other fields, they would tell the sides apart.
    other = write_rows(tmp_path / "other.jsonl", [{"text": t} for t in OTHERS])
    both = r"the whole row \(text, answer\) in set and the whole row \(text\) in other"
    with pytest.raises(InputError, match=both):
        read_texts(MembershipDesign(texts=path, nonmembers=other))


def test_no_label_stands_in_its_own_text(tmp_path):
    rows = [{"text": t, "seen": i % 2} for i, t in enumerate(OTHERS)]
    path = write_rows(tmp_path / "set.jsonl", rows)
    run = read_texts(MembershipDesign(texts=path, label_field="seen"))
    assert run.texts == tuple(OTHERS)
    with pytest.raises(InputError, match=r"which field is the text\?"):
        other = write_rows(tmp_path / "q.jsonl", [{"q": "a", "seen": 1}])
        read_texts(MembershipDesign(texts=other, label_field="seen"))


def test_a_template_makes_the_text_of_records(model, tmp_path):
    texts = [(text, 1) for text in MEMBERS] + [(text, 0) for text in OTHERS]
    plain = [{"input": text, "label": label} for text, label in texts]
    parts = [{"q": text[:9], "a": text[9:], "known": label} for text, label in texts]
    documents = [
        Membership(
            model=model,
            texts=write_rows(tmp_path / f"{name}.jsonl", rows),
            scores=("loss",),
            fpr=(0.1,),
            out=tmp_path / name,
            **flags,
        ).run()
        for name, rows, flags in (
            ("plain", plain, {}),
            ("parts", parts, {"template": "{q}{a}", "label_field": "known"}),
        )
    ]
    digests = [document["results"][0]["fingerprint"] for document in documents]
    assert digests[0] == digests[1]
    kept = [
        [(row["text"], row["scores"]) for row in read_text_rows(tmp_path / name)]
        for name in ("plain", "parts")
    ]
    assert kept[0] == kept[1]


def test_a_template_is_filled_in_both_of_two_files(model, tmp_path, capsys):
    sides = [
        write_rows(tmp_path / f"{name}.jsonl", [{"q": t, "a": "."} for t in texts])
        for name, texts in (("seen", MEMBERS), ("unseen", OTHERS))
    ]
    out = tmp_path / "out"
    flags = ("--template", "{q}{a}", "--scores", "loss", "--out", str(out))
    words = ("--members", sides[0], "--nonmembers", sides[1], *flags)
    assert main(["membership", model, *words]) == 0
    texts = [row["text"] for row in read_text_rows(out)]
    assert texts == [f"{text}." for text in [*MEMBERS, *OTHERS]]


def test_short_texts_and_a_label_that_is_not_read_are_told(model, tmp_path):
    rows = [{"text": text, "label": 1} for text in [*MEMBERS, "a b"]]
    document = Membership(
        model=model,
        texts=write_rows(tmp_path / "t.jsonl", rows),
        text_field="text",
        length=8,
        scores=("loss",),
        out=tmp_path / "out",
    ).run()
    short, label = document["study"]["warnings"]
    assert short.startswith("t: 1 of 25 texts have fewer than 8 words")
    assert "'label' of t is not read: --label-field label" in label
    page = (tmp_path / "out" / "report.html").read_text()
    assert "fewer than 8 words" in page


def test_a_text_without_a_label_is_told_and_the_others_are_compared(model, tmp_path):
    rows = [{"input": t, "label": 1} for t in MEMBERS]
    rows += [{"input": t, "label": 0} for t in OTHERS]
    del rows[3]["label"]
    document = Membership(
        model=model,
        texts=write_rows(tmp_path / "t.jsonl", rows),
        scores=("loss",),
        fpr=(0.1,),
        out=tmp_path / "out",
    ).run()
    (one,) = document["results"]
    assert (one["n_members"], one["n_nonmembers"]) == (23, 24)
    assert document["study"]["warnings"][0].startswith("t: 1 of 48 texts have no label")
