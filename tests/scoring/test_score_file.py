"""A file of scores in place of a model."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.reports.report_files import read_document
from jaxcontam.scoring.load import load

SEEN = [f"seen text number {i}" for i in range(30)]
UNSEEN = [f"other text number {i}" for i in range(30)]


def rows(first, seed=0):
    """Rows of both sides; `first` is what stands before a text's numbers."""
    rng = np.random.default_rng(seed)
    for text in (*SEEN, *UNSEEN):
        mean = 2.5 if text in SEEN else 3.0
        logprobs = (-rng.exponential(mean, rng.integers(4, 12))).tolist()
        yield {"text": text, "logprobs": [*first, *logprobs]}


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("first", [[], [None]], ids=["all scored", "first is null"])
def test_membership_is_judged_by_the_numbers_of_a_file(tmp_path, first, capsys):
    found = list(rows(first))
    model = write(tmp_path / "scores.jsonl", found)
    older = write(tmp_path / "older.jsonl", rows(first, seed=1))
    for name, texts in (("seen", SEEN), ("unseen", UNSEEN)):
        (tmp_path / name).with_suffix(".txt").write_text("\n".join(texts))
    sides = ["--members", str(tmp_path / "seen.txt")]
    sides += ["--nonmembers", str(tmp_path / "unseen.txt")]
    out = tmp_path / "out"
    words = ["membership", model, *sides, "--out", str(out)]
    assert main([*words, "--scores", "loss,all", "--reference", older]) == 0
    document = read_document(out / "report.json")
    results = {row["method"]: row for row in document["results"]}
    # What reads other texts than these, or the vocabulary, is left out.
    assert {*results} == {"loss", "min_k", "zlib", "reference"}
    means = [np.mean(row["logprobs"][len(first) :]) for row in found]
    seen, unseen = np.split(np.array(means), 2)
    auc = np.mean(seen[:, None] > unseen[None])
    assert results["loss"]["auc"] == pytest.approx(auc, abs=1e-12)
    assert document["model"]["name"] == "scores.jsonl"
    assert main(["verify", str(out)]) == 0
    capsys.readouterr()
    assert main([*words[:-1], str(tmp_path / "b"), "--scores", "recall"]) == 2
    assert "needs the model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"text": "a"}], "row 1: no numbers in `logprobs`"),
        ([{"logprobs": [-1.0]}], "row 1: no `text`"),
        ([{"text": "a", "logprobs": [-1.0, None]}], "row 1: no numbers"),
        ([{"text": "a", "logprobs": "b"}], "row 1: no numbers"),
        ([{"text": "a", "logprobs": ["-1"]}], "row 1: no numbers"),
        ([{"text": "a", "logprobs": [True]}], "row 1: no numbers"),
        ([{"text": "a", "logprobs": [-1.0, float("-inf")]}], "row 1: no numbers"),
        (
            [{"text": "a", "logprobs": [None, -1]}, {"text": "b", "logprobs": [-1]}],
            "row 2: its first log-probability is not null",
        ),
        (
            [{"text": "a", "logprobs": [-1]}, {"text": "a", "logprobs": [-2]}],
            "row 2: other numbers for a text that came before",
        ),
    ],
)
def test_a_file_that_holds_no_scores_is_refused_with_the_row(tmp_path, lines, message):
    with pytest.raises(InputError) as caught:
        load(write(tmp_path / "s.jsonl", lines))
    assert message in str(caught.value)


def test_scores_of_one_text_are_not_taken_for_those_after_another(tmp_path):
    model = load(write(tmp_path / "s.jsonl", rows([])))
    ids = [model.tokenizer.encode(t, add_special_tokens=False).ids for t in SEEN[:2]]
    scorer = model.make_scorer(store=None)
    pair = np.array([*ids[0], *ids[1]], np.int32)
    with pytest.raises(InputError, match="of texts alone"):
        scorer._ask_engine([(pair[: len(ids[0])], pair[len(ids[0]) :])])
