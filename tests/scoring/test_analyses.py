"""`jaxcontam.membership` and `jaxcontam.replicate` against their commands."""

import dataclasses
import html
import json

import pytest

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.prompted_model import PromptedModel, served_info
from tests.support.completers import Scripted
from tests.support.membership_model import MEMBERS, OTHERS


def test_membership_of_strings_is_that_of_files(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = jaxcontam.membership(
        model, members=MEMBERS, nonmembers=OTHERS, scores=("loss", "min_k"), fpr=(0.1,)
    )
    assert found.auc["min_k"] > 0.9
    assert found.verdict == "may rank higher"
    assert [row.name for row in found.blind]
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert found.save(tmp_path / "saved").is_file()
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n")
    words = "--members seen.txt --scores loss,min_k --nonmembers unseen.txt --fpr 0.1"
    assert main(["membership", model, *words.split(), "--out", "asked"]) == 0
    saved, asked = (
        json.loads((tmp_path / name / "report.json").read_text())
        for name in ("saved", "asked")
    )
    # Each is named after its source.
    for row in (*saved["results"], *asked["results"]):
        del row["benchmark"]
    assert saved["results"] == asked["results"]
    assert main(["verify", str(tmp_path / "saved")]) == 0


def test_a_notebook_shows_auc_and_verdict_of_a_ranking(model):
    found = jaxcontam.membership(
        model, members=MEMBERS, nonmembers=OTHERS, scores=("loss", "min_k")
    )
    lines = repr(found).splitlines()
    assert found.verdict in lines[0] and "min_k" in repr(found)
    # They fit a terminal.
    assert len(lines) <= 4 and max(map(len, lines)) <= 80
    shown = html.unescape(found._repr_html_())
    assert shown.startswith('<iframe srcdoc="<!doctype html>')
    assert all(f">{auc:.2f} (" in shown for auc in found.auc.values())
    (axes,) = found.plot().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:2] == list(found.auc) and len(names) == 2 + len(found.blind)
    drawn = [bar.lines[0].get_xdata()[0] for bar in axes.containers[:2]]
    assert drawn == list(found.auc.values())
    with pytest.raises(ValueError, match="no AUC"):
        jaxcontam.membership(model, MEMBERS).plot()


def test_what_cannot_be_used_is_refused_from_python_too(tmp_path):
    with pytest.raises(InputError, match="must be a path or a text, got list"):
        jaxcontam.replicate("m", MEMBERS)
    path = tmp_path / "seen.txt"
    path.write_text("\n".join(MEMBERS) + "\n")
    with pytest.raises(InputError, match="needs the weights"):
        jaxcontam.replicate(lambda pairs: [0.0], path, task="plain")


def test_replicate_asks_a_reference_from_python_too(tmp_path):
    seen, new = tmp_path / "seen.txt", tmp_path / "new.txt"
    # The reference has to copy next to nothing of 32 that the model copies.
    known = [f"{text} {i}" for i in range(2) for text in MEMBERS]
    seen.write_text("\n".join(known))
    new.write_text("\n".join(OTHERS))

    def scripted(name, texts):
        def answer(prompt, *_):
            return next((t[len(prompt) :] for t in texts if t.startswith(prompt)), "no")

        info = dataclasses.replace(served_info(ApiModel("u", name)), fingerprint=name)
        return PromptedModel(name=name, completer=Scripted(answer), info=info)

    knows, older = scripted("knows", known), scripted("older", ())
    found = jaxcontam.replicate(
        knows, seen, reference=older, control=new, task="plain", seed=1
    )
    assert (found.verdict, found.report.reference) == ("contaminated", older.info)
    assert [len(call["prompts"]) for call in older.completer.calls] == [48, 24]
    with pytest.raises(InputError, match="the reference is the model itself"):
        jaxcontam.replicate(knows, seen, reference=knows, control=new, task="plain")


def test_replicate_asks_a_model_and_writes_nothing(
    model, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "seen.txt"
    path.write_text("\n".join(MEMBERS) + "\n")
    monkeypatch.chdir(tmp_path)
    told = []
    how = {"task": "plain", "sample": 8, "seed": 1}
    found = jaxcontam.replicate(model, path, **how, progress=lambda *n: told.append(n))
    assert repr(found) == "<ReplicationAnalysis of seen: suspected>"
    assert told[-1] == (8, 8)
    (judge,) = (row for row in found.results if row.primary)
    (axes,) = found.plot().axes
    assert axes.lines[0].get_xdata()[0] == judge.rate
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == [path]
    assert found.save(tmp_path / "saved").is_file()
    assert main(["verify", str(tmp_path / "saved")]) == 0
