"""`eval.inflation`: its world and its truth."""

import numpy as np
import pytest

from eval.inflation import ARMS, COPIES, Inflation, cases_of, cells, make_world
from eval.study import exit_code

pytestmark = pytest.mark.unoptimised

N = 40
FORMS = ("published", "renewed", "reworded")


def test_half_of_the_items_follow_the_text_and_none_is_named_in_it():
    """The commonest line of a kind says what it is for."""
    documents, forms, others = make_world(3)
    lines, items = "\n".join(documents), forms["published"]
    prompts = [line.split("? Answer: ") for line in lines.split("\n")]
    known = {p[0].split()[-2]: p[1] for p in prompts if len(p) == 2}
    follows = [
        one.choices[one.answer].strip() == known.get(one.prompt.split()[-3])
        for one in items
    ]
    assert np.mean(follows) == pytest.approx(0.5, abs=4 * 0.5 / len(items) ** 0.5)
    # Rewrites share the answer.
    for one, *rewrites in zip(*map(forms.get, FORMS), strict=True):
        for other in rewrites:
            assert (one.choices, one.answer) == (other.choices, other.answer)
            assert one.prompt != other.prompt
    others = [other.rpartition(" ")[0] for other in others]
    named = [f"{one.prompt} " for one in (*items[:200], *forms["reworded"][:200])]
    assert not any(prompt in lines for prompt in (*named, *others[:200]))
    assert not {one.prompt for one in items} & set(others)


def record(rng, gain):
    """A model that is right on half of the items, on planted ones more often."""
    n = N * len(COPIES)
    planted = np.repeat([min(copies, 1) for copies in COPIES], N)
    shares = zip(FORMS, (0.5 + gain * planted, 0.5, 0.5), strict=True)
    scores = {form: 1.0 * (rng.random(n) < share) for form, share in shares}
    return {"items": list(range(n))} | {f: one.tolist() for f, one in scores.items()}


def test_a_known_gain_is_the_truth_and_the_mean_estimate():
    """6 standard errors of 30 models, which have five sets of 40 planted items each."""
    rng = np.random.default_rng(1)
    kinds = ("reference", "alike")
    references = {kind: [record(rng, 0.0) for _ in range(8)] for kind in kinds}
    cases = []
    for seed in range(30):
        cases += cases_of(record(rng, 0.4), references, seed=seed)
    rows = {(row["arm"], row["copies"]): row for row in cells(cases)}
    assert {arm for arm, _ in rows} == set(ARMS)
    for (_, copies), row in rows.items():
        assert row["n"] == (60 if copies == 0 else 30)
        assert row["truth"] == pytest.approx(40 if copies else 0, abs=12)
        assert row["points"] == pytest.approx(row["truth"], abs=16)
    own = [rows["renewed, 5 alike", copies] for copies in COPIES]
    called = {row["copies"]: row["inflated"] / row["n"] for row in own}
    assert called.pop(0) < 0.1 < 0.3 < np.mean([*called.values()])


def test_covered_and_called_are_counted_by_hand():
    def case(own, low, high, outside=False):
        numbers = {"own": own, "estimate": (low + high) / 2, "low": low, "high": high}
        known = {"arm": "a", "copies": 1, "mde": 3.0, "outside": outside}
        return {**known, **numbers}

    ends = [(10, 1, 15), (20, -5, 12), (30, 21, 29), (20, 21, 59, True)]
    (row,) = cells([case(*numbers) for numbers in ends])
    assert row["truth"] == 20
    assert (row["inflated"], row["covered"], row["covered_own"]) == (2, 0, 1)
    assert (row["points"], row["mde"]) == (19.125, 3)


def test_models_that_failed_are_told_and_arms_that_lack_references_are_left_out(
    tmp_path, monkeypatch
):
    rng = np.random.default_rng(3)

    def made(_, tasks, inputs, maker):
        lost = ("planted", 0), ("alike", 20_000)
        kept = {task: record(rng, 0.0) for task in tasks if task not in lost}
        return kept, {inputs(one)[0]: "ValueError: why" for one in lost}

    monkeypatch.setattr("eval.inflation.made_records", made)
    document = Inflation(tiny=True, out=tmp_path).run()
    assert document["failed"] == dict.fromkeys(
        ("planted-0", "alike-20000"), "ValueError: why"
    )
    assert exit_code(document) == 3
    # Four references are left of one kind, and five of the other.
    arms = {row["arm"] for row in document["cells"]}
    assert "renewed, 5 of background alone" in arms and "renewed, 1 alike" in arms
    assert not {"renewed, 5 alike", "reworded, 5 alike"} & arms
