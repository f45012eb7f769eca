"""What a planted model is made of: draws, streams, manifests, the key of a folder."""

import dataclasses
import json
import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from train.population_job import ModelResult, finished_result, power_rows
from train.population_models import DivergedError, Job, SetResult, last_loss
from train.population_plan import Design, draw_sets, plan_model, read_pool
from train.prepare import stream_manifest
from train.presets import PRESETS
from train.sources import open_corpus
from train.tokenizer import prefix_id, train_tokenizer
from train.tokens import as_cache, token_cache

POOL = [f"question {i}" for i in range(1000)]
DESIGN = Design(
    name="set",
    preset=PRESETS["pulse"],
    n_examples=12,
    copies=(0, 2, 5, 2),
    n_steps=40,
    max_example_tokens=31,
)


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(0)
    return [" ".join(f"word{i}" for i in rng.integers(0, 90, 60)) for _ in range(90)]


@pytest.fixture(scope="module")
def tokenizer(words):
    return train_tokenizer([*words, *POOL[:20]], 512)


def read(tokenizer, documents):
    return read_pool(
        plain_tokenizer(tokenizer.backend_tokenizer),
        prefix_id(tokenizer),
        documents,
        POOL,
        max_example_tokens=31,
    )


@pytest.fixture(scope="module")
def texts(words, tokenizer):
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    return read(tokenizer, as_cache(words, plain))


def planted_rows(design, model):
    canaries = list(zip(model.sets, model.encoded, strict=True))
    said = dict.fromkeys(("code", "max_example_tokens")) | {
        "seed": 0,
        "corpus_digest": "",
        "separator": "",
        "finished": True,
    }
    return stream_manifest(
        canaries, model.stream, model.starts, design.preset, **said
    ).sets


def test_sets_of_a_model_share_no_example_and_follow_from_the_seed():
    drawn = np.concatenate(draw_sets(DESIGN, POOL, seed=1))
    assert len(set(drawn)) == len(drawn) == 48
    np.testing.assert_array_equal(
        drawn, np.concatenate(draw_sets(DESIGN, POOL, seed=1))
    )
    assert (drawn != np.concatenate(draw_sets(DESIGN, POOL, seed=2))).any()


def test_order_of_a_set_tells_nothing_of_the_order_of_the_pool():
    design = dataclasses.replace(DESIGN, n_examples=120)
    ranks = [
        stats.spearmanr(np.arange(120), one).statistic
        for seed in range(40)
        for one in draw_sets(design, POOL, seed=seed)
    ]
    # 160 sets, standard error 1/sqrt(119) each; 4 of their mean.
    assert abs(np.mean(ranks)) < 4 / math.sqrt(119 * len(ranks))


def test_too_few_examples_are_counted():
    with pytest.raises(InputError, match="pool has 47 examples, 48 needed for 4 sets"):
        draw_sets(DESIGN, POOL[:47], seed=0)


def test_sets_of_equal_copies_have_names_of_their_own():
    assert DESIGN.set_names == ("set-0", "set-2", "set-5", "set-2-2")


def test_copies_with_a_time_are_trained_on_then_and_others_anywhere(texts):
    when = ("uniform", (0.1,), (0.7,), "uniform")
    design = dataclasses.replace(DESIGN, copies=(0, 4, 4, 4), when=when)
    model = plan_model(design, texts, seed=4)
    early, late, spread = (
        np.concatenate(row.steps) / design.n_steps
        for row in planted_rows(design, model)[1:]
    )
    # A set's four copies of a dozen examples are less than a fifth of all rows.
    assert early.min() >= 0.1 and early.max() < 0.35
    assert late.min() >= 0.7
    assert np.ptp(spread) > 0.4
    with pytest.raises(ValueError, match="when must be given for 4 sets, got 1"):
        dataclasses.replace(DESIGN, when=("uniform",))


def test_rows_are_those_of_the_steps_and_hold_every_copy(texts):
    model = plan_model(DESIGN, texts, seed=4)
    assert model.rows.shape == (40 * 4, 65)
    for i, row in enumerate(planted_rows(DESIGN, model)):
        assert row.fingerprint == model.sets[i].benchmark.fingerprint
        assert len(row.token_offsets) == len(row.steps) == row.copies
        ids = np.concatenate(model.encoded[i].ids)
        for offset, steps in zip(row.token_offsets, row.steps, strict=True):
            np.testing.assert_array_equal(
                model.stream.ids[offset : offset + row.n_tokens], ids
            )
            assert model.stream.ids[offset - 1] == texts.prefix_id
            assert set(steps) <= set(range(1, 41))


def test_models_of_other_seeds_have_other_background_and_sets(texts):
    one, same, other = (plan_model(DESIGN, texts, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.rows, same.rows)
    assert one.sets[0].benchmark.content_digest == same.sets[0].benchmark.content_digest
    assert (
        one.sets[0].benchmark.content_digest != other.sets[0].benchmark.content_digest
    )
    assert not np.array_equal(one.rows, other.rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copies": (0, 400)}, "sets' copies are .* tokens, training only 10,240"),
        ({"n_steps": 400}, "tokens too few to fill 400 steps"),
    ],
)
def test_lengths_that_cannot_be_are_refused(texts, change, message):
    with pytest.raises(InputError, match=message):
        plan_model(dataclasses.replace(DESIGN, **change), texts, seed=0)


def test_texts_are_unpickled_with_their_files_mapped(texts, tokenizer, words, tmp_path):
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in words)
    )
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    cache = token_cache(open_corpus([tmp_path / "docs.jsonl"]), plain, tmp_path)
    for documents, is_mapped in ((cache, True), (texts.documents, False)):
        own = dataclasses.replace(texts, documents=documents)
        again = pickle.loads(pickle.dumps(own))
        assert again.pool == texts.pool
        assert again.prefix_id == texts.prefix_id
        assert isinstance(again.documents.ids, np.memmap) == is_mapped
        assert len(again.documents) == len(texts.documents) == 90
        one, other = (plan_model(DESIGN, t, seed=3) for t in (texts, again))
        np.testing.assert_array_equal(one.rows, other.rows)


def with_digests(corpus, ids):
    """Stands for texts of a background with these digests."""
    return SimpleNamespace(documents=SimpleNamespace(corpus_digest=corpus, digest=ids))


def job(out: Path) -> Job:
    return Job(
        design=DESIGN,
        out=out,
        test="adjacency",
        weights=False,
        code=None,
        sources="a",
        tokenizer=None,
        texts=with_digests("a", "a"),
        tokenizer_digest="a",
        pool_digest="a",
        device="scan on a CPU",
    )


def result(seed, *p_values, copies=4):
    rows = tuple(
        SetResult(
            name=f"set-{i}",
            copies=copies,
            method="adjacency",
            n_examples=12,
            n_strata=2,
            p_value=p,
            log10_p=math.log10(p),
            effect=None,
            effect_se=None,
            mde=None,
        )
        for i, p in enumerate(p_values)
    )
    return ModelResult(
        seed=seed,
        n_parameters=1,
        n_tokens=1,
        n_canary_tokens=1,
        loss=1.0,
        train_seconds=1.0,
        test_seconds=1.0,
        cpu_seconds=1.0,
        rows=rows,
    )


def write_result(job, one):
    folder = job.folder(one.seed)
    folder.mkdir()
    fields = {"key": job.key(one.seed), **dataclasses.asdict(one)}
    (folder / "tests.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    "change",
    [
        {"design": dataclasses.replace(DESIGN, n_steps=41)},
        {"test": None},
        {"weights": True},
        {"sources": "b"},
        {"texts": with_digests("b", "a")},
        {"texts": with_digests("a", "b")},
        {"tokenizer_digest": "b"},
        {"pool_digest": "b"},
        {"device": "vmap on a GPU"},
    ],
)
def test_model_of_another_job_is_refused_by_name(tmp_path, change):
    first = job(tmp_path)
    write_result(first, result(7, 0.1))
    assert finished_result(first, 7) == result(7, 0.1)
    assert finished_result(first, 8) is None
    other = dataclasses.replace(first, **change)
    with pytest.raises(InputError, match="model-7: a model of other inputs or other"):
        finished_result(other, 7)


def test_commit_alone_makes_no_model_obsolete(tmp_path):
    first = job(tmp_path)
    write_result(first, result(7, 0.1))
    again = dataclasses.replace(first, code="another commit")
    assert finished_result(again, 7) == result(7, 0.1)


def test_power_counts_pvalues_at_the_level_and_below():
    models = [result(i, p) for i, p in enumerate((1e-300, 0.001, 0.0011, 0.05, 0.3))]
    deep, mild = power_rows([*models, result(9, 1.0, copies=0)])[2:]
    assert (deep.copies, deep.level, deep.n_rejected, deep.n_sets) == (4, 0.001, 2, 5)
    assert (mild.level, mild.n_rejected) == (0.05, 4)
    assert 10**deep.median_log10_p == pytest.approx(0.0011)
    expected = stats.binomtest(2, 5).proportion_ci(method="wilson")
    # The quantile is written with 7 digits.
    assert (deep.low, deep.high) == pytest.approx(tuple(expected), abs=1e-6)


def test_model_whose_loss_is_not_finite_says_from_which_step():
    assert last_loss(np.arange(100.0)) == np.arange(50.0, 100.0).mean()
    with pytest.raises(DivergedError, match="not finite from step 3 on"):
        last_loss(np.array([5.0, 4.0, np.nan, np.nan]))
