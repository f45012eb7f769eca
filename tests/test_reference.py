"""Effects in copies: the committed curve, and its inverse on made-up ones."""

import dataclasses
import json

import numpy as np
import pytest

from eval.power.model import ModelRecord, Outcome
from eval.reference_curve import ReferenceCurveCommand, curves_of
from jaxcontam.analyses.method_notes import method_words
from jaxcontam.errors import InputError
from jaxcontam.report.reference import (
    ReferenceCurve,
    copies_for_effect,
    quoted_curves,
    reference_curves,
    scale_sentence,
)
from tests.report_documents import order_result

CURVE = ReferenceCurve(
    population="made up",
    method="stratified",
    n_models=3,
    n_parameters=1_000_000,
    n_tokens=1000,
    canary_share=0.5,
    n_examples=100,
    copies=(0, 1, 2, 4, 16),
    median=(0.01, 0.1, 0.2, 0.4, 0.8),
    low=(0.0, 0.0, 0.0, 0.0, 0.0),
    high=(1.0, 1.0, 1.0, 1.0, 1.0),
)


@pytest.mark.parametrize(
    ("effect", "copies"),
    [(0.1, 1), (0.2, 2), (0.4, 4), (0.8, 16), (0.6, 8), (0.15, 2**0.5)],
)
def test_copies_are_read_off_the_median_in_logarithms(effect, copies):
    assert copies_for_effect(CURVE, effect) == pytest.approx(copies)


@pytest.mark.parametrize("effect", [-1.0, 0.0, 0.099, 0.81, float("inf")])
def test_effect_outside_the_curve_has_no_copies(effect):
    assert copies_for_effect(CURVE, effect) is None


def test_more_effect_never_needs_fewer_copies_where_the_median_dips():
    dipped = dataclasses.replace(CURVE, median=(0.0, 0.1, 0.3, 0.2, 0.8))
    effects = np.arange(10, 81) / 100
    copies = [copies_for_effect(dipped, effect) for effect in effects]
    assert np.all(np.diff(np.array(copies, float)) >= 0)
    assert (copies[0], copies[-1]) == (1, pytest.approx(16))


def test_committed_curves_rise_from_nothing_to_an_effect():
    curves = reference_curves()
    assert {curve.method for curve in curves} >= {"stratified"}
    for curve in curves:
        sizes = {len(curve.copies), len(curve.median), len(curve.low), len(curve.high)}
        assert sizes == {len(curve.copies)}
        assert curve.copies[0] == 0
        # The control's median is noise: below the effect at the most copies by far.
        assert abs(curve.median[0]) < curve.median[-1] / 4
        for low, median, high in zip(curve.low, curve.median, curve.high, strict=True):
            assert low <= median <= high


def test_one_curve_a_model_size_is_quoted():
    sizes = [curve.n_parameters for curve in quoted_curves("stratified")]
    assert sizes == sorted(
        {c.n_parameters for c in reference_curves() if c.method == "stratified"}
    )
    for curve in quoted_curves("stratified"):
        rivals = [
            other.n_models
            for other in reference_curves()
            if (other.method, other.n_parameters) == ("stratified", curve.n_parameters)
        ]
        assert curve.n_models == max(rivals)
    assert quoted_curves("no such test") == []


def silent(method="stratified", **changes):
    fields = {"verdict": "no evidence", "mde": 0.3, "first_tokens": -1}
    return order_result(**fields | changes, method=method)


def test_sentence_tells_the_copies_of_each_size_and_clears_nothing():
    smallest, *_, largest = quoted_curves("stratified")
    at_ten = largest.median[largest.copies.index(10)]
    words = method_words()
    sentence = scale_sentence([silent(mde=at_ten)], words)
    assert sentence is not None
    assert f"{largest.n_parameters / 1e6:.2g} M parameters, about 10" in sentence
    assert f"{smallest.n_parameters / 1e6:.2g} M parameters" in sentence
    assert "learned little shows little, so this clears nothing" in sentence
    assert "copies, if at all" in (scale_sentence([silent(mde=1e9)], words) or "")
    assert "1 copy or less" in (scale_sentence([silent(mde=-1.0)], words) or "")


def record(effects, seed):
    return ModelRecord(
        design="ladder",
        seed=seed,
        n_examples=10,
        n_parameters=100,
        n_tokens=1000,
        n_canary_tokens=500,
        loss=1.0,
        train_seconds=1.0,
        test_seconds=1.0,
        rows=tuple(
            Outcome(
                test="stratified",
                copies=copies,
                log10_p=-1.0,
                effect=effect,
                effect_se=0.1,
                mde=0.1,
                n_strata=2,
                n_orders=9,
                passes=10.0,
            )
            for copies, effect in effects.items()
        ),
    )


def test_curve_is_made_of_quantiles_over_models():
    records = [record({0: 0.0, 4: float(i)}, i) for i in range(11)]
    (curve,) = curves_of(records)
    assert curve.copies == (0, 4)
    assert curve.median == (0.0, 5.0)
    assert (curve.low[1], curve.high[1]) == (1.0, 9.0)
    assert (curve.n_models, curve.canary_share) == (11, 0.5)


def study_of(folder, names):
    """A finished study of made-up models, three of each population."""
    (folder / "models").mkdir()
    for name in names:
        for i in range(3):
            made = dataclasses.replace(record({0: 0.0, 1: 0.5}, i), design=name)
            fields = {"key": "k", **dataclasses.asdict(made)}
            (folder / f"models/{name}-{i}.json").write_text(json.dumps(fields))
    about = {
        "command": ["eval.power"],
        "cpu": "c",
        "versions": {},
        "corpus_digest": "x",
    }
    about["populations"] = [{"name": name, "seeds": [0, 1]} for name in names]
    (folder / "power.json").write_text(json.dumps(about))


def test_file_written_by_the_command_is_read_back_as_curves(tmp_path):
    study_of(tmp_path, ("ladder", "long", "quickstart"))
    out = tmp_path / "curve.json"
    document = ReferenceCurveCommand(study=tmp_path, out=out).run()
    assert json.loads(out.read_text()) == json.loads(json.dumps(document))
    assert document["curves"][0]["median"] == (0.0, 0.5)
    # Of three models that lie there the study names two.
    assert {curve["n_models"] for curve in document["curves"]} == {2}


def test_study_of_other_populations_is_refused(tmp_path):
    study_of(tmp_path, ("ladder", "main"))
    with pytest.raises(InputError, match="no models of long, quickstart"):
        ReferenceCurveCommand(study=tmp_path, out=tmp_path / "c.json").run()


def test_folder_without_a_study_is_named(tmp_path):
    with pytest.raises(InputError, match="no finished study"):
        ReferenceCurveCommand(study=tmp_path, out=tmp_path / "c.json").run()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"method": "two_min"}, True),
        ({"verdict": "inconclusive"}, True),
        ({"first_tokens": None}, True),
        ({"verdict": "contaminated"}, False),
        ({"mde": None}, False),
        # The curves are of effects over all tokens.
        ({"first_tokens": 8}, False),
        ({"method": "permutation"}, False),
    ],
)
def test_silence_is_given_a_scale_where_there_is_one(change, said):
    tests = [silent(**{"method": "adjacency"} | change)]
    sentence = scale_sentence(tests, method_words())
    assert (sentence is not None) == said
    # The weakest test of a report speaks for all.
    others = [silent("adjacency", mde=0.01), *tests]
    assert not said or scale_sentence(others, method_words()) == sentence
