"""What is held out of training and scored along it; steps and epochs; borders."""

import dataclasses
import itertools
import json
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from tests.support.served_model import byte_tokenizer
from tests.support.train_corpus import write_corpus
from train.config import PLAIN, PRESETS, RunOptions
from train.manifest import read_manifest
from train.population_device import train_scanned
from train.prepare import _n_bytes
from train.pretrain import Pretrain
from train.report import read_rows
from train.step import mean_loss
from train.tokens import choose_documents, held_out, train_tokenizer

pytestmark = pytest.mark.unoptimised

LENGTHS = np.random.default_rng(0).integers(1, 9, 40)


def test_what_is_held_out_is_in_no_epoch_and_moves_no_other_document():
    out = held_out(LENGTHS, n_ids=30, seed=3)
    assert LENGTHS[out].sum() >= 30 > LENGTHS[out[:-1]].sum()
    whole = choose_documents(LENGTHS, budget=None, seed=3)
    kept = choose_documents(LENGTHS, budget=None, seed=3, epochs=3, without=out)
    n = len(LENGTHS) - len(out)
    np.testing.assert_array_equal(kept[:n], whole[:n])
    epochs = kept.reshape(3, n)
    assert {tuple(sorted(one)) for one in epochs.tolist()} == {
        tuple(sorted({*range(40)} - {*out.tolist()}))
    }
    assert len({tuple(one) for one in epochs.tolist()}) == 3


def test_what_a_filter_refuses_is_neither_trained_on_nor_held_out_and_is_counted(
    tmp_path, monkeypatch
):
    docs, quiz = write_corpus(tmp_path)
    texts = [json.loads(line)["text"] for line in docs.read_text().splitlines()]
    lines = [t if i % 3 else f"unwanted {t}" for i, t in enumerate(texts)]
    docs.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))

    def wanted(text):
        return "unwanted" not in text

    trained_on = []

    def keeping(corpus, size):
        trained_on.append(list(corpus))
        return train_tokenizer(trained_on[-1], size)

    monkeypatch.setattr("train.prepare.document_filter", lambda data: wanted)
    monkeypatch.setattr("train.prepare.train_tokenizer", keeping)
    fields = {"canaries": (f"{quiz}=1",), "preset": "pulse", "validation_tokens": 600}
    command = Pretrain(corpus=(str(docs),), steps=30, out=tmp_path / "run", **fields)
    manifest = command.run()
    assert manifest.n_left_out == len(texts[::3])
    (seen,) = trained_on
    assert seen == [text for i, text in enumerate(texts) if i % 3]
    tokenizer = load_checkpoint(str(tmp_path / "run" / "model")).tokenizer
    validation = np.load(tmp_path / "run" / "validation.npy")
    assert len(validation)
    for ids in (np.load(tmp_path / "run" / "stream.npy"), validation.ravel()):
        assert "unwanted" not in tokenizer.decode(ids.tolist())


def test_a_filter_that_leaves_out_every_document_is_refused(tmp_path, monkeypatch):
    docs, quiz = write_corpus(tmp_path)
    never = "train.prepare.document_filter", lambda data: lambda text: False
    monkeypatch.setattr(*never)
    fields = {"canaries": (f"{quiz}=1",), "preset": "pulse", "out": tmp_path / "run"}
    with pytest.raises(InputError, match="leaves out every document"):
        Pretrain(corpus=(str(docs),), steps=30, **fields).run()


def test_a_part_of_the_background_is_what_every_epoch_goes_through():
    once = choose_documents(LENGTHS, budget=50, seed=3)
    thrice = choose_documents(LENGTHS, budget=50, seed=3, epochs=3)
    assert thrice[: len(once)].tolist() == once.tolist()
    assert sorted(thrice.tolist()) == sorted(3 * once.tolist())


def test_bytes_are_those_of_the_text_wherever_rows_end():
    """Ids of one byte: rows of 3 end within characters of two and three."""
    tokenizer, text = byte_tokenizer().backend_tokenizer, "é€é€a€éé€"
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode()) == 21
    assert _n_bytes(np.reshape(ids, (7, 3)), tokenizer) == 21


@pytest.mark.parametrize("budget", [1, 100, 1_000])
def test_a_budget_is_filled_by_as_many_epochs_as_it_takes(budget):
    order = choose_documents(LENGTHS, budget=budget, seed=3, epochs=None)
    assert LENGTHS[order].sum() >= budget > LENGTHS[order[:-1]].sum()


def test_a_run_takes_the_steps_it_is_told_and_says_the_loss_of_what_it_held_out(
    tmp_path, capsys
):
    docs, quiz = write_corpus(tmp_path)
    out = tmp_path / "run"
    Pretrain(
        corpus=(str(docs),),
        canaries=(f"{quiz}=2",),
        preset="pulse",
        steps=30,
        validation_tokens=400,
        validate_every=15,
        isolate_documents=True,
        out=out,
    ).run()
    manifest = read_manifest(out / "manifest.json")
    assert manifest.finished and manifest.n_steps == 30
    rows = read_rows(out / "validation.jsonl")
    assert [row["step"] for row in rows] == [0, 15, 30]
    ids_RT = np.load(out / "validation.npy")
    assert ids_RT[:, 1:].size == manifest.n_validation_tokens >= 256
    # The witness: the model that was written, and the decoder's own arithmetic.
    checkpoint = load_checkpoint(str(out / "model"))
    graphdef, params = nnx.split(checkpoint.decoder)
    loss = mean_loss(
        graphdef, params, jnp.asarray(ids_RT), compute=PLAIN, first_id=manifest.first_id
    )
    assert rows[-1]["loss"] == pytest.approx(float(loss), rel=1e-5)
    text = checkpoint.tokenizer.decode_batch(ids_RT[:, 1:].tolist())
    n_bytes = sum(len(one.encode()) for one in text)
    bits = rows[-1]["loss"] * manifest.n_validation_tokens / math.log(2) / n_bytes
    assert rows[-1]["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert "validation at step 30: " in capsys.readouterr().err
    page = (out / "training.html").read_text()
    assert f"Held out, {manifest.n_validation_tokens:,} tokens" in page


def test_the_loss_of_a_batch_is_the_mean_score_of_its_targets():
    decoder = Decoder(PRESETS["pulse"].decoder, rngs=nnx.Rngs(0))
    ids = np.random.default_rng(0).integers(1, 512, (4, 49), dtype=np.int32)
    scores = local_scorer(decoder).tokens(list(ids))
    graphdef, params = nnx.split(decoder)
    loss = mean_loss(graphdef, params, jnp.asarray(ids))
    expected = -np.mean([found[0] for found in scores])
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    mesh = device_mesh(MeshShape(), jax.devices()[:1])
    again = mean_loss(graphdef, params, jnp.asarray(ids), mesh=mesh)
    assert float(again) == pytest.approx(float(loss), rel=1e-6)


def test_isolated_documents_are_read_as_if_each_stood_alone():
    """Values and gradients; 280 ids are more than a block of queries."""
    shape = llama_shape(
        vocab_size=50, d_model=16, n_layers=2, n_heads=2, d_ff=32, context=300
    )
    graphdef, params = nnx.split(Decoder(shape, rngs=nnx.Rngs(0)))
    ids = np.random.default_rng(0).integers(1, 50, (1, 280))
    cuts = (0, 100, 150, 280)
    ids[0, cuts[:-1]] = 0
    segments = jnp.asarray(np.cumsum(ids == 0, axis=1))

    def packed(params):
        decoder = nnx.merge(graphdef, params)
        return decoder(jnp.asarray(ids), segments_BT=segments)

    def alone(params):
        decoder = nnx.merge(graphdef, params)
        parts = [decoder(jnp.asarray(ids[:, a:b])) for a, b in itertools.pairwise(cuts)]
        return jnp.concatenate(parts, axis=1)

    np.testing.assert_allclose(packed(params), alone(params), atol=1e-5)
    found, expected = (
        jax.grad(lambda params, read=read: jnp.sum(read(params) ** 3))(params)
        for read in (packed, alone)
    )
    for one, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5 * float(jnp.abs(other).max()))


def test_isolation_is_a_choice_that_training_keeps_to():
    rows = np.random.default_rng(0).integers(1, 500, (8, 65), dtype=np.int32)
    rows[:, ::13] = 0
    config = PRESETS["pulse"]
    isolated = config.changed(isolate_documents=True)
    losses = [
        train_scanned(one, rows, seed=0, first_id=first_id)[1]
        for one, first_id in ((config, None), (config, 0), (isolated, 0))
    ]
    np.testing.assert_array_equal(losses[0], losses[1])
    assert (losses[0] != losses[2]).any()
    # Rows without a border are one document either way.
    whole = np.maximum(rows, 1)
    one, other = (
        train_scanned(c, whole, seed=0, first_id=0)[1] for c in (config, isolated)
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_layers_that_read_on_across_documents_are_refused():
    config = PRESETS["pulse"]
    decoder = types.SimpleNamespace(delta="gated", context=64)
    with pytest.raises(InputError, match="--isolate-documents"):
        dataclasses.replace(config, decoder=decoder).changed(isolate_documents=True)


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(InputError, match="--steps says how much"):
        RunOptions(steps=3, epochs=2)
    with pytest.raises(InputError, match="--validate-every goes with"):
        RunOptions(validate_every=3)
