"""`jaxcontam inflation`: estimates, verdicts, reports, refusals as users see them."""

import contextlib
import csv
import json
import shutil
import zlib

import numpy as np
import pytest

import jaxcontam as jc
from jaxcontam.cli.main import main
from jaxcontam.data.questions import Question
from jaxcontam.errors import InputError
from jaxcontam.progress import silent
from jaxcontam.score_gap.command import Inflation
from jaxcontam.score_gap.run import written_answers
from jaxcontam.scoring.api.address import parse_api
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import PromptedModel, served_info
from jaxcontam.stats.inflation import gap_estimate
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    fresh_decoder,
    save_overfitted,
)
from tests.support.membership_model import tokenizer as made_tokenizer
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised


def guess(seed, option):
    """A number without meaning, the same at each call."""
    return -1 - zlib.crc32(f"{seed}|{option}".encode()) / 2**32


def knows(*known, seed=0):
    """A model that has these options by heart and guesses all else."""

    def log_likelihoods(pairs):
        return [0.0 if own in known else guess(seed, own) for _, own in pairs]

    return log_likelihoods


def choice_items(n, word, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"q{i}",
            "question": f"{word} {i}?",
            "choices": [f"{word} option {i} {j}" for j in range(4)],
            "answer": int(rng.integers(4)),
        }
        for i in range(n)
    ]


def right(rows):
    return [f" {row['choices'][row['answer']]}" for row in rows]


@pytest.fixture
def pair(tmp_path):
    """Published items and their rewrites, in another order."""
    published, other = choice_items(40, "old"), choice_items(40, "new")
    write_lines(tmp_path / "test.jsonl", published)
    write_lines(tmp_path / "new.jsonl", other[::-1])
    return tmp_path / "test.jsonl", tmp_path / "new.jsonl", right(published)


def test_a_model_that_knows_the_published_items_is_inflated(pair):
    test, new, known = pair
    others = [knows(seed=n) for n in (1, 2, 3)]
    found = jc.inflation(knows(*known[:30]), test, against=new, reference=others)
    result = found.result
    assert found.verdict == "inflated"
    assert result.accuracies[0].published >= 0.75
    scores = np.array([list(row["scores"].values()) for row in found.rows]).T
    pairs = [scores[:, :40], scores[:, 40:][:, ::-1]]
    direct = gap_estimate(*pairs, paired=True)
    assert found.points == pytest.approx(100 * direct.estimate)
    assert found.interval == pytest.approx((100 * direct.low, 100 * direct.high))
    assert "inflated" in repr(found)


def test_a_clean_model_beside_a_clean_one_is_not_told(pair):
    test, new, _ = pair
    pair_of = [knows(seed=3), knows(seed=4)]
    found = jc.inflation(knows(), test, against=new, reference=pair_of)
    assert abs(found.points) < 20
    assert (found.verdict, found.result.reason) == ("cannot tell", "items")
    wide = jc.inflation(knows(), test, against=new, reference=pair_of, min_points=90)
    assert wide.verdict == "no inflation found"


def test_without_references_only_a_word_of_the_user_gives_a_verdict(pair):
    test, new, known = pair
    alone = jc.inflation(knows(*known), test, against=new)
    assert (alone.verdict, alone.result.reason) == ("cannot tell", "no reference")
    one = jc.inflation(knows(*known), test, against=new, reference=[knows()])
    assert (one.verdict, one.result.reason) == ("cannot tell", "one reference")
    vouched = jc.inflation(knows(*known), test, against=new, equally_hard=True)
    assert vouched.verdict == "inflated"
    assert vouched.points == alone.points
    beside = jc.inflation(
        knows(*known), test, against=new, reference=[knows()], equally_hard=True
    )
    assert [one.estimator for one in beside.result.estimates] == [
        "gap",
        "difference in differences",
    ]
    assert (beside.verdict, beside.points) == ("inflated", alone.points)


def test_harder_rewrites_are_taken_out_by_references_and_said(pair):
    """All models know the published items: that is no inflation."""
    test, new, known = pair
    models = [knows(*known, seed=n) for n in range(3)]
    found = jc.inflation(models[0], test, against=new, reference=models[1:])
    assert abs(found.points) < 20
    assert any("the other items are harder" in w for w in found.result.warnings)
    assert found.result.accuracies[0].gap > 30


@pytest.mark.parametrize("seeds", [(0, 1), (1, 1)])
def test_a_model_that_stands_twice_is_refused(pair, seeds):
    """Two that agree everywhere would say that models do not differ."""
    test, new, _ = pair
    twice = [knows(seed=n) for n in seeds]
    with pytest.raises(InputError, match="the same score on every item"):
        jc.inflation(knows(), test, against=new, reference=twice)


def test_length_decides_a_choice_only_per_byte(tmp_path):
    """Each letter costs a nat: the shortest wins, or none."""
    rows = [
        {"question": f"{i}", "choices": ["aa", "aaaaaa"], "answer": 1} for i in range(4)
    ]
    write_lines(tmp_path / "a.jsonl", rows)
    other = [row | {"question": f"new {i}"} for i, row in enumerate(rows)]
    write_lines(tmp_path / "b.jsonl", other)

    def letters(pairs):
        return [-float(len(own.strip())) - 0.1 * (len(own) < 5) for _, own in pairs]

    def score(**flags):
        test, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        found = jc.inflation(letters, test, against=other, **flags)
        return found.result.accuracies[0]

    assert score().published == 0
    assert score(per_byte=True).published == 1


def written(*answers):
    """A model of which the answers are known."""

    class Answers:
        name = "answers"

        def complete(self, prompts, **_):
            return [(Completion(**one),) for one in answers[: len(prompts)]]

    info = served_info(parse_api("api:http://host/v1#answers", flag="MODEL"))
    return PromptedModel(name="answers", completer=Answers(), info=info)


def test_a_written_answer_counts_by_its_first_line():
    questions = [Question(str(i), "?", (), 0, ("4", "four")) for i in range(4)]
    model = written(
        {"text": " 4.\nQuestion: 3 + 3?"},
        {"text": "Four"},
        {"text": "5"},
        {"text": "", "refused": "no"},
    )
    opened = contextlib.nullcontext(model)
    scores = written_answers(opened, questions, silent, new_tokens=8).scores
    assert scores[:3].tolist() == [1, 1, 0]
    assert np.isnan(scores[3])


def test_five_references_give_the_curve_of_constat(tmp_path):
    test, new = choice_items(30, "old"), choice_items(30, "new")
    write_lines(tmp_path / "a.jsonl", test)
    write_lines(tmp_path / "b.jsonl", new)
    references = [knows(*right(test)[:k], *right(new)[:k]) for k in (2, 6, 10, 15, 20)]
    found = jc.inflation(
        knows(*right(test)),
        tmp_path / "a.jsonl",
        against=tmp_path / "b.jsonl",
        reference=references,
    )
    names = [one.estimator for one in found.result.estimates]
    assert names == ["difference in differences", "gap", "constat"]
    assert found.result.estimates[2].low > 0
    assert found.result.chance == 0.25


@pytest.fixture
def scored(tmp_path):
    """Scores of three models on 30 items and their rewrites, as CSV."""
    rng = np.random.default_rng(0)
    shares = {"mine": (0.9, 0.4), "a": (0.5, 0.45), "b": (0.5, 0.45)}
    sides = {
        name: {m: (rng.random(30) < pair[i]).astype(int) for m, pair in shares.items()}
        for i, name in enumerate(("test", "new"))
    }
    for name, columns in sides.items():
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["item", *columns])
            rows.writerows(
                [i, *(own[i] for own in columns.values())] for i in range(30)
            )
    for model in shares:
        with (tmp_path / f"{model}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["item", "published", "other"])
            rows.writerows(
                [i, sides["test"][model][i], sides["new"][model][i]] for i in range(30)
            )
    return tmp_path


def run(*words):
    return main(["inflation", *map(str, words)])


def test_scores_of_ones_own_give_the_same_numbers_either_way(scored, capsys):
    wide = (
        *("mine", scored / "test.csv", "--against", scored / "new.csv", "--scores"),
        *("--reference", "a", "b", "--json", "--out", scored / "wide"),
    )
    assert run(*wide) == 0
    first = json.loads(capsys.readouterr().out)["results"][0]
    files = [scored / f"{name}.csv" for name in ("mine", "a", "b")]
    long = ("--scores", "--reference", *files[1:], "--json", "--out", scored / "long")
    assert run(files[0], *long) == 0
    second = json.loads(capsys.readouterr().out)["results"][0]
    assert first["estimates"][0]["points"] > 20
    assert first["estimates"] == second["estimates"]
    assert first["accuracies"] == second["accuracies"]
    assert first["metric"] == "given scores"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that knows sentences by heart, one that knows none, ends to choose."""
    from transformers import PreTrainedTokenizerFast

    from jaxcontam.models.checkpoint import save_checkpoint

    folder = tmp_path_factory.mktemp("models")
    save_overfitted(folder / "heart")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made_tokenizer(), bos_token="<|bos|>"
    )
    save_checkpoint(fresh_decoder(3), fast, folder / "fresh")
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
    return folder


def of_models(folder, *more):
    return (
        *(folder / "heart", folder / "seen.jsonl", "--against", folder / "new.jsonl"),
        *("--unpaired", "--equally-hard", "--reference", folder / "fresh", *more),
    )


@pytest.fixture(scope="module")
def finished(folder):
    out = folder / "of [red] and [/b]"
    assert run(*of_models(folder, "--out", out)) == 0
    return out


def test_a_model_directory_is_asked_and_the_report_verified(finished, capsys):
    document = json.loads((finished / "report.json").read_text())
    (result,) = document["results"]
    assert result["verdict"] == "inflated"
    assert result["accuracies"][0]["published"] == 1.0
    assert [one["name"] for one in document["references"]] == ["fresh"]
    assert main(["verify", str(finished)]) == 0
    assert "1 result judged again from texts.jsonl" in capsys.readouterr().out
    page = (finished / "report.html").read_text()
    check_page(page)
    assert "points of the published score are missing on unseen items" in page


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("report.json", '"verdict": "inflated"', '"verdict": "no inflation found"'),
        ("report.json", '"equally_hard": true', '"equally_hard": false'),
        ("texts.jsonl", '"heart": 1.0', '"heart": 0.0'),
    ],
)
def test_a_changed_report_is_found(finished, tmp_path, capsys, file, old, new):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    assert main(["verify", str(copy)]) == 3
    name = new.split('"')[1] if file == "report.json" else "results[0].accuracies"
    assert name in capsys.readouterr().out


def test_a_copy_of_the_model_is_refused_before_anything_is_scored(
    folder, tmp_path, capsys
):
    copy, out = tmp_path / "other", tmp_path / "out"
    shutil.copytree(folder / "heart", copy)
    assert run(*of_models(folder, copy, "--out", out)) == 2
    assert f"{copy}: the same model as {folder / 'heart'}" in capsys.readouterr().err
    assert not out.exists()


def test_answers_are_written_by_a_model_directory(folder, tmp_path):
    """The model that knows sentences by heart writes their last word."""
    for name, texts in (("seen", MEMBERS), ("new", OTHERS)):
        words = [text.split() for text in texts[:6]]
        rows = [{"prompt": " ".join(w[:-1]), "answer": w[-1]} for w in words]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    found = jc.inflation(
        str(folder / "heart"),
        tmp_path / "seen.jsonl",
        against=tmp_path / "new.jsonl",
        paired=False,
        new_tokens=6,
    )
    assert found.result.metric == "exact match"
    assert found.result.accuracies[0].published > found.result.accuracies[0].other


def test_shares_are_scored_by_model_directories_alone():
    asked = {"model": "m", "benchmark": "a", "against": "b", "shard": "0/2"}
    assert Inflation(**asked, reference=("r", "s")).reference == ("r", "s")
    with pytest.raises(InputError, match="--reference must be a model directory"):
        Inflation(**asked, reference=("r", "api:http://host/v1#s"))
