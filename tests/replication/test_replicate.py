"""`jaxcontam replicate`: local models, recorded completions, files."""

import codecs
import csv
import json
import shutil

import pytest

from jaxcontam.cli.main import main
from jaxcontam.replication.judging import ARMS
from jaxcontam.reports.archive import ASKED, read_text_rows
from jaxcontam.scoring.prompted_model import open_prompted
from tests.support.membership_model import MEMBERS, OTHERS, drawn_texts, save_overfitted

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    return folder


def report_of(out):
    return json.loads((out / "report.json").read_text())


def results(out):
    return {row["method"]: row for row in report_of(out)["results"]}


def test_lines_known_by_heart_are_copied_and_others_are_not(model, files, tmp_path):
    common = ["--task", "plain", "--k", "8", "--seed", "1"]
    for name, verdict in (("seen", "suspected"), ("unseen", "no evidence")):
        out = tmp_path / name
        words = ["replicate", model, str(files / f"{name}.txt"), *common]
        assert main([*words, "--out", str(out)]) == 0
        row = results(out)["judge_local"]
        assert row["verdict"] == verdict
        assert row["primary"]
        assert main(["verify", str(out)]) == 0
    copies = results(tmp_path / "seen")["judge_local"]
    assert copies["n_exact"] + copies["n_near"] >= 6


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Folder of a model that knows other texts by heart, and neither file."""
    out = tmp_path_factory.mktemp("reference")
    save_overfitted(out, tuple(drawn_texts(len(MEMBERS), seed=4)))
    return str(out)


def test_a_reference_is_asked_the_same_and_enters_the_verdict(
    model, reference, files, tmp_path, monkeypatch, capsys
):
    words = ["replicate", model, str(files / "seen.txt"), "--task", "plain"]
    words += ["--control", str(files / "unseen.txt"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert results(tmp_path / "out")["judge_local"]["reason"] == "no reference"
    words += ["--reference", reference, "--overwrite"]
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "The reference: 48 completions of prompts" in said
    assert main(words) == 0
    row = results(tmp_path / "out")["judge_local"]
    # 24 texts are too few to show that it copies less than a tenth of them.
    assert (row["verdict"], row["reason"]) == ("suspected", "reference may share it")
    assert row["reference"]["n_copies"] == 0
    arms = [text["arm"] for text in read_text_rows(tmp_path / "out", ASKED)]
    assert [arms.count(name) for name in ARMS] == [24, 24, 24, 24]
    assert report_of(tmp_path / "out")["reference"]["name"] in reference
    assert "reference reference" in (tmp_path / "out" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "out")]) == 0

    def asks(_, prompts, *__, **___):
        assert not prompts
        return iter(())

    # Its answers are kept, too.
    monkeypatch.setattr("jaxcontam.scoring.completions.continuations", asks)
    assert main(words) == 0


def test_a_reference_that_is_the_model_is_refused(model, files, tmp_path, capsys):
    words = ["replicate", model, str(files / "seen.txt"), "--task", "plain"]
    words += ["--control", str(files / "unseen.txt"), "--out", str(tmp_path / "out")]
    shutil.copytree(model, tmp_path / "copy")
    for same in (model, str(tmp_path / "copy")):
        assert main([*words, "--reference", same]) == 2
        assert "the reference is the model itself" in capsys.readouterr().err


@pytest.fixture
def recorded(tmp_path):
    """Completions in the layout that was released: two copies and others."""
    path = tmp_path / "set_test.csv"
    names = "text label first_piece second_piece generated_guided_completion "
    names += "generated_general_completion annotator1_evaluation"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names.split())
        writer.writeheader()
        for i in range(10):
            first, second = f"Piece {i} says that", f"number {i} is {OTHERS[i].lower()}"
            writer.writerow(
                {
                    "text": f"{first} {second}",
                    "label": i,
                    "first_piece": first,
                    "second_piece": second,
                    "generated_guided_completion": second if i < 2 else "no idea",
                    "generated_general_completion": "no idea at all",
                    "annotator1_evaluation": "Yes (exact match)" if i < 2 else "No",
                }
            )
    return path


def test_recorded_completions_are_judged_without_a_model(recorded, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["replicate", "--recorded", str(recorded), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Suspected: 2 of 10 completions are copies" in said
    assert "Contaminated needs a control" in said
    assert "the paper's rule, at least one exact or 2 near-exact ones, is met" in said
    assert "BLEURT was left out" in said
    found = results(out)
    assert found["judge_local"]["n_exact"] == 2
    assert found["judge_local"]["agreement"] == 1.0
    assert found["judge_local"]["agreement_of_always_no"] == 0.8
    assert report_of(out)["model"] is None
    assert main(["verify", str(out)]) == 0


def test_a_sheet_that_people_filled_in_is_read_back(recorded, tmp_path):
    out = tmp_path / "out"
    words = ["replicate", "--recorded", str(recorded), "--out", str(out)]
    assert main(words) == 0
    # Without the mark a spreadsheet takes its texts for those of an older encoding.
    assert (out / "annotate.csv").read_bytes().startswith(codecs.BOM_UTF8)
    with (out / "annotate.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    # Blind: neither the arm nor a judge's label stands in it.
    assert not any("judge" in name or "arm" in name for name in rows[0])
    (column,) = [name for name in rows[0] if "label" in name or "annotator" in name][:1]
    for row in rows:
        row[column] = "no"
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert main([*words, "--annotated", str(filled), "--overwrite"]) == 0
    found = results(out)
    assert found["judge_human"]["n_exact"] == 0
    assert found["judge_local"]["agreement"] == 0.8
    assert main(["verify", str(out)]) == 0


def test_measures_of_two_instructions_refuse_completions_of_one(
    recorded, tmp_path, capsys
):
    rows = list(csv.DictReader(recorded.read_text().splitlines()))
    one = tmp_path / "one.csv"
    with one.open("w", newline="") as file:
        names = [name for name in rows[0] if "general" not in name]
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    words = ["replicate", "--recorded", str(one), "--out", str(tmp_path / "out")]
    assert main([*words, "--bleurt", str(tmp_path)]) == 2
    assert "has completions of one" in capsys.readouterr().err
    assert main(words) == 0
    # Measured all the same, so the closest can stand first.
    assert read_text_rows(tmp_path / "out", ASKED)[0]["rouge_l_guided"] == 1
    assert "exact, ROUGE-L 1.00" in (tmp_path / "out" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_file_in_the_place_of_the_sheet_is_left_alone(recorded, tmp_path, capsys):
    words = ["replicate", "--recorded", str(recorded), "--out", str(tmp_path)]
    for text in ("my notes", "id,reference,candidate,annotator1\nx,a,b,no\n"):
        (tmp_path / "annotate.csv").write_text(text)
        assert main(words) == 0
        assert (tmp_path / "annotate.csv").read_text() == text
        assert "annotate-2.csv" in capsys.readouterr().err
        assert (tmp_path / "annotate-2.csv").exists()


def test_samples_of_a_base_model_end_where_its_completions_do(model, tmp_path):
    lines = [*MEMBERS[:3], "short"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    words = ["replicate", model, str(tmp_path / "lines.txt"), "--task", "plain"]
    words += ["--compare", "cdd", "--cdd-samples", "1", "--k", "2", "--new-tokens", "8"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")
    assert 'stop=["\\n"]' in found["cdd"]["setting"]
    assert any(
        w.startswith("1 of 4 instances are empty or too short")
        for w in found["judge_local"]["warnings"]
    )


def test_instructions_to_a_base_model_are_warned_of(model):
    def notes(**kwargs):
        with open_prompted(model, **kwargs) as one:
            return one.notes()

    assert "has no chat template" in notes()[0]
    assert notes(is_plain=True) == ()
