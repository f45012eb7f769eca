"""Completions made elsewhere: their layout, and what was published about them."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest

from eval.replication.recorded import read_recorded_folder
from eval.replication.tables import Partition, successes, table_1, table_2
from jaxcontam.errors import InputError
from jaxcontam.replication.control import judge_result
from jaxcontam.replication.judges import Judged, agreement, consensus, judge_local
from jaxcontam.replication.overlap import ROUGE_L, overlap_results, overlap_scores
from jaxcontam.replication.recorded import read_recorded

# Completions and scores of Golchin and Surdeanu, arXiv:2308.08493: SET/PART/*.csv.
PUBLISHED = Path(os.environ.get("JAXCONTAM_COMPLETIONS", "no completions"))
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(),
    reason="JAXCONTAM_COMPLETIONS names no folder of completions",
)

SINGLE = {
    "text": "ignored",
    "label": "1 (yes)",
    "first_piece": "It rained. Then",
    "second_piece": "it stopped.",
    "generated_guided_completion": "it stopped.",
    "generated_general_completion": "",
    "rouge_score_for_general_completion": "",
    "rouge_score_for_guided_completion": "1.0",
    "gpt4_icl_evaluation": "Yes (exact match)",
    "annotator1_evaluation": "Yes (exact match)",
    "annotator2_evaluation": "",
}


def save(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_row_is_an_instance_with_two_completions(tmp_path):
    whole = {**SINGLE, "first_piece": "It rained.", "second_piece": "Then it stopped."}
    found = read_recorded(save(tmp_path / "a.csv", [SINGLE, whole]))
    assert found.name == "a"
    one, other = found.instances
    assert (one.first_piece, one.second_piece) == ("It rained. Then", "it stopped.")
    assert (one.cut, other.cut) == ("inside", "sentence")
    assert (one.index, one.label) == (0, "1 (yes)")
    assert found.guided[0].text == "it stopped."
    # An empty cell is an empty answer, not a missing one.
    assert found.general[0].text == ""
    assert not found.general[0].refused
    guided, general = found.scores["rouge_l"]
    assert guided.tolist() == [1, 1]
    assert np.isnan(general).all()
    assert "bleurt" not in found.scores
    assert found.model_judge == Judged(labels=("exact", "exact"))
    assert found.people == (("exact", "exact"), (None, None))
    assert consensus(found.people) == ("exact", "exact")


def test_pairs_and_files_without_scores_are_read_too(tmp_path):
    row = {"sentence1": "A b.", "sentence2": "B a.", "generated_guided_completion": "x"}
    found = read_recorded(save(tmp_path / "a.csv", [row]))
    assert found.name == "a"
    assert found.instances[0].cut == "pair"
    assert found.general is None
    assert found.scores == {}
    assert found.people == ()
    assert found.model_judge is None


def test_people_who_disagree_have_no_label(tmp_path):
    row = {**SINGLE, "annotator2_evaluation": "No"}
    found = read_recorded(save(tmp_path / "a.csv", [row]))
    assert consensus(found.people) == (None,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"annotator1_evaluation": "perhaps"}, r"a.csv:3: column 'annotator1_eval"),
        ({"rouge_score_for_guided_completion": "high"}, "a.csv:3: column 'rouge_sc"),
        ({"rouge_score_for_guided_completion": "inf"}, "no number .'inf'"),
        ({"rouge_score_for_guided_completion": "nan"}, "no number .'nan'"),
        ({"second_piece": " "}, "a.csv:3: column 'second_piece': empty"),
    ],
)
def test_errors_name_line_and_column(tmp_path, change, message):
    path = save(tmp_path / "a.csv", [SINGLE, {**SINGLE, **change}])
    with pytest.raises(InputError, match=message):
        read_recorded(path)


def test_files_that_hold_no_completions_are_refused(tmp_path):
    for row in ({"a": "1"}, {"first_piece": "a", "second_piece": "b"}):
        path = save(tmp_path / "a.csv", [row])
        with pytest.raises(InputError, match="no file of completions") as found:
            read_recorded(path)
        assert "generated_guided_completion" in found.value.hint
    path.write_text("a,b\n")
    with pytest.raises(InputError, match="no rows"):
        read_recorded(path)
    with pytest.raises(InputError, match=r"no \.csv file"):
        read_recorded_folder(tmp_path / "absent")


def test_a_folder_gives_its_partitions_by_place(tmp_path):
    for place in ("xsum/test/x.csv", "rte/valid/r.csv", "alone.csv"):
        save(tmp_path / place, [SINGLE])
    names = [one.name for one in read_recorded_folder(tmp_path)]
    assert names == ["alone", "rte/valid", "xsum/test"]


def judged_row(labels, method, humans=None):
    return judge_result(
        Judged(labels=tuple(labels)),
        method=method,
        benchmark="b",
        fingerprint="sha256:0",
        judge_version="v",
        prompt_version=None,
        humans=humans,
    )


def overlap_row(measure, guided, general, test="sign_flip"):
    rows = overlap_results(
        measure,
        np.asarray(guided),
        np.asarray(general),
        benchmark="b",
        fingerprint="sha256:0",
        prompt_version=None,
        seed=0,
    )
    return next(row for row in rows if row.method == f"{measure}_{test}")


def made(dataset, split, gain, local, human):
    general = np.linspace(0.1, 0.2, 10)
    return Partition(
        dataset=dataset,
        split=split,
        overlaps={"rouge_l": overlap_row("rouge_l", general + gain, general)},
        judges={
            "judge_local": judged_row(local, "judge_local"),
            "judge_human": judged_row(human, "judge_human"),
        },
    )


def test_tables_count_decisions_that_are_those_of_people():
    no, near = ["no"] * 10, ["near"] * 2 + ["no"] * 8
    exact = ["exact"] + ["no"] * 9
    partitions = [
        made("a", "train", 0.2, near, exact),
        made("a", "test", 0.2, no, no),
        made("b", "train", 0.0, no, no),
        made("b", "valid", 0.0, exact, near),
    ]
    found = {row.method: (row.n_right, row.n) for row in successes(partitions)}
    assert found == {
        "algorithm 1: ROUGE-L": (2, 4),
        "algorithm 2: local judge": (4, 4),
        "always no": (2, 4),
    }
    assert "algorithm 1: ROUGE-L              2/4    50.00%" in table_1(partitions)
    lines = [line.split() for line in table_2(partitions).splitlines()]
    assert lines[0] == ["Metric", "Instruction", "a", "b"]
    assert lines[1] == ["ROUGE-L", "on", "train", "general", "0.15", "0.15"]
    assert lines[2] == ["guided", "*0.35", "0.15"]
    assert lines[3] == ["ROUGE-L", "on", "test/valid", "general", "0.15", "0.15"]
    assert lines[5] == ["local", "judge", "on", "train", "++", "x"]
    assert lines[6] == ["local", "judge", "on", "test/valid", "x", "+"]
    assert lines[8] == ["people", "on", "test/valid", "x", "++"]


def test_tables_leave_unknown_cells_open():
    only = Partition(dataset="a", split="train", overlaps={}, judges={})
    assert "0/0" in table_1([only])
    other = made("b", "test", 0.2, ["no"], ["no"])
    assert "-" in table_2([only, other])


# From here on: the fourteen partitions of GPT-3.5.


@pytest.fixture(scope="module")
def published():
    return read_recorded_folder(PUBLISHED)


def published_p(name, measure):
    dataset, split = name.split("/")
    file = f"{measure.split('_')[0]}_resampling_results_for_{dataset}_{split}.txt"
    text = (PUBLISHED / name / file).read_text()
    return float(re.search(r"score:\s+([\d.]+)", text)[1])


@needs_published
def test_published_rouge_is_reproduced_to_the_second_decimal(published):
    n = 0
    for one in published:
        for place, completions in enumerate((one.guided, one.general)):
            scores = overlap_scores(ROUGE_L, one.instances, completions)
            recorded = one.scores["rouge_l"][place]
            assert np.abs(scores - recorded).max() <= 0.005 + 1e-9, one.name
            n += len(scores)
    assert n == 280


@needs_published
@pytest.mark.parametrize("measure", ["rouge_l", "bleurt"])
def test_published_p_values_are_those_of_the_paired_bootstrap(published, measure):
    n_alike = n_unpaired = 0
    for one in published:
        wanted = published_p(one.name, measure)
        paired, unpaired = (
            overlap_row(measure, *one.scores[measure], f"{kind}_bootstrap").p_value
            for kind in ("paired", "unpaired")
        )
        for p_value, is_paired in ((paired, True), (unpaired, False)):
            # Both are means of 10,000 draws; 4 standard errors, and the third decimal.
            error = 4 * np.sqrt(2 * p_value * (1 - p_value) / 10_000) + 0.0005
            is_alike = abs(p_value - wanted) <= error + 1e-4
            n_alike += is_alike and is_paired
            n_unpaired += is_alike and not is_paired
    assert n_alike >= 13
    # The released code draws both arms apart, which gives other numbers.
    assert n_unpaired <= 7


def judged_partitions(published, *, with_bleurt):
    partitions = []
    for one in published:
        bleurt = one.scores["bleurt"][0] if with_bleurt else None
        local = judge_local(one.instances, one.guided, bleurt=bleurt)
        dataset, split = one.name.split("/")
        partitions.append(
            Partition(
                dataset=dataset,
                split=split,
                overlaps={
                    measure: overlap_row(measure, *scores, "paired_bootstrap")
                    for measure, scores in one.scores.items()
                },
                judges={
                    "judge_local": judged_row(
                        local.labels, "judge_local", consensus(one.people)
                    ),
                    "judge_llm": judged_row(one.model_judge.labels, "judge_llm"),
                    "judge_human": judged_row(consensus(one.people), "judge_human"),
                },
            )
        )
    return partitions


@needs_published
def test_table_1_of_the_paper_is_reproduced(published):
    found = successes(judged_partitions(published, with_bleurt=True))
    assert {row.method: row.n_right for row in found} == {
        "algorithm 1: ROUGE-L": 7,
        "algorithm 1: BLEURT": 9,
        "algorithm 2: model judge": 13,
        "algorithm 2: local judge": 14,
        # One partition of fourteen is contaminated, so saying no is right as often.
        "always no": 13,
    }


@needs_published
def test_local_judge_flags_xsum_test_alone_with_the_recorded_bleurt(published):
    flagged = [
        f"{one.dataset}/{one.split}"
        for one in judged_partitions(published, with_bleurt=True)
        if one.judges["judge_local"].verdict == "suspected"
    ]
    assert flagged == ["xsum/test"]


@needs_published
@pytest.mark.parametrize(("with_bleurt", "n_found"), [(False, 2), (True, 3)])
def test_local_judge_finds_copies_with_few_false_alarms(
    published, with_bleurt, n_found
):
    labels, humans = [], []
    for one in published:
        bleurt = one.scores["bleurt"][0] if with_bleurt else None
        labels += judge_local(one.instances, one.guided, bleurt=bleurt).labels
        humans += consensus(one.people)
    assert humans.count("near") == 3
    hits = sum(a != "no" and b != "no" for a, b in zip(labels, humans, strict=True))
    alarms = sum(a != "no" and b == "no" for a, b in zip(labels, humans, strict=True))
    assert hits == n_found
    assert alarms <= 5
    found = agreement(labels, humans)
    assert found.n == 140
    # "Always no" is right about 137 of 140.
    assert found.accuracy > found.always_no == pytest.approx(137 / 140)
