"""`python -m train.population`: what models are made of, folders, processes."""

import dataclasses
import json
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.scoring.local import checkpoint_scorer
from train.config import PRESETS
from train.data import open_corpus
from train.manifest import read_manifest
from train.population import (
    ModelResult,
    Population,
    _write_manifest,
    finished_result,
    power_rows,
)
from train.population_models import (
    Design,
    DivergedError,
    Job,
    SetResult,
    draw_sets,
    last_loss,
    plan_model,
    read_texts,
)
from train.tokens import token_cache

pytestmark = pytest.mark.unoptimised

POOL = [f"question {i}" for i in range(1000)]
DESIGN = Design(
    name="set",
    config=PRESETS["pulse"].changed(max_example_tokens=31),
    n_examples=12,
    copies=(0, 2, 5, 2),
    n_steps=40,
)
_RNG = np.random.default_rng(0)
WORDS = [f"word{i}" for i in range(90)]
DOCUMENTS = [" ".join(_RNG.choice(WORDS, 90)) for _ in range(80)]


@pytest.fixture(scope="module")
def texts():
    return read_texts(DOCUMENTS, POOL, DESIGN.config)[1]


def test_sets_of_a_model_share_no_example_and_follow_from_the_seed(texts):
    drawn = np.concatenate(draw_sets(DESIGN, POOL, seed=1))
    assert len(set(drawn)) == len(drawn) == 48
    assert DESIGN.set_names == ("set-0", "set-2", "set-5", "set-2-2")
    one, same, other = (plan_model(DESIGN, texts, seed=s) for s in (1, 1, 2))
    assert one.rows.shape == (40 * 4, 65)
    np.testing.assert_array_equal(one.rows, same.rows)
    assert not np.array_equal(one.rows, other.rows)
    digests = [model.sets[0].benchmark.content_digest for model in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_order_of_a_set_tells_nothing_of_the_order_of_the_pool():
    design = dataclasses.replace(DESIGN, n_examples=120)
    ranks = [
        stats.spearmanr(np.arange(120), one).statistic
        for seed in range(40)
        for one in draw_sets(design, POOL, seed=seed)
    ]
    # 160 sets, standard error 1/sqrt(119) each; 4 of their mean.
    assert abs(np.mean(ranks)) < 4 / math.sqrt(119 * len(ranks))


def test_documents_that_the_filter_refuses_are_in_no_model(job, monkeypatch, tmp_path):
    def keep(text):
        return not text.startswith(("word1", "word2"))

    monkeypatch.setattr("train.population_models.document_filter", lambda data: keep)
    texts, of_kept = (
        read_texts(documents, POOL, DESIGN.config)[1]
        for documents in (DOCUMENTS, [text for text in DOCUMENTS if keep(text)])
    )
    assert texts.tokenizer.to_str() == of_kept.tokenizer.to_str()
    n_left_out = len(DOCUMENTS) - len(of_kept.documents)
    assert 0 < n_left_out < len(DOCUMENTS)
    model = plan_model(DESIGN, texts, seed=2)
    text = texts.tokenizer.decode(model.stream.ids.tolist(), skip_special_tokens=False)
    begins = text.split("<|bos|>")
    assert any(begin.startswith("word3") for begin in begins) and all(map(keep, begins))
    path = tmp_path / "manifest.json"
    _write_manifest(dataclasses.replace(job, texts=texts), model, path)
    assert read_manifest(path).n_left_out == n_left_out


def test_texts_are_unpickled_with_their_files_mapped(texts, files, tmp_path):
    corpus, _ = files
    cache = token_cache(open_corpus([corpus]), texts.tokenizer, tmp_path)
    for documents, is_mapped in ((cache, True), (texts.documents, False)):
        own = dataclasses.replace(texts, documents=documents)
        again = pickle.loads(pickle.dumps(own))
        assert (again.pool, again.prefix_id) == (texts.pool, texts.prefix_id)
        assert isinstance(again.documents.ids, np.memmap) == is_mapped
        one, other = (plan_model(DESIGN, t, seed=3) for t in (texts, again))
        np.testing.assert_array_equal(one.rows, other.rows)


def with_digests(corpus, ids):
    """Stands for texts of a background with these digests."""
    return SimpleNamespace(documents=SimpleNamespace(corpus_digest=corpus, digest=ids))


@pytest.fixture
def job(tmp_path):
    digests = dict.fromkeys(("sources", "tokenizer_digest", "pool_digest"), "a")
    return Job(
        design=DESIGN,
        out=tmp_path,
        weights=False,
        code=None,
        tokenizer=None,
        texts=with_digests("a", "a"),
        device="scan on a CPU",
        **digests,
    )


def result(seed, *p_values, copies=4):
    unknown = dict.fromkeys(("effect", "effect_se", "mde"))
    sizes = {"method": "adjacency", "n_examples": 12, "n_strata": 2}
    sizes |= unknown | {"name": "set", "copies": copies}
    rows = tuple(SetResult(p_value=p, log10_p=math.log10(p), **sizes) for p in p_values)
    names = [field.name for field in dataclasses.fields(ModelResult)]
    return ModelResult(**dict.fromkeys(names, 1) | {"seed": seed, "rows": rows})


def test_model_of_another_job_is_refused_by_name(job):
    job.folder(7).mkdir()
    fields = {"key": job.key(7), **dataclasses.asdict(result(7, 0.1))}
    (job.folder(7) / "tests.json").write_text(json.dumps(fields))
    assert finished_result(job, 7) == result(7, 0.1)
    assert finished_result(job, 8) is None
    # The commit alone makes no model obsolete.
    again = dataclasses.replace(job, code="another commit")
    assert finished_result(again, 7) == result(7, 0.1)
    for name, value in (
        ("design", dataclasses.replace(DESIGN, n_steps=41)),
        ("texts", with_digests("b", "a")),
        ("texts", with_digests("a", "b")),
        *((one, "b") for one in ("weights", "sources", "device")),
        *((f"{one}_digest", "b") for one in ("tokenizer", "pool")),
    ):
        other = dataclasses.replace(job, **{name: value})
        with pytest.raises(InputError, match="model-7: a model of other inputs or"):
            finished_result(other, 7)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"key": "k", "rows": [{}]}'])
def test_broken_result_is_made_again(job, text):
    job.folder(7).mkdir()
    (job.folder(7) / "tests.json").write_text(text)
    assert finished_result(job, 7) is None


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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A corpus of 80 documents and a pool of 70 questions, one of them twice."""
    folder = tmp_path_factory.mktemp("texts")
    corpus, pool = folder / "docs.jsonl", folder / "pool.txt"
    corpus.write_text("".join(json.dumps({"text": d}) + "\n" for d in DOCUMENTS))
    lines = [f"Q: {' '.join(_RNG.choice(WORDS, 4))}? A: {i}" for i in range(70)]
    pool.write_text("".join(line + "\n" for line in [*lines, lines[0]]))
    return corpus, pool


def population(files, out, **changes):
    corpus, pool = files
    fields = {"corpus": (corpus,), "sets": (pool,), "copies": (0, 8)}
    fields |= {"preset": "pulse", "n_examples": 24}
    fields |= {"models": 3, "seed": 5, "steps": 40, "processes": 1, "out": out}
    return Population(**{**fields, **changes})


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("population")
    assert population(files, out).run() == 0
    return out


def rows_of(out, seed):
    return json.loads((out / f"model-{seed}" / "tests.json").read_text())["rows"]


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_folder_of_a_model_is_audited_with_the_numbers_that_it_states(finished, seed):
    folder = finished / f"model-{seed}"
    manifest = read_manifest(folder / "manifest.json")
    assert (manifest.seed, manifest.finished) == (seed, True)
    stream = np.load(folder / manifest.stream)
    checkpoint = load_checkpoint(str(folder / "model"))
    kept = rows_of(finished, seed)
    assert [row["copies"] for row in kept] == [0, 8]
    for row, expected in zip(manifest.sets, kept, strict=True):
        assert (row.name, row.copies) == (expected["name"], expected["copies"])
        benchmark = load_benchmark(folder / row.file)
        assert benchmark.fingerprint == row.fingerprint
        encoded = encode_examples(
            checkpoint.tokenizer,
            benchmark.texts,
            max_example_tokens=manifest.max_example_tokens,
        )
        for offset in row.token_offsets:
            found = stream[offset : offset + row.n_tokens]
            np.testing.assert_array_equal(found, np.concatenate(encoded.ids))
        planned = plan_test(
            dataclasses.replace(benchmark, order_provenance="seeded"),
            encoded,
            order_method("adjacency"),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=manifest.seed,
        )
        scored = score_test(planned, checkpoint_scorer(checkpoint, store=None))
        numbers = planned.result(scored, primary=True, pretests=()).numbers
        # Another process, with more threads: sums in another order move log p by some
        # hundredths.
        assert expected["log10_p"] == pytest.approx(numbers.log10_p, abs=0.05)
        assert expected["effect"] == pytest.approx(numbers.effect, abs=1e-3)


def test_second_run_makes_only_what_is_missing_and_the_same_bits(
    files, finished, capsys
):
    def table():
        return json.loads((finished / "population.json").read_text())

    assert [model["seed"] for model in table()["models"]] == [5, 6, 7]
    cells = {(row["copies"], row["level"]) for row in table()["power"]}
    assert cells == {(0, 0.001), (0, 0.05), (8, 0.001), (8, 0.05)}
    assert table()["n_made"] == table()["power"][0]["n_sets"] == 3
    weights = finished / "model-6" / "model" / "model.safetensors"
    before = weights.read_bytes()
    kept = (finished / "model-5" / "tests.json").stat().st_mtime_ns
    (finished / "model-6" / "tests.json").unlink()
    assert population(files, finished).run() == 0
    assert "keeping 2 finished models" in capsys.readouterr().err
    assert table()["n_made"] == 1
    assert weights.read_bytes() == before
    assert (finished / "model-5" / "tests.json").stat().st_mtime_ns == kept
    assert not list(finished.glob("*.partial"))


@pytest.mark.slow
def test_models_made_side_by_side_are_those_made_one_by_one(files, finished, tmp_path):
    assert population(files, tmp_path, form="vmap", together=2).run() == 0
    for seed in (5, 6, 7):
        both = zip(rows_of(tmp_path, seed), rows_of(finished, seed), strict=True)
        for row, other in both:
            assert row["name"] == other["name"]
            # Rounding of 40 steps, then of scores.
            assert row["effect"] == pytest.approx(other["effect"], abs=2e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": 0}, "--models must be at least 1"),
        ({"preset": "0.15m"}, "unknown preset '0.15m'"),
        ({"background_tokens": 5}, "--steps and --background-tokens exclude"),
        ({"copies": (0, -1)}, "--copies must be numbers of at least 0"),
        ({"copies": (0, 1, 2)}, "pool has 70 examples, 72 needed"),
        ({"copies": (0,), "steps": None}, "nothing is planted"),
        ({"copies": (0, 99)}, "sets' copies are .* tokens, training only 10,240"),
        ({"steps": 4000}, "tokens too few to fill 4,000 steps"),
        ({"corpus": ()}, "no corpus is given"),
    ],
)
def test_bad_input_is_refused_before_any_process_starts(
    files, tmp_path, changes, message
):
    with pytest.raises(InputError, match=message):
        population(files, tmp_path / "out", **changes).run()
    assert not list(tmp_path.glob("out/model-*"))
