"""The study of downstream contamination: its tasks, its comparisons, its verdicts."""

import collections
import json

import numpy as np
import pytest

from eval.downstream.__main__ import Downstream, _accuracy, _trends, change
from eval.downstream.models import TINY, Job, _asked, text_of
from eval.planted import planted
from eval.python_docs import Question as Described
from eval.study import read_fields
from jaxcontam.errors import InputError
from jaxcontam.stats.roc import auc_delong
from train.plant import drawn_copies

DESCRIBED = [Described(f"does thing {i}", f"f{i}") for i in range(40)]


def shifted(rng, shift, n=60):
    return rng.normal(shift, 1, n), rng.normal(0, 1, n)


@pytest.mark.parametrize("kind", ["names", "sentences", "truth"])
def test_the_right_option_is_the_one_that_belongs_to_the_question(kind):
    items = _asked(kind, DESCRIBED, np.random.default_rng(0))
    assert len({text_of(one) for one in items}) == len(items) == 40
    for one, item in zip(DESCRIBED, items, strict=True):
        right = item.choices[item.answer]
        assert (
            len(set(item.choices)) == len(item.choices) == (2 if kind == "truth" else 4)
        )
        if kind == "truth":
            assert (right == " yes") == item.prompt.endswith(f"about {one.answer}?")
        else:
            assert one.answer in text_of(item) and one.sentence in text_of(item)
    # No place of the right one is preferred: 4 standard errors of 40 fair draws.
    places = np.bincount([item.answer for item in items])
    k = len(places)
    assert np.abs(places - 40 / k).max() < 4 * np.sqrt(40 / k * (1 - 1 / k))


def test_few_written_answers_are_options_and_texts_end_with_the_right_one(tmp_path):
    rows = [{"q": f"is it {i}", "answer": bool(i % 3)} for i in range(40)]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = Downstream(tasks=(path,), templates=("{q}?",), tiny=True, out=tmp_path)
    bench = flags.bench()
    (items,) = bench.tasks.values()
    assert {one.choices for one in items} == {(" False", " True")}
    assert [text_of(one) for one in items[:2]] == ["is it 0? False", "is it 1? True"]
    path.write_text(path.read_text().partition("\n")[0])
    with pytest.raises(InputError, match="1 examples, 40 needed"):
        flags.bench()


def test_change_is_the_mean_difference_of_aucs_weighted_by_members():
    rng = np.random.default_rng(0)
    first = [shifted(rng, 0.2, 30), shifted(rng, 0.2, 10)]
    last = [shifted(rng, 1.5, 30), shifted(rng, 1.5, 10)]
    gaps = [
        auc_delong(*b)[0] - auc_delong(*a)[0] for a, b in zip(first, last, strict=True)
    ]
    for paired in (True, False):
        share = change(first, last, paired=paired)
        assert share.value == pytest.approx(0.75 * gaps[0] + 0.25 * gaps[1], abs=1e-12)
        assert share.low < share.value < share.high
    # The same scores twice: paired, they cannot differ.
    same = change(first, first, paired=True)
    assert (same.value, same.low, same.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(-1.5, "the reverse of the paper"), (0.0, "not seen"), (1.5, "as in the paper")],
)
def test_a_trend_says_whether_it_is_that_of_the_paper(shift, verdict):
    rng = np.random.default_rng(1)
    members, others = shifted(rng, 2.0)
    strata = {
        ("corpus", f"{n} tokens", "all", "min_k"): [(members + by, others)]
        for n, by in (("50,000", 0.0), ("9,000", -shift))
    }
    (row,) = _trends(strata)
    # By the number, not by its words.
    assert (row["first"], row["last"]) == ("9,000 tokens", "50,000 tokens")
    assert (row["where"], row["verdict"]) == ("figure 5a", verdict)


def test_gain_is_what_seen_examples_gained_beyond_unseen_ones():
    before, after = Job(kind="before", seed=3), Job(kind="tasks", seed=3, rate=1e-3)
    answers = [
        (before, {"a": [[1, 0, 0, 0], [1, 1, 0, 0]]}),
        (after, {"a": [[1, 1, 1, 0], [1, 0, 1, 0]]}),
    ]
    rows = [row for row in _accuracy(answers) if row["task"] == "all"]
    assert [row["setting"] for row in rows] == ["before", "0.001"]
    assert rows[0]["gain"]["value"] == 0
    assert (rows[1]["seen"], rows[1]["unseen"]) == (0.75, 0.5)
    assert rows[1]["difference"]["value"] == 0.25
    # Seen examples gained a half, unseen ones nothing.
    assert rows[1]["gain"]["value"] == 0.5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"only": ("tables",)}, "unknown part 'tables'"),
        ({"only": ("size",), "start": "m"}, "a model has one size"),
        ({"templates": ("{q}",)}, "--templates: 1 for 0 files"),
        ({"rates": (1e-3, -1.0)}, "--rates must be above 0"),
        ({"background": (0,)}, "--background must be above 0"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, message):
    with pytest.raises(InputError, match=message):
        Downstream(**flags)


@pytest.mark.slow
def test_members_were_planted_as_often_as_their_group_says(study):
    run = study("downstream")
    record = read_fields(run.out / "models" / f"tasks-0-0.01-{TINY.tokens}-0.json")
    found = {
        (row["task"], row["group"]): len(row["members"])
        for row in record["rows"]
        if row["method"] == "min_k"
    }
    expected = collections.Counter()
    for name, (seen, _) in Downstream(tiny=True, out=run.out).bench()._tasks(0).items():
        for part in drawn_copies(planted(name, [*map(text_of, seen)], 1), TINY.mean):
            words = {0: None, 1: "1 copy"}.get(part.copies, "2 copies or more")
            expected[name, words] += len(part.benchmark)
    assert found == {key: n for key, n in expected.items() if key[1] is not None}
