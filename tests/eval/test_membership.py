"""The study of membership: texts, numbers, and the study in its pulse size."""

import dataclasses
import json

import numpy as np
import pytest

from eval.membership.cells import Stratum, cell
from eval.membership.copies import TINY, Bench, copies_study, smaller
from eval.membership.tables import grids
from eval.membership.texts import drawn
from eval.python_docs import PythonDocs, Question
from jaxcontam.errors import InputError
from jaxcontam.stats.roc import auc_delong

pytestmark = pytest.mark.unoptimised


def strata(rng, shift, n=40):
    return [Stratum(rng.normal(shift, 1, n), rng.normal(0, 1, n)) for _ in range(3)]


def numbers(found):
    return cell(found, copies=1, method="loss")


def test_auc_of_several_strata_is_their_mean_by_members():
    rng = np.random.default_rng(0)
    a = Stratum(rng.normal(1, 1, 30), rng.normal(0, 1, 50))
    b = Stratum(rng.normal(0, 1, 10), rng.normal(0, 1, 50))
    expected = 0.75 * auc_delong(a.members, a.nonmembers)[0]
    expected += 0.25 * auc_delong(b.members, b.nonmembers)[0]
    assert numbers([a, b]).auc == pytest.approx(expected, abs=1e-12)


def test_levels_of_strata_do_not_count():
    rng = np.random.default_rng(1)
    found = strata(rng, 0.5)
    moved = [
        Stratum(one.members + 10 * i, one.nonmembers + 10 * i)
        for i, one in enumerate(found)
    ]
    assert numbers(moved).auc == pytest.approx(numbers(found).auc, abs=1e-12)


def test_interval_of_the_mean_covers_the_truth():
    rng = np.random.default_rng(2)
    # P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2).
    truth, n = 0.76025, 400
    held = 0
    for _ in range(n):
        found = numbers(strata(rng, 1.0))
        held += found.auc_low <= truth <= found.auc_high
    # Nominal 0.95; 3.3 standard errors of 400 trials are 0.036.
    assert held / n >= 0.95 - 0.036


def test_too_few_nonmembers_give_no_true_positive_rate():
    rng = np.random.default_rng(3)
    assert numbers(strata(rng, 1.0, n=19)).tpr is None
    assert numbers(strata(rng, 9.0, n=20)).tpr == 1.0


def test_a_draw_depends_on_its_seed_alone():
    items = list(range(100))
    assert drawn(items, 10, seed=1) == drawn(items, 10, seed=1)
    assert drawn(items, 10, seed=1) != drawn(items, 10, seed=2)
    with pytest.raises(InputError, match="the corpus gives 100 questions, 101 needed"):
        drawn(items, 101, seed=1)


def test_the_reference_keeps_vocabulary_and_rows():
    preset = smaller(TINY.preset)
    assert preset.decoder.vocab_size == TINY.preset.decoder.vocab_size
    assert preset.context == TINY.preset.context
    assert preset.decoder.d_model == TINY.preset.decoder.d_model // 2


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Made-up texts, so that nothing depends on this Python installation."""
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "en", "ir", "oth")]
    documents = tuple(" ".join(rng.choice(words, 60)) for _ in range(200))
    asked = tuple(
        Question(" ".join(rng.choice(words, 6)).capitalize(), f"m.{words[i % 48]}{i}")
        for i in range(70)
    )
    return Bench(
        scale=dataclasses.replace(TINY, known_tokens=2_000),
        pool=PythonDocs(documents, asked),
        seeds=(0,),
        out=tmp_path_factory.mktemp("study"),
        any_code=True,
    )


@pytest.fixture(scope="module")
def study(bench):
    return copies_study(bench)


# Fifteen seconds for all that read the study.
@pytest.mark.slow
def test_every_score_is_at_every_number_of_copies(study):
    for cells, some in ((study.cells, "gradient_norm"), (study.blind, "length")):
        names = list(dict.fromkeys(one.method for one in cells))
        assert some in names
        assert [(one.method, one.setting) for one in cells] == [
            (name, f"{copies} copies") for name in names for copies in (1, 4)
        ]
        assert all(one.n_members == one.n_nonmembers == 20 for one in cells)


@pytest.mark.slow
def test_members_stand_in_the_stream_and_nonmembers_do_not(bench, study):
    folder = bench.out / "models/copies-0"
    manifest = json.loads((folder / "manifest.json").read_text())
    texts = "".join((folder / row["file"]).read_text() for row in manifest["sets"])
    planted = sum(question.text in texts for question in bench.pool.questions)
    # Twenty at each of two numbers of copies, and two for a prefix.
    assert planted == 42
    reference = json.loads((bench.out / "models/reference-0/manifest.json").read_text())
    assert reference["sets"] == []


@pytest.mark.slow
def test_tables_of_the_study(study):
    auc, found = grids(study)
    assert auc.title == "Known members, by copies: AUC"
    assert auc.header == found.header == ("score", "1 copies", "4 copies")
    blind = [row[0].startswith("blind: ") for row in auc.rows]
    assert blind == sorted(blind) and {"min_k", "blind: ngram"} <= {
        row[0] for row in auc.rows
    }
