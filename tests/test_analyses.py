"""`jaxcontam.membership` and `jaxcontam.replicate` against their commands."""

import json

import pytest

import jaxcontam
from jaxcontam.cli import main
from jaxcontam.errors import InputError
from tests.membership_model import MEMBERS, OTHERS, save_overfitted


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a model that knows MEMBERS by heart."""
    out = tmp_path_factory.mktemp("model")
    save_overfitted(out)
    return out


def test_membership_of_strings_is_that_of_files(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = jaxcontam.membership(
        model, members=MEMBERS, nonmembers=OTHERS, scores=("loss", "min_k"), fprs=(0.1,)
    )
    assert found.auc["min_k"] > 0.9
    assert found.verdict == "may rank higher"
    assert [row.name for row in found.blind]
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert found.save(tmp_path / "saved").is_file()
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n")
    words = [
        "membership",
        str(model),
        "--members",
        "seen.txt",
        "--scores",
        "loss,min_k",
    ]
    words += ["--nonmembers", "unseen.txt", "--fpr", "0.1", "--out", "asked"]
    assert main(words) == 0
    saved, asked = (
        json.loads((tmp_path / name / "report.json").read_text())
        for name in ("saved", "asked")
    )
    # Each is named after its source.
    for row in (*saved["results"], *asked["results"]):
        del row["benchmark"]
    assert saved["results"] == asked["results"]
    assert main(["verify", str(tmp_path / "saved")]) == 0


def test_texts_of_both_kinds_are_refused_from_python_too():
    with pytest.raises(InputError, match="TEXTS and --members are both given"):
        jaxcontam.membership("m", ["a"], members=["b"], nonmembers=["c"])


def test_replicate_asks_a_model_and_writes_nothing(
    model, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "seen.txt"
    path.write_text("\n".join(MEMBERS) + "\n")
    monkeypatch.chdir(tmp_path)
    told = []
    found = jaxcontam.replicate(
        model,
        path,
        task="plain",
        k=8,
        seed=1,
        progress=lambda *counts: told.append(counts),
    )
    assert found.verdict == "suspected"
    assert told[-1] == (8, 8)
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == [path]
    assert found.save(tmp_path / "saved").is_file()
    assert main(["verify", str(tmp_path / "saved")]) == 0
