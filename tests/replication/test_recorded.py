"""Recorded completions with a control, other judges and people, end to end."""

import csv
import json

import pytest

from jaxcontam.cli.main import main

SECOND = "the ferry to {} {} leaves the southern harbour at noon"
IN_OTHER_WORDS = (
    "at noon the ferry will leave for that island, number {}, from the south"
)


def write(path, *, n=10, copies=0, place="island", **columns):
    """Rows of which the first are copies; each column a function of the row."""
    rows = []
    for i in range(n):
        second = SECOND.format(place, i)
        row = {
            "first_piece": f"It is known of {place} {i} that",
            "second_piece": second,
            "generated_guided_completion": second if i < copies else "no idea",
            "generated_general_completion": "nobody knows that",
        }
        rows.append(row | {name: of(i) for name, of in columns.items()})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def run(tmp_path, own, control=None, *more):
    words = ["replicate", "--recorded", own, "--out", str(tmp_path / "out"), *more]
    if control is not None:
        words += ["--control", control]
    assert main(words) in (0, 3)
    # What stands in the report follows from its texts.
    assert main(["verify", str(tmp_path / "out")]) == 0
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    return {row["method"]: row for row in document["results"]}


def judged_by_model(word):
    return {"gpt4_icl_evaluation": lambda i: word}


def test_a_recorded_judge_is_compared_with_its_labels_of_the_control(tmp_path):
    own = write(tmp_path / "own.csv", copies=10, **judged_by_model("Yes (exact match)"))
    at_ports = {"path": tmp_path / "control.csv", "place": "port"}
    control = write(**at_ports, **judged_by_model("No"))
    row = run(tmp_path, own, control)["judge_llm"]
    assert (row["n_control"], row["control_copies"]) == (10, 0)
    # A control without such labels is one for the local judge alone.
    control = write(**at_ports)
    found = run(tmp_path, own, control)
    assert found["judge_llm"]["n_control"] == 0
    assert found["judge_local"]["n_control"] == 10


@pytest.mark.parametrize("has_scores", [True, False])
def test_bleurt_is_read_of_both_arms_or_of_neither(tmp_path, has_scores, capsys):
    scores = {
        f"bleurt_score_for_{arm}_completion": lambda i: 0.9
        for arm in ("guided", "general")
    }
    words = {"generated_guided_completion": IN_OTHER_WORDS.format}
    own = write(tmp_path / "own.csv", **words, **scores)
    more = scores if has_scores else {}
    control = write(tmp_path / "c.csv", place="port", **words, **more)
    row = run(tmp_path, own, control)["judge_local"]
    assert row["judge_version"].endswith("+bleurt-20") == has_scores
    assert row["n_near"] == row["control_copies"] == (10 if has_scores else 0)
    said = " ".join(capsys.readouterr().out.split())
    assert "BLEURT scores are taken for those of BLEURT-20" in said
    assert ("control has no BLEURT scores" in said) == (not has_scores)


def test_a_text_counts_once_and_on_no_side_if_it_stands_on_both(tmp_path, capsys):
    def places(*numbers):
        rows = {i: (f"It is of {n}", SECOND.format("island", n)) for i, n in numbers}
        return {
            "first_piece": lambda i: rows[i][0].upper() if i == 1 else rows[i][0],
            "second_piece": lambda i: rows[i][1],
            "generated_guided_completion": lambda i: rows[i][1],
        }

    # The second row is the first one in capitals; the last stands in the control.
    own = write(tmp_path / "own.csv", n=4, **places((0, 7), (1, 7), (2, 8), (3, 9)))
    control = write(tmp_path / "c.csv", n=3, **places((0, 9), (1, 1), (2, 2)))
    found = run(tmp_path, own, control)
    row = found["judge_local"]
    assert (row["n_instances"], row["n_exact"], row["n_repeats"]) == (2, 2, 2)
    assert (row["n_control"], row["control_copies"]) == (2, 2)
    # Nor are they evidence that the instruction helps.
    assert found["rouge_l_sign_flip"]["n_instances"] == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "2 of 4 instances are left out: their text stands before, or in" in said
    assert "Of the control, 1 of 3 instances are left out" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<summary>Instance ") == 4


def beside(tmp_path, *more, n=40, known=40, guessed=0, at_ports=0, **columns):
    """A run with a reference: copies of islands by each model, of ports by both."""

    def copied(n_copies, place):
        return lambda i: SECOND.format(place, i) if i < n_copies else "at noon it left"

    texts = {
        place: {
            "generated_guided_completion": copied(own, place),
            "generated_reference_completion": copied(theirs, place),
        }
        for place, own, theirs in (
            ("island", known, guessed),
            ("port", at_ports, at_ports),
        )
    }
    own, control = (
        write(tmp_path / f"{place}.csv", n=n, place=place, **texts[place], **columns)
        for place in ("island", "port")
    )
    return run(tmp_path, own, control, *more)["judge_local"]


def said_by(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_a_recorded_reference_decides_and_is_judged_again(tmp_path, capsys):
    row = beside(tmp_path, at_ports=1)
    assert (row["verdict"], row["reason"]) == ("contaminated", None)
    assert (row["reference"]["n_copies"], row["reference"]["control_copies"]) == (0, 1)
    said = " ".join(capsys.readouterr().out.split())
    assert "Contaminated: 40 of 40 completions are copies" in said
    assert "takes instances as independent (--group-field names sources" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "The reference copies 0 of 40, and 1 of 40 of the control" in page
    assert "as easy to guess as the benchmark: of the same kind, sources" in page
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        (cells,) = (r for r in csv.DictReader(file) if r["method"] == "judge_local")
    assert cells["reference.control_copies"] == "1"
    # A reference that copied them after all.
    texts = tmp_path / "out" / "texts.jsonl"
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    for one in rows:
        if one["arm"] == "reference":
            one["guided"] = one["second_piece"]
    texts.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert main(["verify", str(tmp_path / "out")]) == 3
    found = capsys.readouterr().out
    assert "results[0].reference.n_copies is 0, recomputed 40" in found
    assert "results[0].verdict is 'contaminated', recomputed 'suspected'" in found


def test_sources_are_named_by_the_column_and_asked_for_where_one_repeats(
    tmp_path, capsys
):
    by_four = {"book": lambda i: f"b{i // 8}", "generated_general_completion": str}
    row = beside(tmp_path, **by_four)
    assert row["verdict"] == "contaminated"
    said = " ".join(capsys.readouterr().out.split())
    assert "The field book has 5 values in 80 instances: if they are sources" in said
    row = beside(tmp_path, "--group-field", "book", "--overwrite", **by_four)
    # Each book stands on both sides, and exchanges its instances.
    assert (row["group_field"], row["n_groups"], row["n_shared"]) == ("book", 5, 5)
    said = said_by(capsys)
    assert "by permutations of the 5 values of book" in said
    assert "and within the 5 that stand on both sides" in said
    assert "if they are sources" not in said
    assert "takes instances as independent" not in said
    assert row["p_control_barnard"] is None
    assert row["reference"]["p_excess"] == pytest.approx(2.0**-5)
    assert (row["verdict"], row["reason"]) == ("suspected", "reference may share it")


def test_two_people_are_compared_and_their_source_is_named(tmp_path, capsys):
    people = {
        "annotator1_evaluation": lambda i: "Yes (exact match)" if i < 3 else "No",
        "annotator2_evaluation": lambda i: "Yes (near-exact match)" if i < 2 else "No",
    }
    own = write(tmp_path / "own.csv", copies=2, **people)
    row = run(tmp_path, own)["judge_human"]
    assert (row["n_instances"], row["n_exact"], row["n_near"]) == (9, 0, 2)
    assert row["judge_version"] == "people's labels in the file"
    said = capsys.readouterr().out
    assert "Two people agree on 90.0% of 10 completions" in said
    assert "kappa 0.74" in said
    assert "1 of 10 completions are left out of people's labels" in said
