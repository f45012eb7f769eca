"""Pretraining: what is planted is what is scored, and seeds are kept."""

import json

import numpy as np
import pytest
from flax import nnx

from eval.python_docs import read_python_docs
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test
from tests.support.copy_rows import canary, in_one, steps_of_copy
from tests.support.stepwise import train_decoder
from tests.support.train_corpus import write_corpus
from train.export import export
from train.manifest import read_manifest
from train.presets import PRESETS
from train.pretrain import Pretrain
from train.rows import Rows
from train.sources import read_documents
from train.stream import build_stream, training_order
from train.tokenizer import train_tokenizer

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def corpus(tmp_path):
    """A .jsonl of 60 short documents and a canary file of 12 lines."""
    return write_corpus(tmp_path)


def test_ids_at_the_manifests_offsets_are_the_ids_that_the_plan_scores(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    stream = np.load(pulse / manifest.stream)
    checkpoint = load_checkpoint(str(pulse / "model"))
    for row in manifest.sets:
        benchmark = load_benchmark(pulse / row.file)
        assert benchmark.fingerprint == row.fingerprint
        encoded = encode_examples(
            checkpoint.tokenizer, benchmark.texts, separator=manifest.separator
        )
        assert len(row.token_offsets) == row.copies
        orders = row.orders or [range(row.n_examples)] * row.copies
        for offset, order in zip(row.token_offsets, orders, strict=True):
            planted = stream[offset : offset + row.n_tokens]
            expected = np.concatenate([encoded.ids[i] for i in order])
            np.testing.assert_array_equal(planted, expected)
            assert stream[offset - 1] == checkpoint.prefix_id
        planned = plan_test(
            benchmark,
            encoded,
            order_method("permutation"),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=0,
        )
        published = planned.layout.plan.sequences[
            planned.layout.plan.index[0, planned.layout.plan.place[0]]
        ]
        np.testing.assert_array_equal(published[1:], np.concatenate(encoded.ids))


def test_shuffled_copies_all_have_orders_of_their_own(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    shuffled = next(row for row in manifest.sets if row.name == "pydocs-shuffled")
    assert len(set(shuffled.orders)) == shuffled.copies == 10


def test_canary_tokens_are_counted(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    planted = sum(row.copies * row.n_tokens for row in manifest.sets)
    assert manifest.n_canary_tokens == planted
    assert manifest.finished


def test_training_lowers_the_loss_from_that_of_the_uniform_distribution():
    rows = np.tile(np.arange(65, dtype=np.int32)[None], (200, 1))
    _, losses = train_decoder(PRESETS["pulse"], rows, seed=0)
    assert losses[0] == pytest.approx(np.log(512), rel=0.02)
    # The rows repeat one sequence: 50 steps take most of the surprise out of it.
    assert losses[-1] < losses[0] / 2


def test_every_id_is_a_target_once_but_for_the_last_partial_row():
    ids = np.arange(1000, dtype=np.int32)
    starts = training_order(len(ids), 64, seed=5)
    rows = np.stack([*Rows(ids, starts, 64)])
    np.testing.assert_array_equal(rows[:, 0], starts)
    targets = np.sort(rows[:, 1:].ravel())
    assert rows.shape == (15, 65)
    assert len(np.unique(targets)) == 15 * 64
    np.testing.assert_array_equal((rows[:, 1:] - rows[:, :-1]) % 1000, 1)


@pytest.mark.parametrize(("offset", "n_ids"), [(0, 5), (130, 200), (990, 10)])
def test_steps_of_a_copy_are_the_rows_that_hold_its_targets(offset, n_ids):
    ids = np.arange(1000, dtype=np.int32)
    starts = training_order(len(ids), 64, seed=5)
    rows = np.stack([*Rows(ids, starts, 64)])
    found = steps_of_copy(offset, n_ids, starts_R=starts, context=64, n_ids_in_all=1000)
    copy = np.arange(offset, offset + n_ids)
    expected = np.flatnonzero(np.isin(rows[:, 1:], copy).any(axis=1))
    np.testing.assert_array_equal(found, expected)


def test_background_documents_keep_their_order_around_the_blocks(corpus):
    documents = [np.full(5, i, np.int32) for i in range(1, 8)]
    encoded = _encoded(4)
    stream = build_stream(
        in_one(documents),
        [canary(name="c", encoded=encoded, copies=3)],
        prefix_id=0,
        seed=1,
    )
    without = np.delete(
        stream.ids,
        np.concatenate([np.arange(o - 1, o + 12) for o in stream.offsets["c"]]),
    )
    expected = np.concatenate([np.concatenate([[0], d]) for d in documents])
    np.testing.assert_array_equal(without, expected)
    assert stream.n_canary_ids == 36


def test_blocks_fall_before_between_and_after_documents():
    documents = [np.full(5, i, np.int32) for i in range(1, 4)]
    starts = set()
    for seed in range(200):
        own = canary(name="c", encoded=_encoded(2), copies=1)
        stream = build_stream(in_one(documents), [own], prefix_id=0, seed=seed)
        starts.add(stream.offsets["c"][0])
    assert starts == {1, 7, 13, 19}


def test_pretrain_command_writes_a_model_that_audits_read(corpus, tmp_path):
    docs, canaries = corpus
    out = tmp_path / "run"
    manifest = Pretrain(
        corpus=(docs,), canaries=(f"{canaries}=3",), preset="pulse", out=out
    ).run()
    assert manifest == read_manifest(out / "manifest.json")
    assert load_checkpoint(str(out / "model")).config == PRESETS["pulse"].decoder
    metrics = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == list(
        range(1, manifest.n_steps + 1)
    )


# Reads all documentation of the Python installation.
@pytest.mark.slow
def test_python_docs_hold_no_sentence_that_a_question_asks_about():
    docs = read_python_docs()
    background = " ".join(" ".join(docs.documents).split())
    assert len(docs.questions) >= 1000
    assert not [q for q in docs.questions[::7] if q.sentence in background]
    sentences = [question.sentence for question in docs.questions]
    assert len(set(sentences)) == len(sentences)


def _encoded(n):
    from jaxcontam.data.encoding import Encoded

    ids = tuple(np.full(12 // n, 100 + i, np.int32) for i in range(n))
    return Encoded(ids, np.array([], np.int32), np.zeros(n, np.int32))


# Ten seconds.
@pytest.mark.slow
def test_any_family_goes_on_training_and_keeps_its_config(corpus, tmp_path):
    docs, canaries = corpus
    first = tmp_path / "neox"
    write_neox(first, docs)
    out = tmp_path / "run"
    Pretrain(
        corpus=(str(docs),),
        canaries=(f"{canaries}=2",),
        init=str(first),
        schedule="constant",
        peak_rate=1e-3,
        batch_rows=2,
        row_tokens=32,
        keep_every=5,
        out=out,
    ).run()
    manifest = read_manifest(out / "manifest.json")
    before, after = (load_checkpoint(str(one)) for one in (first, out / "model"))
    assert manifest.init_fingerprint == before.fingerprint != after.fingerprint
    assert after.config == before.config
    assert after.prefix_id == before.prefix_id
    for name in ("rotary_pct", "rope_theta", "model_type"):
        raw, kept = (
            json.loads((one / "config.json").read_text())
            for one in (first, out / "model")
        )
        assert kept.get(name) == raw.get(name)
    rates = [
        json.loads(line)["rate"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    assert rates[-1] == pytest.approx(1e-3)
    losses = [
        json.loads(line)["loss"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    exported = export(out, step=5)
    assert load_checkpoint(str(exported)).config == before.config


def write_neox(folder, docs):
    """A small GPT-NeoX with random weights and a tokenizer of its own."""
    tokenizer = train_tokenizer(read_documents([docs]), 300)
    raw = {
        "model_type": "gpt_neox",
        "vocab_size": 300,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "rotary_pct": 0.5,
        "rotary_emb_base": 10000,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
    }
    config = FAMILIES["gpt_neox"].read_config(raw)
    save_checkpoint(
        Decoder(config, rngs=nnx.Rngs(0)),
        tokenizer,
        folder,
        model_type="gpt_neox",
        raw_config=raw,
    )
