"""Texts of a membership run: fields, labels and lengths that a reader must know of."""

import json

import pytest

from jaxcontam.cli import main
from jaxcontam.commands.membership import Membership
from tests.membership_model import MEMBERS, OTHERS, save_overfitted


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of the overfitted model."""
    out = tmp_path_factory.mktemp("model")
    save_overfitted(out)
    return str(out)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_two_files_whose_texts_are_in_other_fields_are_refused(tmp_path, capsys):
    seen = write_rows(tmp_path / "seen.jsonl", [{"input": t} for t in MEMBERS])
    unseen = write_rows(tmp_path / "unseen.jsonl", [{"text": t} for t in OTHERS])
    for words in (["--members", seen], [seen]):
        assert main(["membership", "m", *words, "--nonmembers", unseen]) == 2
        assert "'input' in seen and 'text' in unseen" in capsys.readouterr().err


def test_short_texts_and_a_label_that_is_not_read_are_told(model, tmp_path):
    rows = [{"text": text, "label": 1} for text in [*MEMBERS, "a b"]]
    document = Membership(
        model=model,
        texts=write_rows(tmp_path / "t.jsonl", rows),
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
