"""Sampled continuations against reading each text again from its start."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import scipy.special

from jaxcontam.models import generation
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.models.generation import Sampling, continuations, prompt_ids
from tests.support.decoders import LLAMA, spread

pytestmark = pytest.mark.unoptimised

CONTEXT, VOCAB = 96, 61
SHAPE = dataclasses.replace(
    LLAMA, n_kv_heads=2, d_model=24, vocab_size=VOCAB, context=CONTEXT
)


@functools.cache
def sharp():
    """A decoder whose next id depends strongly on what it reads."""
    return spread(SHAPE, scale=0.1)


def draw(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, n).astype(np.int32) for n in lengths]


def samples(decoder, prompts, sampling):
    return [found for _, found in sorted(continuations(decoder, prompts, sampling))]


# Two padded lengths; few, since each is compiled.
PROMPTS = draw([1, 2, 11, 63, 64, 65, 80])
SHORT = PROMPTS[:5]


@jax.jit
def read(decoder, tokens):
    with jax.default_matmul_precision("highest"):
        return decoder(tokens)


def law(decoder, ids, temperature):
    """Of the id after these, without any cache."""
    hidden_D = np.asarray(read(decoder, np.array([ids], np.int32)), np.float64)[0, -1]
    scores_V = np.asarray(decoder.head_VD, np.float64) @ hidden_D
    return scipy.special.softmax(scores_V / temperature)


def test_samples_follow_the_law_of_the_model(strict_dtypes):
    decoder = sharp()
    prompt, n, temperature = PROMPTS[2], 2_000, 0.8
    sampling = Sampling(n_samples=n, new_tokens=2, temperature=temperature)
    ((_, found),) = continuations(decoder, [prompt], sampling)
    first = np.array([ids[0] for ids in found])
    expected = law(decoder, prompt, temperature)
    seen = np.bincount(first, minlength=VOCAB) / n
    # 5 standard errors of each share, n = 2,000, and a count for the rare ones.
    allowed = 5 * np.sqrt(expected * (1 - expected) / n) + 5 / n
    assert (np.abs(seen - expected) <= allowed).all()
    # And the second id given the commonest first one.
    top = int(np.bincount(first).argmax())
    second = np.array([ids[1] for ids in found if ids[0] == top])
    after = law(decoder, [*prompt, top], temperature)
    share = np.bincount(second, minlength=VOCAB) / len(second)
    allowed = 5 * np.sqrt(after * (1 - after) / len(second)) + 5 / len(second)
    assert (np.abs(share - after) <= allowed).all()


def test_batches_and_order_do_not_change_a_sample_and_the_seed_does(monkeypatch):
    decoder = sharp()
    sampling = Sampling(n_samples=6, new_tokens=10, seed=5)
    together = samples(decoder, PROMPTS, sampling)
    reverse = samples(decoder, PROMPTS[::-1], sampling)[::-1]
    alone = [samples(decoder, [prompt], sampling)[0] for prompt in PROMPTS]
    for a, b, c in zip(together, reverse, alone, strict=True):
        assert [list(ids) for ids in a] == [list(ids) for ids in b]
        assert [list(ids) for ids in a] == [list(ids) for ids in c]
    monkeypatch.setitem(generation._ROWS, jax.default_backend(), 4)
    for a, b in zip(together, samples(decoder, PROMPTS[:2], sampling), strict=False):
        assert [list(ids) for ids in a] == [list(ids) for ids in b]
    other = samples(decoder, PROMPTS, dataclasses.replace(sampling, seed=0))
    assert len({tuple(ids) for ids in together[2] + other[2]}) == 12


def test_a_stop_id_ends_a_sample_and_is_no_part_of_it():
    decoder = sharp()
    free = Sampling(n_samples=6, new_tokens=10, seed=2)
    (unstopped,) = samples(decoder, PROMPTS[2:3], free)
    stop = int(unstopped[0][4])
    (stopped,) = samples(
        decoder, PROMPTS[2:3], dataclasses.replace(free, stop_ids=(stop,))
    )
    for before, after in zip(unstopped, stopped, strict=True):
        where = np.flatnonzero(before == stop)
        assert list(after) == list(before[: where[0] if len(where) else None])
    assert len(stopped[0]) <= 4


def test_a_text_that_has_ended_is_not_gone_on_with_and_others_are():
    decoder = sharp()
    sampling = Sampling(n_samples=2, new_tokens=40, temperature=1.0)
    whole = samples(decoder, SHORT[:3], sampling)
    asked = []

    def has_ended(index, ids):
        asked.append((index, len(ids)))
        return index == 1

    found = dict(continuations(decoder, SHORT[:3], sampling, has_ended=has_ended))
    # The host looks every 16 ids, and at what is whole not at all.
    assert {n for _, n in asked} == {16, 32}
    assert {n for index, n in asked if index == 1} == {16}
    for i, texts in enumerate(whole):
        for one, ids in zip(found[i], texts, strict=True):
            n = 16 if i == 1 else 40
            assert one.tolist() == ids[:n].tolist()


def test_a_prompt_that_is_too_long_keeps_its_prefix_and_its_end():
    (long,) = draw([CONTEXT + 30], seed=3)
    greedy = Sampling(n_samples=1, new_tokens=20, temperature=0.0)
    ((found,),) = samples(sharp(), [long], greedy)
    ((same,),) = samples(sharp(), [long[-(CONTEXT - 20) :]], greedy)
    assert list(found) == list(same)
    # It fills the context to its last place.
    assert len(found) == 20
    for text, prefix_id, kept in (
        ([5, 6, 7, 8], 1, [1, 7, 8]),
        ([5, 6, 7, 8], None, [6, 7, 8]),
        ([5, 6], 1, [1, 5, 6]),
        ([], 1, [1]),
    ):
        assert list(prompt_ids(text, prefix_id=prefix_id, room=3)) == kept


@pytest.mark.parametrize(
    ("prompts", "change", "message"),
    [
        ([[]], {}, "prompts must have at least one id"),
        ([[1]], {"new_tokens": CONTEXT}, "new_tokens must be below the context of 96"),
        ([[1]], {"new_tokens": 0}, "must be at least 1, got 2 and 0"),
        ([[1]], {"temperature": -1.0}, "temperature must be at least 0, got -1.0"),
    ],
)
def test_what_cannot_be_continued_is_refused(prompts, change, message):
    with pytest.raises(ValueError, match=message):
        sampling = Sampling(**({"n_samples": 2, "new_tokens": 4} | change))
        ids = [np.array(prompt, np.int32) for prompt in prompts]
        list(continuations(sharp(), ids, sampling))


def test_stop_ids_are_those_of_every_file_that_names_one(tmp_path):
    import transformers
    from tokenizers import Tokenizer, models

    words = {f"w{i}": i for i in range(VOCAB)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        eos_token="w3",
    )
    save_checkpoint(sharp(), tokenizer, tmp_path)
    assert load_checkpoint(str(tmp_path)).stop_ids == (3,)
    # An id that the model has no row for ends nothing.
    named = {"eos_token_id": [7, 3, 10**9]}
    (tmp_path / "generation_config.json").write_text(json.dumps(named))
    assert load_checkpoint(str(tmp_path)).stop_ids == (3, 7)
