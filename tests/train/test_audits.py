"""Audits along a run: the numbers of a whole audit, logs that resume, steps."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from train.audits import (
    MEMBERSHIP,
    audit_model,
    copies_seen,
    encode_planted,
    plan_audit,
    references_of,
)
from train.manifest import Manifest, PlantedSet, read_manifest
from train.step_log import audit_steps
from train.tokenizer import train_tokenizer

# Its bits are compared with those of the `pulse` run, which compiles plainly.
pytestmark = pytest.mark.unoptimised

_CONFIG = llama_shape(
    vocab_size=300, d_model=16, n_layers=1, n_heads=2, d_ff=32, context=48
)


def _planted(name, copies, steps=(), n_examples=12):
    return PlantedSet(
        name=name,
        copies=copies,
        shuffled=False,
        n_examples=n_examples,
        fingerprint="",
        content_digest="",
        token_offsets=(),
        orders=(),
        steps=steps,
        n_tokens=1,
        file="",
    )


def _manifest(*sets):
    return Manifest(
        jaxcontam="",
        code=None,
        seed=0,
        preset="",
        corpus_digest="",
        separator="\n",
        max_example_tokens=None,
        context=_CONFIG.context,
        n_tokens=0,
        n_canary_tokens=0,
        n_steps=9,
        finished=False,
        stream="",
        sets=sets,
    )


def _benchmark(name, seed):
    rng = np.random.default_rng(seed)
    texts = tuple(f"{a} plus {b}" for a, b in rng.integers(0, 99, size=(12, 2)))
    return Benchmark(name, texts, (None,) * 12)


@pytest.fixture(scope="module")
def plan():
    sets = [_benchmark("planted", 0), _benchmark("control", 1)]
    tokenizer = train_tokenizer([" ".join(one.texts) for one in sets], 300)
    return plan_audit(
        sets,
        _manifest(_planted("planted", 3, ((2,), (5,), (7, 8))), _planted("control", 0)),
        tokenizer.backend_tokenizer,
        prefix_id=0,
        context=_CONFIG.context,
        seed=0,
    )


def test_audit_gives_the_numbers_that_a_whole_audit_gives(pulse):
    """`eval.quickstart` tested the same model: by its report, to the last bit."""
    report = json.loads((pulse / "report.json").read_text())
    expected = {(row["benchmark"], row["method"]): row for row in report["results"]}
    manifest = read_manifest(pulse / "manifest.json")
    # Texts in natural order are another kind: it ranks none of them, nor among them.
    ranked = tuple(row for row in manifest.sets if (row.name, MEMBERSHIP) in expected)
    assert len(ranked) == len(manifest.sets) - 2
    manifest = dataclasses.replace(manifest, sets=ranked)
    checkpoint = load_checkpoint(str(pulse / "model"))
    plan = plan_audit(
        [
            dataclasses.replace(
                load_benchmark(pulse / row.file), order_provenance="seeded"
            )
            for row in manifest.sets
        ],
        manifest,
        checkpoint.tokenizer,
        prefix_id=checkpoint.prefix_id,
        context=checkpoint.config.context,
        seed=0,
        tests=("adjacency", "stratified"),
    )
    rows = audit_model(checkpoint.decoder, plan, step=manifest.n_steps, tokens=1)
    assert len(rows) == 3 * len(manifest.sets)
    for row in rows:
        there = expected[row.set, row.method]
        assert row.copies == row.copies_seen == there["copies"]
        if row.method == MEMBERSHIP:
            assert (row.auc, row.auc_se) == (there["auc"], there["auc_se"])
            assert list(row.reference) == there["reference"]
            assert row.p_value is row.effect is None
        else:
            names = ("p_value", "log10_p", "effect", "effect_se", "mde", "validity")
            for name in names:
                assert getattr(row, name) == there[name]
            assert row.auc is None


def test_audit_leaves_the_weights_as_they_are(plan):
    decoder = Decoder(_CONFIG, rngs=nnx.Rngs(0))
    before = jax.tree.map(np.array, nnx.state(decoder))
    first = audit_model(decoder, plan, step=1, tokens=1)
    assert audit_model(decoder, plan, step=1, tokens=1) == first
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(decoder))


def test_a_model_with_nan_is_named_with_its_step(plan):
    decoder = Decoder(_CONFIG, rngs=nnx.Rngs(0))
    decoder.embedding[...] = decoder.embedding[...] * np.nan
    with pytest.raises(InputError, match="audit at step 7: planted: example") as caught:
        audit_model(decoder, plan, step=7, tokens=1)
    assert caught.value.hint == "training diverged; lower the learning rate"
    texts_alone = dataclasses.replace(plan, tests=())
    with pytest.raises(InputError, match="audit at step 7: planted: example 1: "):
        audit_model(decoder, texts_alone, step=7, tokens=1)


def test_examples_are_cut_as_training_cut_them():
    tokenizer = train_tokenizer(["one two three"], 300).backend_tokenizer
    manifest = dataclasses.replace(_manifest(), max_example_tokens=3, separator=";")
    one = Benchmark("one", ("abcdef", "a"), (None, None))
    encoded = encode_planted(tokenizer, one, manifest)
    assert encoded.lengths.tolist() == [3, 2]
    assert {int(ids[-1]) for ids in encoded.ids} == {tokenizer.token_to_id(";")}


def test_copies_seen_count_from_their_first_step():
    row = _planted("a", 4, ((3, 9), (4,), (7, 8), ()))
    assert [copies_seen(row, step) for step in (0, 2, 3, 4, 6, 7, 99)] == [
        *(0, 0, 1, 2, 2, 3, 3)
    ]


def test_texts_are_ranked_among_all_controls_but_themselves():
    sets = [_planted("a", 5), _planted("b", 0), _planted("c", 0)]
    assert references_of(sets) == {"a": ("b", "c"), "b": ("c",), "c": ("b",)}


def test_a_set_with_a_held_out_half_is_ranked_among_that_half_alone():
    half = dataclasses.replace(_planted("a-held", 0), held_out_of="a")
    sets = [_planted("a", 5), half, _planted("b", 2), _planted("c", 0)]
    assert references_of(sets) == {
        "a": ("a-held",),
        "a-held": ("c",),
        "b": ("a-held", "c"),
        "c": ("a-held",),
    }


def test_a_single_control_is_ranked_among_nothing():
    assert references_of([_planted("a", 5), _planted("b", 0)]) == {"a": ("b",)}
    assert references_of([_planted("a", 5)]) == {}
    assert references_of([_planted("a", 5), _planted("b", 0, n_examples=1)]) == {}


@pytest.mark.parametrize(
    ("at", "every", "steps"),
    [
        ((), None, ()),
        ((0.25, 0.5, 1.0), None, (25, 50, 100)),
        ((1.0, 0.0, 0.001), None, (0, 1, 100)),
        ((), 40, (40, 80, 100)),
        ((0.4,), 40, (40, 80, 100)),
        ((), 1000, (100,)),
    ],
)
def test_audits_are_at_shares_of_training_and_after_each_so_many(at, every, steps):
    assert audit_steps(at, every, 100) == steps
