# ruff: noqa: F811  (a fixture of another file is an argument here)
"""`audit --reference`: a model that cannot have seen the file takes the same tests."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

from jaxcontam import Audit
from jaxcontam.orders import command as audit_command
from jaxcontam.orders.answer_options import METHOD as OPTIONS
from jaxcontam.orders.command import audit
from jaxcontam.orders.methods import ADJACENCY, DIRECTION
from jaxcontam.proof.result import Evidence
from jaxcontam.proof.test_row import loglik_gap, reference_result
from jaxcontam.reports.report_files import REPORT_NAME
from tests.orders.test_order_path import (
    bigrams,
    random_bigrams,
    tokenizer,  # noqa: F401
)
from tests.support.forged import reseal
from tests.support.stub_models import opened_stub
from tests.support.verified import verified


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """60 lines in random order, each with a letter of its own at both ends."""
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("file") / "x.txt"
    marks = [chr(33 + i) for i in rng.permutation(60)]
    words = rng.choice(list("mnopqrstuv"), (60, 6, 3))
    lines = [" ".join(map("".join, row)) for row in words]
    marked = (f"{m}{line}{m}\n" for m, line in zip(marks, lines, strict=True))
    path.write_text("".join(marked))
    return path


def follower(path, tokenizer):
    """A stub that expects after each line the first letter of the published next."""
    table = np.full((300, 300), -5.0, np.float32)
    lines = path.read_text().splitlines()
    for line, after in itertools.pairwise(lines):
        one, other = (tokenizer.encode(text[-1]).ids[0] for text in (line, after))
        table[one, other] = -0.1
    return bigrams(table)


def audited(
    file, tokenizer, out, target, reference, *, tests="direction", context=None
):
    """Audit the file by one stub beside another one; returns the report."""
    older = opened_stub("older", reference, tokenizer)
    if context is not None:
        older = dataclasses.replace(older, context=context)
    words = dict(model="target", benchmark=(file,), reference="older", separator="")
    command = Audit(**words, tests=tests, out=out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_command, "open_for", lambda *_, **__: older)
        return audit(command, lambda: opened_stub("target", target, tokenizer))


def test_likelihoods_are_compared_over_pairs_that_stand_there():
    """One stratum of three and one of two, with zeros beside it."""
    pairs_KSS, there_KSS = np.full((2, 3, 3), -5.0), np.full((2, 3, 3), -2.0)
    pairs_KSS[0] += np.arange(9).reshape(3, 3)
    for padded in (pairs_KSS[1], there_KSS[1]):
        padded[2], padded[:, 2] = 0.0, 0.0
    evidence = Evidence(
        orders=np.array([[[0, 1, 2]], [[3, 4, -1]]], np.int32),
        pairs=pairs_KSS,
        reference_pairs=pairs_KSS + there_KSS,
        codes=np.zeros((2, 3), np.int64),
        runs=np.zeros((2, 3), np.int64),
    )
    assert loglik_gap(evidence) == pytest.approx(-2.0)


def test_silent_reference_leaves_the_proof(file, tokenizer, tmp_path):
    seen, new = follower(file, tokenizer), random_bigrams(5)
    tests = "direction,adjacency"
    document = audited(file, tokenizer, tmp_path, seen, new, tests=tests)
    rows = {row["method"]: row for row in document["results"]}
    assert rows["direction"]["verdict"] == "contaminated"
    for row in rows.values():
        reference = row["reference"]
        assert reference["name"] == document["reference"]["name"] == "older"
        assert reference["p_value"] > 0.05
        assert reference["difference_p"] <= 0.001
        # What the target prefers, less what the reference does.
        assert reference["difference"] == pytest.approx(
            row["effect"] - reference["scale"] * reference["effect"]
        )
    assert verified(tmp_path) == ([], 2)


def forty_strata(pairs_KSS, reference_KSS):
    """Evidence of forty strata of eight examples, all pairs."""
    return Evidence(
        orders=np.arange(320, dtype=np.int32).reshape(40, 1, 8),
        pairs=pairs_KSS,
        reference_pairs=reference_KSS,
        codes=np.zeros((40, 8), np.int64),
        runs=np.repeat([[0, 1]], 40, axis=0).repeat(4, axis=1),
    )


def beside(evidence, method=DIRECTION):
    """What the reference of some evidence shows."""
    return reference_result(
        method, evidence, name="old", fingerprint="", seed=0, content_digest="sha256:0"
    )


def test_a_reference_that_reads_alike_but_gains_less_explains_as_much():
    """Half of every score leaves no difference; memory of the target sets no scale."""
    rng = np.random.default_rng(4)
    pairs_KSS = rng.normal(size=(40, 8, 8)) * (1 - np.eye(8))
    foretold_KSS = pairs_KSS + np.eye(8, k=1)
    found = beside(forty_strata(foretold_KSS, foretold_KSS / 2))
    assert found.scale == pytest.approx(2.0)
    assert found.difference == pytest.approx(0.0, abs=1e-12)
    assert found.difference_p == 1.0
    # One boundary in three remembered, with 30 nats: the scale is that of the rest.
    memory_KSS = 30.0 * (rng.random((40, 8, 8)) < 1 / 3) * np.eye(8, k=1)
    found = beside(forty_strata(pairs_KSS + memory_KSS, pairs_KSS / 2))
    assert found.scale == pytest.approx(2.0)
    assert found.difference_p < 1e-6
    # Larger scores of a reference stay as they are.
    assert beside(forty_strata(foretold_KSS, foretold_KSS * 2)).scale == 1.0


@pytest.mark.parametrize(
    ("method", "order"),
    [(DIRECTION, [0, 1, 2, 3, 7, 6, 5, 4]), (ADJACENCY, [3, 0, 7, 1, 5, 2, 6, 4])],
)
def test_no_order_that_is_compared_changes_the_scale(method, order):
    """One stratum stands otherwise: as likely under the null, so the same scale."""
    rng = np.random.default_rng(5)
    model_KSS, reference_KSS = rng.normal(size=(2, 40, 8, 8)) * (1 - np.eye(8))
    turned = []
    for scores_KSS in (model_KSS * 3, reference_KSS):
        other_KSS = scores_KSS.copy()
        other_KSS[:1] = other_KSS[:1, order][..., order]
        turned.append(other_KSS)
    found = beside(forty_strata(model_KSS * 3, reference_KSS), method)
    assert found.scale > 2.0
    assert beside(forty_strata(*turned), method).scale == pytest.approx(found.scale)


def test_no_order_of_options_changes_the_scale():
    scores_KM, other_KM = np.random.default_rng(3).normal(size=(2, 50, 4))
    scores_KM[:, 0] += 2.0
    one, other = (
        Evidence(scores=scores_KM[:, order], reference_scores=other_KM[:, order] / 2)
        for order in ([0, 1, 2, 3], [2, 0, 3, 1])
    )
    scale = beside(one, OPTIONS).scale
    assert scale > 2.0
    assert beside(other, OPTIONS).scale == pytest.approx(scale, rel=1e-12)


def test_a_reference_that_ignores_context_is_not_scaled_by_its_rounding():
    rng = np.random.default_rng(6)
    model_KSS = rng.normal(size=(40, 8, 8)) * (1 - np.eye(8))
    alone_KSS = rng.normal(-60, 5, size=(40, 1, 8)) * (1 - np.eye(8))
    assert beside(forty_strata(model_KSS, alone_KSS)).scale == 1.0


@pytest.fixture(scope="module")
def both_prefer(file, tokenizer, tmp_path_factory):
    """Folder of an audit whose reference expects the published order, too."""
    out, seen = tmp_path_factory.mktemp("both"), follower(file, tokenizer)
    audited(file, tokenizer, out, seen, seen)
    return out


def test_a_reference_that_reads_less_of_an_example_is_told(file, tokenizer, tmp_path):
    scorer = random_bigrams(5)
    document = audited(file, tokenizer, tmp_path, scorer, scorer, context=40)
    ((warning,),) = [row["warnings"] for row in document["results"]]
    assert warning.startswith("older, the reference model, reads 60 of 60 examples cut")


def test_half_of_the_model_less_the_scaled_reference_is_what_is_tested():
    """Noise that both share counts half; that of the reference alone counts whole."""
    rng = np.random.default_rng(7)
    noise_KSS, other_KSS = rng.normal(size=(2, 40, 8, 8)) * (1 - np.eye(8))
    memory_KSS = 0.8 * np.eye(8, k=1)
    evidence = forty_strata(noise_KSS + memory_KSS, 0.5 * (noise_KSS + other_KSS / 9))
    found = beside(evidence)
    assert found.scale == pytest.approx(2.0, abs=0.1)
    own, theirs = evidence.pairs, found.scale * evidence.reference_pairs
    half = dataclasses.replace(evidence, pairs=own / 2 - theirs)
    numbers = DIRECTION.numbers(half, grouped=False, seed=0, content_digest="sha256:0")
    assert found.half_p == numbers.p_value < 1e-3
    loud = beside(forty_strata(noise_KSS + memory_KSS, -3 * other_KSS))
    assert loud.scale == 1.0 and loud.p_value > 0.005 and loud.half_p > 0.05


def test_reference_that_prefers_the_order_leaves_no_proof(both_prefer):
    document = json.loads((both_prefer / REPORT_NAME).read_text())
    (row,) = document["results"]
    assert row["p_value"] <= 0.001
    assert row["verdict"] == "invalid design"
    assert row["reference"]["p_value"] == row["p_value"]
    assert row["reference"]["difference_p"] == 1.0
    assert verified(both_prefer) == ([], 1)


def forged(made, out, row, scores=None, kind="pairs"):
    """Faults of a report that was changed by somebody who can seal it.

    `row` are fields of its result, or of what one of them holds; `scores` changes those
    of the reference, and None leaves them out.
    """

    def change(document):
        first = document["results"][0]
        for name, value in row.items():
            first[name] = first[name] | value if isinstance(value, dict) else value

    def of_reference(arrays):
        name = f"0/reference_{kind}"
        if (found := scores(arrays.pop(name))) is not None:
            arrays[name] = found

    shutil.copytree(made, out)
    reseal(out, change, scores and of_reference)
    return "\n".join(verified(out)[0])


CLEAR = {
    "reference": {"p_value": 0.7, "log10_p": float(np.log10(0.7))},
    "verdict": "contaminated",
}
HIDE = {"reference": None, "verdict": "contaminated"}
OTHER = "sha256:other"


@pytest.mark.parametrize(
    ("row", "scores", "fault"),
    [
        (CLEAR, None, "reference.p_value is 0.7, recomputed"),
        ({"reference": {"half_p": 1e-9}}, None, "half_p is 1e-09, recomputed 1.0"),
        (HIDE, None, "reference is None, recomputed {'name'"),
        (HIDE, lambda _: None, "no pairs of a reference model"),
        ({"reference": {"fingerprint": OTHER}}, None, f"{OTHER!r}, recomputed"),
        ({}, lambda pairs: pairs * 0.0, "reference.p_value is"),
        ({}, lambda pairs: pairs[:1], "the reference was scored with other pairs"),
    ],
)
def test_forged_reference_is_found(both_prefer, tmp_path, row, scores, fault):
    assert fault in forged(both_prefer, tmp_path / "out", row, scores)
