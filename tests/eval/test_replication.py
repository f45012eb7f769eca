"""`eval.replication`: what is planted, its rule, and completions made elsewhere."""

import dataclasses
import itertools
import os
import re
import types
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from eval.replication.constants import Labelled, choice, constant_grids, labelled
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
    plant,
    take_paragraphs,
)
from eval.replication.recorded import (
    Partition,
    grids,
    read_recorded_folder,
    recorded_partitions,
    successes,
)
from eval.replication.rule import accused
from jaxcontam.errors import InputError
from jaxcontam.replication.control import (
    FALSE_NEAR,
    Side,
    beside_reference,
    more_copies,
    why_no_more,
)
from jaxcontam.replication.judges import NEAR, NEAR_BLEURT, Judged, consensus
from jaxcontam.replication.overlap import ROUGE_L, overlap_results, overlap_scores
from jaxcontam.replication.recorded import read_recorded
from tests.support.instances import judged, saved
from train.plant import PlannedSet

pytestmark = pytest.mark.unoptimised

PROSE = (
    "The first sentence of this paragraph has nine words. The second one ends it, "
    "also with a few words."
)
OTHER = (
    "A second paragraph says other things in other words altogether. It is as long as "
    "the first one was."
)


def test_paragraphs_of_prose_leave_the_background_where_no_sentence_stands_elsewhere():
    code = (
        "A call such as f(x) = {y} is no prose at all. It has signs that prose lacks."
    )
    found = take_paragraphs([f"{PROSE}\n\n{code}", f"{OTHER}\n\nshort."])
    assert found.instances == tuple(sorted([PROSE, OTHER]))
    assert found.documents == (code, "short.")
    for other in (
        # Twice the same; one of its sentences in another; one in a longer background.
        PROSE,
        PROSE.split(". ")[0] + ". This goes on otherwise and is as long as the other.",
        "x = 1 " * 60 + "The second one ends it, also with a few words. " + "y " * 9,
    ):
        found = take_paragraphs([PROSE, other])
        assert PROSE not in found.instances
        assert not any(PROSE in document for document in found.documents)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """What a model of seed 1 would be trained on."""

    def sentence(end, letters):
        return " ".join(f"{chr(97 + one)}{end}" for one in letters).capitalize() + "."

    drawn = np.random.default_rng(0).integers(0, 26, (60, 24))
    prose = (f"{sentence('ord', r[:12])} {sentence('nd', r[12:])}" for r in drawn)
    texts = Paragraphs(tuple(prose), ("Some background of a few words.",) * 3)
    jobs = []

    def trained(folder, documents, sets, preset, **options):
        jobs.append(types.SimpleNamespace(documents=documents, sets=sets))

    monkeypatch.setattr("eval.replication.models.trained_model", trained)
    files = plant(texts, TINY, seed=1, out=tmp_path, any_code=False)
    return jobs, files


def test_sets_are_disjoint_and_planted_in_their_form_or_not_at_all(job):
    (what, reference), files = job
    lines = {name: files[name].read_text().splitlines() for name in SETS}
    assert {len(part) for part in lines.values()} == {TINY.n}
    every = [line for part in lines.values() for line in part]
    assert len(set(every)) == len(every)
    read = "\n".join(text for one in what.sets for text in one.planted)
    for name in (UNSEEN, CONTROL):
        assert not any(line in read for line in lines[name])
    formatted, raw, followed = what.sets
    assert len(followed.planted) == TINY.n_followed
    # One set is planted as lines, and one as guided prompts.
    assert isinstance(raw, PlannedSet) and list(raw.planted) == lines[RAW]
    assert [one.copies for one in what.sets] == [TINY.copies, TINY.copies, 1]
    for text in formatted.planted:
        assert f"{SPLIT} split of the {DATASET} dataset" in text
        # Prompt and answer are the instance, cut in two.
        first, _, second = text.partition("Beginning: ")[2].partition("\nRest: ")
        assert f"{first} {second}" in lines[FORMATTED]
    assert not any(DATASET in text for text in followed.planted)
    # What the reference reads is in no set.
    read = "\n".join(text for one in reference.sets for text in one.planted)
    assert not any(line in read for line in every)


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
        before = before and compared.p_excess <= 0.001
        said.append((before, why_no_more(tested, compared) is None))
        found = accused(n, *map(np.array, counts))
        assert (bool(found[0, 0]), bool(found[1, 0])) == said[-1]
    assert all(set(words) == {True, False} for words in zip(*said, strict=True))


# Completions and scores of Golchin and Surdeanu, arXiv:2308.08493, as their repository
# has them below results/: MODEL/SET/PART/*.csv.
PUBLISHED = Path(os.environ.get("JAXCONTAM_COMPLETIONS", "no completions"))
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(),
    reason="JAXCONTAM_COMPLETIONS names no folder of completions",
)

ARMS = tuple(f"generated_{arm}_completion" for arm in ("guided", "general"))
BLEURT = tuple(f"bleurt_score_for_{arm}_completion" for arm in ("guided", "general"))
SINGLE = {
    "text": "ignored",
    "label": "1 (yes)",
    "first_piece": "It rained. Then",
    "second_piece": "it stopped.",
    **dict(zip(ARMS, ("it stopped.", ""), strict=True)),
    "rouge_score_for_general_completion": "",
    "rouge_score_for_guided_completion": "1.0",
    "gpt4_icl_evaluation": "Yes (exact match)",
    "annotator1_evaluation": "Yes (exact match)",
    "annotator2_evaluation": "",
}


def test_a_row_is_an_instance_with_two_completions(tmp_path):
    whole = {**SINGLE, "first_piece": "It rained.", "second_piece": "Then it stopped."}
    disputed = {**SINGLE, "annotator2_evaluation": "No"}
    found = read_recorded(saved(tmp_path / "a.csv", [SINGLE, whole, disputed]))
    assert found.name == "a"
    one, other, _ = found.instances
    assert (one.first_piece, one.second_piece) == ("It rained. Then", "it stopped.")
    assert (one.cut, other.cut) == ("inside", "sentence")
    assert (one.index, one.label) == (0, "1 (yes)")
    assert found.guided[0].text == "it stopped."
    # An empty cell is an empty answer, not a missing one.
    assert found.general[0].text == "" and not found.general[0].refused
    guided, general = found.scores["rouge_l"]
    assert guided.tolist() == [1, 1, 1] and np.isnan(general).all()
    assert "bleurt" not in found.scores
    assert found.model_judge == Judged(labels=("exact",) * 3)
    assert found.people == (("exact",) * 3, (None, None, "no"))
    # People who disagree have no label.
    assert consensus(found.people) == ("exact", "exact", None)
    row = {"sentence1": "A b.", "sentence2": "B a.", "generated_guided_completion": "x"}
    pair = read_recorded(saved(tmp_path / "p.csv", [row]))
    assert pair.instances[0].cut == "pair"
    assert (pair.general, pair.model_judge) == (None, None)
    assert (pair.scores, pair.people) == ({}, ())


def overlap_row(measure, guided, general, test="sign_flip"):
    known = {"benchmark": "b", "fingerprint": "f", "prompt_version": None, "seed": 0}
    rows = overlap_results(measure, np.array(guided), np.array(general), **known)
    return next(row for row in rows if row.method == f"{measure}_{test}")


def made(dataset, split, gain, local, human):
    general = np.linspace(0.1, 0.2, 10)
    judges = {"judge_local": judged(local), "judge_human": judged(human)}
    overlaps = {"rouge_l": overlap_row("rouge_l", general + gain, general)}
    return Partition(dataset=dataset, split=split, overlaps=overlaps, judges=judges)


def test_tables_count_decisions_that_are_those_of_people():
    no, near = ["no"] * 10, ["near"] * 2 + ["no"] * 8
    exact = ["exact"] + ["no"] * 9
    partitions = [
        made("a", "train", 0.2, near, exact),
        made("a", "test", 0.2, no, no),
        made("b", "train", 0.0, no, no),
        made("b", "valid", 0.0, exact, near),
    ]
    assert successes(partitions) == {
        "algorithm 1: ROUGE-L": (2, 4),
        "algorithm 2: local judge": (4, 4),
        "always no": (2, 4),
    }
    # Marks are the paper's: * a gain, ++ two copies or an exact one.
    first, second = grids(partitions)
    assert first.rows[0] == ("algorithm 1: ROUGE-L", "2/4", "50.00%")
    assert second.header == ("metric", "a", "b")
    assert second.rows == (
        ("ROUGE-L on train, general", "0.15", "0.15"),
        ("ROUGE-L on train, guided", "*0.35", "0.15"),
        ("ROUGE-L on test/valid, general", "0.15", "0.15"),
        ("ROUGE-L on test/valid, guided", "*0.35", "0.15"),
        ("local judge on train", "++", "x"),
        ("people on train", "+", "x"),
        ("local judge on test/valid", "x", "+"),
        ("people on test/valid", "x", "++"),
    )


def test_recorded_completions_fill_both_tables(tmp_path):
    """Two partitions: in one, half of the guided completions are copies."""
    with pytest.raises(InputError, match=r"no \.csv file"):
        read_recorded_folder(tmp_path)
    for split in ("train", "test"):
        rows = []
        for i in range(10):
            second = f"the mill stood there and nobody asked who built it in {1800 + i}"
            is_copy = split == "train" and i % 2 == 0
            label = "Yes (exact match)" if is_copy else "No"
            row = {"first_piece": f"In valley {i},", "second_piece": second}
            row |= dict.fromkeys(ARMS, "some other words are here")
            row |= dict.fromkeys(BLEURT, 0.3)
            row |= dict.fromkeys(
                ("gpt4_icl_evaluation", "annotator1_evaluation"), label
            )
            row |= {ARMS[0]: second, BLEURT[0]: 0.99} if is_copy else {}
            rows.append(row)
        saved(tmp_path / f"mills/{split}/mills.csv", rows)
    recorded = read_recorded_folder(tmp_path)
    partitions = recorded_partitions(recorded, seed=0)
    names = [(one.model, one.dataset, one.split) for one in partitions]
    assert names == [("", "mills", "test"), ("", "mills", "train")]
    assert [*successes(partitions).values()] == [(2, 2)] * 5 + [(1, 2)]
    saved(tmp_path / "alone.csv", rows)
    names = [one.name for one in read_recorded_folder(tmp_path)]
    assert names == ["alone", "mills/test", "mills/train"]
    # Each model has its tables; the paper says what another method found of some.
    recorded = [
        dataclasses.replace(one, name=f"{model}/imdb/{one.name.split('/')[1]}")
        for model in ("gpt4", "gpt3.5", "mine")
        for one in recorded
    ]
    tables = grids(recorded_partitions(recorded, seed=0))
    titles = [one.title.split(":")[0] for one in tables]
    assert titles[::2] == [f"Table 1, {name}" for name in ("gpt4", "gpt3.5", "mine")]
    cheat = [
        [row[1:] for row in one.rows if row[0].startswith("Did-")] for one in tables
    ]
    said = [("0/2", "0.00%")], [("?",)] * 2, [("1/2", "50.00%")], [("x",)] * 2, [], []
    assert tuple(cheat) == said


def of_sets(*sets, model="m"):
    """Rows of sets: (score by words, BLEURT, copy or not) of each."""
    rows = [(f"s{i}", *row) for i, own in enumerate(sets) for row in own]
    places, scores, bleurt, copies = map(np.array, zip(*rows, strict=True))
    thresholds = np.arange(50, 101)[:, None] / 100
    return Labelled(
        models=np.full(len(rows), model),
        places=places,
        copies=copies.astype(bool),
        counts=np.ones(len(rows), bool),
        by_words=scores >= thresholds,
        eligible=np.ones(len(rows), bool),
        bleurt=bleurt,
    )


def test_constants_are_chosen_on_other_partitions():
    # Words tell copies from .7 on in one set, from .9 on in the other two.
    clean, copy = [(0.6, 0.1, False)] * 5, [(0.71, 0.1, True)] * 2
    strict = [(0.85, 0.1, False)] * 3 + [(0.95, 0.1, True)]
    rows = of_sets(clean + copy, strict, strict)
    found = choice(rows)
    # The middle of .86 to .95; without the first set the same.
    assert found.near == pytest.approx(0.91, abs=0.005)
    assert [near for near, _ in found.folds] == [found.near] * 3
    by_name = {one.judge: one for one in found.mistakes}
    words = by_name["words alone, on others"]
    assert (words.n_false, words.n_clean, words.n_missed) == (0, 11, 2)
    # Two sets alone contradict each other: each is judged as the other wants.
    held = {one.judge: one for one in choice(of_sets(clean + copy, strict)).mistakes}
    words = held["words alone, on others"]
    assert (words.n_false, words.n_missed, words.n_copies) == (3, 2, 3)
    high = binomtest(3, 8).proportion_ci(method="exact").high
    assert words.false_high == pytest.approx(high)
    # What never counts does not choose, and is counted apart.
    hidden = dataclasses.replace(rows, counts=rows.places == "s0")
    assert choice(hidden).near == pytest.approx(0.66, abs=0.005)
    assert choice(hidden).mistakes[0].n_false == 6
    assert choice(hidden).mistakes[0].n_false_counted == 0


def test_bleurt_finds_what_words_do_not():
    sets = [[(0.2, 0.7, False)] * 5 + [(0.2, 0.8, True)] * 2] * 2
    found = choice(of_sets(*sets))
    assert 0.7 < found.near_bleurt < 0.8
    missed = {one.judge: one.n_missed for one in found.mistakes}
    assert missed["words alone, on others"] == 4
    assert missed["with BLEURT, on others"] == 0
    titles = [one.title.split(" ")[0] for one in constant_grids(found)]
    assert titles == ["Constants", "Mistakes", "Share"]


# From here on: the fourteen partitions of each model.


@pytest.fixture(scope="module", params=["gpt3.5", "gpt4"])
def published(request):
    folder = PUBLISHED / request.param
    if not folder.is_dir():
        pytest.skip(f"JAXCONTAM_COMPLETIONS has no folder {request.param}")
    return folder, read_recorded_folder(folder)


def published_p(folder, name, measure):
    dataset, split = name.split("/")
    file = f"{measure.split('_')[0]}_resampling_results_for_{dataset}_{split}.txt"
    text = (folder / name / file).read_text()
    return float(re.search(r"score:\s+([\d.]+)", text)[1])


@needs_published
def test_published_rouge_is_reproduced_to_the_second_decimal(published):
    off = []
    for one in published[1]:
        for place, completions in enumerate((one.guided, one.general)):
            scores = overlap_scores(ROUGE_L, one.instances, completions)
            off += np.abs(scores - one.scores["rouge_l"][place]).tolist()
    n_alike = sum(difference <= 0.005 + 1e-9 for difference in off)
    # Two of GPT-4's are a hundredth lower in the file (yelp/test, general).
    n_other = 2 if published[0].name == "gpt4" else 0
    assert (len(off), n_alike) == (280, 280 - n_other) and max(off) < 0.011


@needs_published
@pytest.mark.parametrize("measure", ["rouge_l", "bleurt"])
def test_published_p_values_are_those_of_the_paired_bootstrap(published, measure):
    folder, recorded = published
    n_alike = dict.fromkeys(("paired", "unpaired"), 0)
    for one, kind in itertools.product(recorded, n_alike):
        p = overlap_row(measure, *one.scores[measure], f"{kind}_bootstrap").p_value
        # Both are means of 10,000 draws; 4 standard errors, and the third decimal.
        error = 4 * np.sqrt(2 * p * (1 - p) / 10_000) + 0.0005
        said = published_p(folder, one.name, measure)
        n_alike[kind] += abs(p - said) <= error + 1e-4
    # The released code draws both arms apart, which gives other numbers.
    assert n_alike["paired"] >= 13 and n_alike["unpaired"] <= 9


# By ROUGE-L, BLEURT, the local judge, by words alone, GPT-4's judge; Sainz et al.; one
# partition of GPT-3.5's is contaminated, seven of GPT-4's.
TABLE_1 = {"gpt3.5": [7, 9, 14, 13, 13, 11, 13], "gpt4": [13, 11, 12, 13, 14, 0, 7]}
ACCUSED = {
    "gpt3.5": {"xsum/test"},
    "gpt4": {
        *("ag_news/test", "ag_news/train", "imdb/train", "rte/train", "wnli/train"),
        *("wnli/valid", "xsum/test"),
        # These two people clear.
        *("rte/valid", "xsum/train"),
    },
}


@needs_published
def test_table_1_of_the_paper_is_reproduced(published):
    folder, recorded = published
    partitions = recorded_partitions(recorded, seed=0, folder=folder.name)
    counts = [n for n, _ in successes(partitions).values()]
    assert counts == TABLE_1[folder.name]
    judged = {f"{one.dataset}/{one.split}": one.judges for one in partitions}
    verdicts = {name: one["judge_local"].verdict for name, one in judged.items()}
    copied = {name for name, said in verdicts.items() if said == "suspected"}
    assert copied == ACCUSED[folder.name]


@needs_published
def test_the_librarys_constants_are_those_of_fewest_mistakes():
    if not (PUBLISHED / "gpt4").is_dir():
        pytest.skip("they are chosen on both models")
    found = choice(labelled(read_recorded_folder(PUBLISHED)))
    assert (found.near, found.near_bleurt) == (NEAR, NEAR_BLEURT)
    held = [one for one in found.mistakes if one.judge == "with BLEURT, on others"]
    assert [(one.n_false, one.n_clean) for one in held] == [(2, 137), (4, 123)]
    assert 0 <= FALSE_NEAR - max(one.false_high for one in held) < 0.001
