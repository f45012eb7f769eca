"""`jaxcontam inflation`: estimates, verdicts, reports, refusals as users see them."""

import contextlib
import csv
import json
import re
import shutil
import zlib

import numpy as np
import pytest

import jaxcontam as jc
from jaxcontam.cli.main import main
from jaxcontam.data.questions import Question
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.progress import silent
from jaxcontam.score_gap.run import related, written_answers
from jaxcontam.scoring.api.address import parse_api
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import PromptedModel, served_info
from jaxcontam.stats.inflation import gap_estimate
from tests.support.completers import Scripted
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    fast_tokenizer,
    fresh_decoder,
)
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised


def knows(*known, seed=0):
    """A model that has these options by heart and guesses all else, always alike."""

    def guess(option):
        return -1 - zlib.crc32(f"{seed}|{option}".encode()) / 2**32

    return lambda pairs: [0.0 if own in known else guess(own) for _, own in pairs]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Published items and rewrites in another order, and the right options of both."""
    folder, right = tmp_path_factory.mktemp("pair"), []
    for word, step in (("old", 1), ("new", -1)):
        rng = np.random.default_rng(0)
        rows = [
            {
                "id": f"q{i}",
                "question": f"{word} {i}?",
                "choices": [f"{word} option {i} {j}" for j in range(4)],
                "answer": int(rng.integers(4)),
            }
            | ({"source": f"page {i // 2}"} if word == "old" else {})
            for i in range(40)
        ]
        write_lines(folder / f"{word}.jsonl", rows[::step])
        right.append([f" {row['choices'][row['answer']]}" for row in rows])

    def inflation(model, *references, **flags):
        test, against = folder / "old.jsonl", folder / "new.jsonl"
        if references:
            flags["references"] = list(references)
        return jc.inflation(model, test, against=against, **flags)

    return inflation, *right


def test_a_model_that_knows_the_published_items_is_inflated(pair):
    inflation, known, _ = pair
    found = inflation(knows(*known[:30]), *(knows(seed=n) for n in (1, 2, 3)))
    assert found.verdict == "inflated"
    assert found.result.accuracies[0].published >= 0.75
    scores = np.array([list(row["scores"].values()) for row in found.rows]).T
    pairs = [scores[:, :40], scores[:, 40:][:, ::-1]]
    direct = gap_estimate(*pairs, paired=True)
    assert found.points == pytest.approx(100 * direct.estimate)
    assert found.interval == pytest.approx((100 * direct.low, 100 * direct.high))
    assert "inflated" in repr(found)


def test_a_clean_model_beside_a_clean_one_is_not_told(pair):
    inflation, _, _ = pair
    models = [knows(seed=n) for n in (0, 3, 4)]
    found = inflation(*models)
    assert abs(found.points) < 20
    assert (found.verdict, found.result.reason) == ("cannot tell", "items")
    assert inflation(*models, min_points=90).verdict == "no inflation found"


def test_without_references_only_a_word_of_the_user_gives_a_verdict(pair):
    inflation, known, _ = pair
    model = knows(*known)
    alone = inflation(model)
    assert (alone.verdict, alone.result.reason) == ("cannot tell", "no reference")
    one = inflation(model, knows())
    assert (one.verdict, one.result.reason) == ("cannot tell", "one reference")
    vouched = inflation(model, equally_hard=True)
    beside = inflation(model, knows(), equally_hard=True)
    names = [one.estimator for one in beside.result.estimates]
    assert names == ["gap", "difference in differences"]
    assert vouched.verdict == beside.verdict == "inflated"
    assert vouched.points == beside.points == alone.points


def test_harder_rewrites_are_taken_out_by_references_and_said(pair):
    """All models know the published items: that is no inflation."""
    inflation, known, _ = pair
    found = inflation(*(knows(*known, seed=n) for n in range(3)))
    assert abs(found.points) < 20
    assert any("the other items are harder" in w for w in found.result.warnings)
    assert found.result.accuracies[0].gap > 30


def test_groups_are_those_of_published_items_or_of_both_sides_of_a_split(pair):
    inflation, known, _ = pair
    found = inflation(knows(*known), fields=("document=source",)).result
    assert found.n_groups == 20
    with pytest.raises(InputError, match="new: example 1: no field 'source'"):
        inflation(knows(*known), fields=("document=source",), unpaired=True)


@pytest.mark.parametrize("seeds", [(0, 1), (1, 1)])
def test_a_model_that_stands_twice_is_refused(pair, seeds):
    """Two that agree everywhere would say that models do not differ."""
    with pytest.raises(InputError, match="the same score on every item"):
        pair[0](knows(), *(knows(seed=n) for n in seeds))


def test_five_references_give_the_curve_of_constat(pair):
    inflation, old, new = pair
    references = [knows(*old[:k], *new[:k]) for k in (3, 8, 14, 20, 27)]
    found = inflation(knows(*old), *references).result
    names = [one.estimator for one in found.estimates]
    assert names == ["difference in differences", "gap", "constat"]
    assert found.estimates[2].low > 0
    assert found.chance == 0.25


def test_length_decides_a_choice_only_per_byte(tmp_path):
    """Each letter costs a nat: the shortest wins, or none."""
    for name in "ab":
        row = {"choices": ["aa", "aaaaaa"], "answer": 1}
        rows = [row | {"question": f"{name} {i}"} for i in range(4)]
        write_lines(tmp_path / f"{name}.jsonl", rows)

    def letters(pairs):
        return [-float(len(own.strip())) - 0.1 * (len(own) < 5) for _, own in pairs]

    files = {"benchmark": tmp_path / "a.jsonl", "against": tmp_path / "b.jsonl"}
    for per_byte in (False, True):
        found = jc.inflation(letters, **files, per_byte=per_byte)
        assert found.result.accuracies[0].published == per_byte


def test_a_written_answer_counts_by_its_first_line():
    answers = {
        "a": " 4.\nQuestion: 3 + 3?",
        "b": "Four",
        "c": "5",
        "d": Completion(text="", refused="no"),
    }
    questions = [Question(one, one, (), 0, ("4", "four")) for one in answers]
    info = served_info(parse_api("api:http://host/v1#answers", flag="MODEL"))
    scripted = Scripted(lambda prompt, *_: answers[prompt.strip()])
    model = PromptedModel(name="answers", completer=scripted, info=info)
    opened = contextlib.nullcontext(model)
    scores = written_answers(opened, questions, silent, new_tokens=8).scores
    assert scores[:3].tolist() == [1, 1, 0]
    assert np.isnan(scores[3])


def run(*words):
    return main(["inflation", *map(str, words)])


def write_csv(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def test_scores_of_ones_own_give_the_same_numbers_either_way(
    tmp_path, monkeypatch, capsys
):
    """A file for each side, or for each model."""
    monkeypatch.chdir(tmp_path)
    rng, names = np.random.default_rng(0), ("mine", "a", "b")
    shares = np.array([[0.9, 0.5, 0.5], [0.4, 0.45, 0.45]])
    sides = (rng.random((30, 2, 3)) < shares).astype(int)
    for side, name in enumerate(("test", "new")):
        rows = ([i, *row[side]] for i, row in enumerate(sides))
        write_csv(tmp_path / f"{name}.csv", ["item", *names], *rows)
    for i, name in enumerate(names):
        rows = ([k, *row[:, i]] for k, row in enumerate(sides))
        write_csv(tmp_path / f"{name}.csv", ["item", "published", "other"], *rows)
    found = []
    for words in (
        "mine test.csv --against new.csv --scored --references a b --out wide",
        "mine.csv --scored --references a.csv b.csv --out long",
    ):
        assert run(*words.split(), "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["results"][0])
    first, second = found
    assert first["estimates"][0]["points"] > 20
    assert first["estimates"] == second["estimates"]
    assert first["accuracies"] == second["accuracies"]
    assert first["metric"] == "given scores"


@pytest.fixture
def passages(tmp_path, monkeypatch):
    """Scores on 20 passages of 5 items, of which all or none are right."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, share in (("test", 0.7), ("new", 0.4)):
        rows = [["item", "passage", "pythia-1b", "pythia-2b", "m"]]
        for p in range(20):
            own = [int(rng.random() < share) for _ in range(3)]
            rows += [[f"{p}-{i}", f"{name}{p}", *own] for i in range(5)]
        write_csv(tmp_path / f"{name}.csv", *rows)
    return ("m", "test.csv", "--against", "new.csv", "--scored")


@pytest.mark.parametrize("split", [(), ("--unpaired",)])
def test_items_of_a_named_passage_are_drawn_together_and_verified(
    passages, tmp_path, capsys, split
):
    words = (*passages, "--equally-hard", *split)
    assert run(*words, "--json", "--out", "items") == 0
    items = json.loads(capsys.readouterr().out)["results"][0]
    assert any("values of passage repeat (20 in 100)" in w for w in items["warnings"])
    assert run(*words, "--fields", "document=passage", "--out", "groups") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "drawn in groups of equal passage: 20 of them" in said
    assert "values of passage" not in said
    assert "if these groups of items are independent draws and the other items" in said
    (groups,) = json.loads((tmp_path / "groups/report.json").read_text())["results"]
    assert (groups["group_field"], groups["n_groups"]) == ("passage", 20)
    assert (items["group_field"], items["n_groups"]) == (None, None)
    wide, narrow = (
        one["estimates"][0]["high"] - one["estimates"][0]["low"]
        for one in (groups, items)
    )
    assert wide > 1.7 * narrow
    assert main(["verify", "groups"]) == 0
    texts = tmp_path / "groups/texts.jsonl"
    texts.write_text(texts.read_text().replace('"test7"', '"test8"'))
    assert main(["verify", "groups"]) == 3
    assert "results[0].n_groups is 20, recomputed 19" in capsys.readouterr().out


def test_references_of_one_family_are_noted(passages, tmp_path, capsys):
    kin = ("--references", "pythia-1b", "pythia-2b", "--json")
    assert run(*passages, *kin, "--out", "out") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    notes = " ".join(result["warnings"])
    assert "references pythia-1b, pythia-2b look like one family" in notes
    assert related(["pythia-9b", "pythia-1b", "pythia-2b"], "abc") == []
    # Names and weights differ, the fields of config.json do not.
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for seed, folder in enumerate((first, second, third)):
        save_checkpoint(fresh_decoder(seed), fast_tokenizer(), folder)
    names = ["first", "second"]
    (note,) = related(["api:http://host/v1#m", first, second], ["m", *names])
    assert note.startswith("references first, second look like one family")
    assert related([third, first, second], ["third", *names]) == []


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A model that knows none of the sentences, and their ends to choose from."""
    folder = tmp_path_factory.mktemp("items")
    save_checkpoint(fresh_decoder(3), fast_tokenizer(), folder / "fresh")
    for name, texts in (("seen", MEMBERS), ("new", OTHERS)):
        words = [text.split() for text in texts]
        ends = [" ".join(one[6:]) for one in words]
        rows = [
            {
                "ctx": " ".join(one[:6]),
                "choices": [ends[i - j] for j in range(8)],
                "answer": 0,
            }
            for i, one in enumerate(words)
        ]
        write_lines(folder / f"{name}.jsonl", rows)
        rows = [{"prompt": " ".join(w[:-1]), "answer": w[-1]} for w in words[:6]]
        write_lines(folder / f"{name}-words.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def finished(model, folder):
    """A report on the model that knows sentences by heart, and words to go on with."""
    out = folder / "of [red] and [/b]"
    words = (model, folder / "seen.jsonl", "--against", folder / "new.jsonl")
    words = (*words, "--equally-hard", "--references", folder / "fresh")
    assert run(*words, "--unpaired", "--out", out) == 0
    return out, words


def test_a_model_directory_is_asked_and_the_report_verified(finished, capsys):
    out, _ = finished
    document = json.loads((out / "report.json").read_text())
    (result,) = document["results"]
    assert result["verdict"] == "inflated"
    assert result["accuracies"][0]["published"] == 1.0
    assert [one["name"] for one in document["references"]] == ["fresh"]
    assert main(["verify", str(out)]) == 0
    assert "1 result recomputed from texts.jsonl" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    check_page(page)
    assert "points of the published score are lost on unseen items" in page


def test_a_dry_run_counts_each_reference_and_refuses_one_that_is_not_there(
    model, folder, tmp_path, capsys
):
    words = (model, folder / "seen.jsonl", "--against", folder / "new.jsonl")
    words = (*words, "--out", tmp_path, "--dry-run", "--references")
    assert run(*words, folder / "fresh") == 0
    said = capsys.readouterr().out
    cost = r"[\d,]+ tokens, 0 of them in the store; the others .* at the speed"
    assert re.search(rf"\n{cost}.*\nThe reference, .*fresh: {cost}", said)
    assert run(*words, tmp_path / "none") == 2
    assert "none: no such model directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("report.json", '"inflated"', '"no inflation found"', "verdict"),
        ("report.json", '"equally_hard": true', '"equally_hard": false', "equally"),
        ("texts.jsonl", '1.0, "fresh"', '0.0, "fresh"', "results[0].accuracies"),
    ],
)
def test_a_changed_report_is_found(finished, tmp_path, capsys, file, old, new, found):
    copy = shutil.copytree(finished[0], tmp_path / "copy")
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    assert main(["verify", str(copy)]) == 3
    assert found in capsys.readouterr().out


def test_a_copy_of_the_model_is_refused_before_anything_is_scored(
    model, finished, tmp_path, capsys
):
    copy, out = shutil.copytree(model, tmp_path / "other"), tmp_path / "out"
    assert run(*finished[1], copy, "--out", out) == 2
    assert f"{copy}: the same model as {model}" in capsys.readouterr().err
    assert not out.exists()


def test_answers_are_written_by_a_model_directory(model, folder):
    """The model that knows sentences by heart writes their last word."""
    found = jc.inflation(
        model,
        folder / "seen-words.jsonl",
        against=folder / "new-words.jsonl",
        unpaired=True,
        new_tokens=6,
    ).result
    assert found.metric == "exact match"
    assert found.accuracies[0].published > found.accuracies[0].other
