"""Passes over texts: what is read, how often, and that no text vanishes."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.errors import InputError
from jaxcontam.members.passes import (
    SHARE,
    Inputs,
    edited,
    score_texts,
    text_model,
)
from jaxcontam.members.scores import SCORES
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.opened import opened_checkpoint
from jaxcontam.scoring.prefixed import plan_prefixed
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from tests.support.membership_model import (
    CONTEXT,
    SHOTS,
    checkpoint_of,
    drawn_texts,
    fresh_decoder,
    tokenizer,
)

pytestmark = pytest.mark.unoptimised

TEXTS = drawn_texts(7, seed=20)
MIXED = [*TEXTS, "", "a", TEXTS[0], " "]
LONG = " ".join([*TEXTS, *TEXTS])
# Another batch shape may sum in another order, through a layer and the head.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
OWN = ("loss", "min_k", "min_k_pp", "zlib", "surp", "gap_k")
EVERY = (
    *("loss", "zlib", "min_k", "min_k_pp", "surp", "gap_k", "dc_pdd", "lowercase"),
    *("neighbourhood", "reference", "recall", "con_recall", "gradient_norm"),
)
WORDS = (
    "The quick brown fox jumps over the lazy dog, and then the dog gets up\n"
    "to look for the fox in  all places where a fox may be found at night."
)


def model_of(decoder=None, *, store=None, prefix=True, fingerprint="sha256:tiny"):
    decoder = decoder or fresh_decoder()
    checkpoint = checkpoint_of(decoder, prefix=prefix, fingerprint=fingerprint)
    return text_model(opened_checkpoint(checkpoint), store=store)


def inputs_of(**changes):
    return Inputs(
        **{
            "reference": model_of(fresh_decoder(1), fingerprint="other"),
            "nonmember_prefix": tuple(SHOTS),
            "member_prefix": tuple(drawn_texts(1, seed=21, n_words=5)),
            "corpus_counts": np.arange(tokenizer().get_vocab_size()),
            "n_neighbours": 2,
            **changes,
        }
    )


def scored(texts, names, model=None, **changes):
    methods = [SCORES[name] for name in names]
    return score_texts(texts, methods, model or model_of(), **changes)


def n_ids(text):
    return len(tokenizer().encode(text).ids)


@pytest.fixture(scope="module")
def every():
    """All scores of `MIXED`; other tests score it again, as it is compiled by then."""
    return scored(MIXED, EVERY, inputs=inputs_of())


def test_as_many_rows_come_out_as_texts_go_in(every):
    assert every.names == EVERY
    assert every.values.shape == (len(MIXED), len(EVERY))
    assert every.values.dtype == np.float64
    # The empty text alone has no score, and none of any kind.
    empty = np.array([text == "" for text in MIXED])
    assert np.isnan(every.values[empty]).all()
    assert np.isfinite(every.values[~empty]).all()
    assert every.n_tokens.tolist() == list(map(n_ids, MIXED))
    np.testing.assert_array_equal(every.values[0], every.values[MIXED.index("") + 2])
    none = scored([], EVERY, inputs=inputs_of())
    assert none.values.shape == (0, len(EVERY)) and none.tokens_scored == 0


def test_without_bos_the_first_token_has_no_score():
    texts = ["a", "a b", TEXTS[0]]
    model = model_of(prefix=False)
    found = scored(texts, [*OWN, "lowercase", "recall"], model, inputs=inputs_of())
    assert found.n_tokens.tolist() == [n_ids(text) - 1 for text in texts]
    assert found.n_tokens[0] == 0
    assert np.isnan(found.values).all(axis=1).tolist() == [True, False, False]
    assert np.isfinite(found.values[1:]).all()


def test_neither_order_nor_the_texts_beside_a_text_change_its_scores(every):
    order = np.random.default_rng(0).permutation(len(MIXED))
    moved = scored([MIXED[i] for i in order], EVERY, inputs=inputs_of())
    np.testing.assert_array_equal(moved.values, every.values[order])
    alone = scored(MIXED[2:3], EVERY, inputs=inputs_of())
    np.testing.assert_allclose(alone.values[0], every.values[2], **CLOSE)


def test_a_text_longer_than_the_context_is_read_in_windows():
    found = scored([LONG, TEXTS[0]], OWN)
    assert found.n_tokens[0] > CONTEXT
    assert np.isfinite(found.values).all()
    # The gradient is that of the first context alone.
    with_gradient = scored([LONG], ["gradient_norm"])
    assert with_gradient.tokens_scored == found.n_tokens[0] + CONTEXT - 1


def test_only_what_the_scores_read_is_read_and_duplicates_once():
    n_tokens = int(scored(TEXTS, ["loss"]).tokens_scored)
    assert n_tokens == sum(map(n_ids, TEXTS))
    assert scored([*TEXTS, *TEXTS], OWN).tokens_scored == n_tokens
    # A reference is read whatever the scores are: blind baselines ask it, too.
    for name, passes in (("loss", 2), ("reference", 2), ("recall", 3)):
        found = scored(TEXTS, ["loss", name], inputs=inputs_of())
        assert found.tokens_scored == passes * n_tokens
    # One pass more after a prefix; lowercase has other ids.
    for name, passes in (("recall", 2), ("con_recall", 3)):
        found = scored(TEXTS, ["loss", name], inputs=inputs_of(reference=None))
        assert found.tokens_scored == passes * n_tokens
    n_lowercased = sum(n_ids(text.lower()) for text in TEXTS)
    assert scored(TEXTS, ["lowercase"]).tokens_scored == n_tokens + n_lowercased


def test_a_text_that_is_its_own_rewrite_scores_nothing_more():
    lowercased = [text.lower() for text in TEXTS]
    same = Inputs(neighbours=lambda text, n, seed: [text] * n)
    names = ["loss", "lowercase", "neighbourhood", "min_k_pp"]
    found = scored(lowercased, names, inputs=same)
    assert (found.values[:, 1] == 1).all()
    assert (found.values[:, 2] == 0).all()
    assert found.tokens_scored == scored(lowercased, ["loss"]).tokens_scored


def test_the_reference_gives_its_own_loss_and_that_of_its_least_likely_tokens():
    texts = [*TEXTS[:3], "", TEXTS[0]]
    reference = model_of(fresh_decoder(1), fingerprint="other")
    found = scored(texts, ["loss"], inputs=inputs_of(reference=reference)).reference
    own = scored(texts, ["loss", "min_k"], reference).values
    np.testing.assert_allclose(found, own, rtol=1e-6)
    # The model itself is read once, and says the same.
    same = model_of(fresh_decoder(1), fingerprint="other")
    again = scored(texts, ["loss"], reference, inputs=inputs_of(reference=same))
    np.testing.assert_array_equal(again.reference, found)
    alone = scored(texts, ["loss"])
    assert again.tokens_scored == alone.tokens_scored and alone.reference is None


def test_a_reference_reads_with_its_own_tokenizer():
    letters = {chr(code): code - 31 for code in range(32, 127)}
    split = Tokenizer(models.WordLevel({"?": 0, **letters}, unk_token="?"))
    split.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    reference = model_of(fresh_decoder(3), fingerprint="letters")
    model = dataclasses.replace(reference.model, tokenizer=split)
    reference = dataclasses.replace(reference, model=model)
    texts = [text[:30] for text in TEXTS]
    found = scored(texts, ["loss", "reference"], inputs=inputs_of(reference=reference))
    own = scored(texts, ["loss"], reference)
    assert own.n_tokens.tolist() == [30] * len(texts)
    expected = found.values[:, 0] - own.values[:, 0]
    np.testing.assert_allclose(found.values[:, 1], expected, rtol=1e-12)


@pytest.mark.parametrize("prefix", [True, False])
def test_scores_after_other_texts_are_those_of_the_whole_sequence(prefix):
    """After two shots, and after another text of the same file."""
    model, company = model_of(prefix=prefix), drawn_texts(7, seed=2)
    # The first shot leaves no room and is passed over.
    shots = (LONG, *SHOTS)
    inputs = inputs_of(company=tuple(company), nonmember_prefix=shots)
    found = scored(TEXTS, ["loss", "recall", "codec"], model, inputs=inputs)

    def mean_after(before, text):
        ids = [0] * prefix
        for one in (*before, text):
            ids += tokenizer().encode(one).ids
            ids += tokenizer().encode("\n").ids * (one is not text)
        (whole,) = model.plain.tokens([np.array(ids, np.int32)])
        counted = n_ids(text) - (not prefix)
        return whole[0, -counted:].mean(dtype=np.float64)

    for text, other, (loss, recall, codec) in zip(
        TEXTS, company, found.values, strict=True
    ):
        np.testing.assert_allclose(recall, mean_after(SHOTS, text) / loss, **CLOSE)
        np.testing.assert_allclose(codec, loss - mean_after([other], text), **CLOSE)


def test_batches_after_a_prefix_keep_memory_and_shapes_few():
    pairs = model_of().plain.pairs
    lengths = np.random.default_rng(0).integers(1, 40, size=5000).tolist()
    # Few heads: four ids of texts for each id of the prefix, which is read again.
    batches = plan_prefixed(pairs, 50, lengths, n_heads=1)
    assert sorted(i for batch in batches for i in batch.texts) == list(range(5000))
    assert len({batch.shape for batch in batches}) == 4
    assert all(batch.shape[1] * batch.shape[3] >= 4 * 50 for batch in batches)
    # Many heads: a batch's attention to the prefix stays below 256 MiB.
    for batch in plan_prefixed(pairs, 50, lengths, n_heads=10_000):
        _, K, P, T = batch.shape
        assert K == 1 or 4 * 10_000 * K * T * (P + T) <= 1 << 28


@pytest.mark.parametrize(
    ("texts", "name", "missing", "message", "hint"),
    [
        ([LONG], "recall", {}, "no text of --nonmembers fits.* of 96 tok", ""),
        ([TEXTS[0], SHOTS[1]], "recall", {}, "text 2: stands in the prefix", ""),
        ([TEXTS[0], SHOTS[1]], "con_recall", {}, "text 2: stands in the prefix", ""),
        (TEXTS, "codec", {}, "codec: needs another text beside each one", ""),
        *(
            (TEXTS, name, missing, f"{name}: needs", flag)
            for name, missing, flag in (
                ("reference", {"reference": None}, "--reference"),
                ("dc_pdd", {"corpus_counts": None}, "dc_pdd:FILE"),
                ("recall", {"nonmember_prefix": ()}, "--nonmembers"),
                ("con_recall", {"nonmember_prefix": ()}, "--nonmembers"),
                ("con_recall", {"member_prefix": ()}, "--members"),
            )
        ),
    ],
)
def test_what_a_score_cannot_have_is_named(texts, name, missing, message, hint):
    with pytest.raises(InputError, match=message) as caught:
        scored(texts, ["loss", name], inputs=inputs_of(**missing))
    assert hint in (caught.value.hint or "")


def test_a_model_without_moments_gives_the_other_scores():
    model = dataclasses.replace(model_of(), with_moments=None)
    # A text of a prefix that no score reads is scored.
    texts = [*TEXTS, SHOTS[1]]
    found = scored(texts, ["loss", "min_k"], model, inputs=inputs_of())
    assert np.isfinite(found.values).all()
    with pytest.raises(InputError, match="min_k_pp: needs log-probabilities of the"):
        scored(TEXTS, ["min_k_pp"], model)


def test_a_score_that_is_not_finite_names_its_text():
    """The embedding of one token is NaN; it stands in the third text alone."""
    shape = dataclasses.replace(fresh_decoder().config, tied=False)
    decoder = Decoder(shape, rngs=nnx.Rngs(0))
    (bad,) = tokenizer().encode("~").ids
    decoder.embedding[...] = decoder.embedding[...].at[bad].set(jnp.nan)
    spoilt, sound = model_of(decoder), model_of()
    texts = [TEXTS[0], "", TEXTS[1] + "~ and more", TEXTS[2]]
    clean = [TEXTS[0], "", TEXTS[1].replace("x", "y"), TEXTS[2]]
    worse = Inputs(
        neighbours=lambda text, n, seed: [text + ("~ x" if text == clean[2] else "")],
        reference=model_of(decoder, fingerprint="bad"),
    )
    for asked, name, model, inputs in (
        (texts, "loss", spoilt, inputs_of()),
        (texts, "min_k_pp", spoilt, inputs_of()),
        (texts, "gradient_norm", spoilt, inputs_of()),
        # In a rewrite, and in the reference.
        (clean, "neighbourhood", spoilt, dataclasses.replace(worse, reference=None)),
        (texts, "reference", sound, worse),
    ):
        with pytest.raises(NonFiniteScoreError) as caught:
            scored(asked, [name], model, inputs=inputs)
        assert caught.value.sequence == 2


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, every):
    """Stopped in one pass after the other; the last run finds what those before did."""
    for stop in (0.1, 0.3, 0.5, 0.7, 0.95):

        def interrupt(done, total, stop=stop):
            if done > stop * total:
                raise KeyboardInterrupt

        model = model_of(store=tmp_path)
        with pytest.raises(KeyboardInterrupt):
            scored(MIXED, EVERY, model, inputs=inputs_of(), progress=interrupt)
    told = []
    found = scored(
        *(MIXED, EVERY, model_of(store=tmp_path)),
        inputs=inputs_of(),
        progress=lambda *counts: told.append(counts),
    )
    assert found.n_cached > 0.5 * found.tokens_scored
    np.testing.assert_array_equal(found.values, every.values)
    # Every target of every pass is told.
    done = [done for done, _ in told]
    assert done == sorted(done)
    assert {total for _, total in told} == {found.tokens_scored} == {done[-1]}


def test_gradient_norm_is_that_of_the_plain_mean_loss():
    decoder = fresh_decoder(2)
    graphdef, state = nnx.split(decoder)
    sequences = model_of(decoder).sequences([TEXTS[0], LONG])
    found = gradient_norms(decoder, sequences, batch_tokens=64)

    @functools.partial(jax.jit, static_argnums=1)
    def gradients_of(state, length, ids):
        return jax.grad(lambda state: loss(state, ids[:length]))(state)

    def loss(state, ids):
        model = nnx.merge(graphdef, state)
        with jax.default_matmul_precision("highest"):
            logits_SV = model(ids[None, :-1])[0] @ model.head_VD.T
        logs_SV = jax.nn.log_softmax(logits_SV)
        return -jnp.take_along_axis(logs_SV, ids[1:, None], axis=1).mean()

    for ids, norm in zip(sequences, found.norms, strict=True):
        length = min(len(ids), CONTEXT)
        gradients = gradients_of(state, length, jnp.asarray(ids))
        squares = [np.square(np.float64(x)).sum() for x in jax.tree.leaves(gradients)]
        # Sums of some thousand float32 squares, in another order.
        np.testing.assert_allclose(norm, np.sqrt(sum(squares)), rtol=1e-5)


# One word, one character, white space alone, equal words, letters of several bytes.
@pytest.mark.parametrize("text", [WORDS, "word", "a", " ", "\n\n", "no no no", "éé 雨"])
def test_neighbours_are_neither_empty_nor_the_text(text):
    for seed in range(40):
        found = edited(text, 5, seed)
        assert len(found) == 5
        assert all(found)
        assert text not in found


def test_neighbours_depend_on_the_seed_and_the_text_alone():
    assert edited(WORDS, 4, 1) == edited(WORDS, 4, 1)
    assert edited(WORDS, 4, 1) != edited(WORDS, 4, 2)
    # More of them do not change the first ones.
    assert edited(WORDS, 9, 1)[:4] == edited(WORDS, 4, 1)
    assert len(set(edited(WORDS, 20, 0))) == 20
    with pytest.raises(ValueError, match="empty text"):
        edited("", 1, 0)


def test_a_neighbour_keeps_most_of_the_words_and_every_kind_of_edit_occurs():
    words = WORDS.split()
    most, changes = math.ceil(SHARE * len(words)), set()
    for neighbour in edited(WORDS, 60, 3):
        own = neighbour.split()
        assert abs(len(own) - len(words)) <= most
        changes.add(np.sign(len(own) - len(words)))
        kept = [word for word in words if word in own]
        # A swap of two words keeps both; all other edits touch one word each.
        assert len(kept) >= len(words) - 2 * most
    assert changes == {-1, 0, 1}
    assert {"wword", "wrod", "wor", "word word"} <= set(edited("word", 60, 3))
