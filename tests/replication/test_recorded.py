"""Recorded completions with a control, other judges, and the blind sheet."""

import codecs
import csv
import io
import json

import pytest

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.replication.recorded import read_sheet, sheet_text
from jaxcontam.reports.archive import ASKED, read_text_rows
from jaxcontam.scoring.completer import Completion
from tests.support.instances import instance, results, saved

N = 8
INSTANCES = tuple(
    instance(f"first {i}", f"second {i}", label="label", index=i) for i in range(N)
)
GUIDED = tuple(Completion(text=f"written {i}") for i in range(N))


def table(text):
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def save(tmp_path, rows, **dialect):
    return saved(tmp_path / "annotate.csv", rows, **dialect)


def read(path, guided=GUIDED, seed=0):
    return read_sheet(path, INSTANCES, guided, seed=seed)


def filled(labels, guided=GUIDED):
    """Rows of the sheet; a label of an instance, or one for each of two people."""
    rows = table(sheet_text(INSTANCES, guided, seed=0))
    for row in rows:
        said = labels.get(int(row["reference"][-1]), "")
        one, two = (said, "") if isinstance(said, str) else said
        row["label_1"], row["label_2"] = one, two
    return rows


def test_the_sheet_is_blind_in_the_seeds_order():
    one, same, other = (sheet_text(INSTANCES, GUIDED, seed=s) for s in (0, 0, 1))
    assert one == same != other
    rows = table(one)
    assert len(rows) == N
    assert set(rows[0]) == {"id", "reference", "candidate", "label_1", "label_2"}
    assert all(row["label_1"] == row["label_2"] == "" for row in rows)
    references = [row["reference"] for row in rows]
    assert references != sorted(references)


def test_labels_come_back_to_their_completions(tmp_path):
    labels = {3: "Exact", 5: "yes (near-exact match)", 6: "no"}
    # People sort rows, and programs write semicolons and a byte order mark.
    rows = sorted(filled(labels), key=lambda row: row["candidate"])
    sheet = read(save(tmp_path, rows, delimiter=";", encoding="utf-8-sig"))
    assert sheet.labels == ((None, None, None, "exact", None, "near", "no", None),)


def test_two_people_count_where_they_agree_that_it_is_a_copy_or_none(tmp_path):
    labels = {0: ("exact", "exact"), 1: ("near", "no"), 2: ("no", ""), 3: ("", "near")}
    labels |= {4: ("exact", "near"), 5: ("no", "no")}
    people = read(save(tmp_path, filled(labels)))
    assert len(people.labels) == 2
    wanted = ("exact", None, "no", "near", "near", "no", None, None)
    assert people.consensus == wanted
    alike, left_out = people.notes
    # Both judged 0, 1, 4 and 5; chance is (3 * 2 + 1 * 2) / 16.
    assert "75.0% of 4" in alike and "kappa 0.50" in alike
    assert left_out.startswith("1 of 8")


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "'", "a,\r\n;\t"])
def test_no_cell_is_a_formula_and_texts_come_back(tmp_path, sign):
    refused = Completion(text="", refused="filter")
    guided = (Completion(text=f'{sign}1+cmd|" /C calc"!A0'), refused, *GUIDED[2:])
    labels = (("no", None, *("no",) * (N - 2)),)
    rows = filled(dict.fromkeys(range(N), "no"), guided)
    assert len(rows) == N - 1, "what was refused is not on the sheet"
    for cell in (cell for row in rows for cell in row.values()):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert read(save(tmp_path, rows), guided).labels == labels
    # A spreadsheet may take the apostrophe away, and write other line ends.
    for row in rows:
        row["candidate"] = row["candidate"].removeprefix("'").replace("\r\n", "\n")
    assert read(save(tmp_path, rows), guided).labels == labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[2].update(label_1="perhaps"), "row 4: label_1: unknown label"),
        (lambda r: r.append(dict(r[1])), "row 10: id .* occurs twice"),
        (lambda r: r[1].update(candidate="x"), "row 3: texts differ from"),
        (lambda r: [row.update(label_1="") for row in r], "no label is filled in"),
    ],
)
def test_damage_is_named_with_its_row(tmp_path, change, message):
    rows = filled({0: "no"})
    path = save(tmp_path, rows)
    read(path)
    with pytest.raises(InputError, match="unknown id"):
        read(path, seed=1)
    change(rows)
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, rows))


SECOND = "the ferry to {} {} leaves the southern harbour at noon"
IN_OTHER_WORDS = (
    "at noon the ferry will leave for that island, number {}, from the south"
)


def write(path, *, n=10, copies=0, place="island", **columns):
    """Rows of which the first are copies; columns: functions of the row, or None."""
    rows = []
    for i in range(n):
        second = SECOND.format(place, i)
        row = {
            "first_piece": f"It is known of {place} {i} that",
            "second_piece": second,
            "generated_guided_completion": second if i < copies else "no idea",
            "generated_general_completion": "not known to have",
        }
        row |= {name: of and of(i) for name, of in columns.items()}
        rows.append({name: cell for name, cell in row.items() if cell is not None})
    return saved(path, rows)


def run(tmp_path, own, control=None, *more):
    words = ["replicate", "--recorded", own, "--out", tmp_path / "out", *more]
    words += [] if control is None else ["--control", control]
    assert main([*map(str, words)]) in (0, 3)
    # What stands in the report follows from its texts.
    assert main(["verify", str(tmp_path / "out")]) == 0
    return results(tmp_path / "out")


def by_person(number, *labels):
    """A person's labels of the first rows; no copy in the others."""
    labels = dict(enumerate(labels))
    return {f"annotator{number}_evaluation": lambda i: labels.get(i, "No")}


def test_completions_and_a_sheet_that_people_filled_in_are_judged(tmp_path, capsys):
    people = by_person(1, *["Yes (exact match)"] * 3)
    people |= by_person(2, *["Yes (near-exact match)"] * 2)
    one_arm = {"generated_general_completion": None}
    own = write(tmp_path / "own.csv", copies=2, **people, **one_arm)
    found, out = run(tmp_path, own), tmp_path / "out"
    row = found["judge_local"]
    assert (row["n_exact"], row["reason"]) == (2, "no control")
    assert row["agreement"] == 1.0
    assert row["agreement_of_always_no"] == pytest.approx(7 / 9)
    row = found["judge_human"]
    assert (row["n_instances"], row["n_exact"], row["n_near"]) == (9, 0, 2)
    assert row["judge_version"] == "people's labels in the file"
    said = said_by(capsys)
    assert "agree on 90.0% of 10" in said and "kappa 0.74" in said
    # So that the closest can stand first.
    assert read_text_rows(out, ASKED)[0]["rouge_l_guided"] == 1
    assert json.loads((out / "report.json").read_text())["model"] is None
    # Without the mark a spreadsheet takes its texts for those of an older encoding.
    assert (out / "annotate.csv").read_bytes().startswith(codecs.BOM_UTF8)
    with (out / "annotate.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = [row | {"label_1": "no"} for row in csv.DictReader(file)]
    sheet = saved(tmp_path / "filled.csv", rows)
    (out / "report.json").unlink()
    found = run(tmp_path, own, None, "--judge", sheet)
    assert found["judge_human"]["n_exact"] == 0
    assert found["judge_local"]["agreement"] == 0.8


def test_a_file_in_the_place_of_the_sheet_is_left_alone(tmp_path, capsys):
    own, out = write(tmp_path / "own.csv"), tmp_path / "out"
    out.mkdir()
    for text in ("my notes", "id,reference,candidate,annotator1\nx,a,b,no\n"):
        (out / "annotate.csv").write_text(text)
        run(tmp_path, own)
        assert (out / "annotate.csv").read_text() == text
        assert "annotate-2.csv" in capsys.readouterr().err
        assert (out / "annotate-2.csv").exists()


def test_a_recorded_judge_is_compared_with_its_labels_of_the_control(tmp_path):
    ports = {"path": tmp_path / "c.csv", "place": "port"}
    exact, no = (
        {"gpt4_icl_evaluation": lambda i, x=x: x} for x in ("Exact match", "No")
    )
    own = write(tmp_path / "own.csv", copies=10, **exact)
    row = run(tmp_path, own, write(**ports, **no))["judge_llm"]
    assert (row["n_control"], row["control_copies"]) == (10, 0)
    # A control without such labels is one for the local judge alone.
    found = run(tmp_path, own, write(**ports))
    assert found["judge_llm"]["n_control"] == 0
    assert found["judge_local"]["n_control"] == 10


@pytest.mark.parametrize("has_scores", [True, False])
def test_bleurt_is_read_of_both_arms_or_of_neither(tmp_path, has_scores, capsys):
    names = (f"bleurt_score_for_{arm}_completion" for arm in ("guided", "general"))
    scores = dict.fromkeys(names, lambda i: 0.9)
    words = {"generated_guided_completion": IN_OTHER_WORDS.format}
    own = write(tmp_path / "own.csv", **words, **scores)
    more = scores if has_scores else {}
    control = write(tmp_path / "c.csv", place="port", **words, **more)
    row = run(tmp_path, own, control)["judge_local"]
    assert row["judge_version"].endswith("+bleurt-20") == has_scores
    assert row["n_near"] == row["control_copies"] == (10 if has_scores else 0)
    assert ("control has no BLEURT scores" in said_by(capsys)) == (not has_scores)


def test_a_text_counts_once_and_on_no_side_if_it_stands_on_both(tmp_path):
    def places(*numbers):
        firsts = [f"It is of {n}" for n in numbers]
        firsts[1] = firsts[1].upper()
        seconds = [SECOND.format("island", n) for n in numbers].__getitem__
        more = {"second_piece": seconds, "generated_guided_completion": seconds}
        return {"first_piece": firsts.__getitem__, **more}

    # The second row is the first one in capitals; the last stands in the control.
    own = write(tmp_path / "own.csv", n=4, **places(7, 7, 8, 9))
    control = write(tmp_path / "c.csv", n=3, **places(9, 1, 2))
    found = run(tmp_path, own, control)
    row = found["judge_local"]
    assert (row["n_instances"], row["n_exact"], row["n_repeats"]) == (2, 2, 2)
    assert (row["n_control"], row["control_copies"]) == (2, 2)
    # Nor are they evidence that the instruction helps.
    assert found["rouge_l_sign_flip"]["n_instances"] == 2


def beside(tmp_path, *more, at_ports=0, **columns):
    """A run with a reference: the model copies all islands, and both some ports."""

    def copied(n_copies, place):
        return lambda i: SECOND.format(place, i) if i < n_copies else "at noon it left"

    sides = []
    for place, own, theirs in (("island", 40, 0), ("port", at_ports, at_ports)):
        texts = {"generated_guided_completion": copied(own, place)}
        texts["generated_reference_completion"] = copied(theirs, place)
        path = tmp_path / f"{place}.csv"
        sides.append(write(path, n=40, place=place, **texts, **columns))
    return run(tmp_path, *sides, *more)["judge_local"]


def said_by(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_a_recorded_reference_decides_and_is_judged_again(tmp_path, capsys):
    row, out = beside(tmp_path, at_ports=1), tmp_path / "out"
    assert (row["verdict"], row["reason"]) == ("contaminated", None)
    assert (row["reference"]["n_copies"], row["reference"]["control_copies"]) == (0, 1)
    # What the control must be, where the verdict is read.
    assert "as easy to guess as the benchmark" in (out / "report.html").read_text()
    with (out / "results.csv").open(newline="") as file:
        (cells,) = (r for r in csv.DictReader(file) if r["method"] == "judge_local")
    assert cells["reference.control_copies"] == "1"
    # A reference that copied them after all.
    texts = out / "texts.jsonl"
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    for one in rows:
        if one["arm"] == "reference":
            one["guided"] = one["second_piece"]
    texts.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert main(["verify", str(out)]) == 3
    found = capsys.readouterr().out
    assert "results[0].reference.n_copies is 0, recomputed 40" in found
    assert "results[0].verdict is 'contaminated', recomputed 'suspected'" in found


def test_sources_are_named_by_the_column_and_asked_for_where_one_repeats(
    tmp_path, capsys
):
    by_four = {"book": lambda i: f"b{i // 8}", "generated_general_completion": str}
    assert beside(tmp_path, **by_four)["verdict"] == "contaminated"
    assert "The field book has 5 values in 80 instances" in said_by(capsys)
    (tmp_path / "out/report.json").unlink()
    row = beside(tmp_path, "--fields", "document=book", **by_four)
    # Each book stands on both sides, and exchanges its instances.
    assert (row["group_field"], row["n_groups"], row["n_shared"]) == ("book", 5, 5)
    assert "The field book has" not in said_by(capsys)
    assert row["p_control_barnard"] is None
    assert row["reference"]["p_excess"] == pytest.approx(2.0**-5)
    assert (row["verdict"], row["reason"]) == ("suspected", "reference may share it")
