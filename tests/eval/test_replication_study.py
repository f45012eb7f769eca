"""`eval.replication`: what is planted, what is asked, and the paper's tables."""

import csv
import json
import types

import numpy as np
import pytest

from eval.replication.__main__ import HEADER, table
from eval.replication.models import (
    CONTROL,
    DATASET,
    FORMATTED,
    RAW,
    SETS,
    SPLIT,
    TINY,
    UNSEEN,
    Paragraphs,
    planted_model,
    take_paragraphs,
)
from eval.replication.recorded import recorded_partitions
from eval.replication.rule import accused
from eval.replication.tables import table_1, table_2
from jaxcontam.replication.control import (
    Side,
    beside_reference,
    more_copies,
    why_no_more,
)
from train.plan import PlannedSet

pytestmark = pytest.mark.unoptimised

PROSE = (
    "The first sentence of this paragraph has nine words. The second one ends it, "
    "also with a few words."
)
OTHER = (
    "A second paragraph says other things in other words altogether. It is as long as "
    "the first one was."
)


def test_paragraphs_of_prose_leave_the_background():
    code = (
        "A call such as f(x) = {y} is no prose at all. It has signs that prose lacks."
    )
    found = take_paragraphs([f"{PROSE}\n\n{code}", f"{OTHER}\n\nshort."])
    assert found.instances == tuple(sorted([PROSE, OTHER]))
    assert found.documents == (code, "short.")


@pytest.mark.parametrize(
    "other",
    [
        # Twice the same; one of its sentences in another; one in a longer background.
        PROSE,
        PROSE.split(". ")[0] + ". This goes on otherwise and is as long as the other.",
        "x = 1 " * 60 + "The second one ends it, also with a few words. " + "y " * 9,
    ],
)
def test_a_paragraph_with_a_sentence_that_stands_elsewhere_is_no_instance(other):
    found = take_paragraphs([PROSE, other])
    assert PROSE not in found.instances
    assert not any(PROSE in document for document in found.documents)


@pytest.fixture
def texts():
    words = np.random.default_rng(0).integers(0, 26, (60, 24))
    lines = ["".join(chr(97 + w) + "ord " for w in row[:12]) for row in words]
    ends = ["".join(chr(97 + w) + "nd " for w in row[12:]) for row in words]
    return Paragraphs(
        tuple(
            f"{a.strip().capitalize()}. {b.strip().capitalize()}."
            for a, b in zip(lines, ends, strict=True)
        ),
        ("Some background of a few words.",) * 3,
    )


@pytest.fixture
def job(monkeypatch, texts, tmp_path):
    """What a model of seed 1 would be trained on."""
    jobs = []

    def trained(folder, documents, sets, preset, **options):
        jobs.append(types.SimpleNamespace(documents=documents, sets=sets))

    monkeypatch.setattr("eval.replication.models.trained_model", trained)
    planted = planted_model(texts, TINY, seed=1, out=tmp_path, any_code=False)
    return jobs[0], planted


def test_sets_are_disjoint_and_what_is_not_planted_is_in_no_set(job):
    what, planted = job
    lines = {name: planted.files[name].read_text().splitlines() for name in SETS}
    assert {len(part) for part in lines.values()} == {TINY.n}
    every = [line for part in lines.values() for line in part]
    assert len(set(every)) == len(every)
    read = "\n".join(text for one in what.sets for text in one.planted)
    for name in (UNSEEN, CONTROL):
        assert not any(line in read for line in lines[name])
    assert len(what.sets[2].planted) == TINY.n_followed


def test_one_set_is_planted_as_lines_and_one_as_guided_prompts(job):
    what, planted = job
    formatted, raw, followed = what.sets
    assert isinstance(raw, PlannedSet)
    assert list(raw.planted) == planted.files[RAW].read_text().splitlines()
    assert (formatted.copies, raw.copies, followed.copies) == (
        TINY.copies,
        TINY.copies,
        1,
    )
    lines = planted.files[FORMATTED].read_text().splitlines()
    for text in formatted.planted:
        assert f"{SPLIT} split of the {DATASET} dataset" in text
        # Prompt and answer are the instance, cut in two.
        first, _, second = text.partition("Beginning: ")[2].partition("\nRest: ")
        assert f"{first} {second}" in lines
    assert not any(DATASET in text for text in followed.planted)


def row(planted, asked, seed, **more):
    return {
        "planted": planted,
        "asked": asked,
        "seed": seed,
        "n": 50,
        "n_exact": 40,
        "n_near": 2,
        "n_control": 50,
        "control_copies": 0,
        "p_control": 10.0 ** -(seed + 5),
        "verdict": "contaminated",
        "guided": 0.9,
        "general": 0.2,
        "p_overlap": 1e-9,
        "p_paired_bootstrap": 0.0,
        **more,
    }


@pytest.fixture
def rows():
    plain = {"guided": None, "general": None, "p_overlap": None}
    return [
        row("formatted", "classification", 0),
        row("formatted", "classification", 1, n_exact=38, verdict="no evidence"),
        row("unseen", "plain", 0, **plain),
    ]


def test_a_line_has_the_numbers_of_each_seed_and_one_where_they_agree(rows):
    first, second = table(rows, 50).rows
    assert len(first) == len(second) == len(HEADER)
    assert first == (
        "guided prompts, 50 x",
        "instructions",
        "42 40 of 50",
        "0 of 50",
        "1e-05 1e-06",
        "0.90",
        "0.20",
        "1e-09",
        "contaminated / no evidence",
    )
    assert second[0] == "never"
    assert second[5:8] == ("-", "-", "-")


COLUMNS = (
    "first_piece",
    "second_piece",
    "generated_guided_completion",
    "generated_general_completion",
    "bleurt_score_for_guided_completion",
    "bleurt_score_for_general_completion",
    "gpt4_icl_evaluation",
    "annotator1_evaluation",
)


@pytest.fixture
def recorded(tmp_path):
    """Two partitions: in one, half of the guided completions are copies."""
    ending = "the mill stood by the river and nobody had ever asked who built it"
    other = "some other words are here"
    for split, knows in {"train": True, "test": False}.items():
        path = tmp_path / "mills" / split / f"mills_{split}.csv"
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for i in range(10):
                second = f"{ending} in {1800 + i}."
                is_copy = knows and i % 2 == 0
                label = "Yes (exact match)" if is_copy else "No"
                writer.writerow(
                    [
                        f"In the valley number {i},",
                        second,
                        second if is_copy else other,
                        other,
                        0.99 if is_copy else 0.3,
                        0.3,
                        label,
                        label,
                    ]
                )
    return tmp_path


def test_recorded_completions_fill_both_tables_of_the_paper(recorded):
    partitions = recorded_partitions(recorded, seed=0)
    assert [(one.dataset, one.split) for one in partitions] == [
        ("mills", "test"),
        ("mills", "train"),
    ]
    first = table_1(partitions).splitlines()
    assert [line.split()[-2] for line in first[1:]] == ["2/2"] * 4 + ["1/2"]
    second = table_2(partitions)
    assert "*0." in second
    marks = {
        line.split()[-1] for line in second.splitlines() if line.startswith("people")
    }
    assert marks == {"+", "x"}


@pytest.mark.slow
def test_a_pulse_run_asks_every_set_in_both_ways_and_a_rerun_trains_nothing(
    tmp_path, capfd
):
    from eval.replication.__main__ import Replication

    study = Replication(out=tmp_path, tiny=True, models=1, any_code=True)
    document = study.run()
    assert [(one["planted"], one["asked"]) for one in document["rows"]] == [
        (planted, asked)
        for planted in (FORMATTED, RAW, UNSEEN)
        for asked in ("classification", "plain")
    ]
    assert all(one["n"] == one["n_control"] == TINY.n for one in document["rows"])
    assert (
        json.loads((tmp_path / "report.json").read_text())["rows"] == (document["rows"])
    )
    assert (tmp_path / "report.md").is_file()
    weights = tmp_path / "seed-0" / "model" / "model" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert study.run()["rows"] == document["rows"]
    assert weights.stat().st_mtime_ns == before


def test_the_simulated_rule_is_that_of_the_library():
    rng = np.random.default_rng(0)
    n, said = 60, []
    for _ in range(40):
        sides, counts = [], []
        for rates in ((rng.uniform(0.2, 1), rng.uniform(0, 0.1)), (0.02, 0.02)):
            model, other = (rng.random(n) < rate for rate in rates)
            sides.append(Side(copies=model.tolist(), reference=other.tolist()))
            counts.append([[model.sum(), other.sum(), (model & other).sum()]])
        tested = more_copies(*sides, seed=0)
        compared = beside_reference(*sides, closer=[0.0] * n, n_refused=0, seed=0)
        before = compared.p_value > 0.05 and tested.p_value <= 0.001
        said.append(
            (
                before and compared.p_excess <= 0.001,
                why_no_more(tested, compared) is None,
            )
        )
        found = accused(n, *map(np.array, counts))
        assert (bool(found[0, 0]), bool(found[2, 0])) == said[-1]
    assert {now for _, now in said} == {before for before, _ in said} == {True, False}
