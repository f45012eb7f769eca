"""Audits along a run: the numbers of a whole audit, references, copies seen, steps."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.decoder import Decoder
from tests.support.train_corpus import manifest_of, planted_set
from train.audits import (
    MEMBERSHIP,
    audit_model,
    copies_seen,
    encode_planted,
    plan_audit,
    references_of,
)
from train.manifest import read_manifest
from train.report import audit_steps
from train.tokens import train_tokenizer

# Its bits are compared with those of the `pulse` run, which compiles plainly.
pytestmark = pytest.mark.unoptimised


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
    sets = [load_benchmark(pulse / row.file) for row in manifest.sets]
    plan = plan_audit(
        [dataclasses.replace(one, order_provenance="seeded") for one in sets],
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


def test_audit_leaves_the_weights_as_they_are(audited):
    decoder = Decoder(audited.config.decoder, rngs=nnx.Rngs(0))
    before = jax.tree.map(np.array, nnx.state(decoder))
    first = audit_model(decoder, audited.plan, step=1, tokens=1)
    assert audit_model(decoder, audited.plan, step=1, tokens=1) == first
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(decoder))


def test_a_model_with_nan_is_named_with_its_step(audited):
    decoder = Decoder(audited.config.decoder, rngs=nnx.Rngs(0))
    decoder.embedding[...] = decoder.embedding[...] * np.nan
    # By an order test, and by the ranks of texts alone.
    for plan in (audited.plan, dataclasses.replace(audited.plan, tests=())):
        with pytest.raises(InputError, match="at step 7: planted: example") as caught:
            audit_model(decoder, plan, step=7, tokens=1)
        assert caught.value.hint == "training diverged; lower the learning rate"


def test_examples_are_cut_as_training_cut_them():
    tokenizer = train_tokenizer(["one two three"], 300).backend_tokenizer
    manifest = manifest_of(max_example_tokens=3, separator=";")
    one = Benchmark("one", ("abcdef", "a"), (None, None))
    encoded = encode_planted(tokenizer, one, manifest)
    assert encoded.lengths.tolist() == [3, 2]
    assert {int(ids[-1]) for ids in encoded.ids} == {tokenizer.token_to_id(";")}


def test_copies_seen_count_from_their_first_step():
    row = planted_set("a", 4, ((3, 9), (4,), (7, 8), ()))
    seen = [copies_seen(row, step) for step in (0, 2, 3, 4, 6, 7, 99)]
    assert seen == [0, 0, 1, 2, 2, 3, 3]


_A, _B, _C = planted_set("a", 5), planted_set("b", 0), planted_set("c", 0)
_HELD = planted_set("a-held", 0, held_out_of="a")


@pytest.mark.parametrize(
    ("sets", "references"),
    [
        # All controls but itself; one control is ranked among nothing.
        ([_A, _B, _C], {"a": ("b", "c"), "b": ("c",), "c": ("b",)}),
        ([_A, _B], {"a": ("b",)}),
        ([_A], {}),
        ([_A, planted_set("b", 0, n_examples=1)], {}),
        # A set with a held-out half is ranked among that half alone.
        (
            [_A, _HELD, planted_set("b", 2), _C],
            {
                "a": ("a-held",),
                "a-held": ("c",),
                "b": ("a-held", "c"),
                "c": ("a-held",),
            },
        ),
    ],
)
def test_texts_are_ranked_among_what_was_never_planted(sets, references):
    assert references_of(sets) == references


@pytest.mark.parametrize(
    ("at", "every", "steps"),
    [
        ((), None, ()),
        ((1.0, 0.0, 0.001), None, (0, 1, 100)),
        ((0.25, 0.4), 40, (25, 40, 80, 100)),
        ((), 1000, (100,)),
    ],
)
def test_audits_are_at_shares_of_training_and_after_each_so_many(at, every, steps):
    assert audit_steps(at, every, 100) == steps
