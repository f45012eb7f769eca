"""`eval.public`: which reference, which records, combined files, published figures."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from eval import beside, public
from eval.public import Public, combined
from eval.study import Records
from jaxcontam.errors import InputError
from jaxcontam.reports.report_files import data_digest

A, B = "somewhere/SmolLM2-135M.Q4_1.gguf", "elsewhere/gemma.gguf"


@pytest.fixture
def files(tmp_path):
    """Two of one name, and two of MMLU, one by the name of a folder."""
    names = ("boolq/dev.jsonl", "piqa/dev.jsonl", "mmlu_law.csv", "MMLU/test/trade.csv")
    paths = tuple(tmp_path / name for name in names)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.parent.name}{path.name}\n")
    return paths


@pytest.fixture
def asked(monkeypatch):
    """Audits that are asked for: model, reference, file and design of each."""
    found = []

    def audit(model, reference, file, store, **design):
        found.append((model, reference, file, design))
        names = design.get("tests", "direction").split(",")
        p_values = {f"{name.split(':')[0]}_p": 0.5 for name in names}
        return {
            "verdict": "no evidence",
            "refused": [],
            "n": 9,
            "effect": 0.1,
        } | p_values

    monkeypatch.setattr(public.jaxcontam, "load", lambda word, **_: word)
    monkeypatch.setattr(public, "audited", audit)
    return found


def test_records_are_of_content_limit_and_models(files, tmp_path, asked):
    kept = {"verdict": "suspected", "refused": [], "n": 7, "effect": 1.5}
    kept |= {"direction_p": 0.01, "verdict_beside": "inconclusive", "cpu_seconds": 2.0}
    kept |= {"reference_p": 0.4, "difference_p": 0.3, "half_p": 0.2}
    folder = tmp_path / "records"
    for file in files:
        digest = data_digest(file.read_bytes())
        sides = ("SmolLM2-135M.Q4_1", "gemma"), (A, B)
        for stem, own, other in zip(*sides, (B, A), strict=True):
            name = f"public-{stem}-{file.stem}-{digest[-8:]}"
            Records(folder).write(name, kept, digest, 200, [own, other])
    flags = {"models": (A, B), "files": files, "records": folder, "any_code": True}
    found = Public(**flags, out=tmp_path / "out").run()
    assert not asked and not found["failed"]
    assert found["earlier_cpu_seconds"] == 2.0 * 8
    first = {"model": "SmolLM2-135M.Q4_1", "file": "boolq/dev", "group": ""}
    # Holm over the eight p-values of direction.
    assert found["rows"][0] == {**first, **kept, "p_adjusted": 0.08}
    places = [(row["file"], row["group"], row["model"]) for row in found["rows"]]
    assert places[1][2] == "gemma"
    assert [file for file, *_ in places[::2]] == [
        *("boolq/dev", "piqa/dev", "mmlu_law", "trade")
    ]
    assert [group for _, group, _ in places[::2]] == ["", "", "mmlu", "mmlu"]
    for group in found["groups"]:
        assert (group["n_files"], group["published"]) == (2, "")
        q = 0.01**2
        assert group["p_value"] == pytest.approx(q * (1 - np.log(q)), rel=1e-9)
    # Another number of rows is another question.
    Public(**flags, out=tmp_path / "other", limit=100).run()
    assert len(asked) == 8


@pytest.mark.parametrize(
    ("models", "flags", "references"),
    [
        (("a",), {}, [None]),
        (("a", "b"), {}, ["b", "a"]),
        (("a", "b", "c"), {}, [None] * 3),
        (("a", "b", "c"), {"reference": "b"}, ["b", None, "b"]),
        (("a",), {"reference": "older"}, ["older"]),
        (("a", "b"), {"tests": "sharded_t:250"}, [None, None]),
    ],
)
def test_of_two_models_each_is_the_others_reference_else_one_is_named(
    files, tmp_path, asked, models, flags, references
):
    study = Public(models=models, files=files[:1], out=tmp_path, **flags)
    study.run()
    assert [(model, reference) for model, reference, *_ in asked] == [
        *zip(models, references, strict=True)
    ]
    design = {"limit": 200, "always": True}
    design |= {"tests": flags["tests"]} if "tests" in flags else {}
    assert all(one[3] == design for one in asked)


def test_records_of_one_design_do_not_replace_those_of_another(files, tmp_path, asked):
    flags = {"models": ("a",), "files": files[:1], "out": tmp_path, "any_code": True}
    designs = [{}, {"tests": "sharded_t"}, {"tests": "sharded_t", "order": ("anyway",)}]
    designs += [{"seed": 3}, {"dtype": "bfloat16"}]
    for design, again in itertools.product(designs, range(2)):
        found = Public(**flags, **design).run()
        assert len(asked) == (not again)
        (row,) = found["rows"]
        assert ("sharded_t_p" in row) == ("tests" in design)
        asked.clear()
    assert len([*(tmp_path / "records").iterdir()]) == len(designs)


def test_a_pair_that_cannot_be_had_is_named_and_costs_no_other(
    files, tmp_path, asked, monkeypatch, capsys
):
    loaded = []

    def load(word, **_):
        loaded.append(word)
        if word == "gated/a":
            raise InputError("gated/a: not yours", hint="ask for it")
        return word

    monkeypatch.setattr(public.jaxcontam, "load", load)
    study = Public(
        models=("gated/a", "b"), files=files[:2], out=tmp_path, tests="stratified"
    )
    found = study.run()
    assert {row["model"] for row in found["rows"]} == {"b"} and len(found["rows"]) == 2
    assert found["failed"] == {"gated/a: not yours": [f"a, {f}" for f in files[:2]]}
    assert loaded == ["gated/a", "b"], "each is asked for once"
    assert capsys.readouterr().err.count("ask for it") == 1
    alone = Public(models=("gated/a",), files=files[:1], out=tmp_path / "alone").run()
    assert (alone["rows"], len(alone["failed"])) == ([], 1)


def test_published_figures_stand_beside_the_same_test_of_the_same_model():
    def rows(model):
        p_values = {"direction_p": 0.2, "sharded_t_p": 0.03}
        place = {"group": "mmlu", "model": model}
        return [place | p_values] * 3 + [place | {"verdict": "invalid design"}]

    models = ("Llama-2-7b-hf", "pythia-1.4b@main", "other")
    given = [row for model in models for row in rows(model)]
    found = combined(given, ("sharded_t", "direction"))
    assert [one["published"] for one in found] == ["0.014", "", "0.362", "", "", ""]
    for one in found:
        assert (one["n_files"], one["n_unscored"]) == (3, 1)
    witness = scipy.stats.combine_pvalues([0.03] * 3, method="fisher").pvalue
    assert found[0]["p_value"] == pytest.approx(witness, rel=1e-12)
    # One file is no group, and files without a name of one are none.
    assert (
        combined(rows("x")[2:] + [{**rows("x")[0], "group": ""}] * 2, ("direction",))
        == []
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"models": ("x/model", "y/model.gguf")}, "--models: 'model' twice"),
        ({"models": ("x/a",), "reference": "y/a"}, "--models: 'a' twice"),
        ({"files": ("mmlu_law.csv", "mmlu_law.csv")}, "mmlu_law.csv' twice"),
        ({"files": ("nowhere.jsonl",)}, "nowhere.jsonl: no such file"),
        ({"tests": "shardedt"}, "unknown test 'shardedt'"),
        ({"tests": "sharded_t", "reference": "b"}, "takes no reference"),
        ({"limit": 0}, "--limit must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    files, tmp_path, flags, message
):
    flags = {"models": ("a",), "files": files, **flags}
    flags["files"] = tuple(tmp_path / file for file in flags["files"])
    with pytest.raises(InputError, match=message):
        Public(**flags)


def test_scores_of_a_reference_lie_beside_those_of_its_model(tmp_path):
    # So that each of two models scores a file once, whose reference it may be.
    for _ in range(2):
        store = public.shared_store(tmp_path / "a" / "store")
        (store / "reference" / "x.scores").write_text("1")
        assert (store / "x.scores").read_text() == "1"


def test_what_decides_is_recorded_whatever_was_scored_first(monkeypatch, tmp_path):
    def row(method, p, effect):
        beside = SimpleNamespace(p_value=p / 2, difference_p=p / 4, half_p=p / 8)
        facts = {"n_examples": 9, "refusals": (), "reference": beside}
        is_first = method == "direction"
        return SimpleNamespace(
            method=method, p_value=p, effect=effect, primary=is_first, **facts
        )

    class Found(dict):
        verdict = "suspected"
        results = property(lambda self: tuple(self.values()))

    rows = Found(
        adjacency=row("adjacency", 0.8, 7.0), direction=row("direction", 4e-4, 1.0)
    )
    monkeypatch.setattr(beside.jaxcontam, "audit", lambda *_, **__: rows)
    found = beside.audited("m", "r", Path("f"), tmp_path, tests="direction,adjacency")
    assert (found["direction_p"], found["adjacency_p"]) == (4e-4, 0.8)
    assert (found["effect"], found["reference_p"]) == (1.0, 2e-4)
