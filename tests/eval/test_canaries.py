"""The canary study on small made-up files, and its refusals."""

import json
import shutil

import numpy as np
import pytest

from eval.canaries import runs
from eval.canaries.__main__ import Canaries
from eval.canaries.runs import CANARIES
from jaxcontam.errors import InputError
from tests.support.verified import verified
from train.manifest import read_manifest

pytestmark = pytest.mark.unoptimised

WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heron")
# As many as the blind classifiers need, and a few to spare for lines that stand twice.
LIMIT = 13
FEW = ("mnli",)
METHODS = (
    "adjacency",
    "direction",
    "stratified",
    "sharded_t",
    "reversal",
    "permutation",
)


def sentences(rng, n):
    return [" ".join(rng.choice(WORDS, 9)) for _ in range(n)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folders `corpus` and `sets`, with 2 x LIMIT + 1 lines a set.

    The last line of each set is its first one again, in the half that is kept out.
    """
    folder = tmp_path_factory.mktemp("canaries")
    rng = np.random.default_rng(0)
    for name, texts in [
        ("corpus/words", sentences(rng, 800)),
        *((f"sets/{name}", sentences(rng, 2 * LIMIT + 1)) for name in CANARIES),
    ]:
        if name.startswith("sets/"):
            texts[2 * LIMIT - 1] = texts[0]
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return folder


def study(files, out, **changes):
    fields = {"limit": LIMIT, "max_example_tokens": 20, "tiny": True} | changes
    return Canaries(
        corpus=(files / "corpus",), canaries=files / "sets", out=out, **fields
    )


def known_code(patch):
    """As in a checkout; tests may run where git knows nothing."""
    patch.setattr("train.prepare.code_version", lambda: "a commit")


def one_set(patch):
    patch.setattr(runs, "CANARIES", {name: CANARIES[name] for name in FEW})


@pytest.fixture(autouse=True)
def in_a_checkout(monkeypatch):
    known_code(monkeypatch)


@pytest.fixture
def few(monkeypatch):
    one_set(monkeypatch)


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    """A pulse run of one of the ten sets."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        known_code(patch)
        one_set(patch)
        return study(files, out).run(), out


def test_every_set_and_its_control_is_tested_six_ways(finished):
    document, out = finished
    found = {(row["benchmark"], row["method"]) for row in document["results"]}
    assert found == {
        (name + suffix, method)
        for name in FEW
        for suffix in ("", "-held")
        for method in METHODS
    }
    # Nobody but the authors knows how these files came by their order.
    assert {r["method"] for r in document["results"] if r["primary"]} == {"direction"}
    assert verified(out) == ([], 12)
    reference = read_manifest(out / "reference/manifest.json")
    assert (reference.n_canary_tokens, document["reference"]["name"]) == (
        0,
        "reference",
    )
    assert all(
        (row["reference"] is not None) == (row["method"] in ("adjacency", "direction"))
        for row in document["results"]
    )


def test_later_lines_that_were_planted_too_are_counted(finished):
    # The last later line of each set is its first planted one.
    document, _ = finished
    assert document["study"]["seen"] == {f"{name}-held": [1, LIMIT] for name in FEW}


def test_manifest_holds_the_copies_and_the_cuts(finished, files):
    _, out = finished
    manifest = read_manifest(out / "manifest.json")
    copies = {row.name: row.copies for row in manifest.sets}
    assert copies == {
        **{name: CANARIES[name].published for name in FEW},
        **{f"{name}-held": 0 for name in FEW},
    }
    assert manifest.max_example_tokens == 20
    assert {row.n_examples for row in manifest.sets} == {LIMIT}
    lines = (files / "sets/mnli.jsonl").read_text().splitlines()
    planted = (out / "sets/mnli.jsonl").read_text().splitlines()
    held = (out / "sets/mnli-held.jsonl").read_text().splitlines()
    assert planted + held == lines[: 2 * LIMIT]


def test_run_leaves_tables_and_raw_numbers(finished):
    document, out = finished
    run = json.loads((out / "canaries.json").read_text())
    assert [row["p_value"] for row in run["tests"]] == [
        row["p_value"] for row in document["results"]
    ]
    assert run["seen"] == document["study"]["seen"]
    tables = (out / "canaries.md").read_text()
    (mnli,) = (
        line
        for line in tables.splitlines()
        if line.startswith("| mnli |") and "1.96e-11" in line
    )
    assert mnli.split(" | ")[1] == "10"


def test_duplication_counts_are_those_of_both_models():
    """Table 1 of the paper, and the file names of the authors' second model."""
    assert list(runs.copies_of("published").values()) == [
        *(1, 1, 1, 10, 10, 10, 50, 50, 50, 100)
    ]
    assert list(runs.copies_of("lower").values()) == [*(1, 1, 2, 2, 4, 4, 7, 7, 10, 10)]


@pytest.mark.parametrize("plan", ["published", "lower"])
def test_plan_is_known_by_its_copies(plan):
    copies = runs.copies_of(plan)
    assert runs.plan_of(copies) == plan
    assert runs.plan_of(copies | {"piqa": 3}) is None


def test_given_run_is_tested_without_training_and_gives_its_numbers(
    finished, monkeypatch, tmp_path
):
    document, out = finished
    monkeypatch.setattr("train.run.train", None)
    shutil.copytree(out / "store", tmp_path / "store")
    found = Canaries(trained=out, out=tmp_path, tiny=True).run()
    for name in ("benchmark", "method", "p_value", "verdict"):
        assert [row[name] for row in found["results"]] == [
            row[name] for row in document["results"]
        ]
    # Nothing but what tests wrote: the run itself stays where it is.
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("fault", ["lines", "unfinished", "nothing"])
def test_given_run_that_is_not_whole_is_refused(finished, tmp_path, fault):
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(finished[1], run)
    manifest = run / "manifest.json"
    if fault == "lines":
        with (run / "sets/mnli.jsonl").open("a") as file:
            file.write('{"text": "one more"}\n')
        message = r"mnli\.jsonl: not the set 'mnli' of manifest\.json"
    elif fault == "unfinished":
        fields = json.loads(manifest.read_text()) | {"finished": False}
        manifest.write_text(json.dumps(fields))
        message = "its training is not finished"
    else:
        shutil.rmtree(run)
        message = "no manifest"
    with pytest.raises(InputError, match=message):
        Canaries(trained=run, out=out).run()
    assert not out.exists()


@pytest.mark.slow
def test_all_ten_sets_are_planted_and_tested(files, tmp_path):
    document = study(files, tmp_path, limit=6).run()
    assert {row["benchmark"]: row["copies"] for row in document["results"]} == {
        **runs.copies_of("published"),
        **{f"{name}-held": 0 for name in CANARIES},
    }
    # Six tests of twenty sets.
    assert verified(tmp_path) == ([], 120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"seed": 1}, "a commit"),
        ({"dup_counts": "lower"}, "a commit"),
        ({}, "another commit"),
        ({}, None),
    ],
)
def test_model_of_other_inputs_or_code_is_not_reused(
    finished, files, few, monkeypatch, tmp_path, change, code
):
    out = tmp_path / "run"
    shutil.copytree(finished[1], out)
    monkeypatch.setattr("train.prepare.code_version", lambda: code)
    monkeypatch.setattr("train.run.train", lambda *_, **__: 1 / 0)
    # Other code trains again; a model of other inputs is kept, and named.
    error, words = ZeroDivisionError, "division by zero"
    if change:
        error, words = InputError, "of other inputs"
    with pytest.raises(error, match=words):
        study(files, out, **change).run()


def test_too_short_a_file_is_named_with_a_limit_that_works(files, tmp_path):
    with pytest.raises(InputError, match="27 lines, 28 needed") as caught:
        study(files, tmp_path, limit=14).run()
    assert caught.value.hint == "--limit 13 or less"
    assert not list(tmp_path.iterdir())
