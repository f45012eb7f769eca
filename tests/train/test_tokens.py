"""The token cache: the ids are those of each text alone, and damage is noticed."""

import hashlib
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from train.data import open_corpus
from train.tokens import (
    TokenCache,
    as_cache,
    choose_documents,
    prefix_id,
    read_tokenizer,
    token_cache,
    train_tokenizer,
)

TEXTS = [
    *(f"Document {i} holds the number {i * i}.\n" * (i % 5) for i in range(40)),
    "naïve café, 漢字 and 🐈",
    "",
]


@pytest.fixture(scope="module")
def tokenizer():
    return plain_tokenizer(train_tokenizer(TEXTS, 300).backend_tokenizer)


@pytest.fixture
def files(tmp_path):
    """A corpus of two files."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, texts in (("a", TEXTS[:25]), ("b", TEXTS[25:])):
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder


def corpus_digest(texts):
    """What manifests have always called the digest of a corpus."""
    parts = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
    return f"sha256:{hashlib.sha256(parts).hexdigest()}"


def assert_holds_texts(cache: TokenCache, texts, tokenizer):
    assert len(cache) == len(texts)
    for index, text in enumerate(texts):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        found = cache.document(index)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)
    assert cache.lengths.sum() == len(cache.ids)
    held = as_cache(texts, tokenizer)
    np.testing.assert_array_equal(cache.bounds, held.bounds)
    assert cache.digest == held.digest
    assert cache.corpus_digest == corpus_digest(texts)


def test_ids_are_those_of_each_text_alone_in_memory_and_on_disk(
    files, tokenizer, tmp_path, monkeypatch
):
    calls, corpus = [], open_corpus([files])
    with monkeypatch.context() as patch:
        patch.setattr("train.tokens._BATCH_TEXTS", 5)
        cache = token_cache(
            corpus, tokenizer, tmp_path, progress=lambda *done: calls.append(done)
        )
    assert_holds_texts(cache, TEXTS, tokenizer)
    assert cache.ids.dtype == np.uint16
    done, totals = zip(*calls, strict=True)
    assert set(totals) == {sum(part.n_bytes for part in corpus.parts)}
    assert list(done) == sorted(done) and done[-1] <= totals[0]
    assert len(set(done)) > 5
    # A second opening tokenises nothing.
    monkeypatch.setattr("train.tokens.encode", None)
    again = token_cache(open_corpus([files]), tokenizer, tmp_path)
    assert again.digest == cache.digest
    np.testing.assert_array_equal(again.ids, cache.ids)


def test_other_ids_of_the_same_texts_have_another_digest(tokenizer):
    bytes_only = plain_tokenizer(train_tokenizer(["x"], 257).backend_tokenizer)
    one, other = as_cache(TEXTS, tokenizer), as_cache(TEXTS, bytes_only)
    assert one.corpus_digest == other.corpus_digest
    assert one.digest != other.digest
    moved = as_cache(["ab", "c"], bytes_only), as_cache(["a", "bc"], bytes_only)
    np.testing.assert_array_equal(moved[0].ids, moved[1].ids)
    assert moved[0].digest != moved[1].digest


def test_a_vocabulary_over_two_bytes_gets_four():
    words = {f"w{i}": i for i in range(65_537)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    cache = as_cache(["w65536 w1", "w65535"], tokenizer)
    assert cache.ids.dtype == np.int32
    np.testing.assert_array_equal(cache.ids, [65_536, 1, 65_535])


def damaged(path, damage):
    """Cut a file, change a byte of it, or delete it."""
    data = path.read_bytes()
    middle = len(data) // 2
    path.unlink()
    if damage != "missing":
        flipped = bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes(data[:middle] + (flipped if damage == "changed" else b""))


def test_another_text_or_tokenizer_is_another_cache(files, tokenizer, tmp_path):
    token_cache(open_corpus([files]), tokenizer, tmp_path / "cache")
    with (files / "b.jsonl").open("a") as handle:
        handle.write('{"text": "one more"}\n')
    more = token_cache(open_corpus([files]), tokenizer, tmp_path / "cache")
    assert_holds_texts(more, [*TEXTS, "one more"], tokenizer)
    other = plain_tokenizer(train_tokenizer(["x"], 257).backend_tokenizer)
    cache = token_cache(open_corpus([files]), other, tmp_path / "cache")
    assert_holds_texts(cache, [*TEXTS, "one more"], other)
    assert len(list((tmp_path / "cache").glob("*/cache.json"))) == 3


def test_documents_need_no_ids_but_a_corpus_needs_documents(tmp_path, tokenizer, files):
    path = tmp_path / "empty.jsonl"
    path.write_text('{"text": ""}\n' * 3)
    cache = token_cache(open_corpus([path]), tokenizer, tmp_path / "cache")
    assert_holds_texts(cache, [""] * 3, tokenizer)
    path.write_text("\n")
    with pytest.raises(InputError, match="the corpus has no documents"):
        token_cache(open_corpus([path]), tokenizer, tmp_path / "cache")
    cutting = Tokenizer.from_str(tokenizer.to_str())
    cutting.enable_truncation(5)
    with pytest.raises(ValueError, match="neither cut nor pad"):
        token_cache(open_corpus([files]), cutting, tmp_path)


def test_indices_outside_are_refused_and_chosen_documents_are_read_late(tokenizer):
    cache = as_cache(TEXTS, tokenizer)
    for index in (-1, len(TEXTS)):
        with pytest.raises(IndexError):
            cache.document(index)
    chosen = cache.chosen(np.array([7, 3, 3]))
    assert len(chosen) == 3
    for found, index in zip(chosen.stretches(), (7, 3, 3), strict=True):
        np.testing.assert_array_equal(found, cache.document(index))


# Three documents have 89 ids, and the next two none.
@pytest.mark.parametrize("budget", [None, 0, 1, 88, 89, 90, 10**9])
def test_documents_are_taken_until_the_budget_is_reached(budget):
    lengths = np.random.default_rng(0).integers(0, 40, 30)
    order = np.random.default_rng([5, 0]).permutation(30)
    expected, total = [], 0
    for index in order:
        expected.append(index)
        total += lengths[index]
        if budget is not None and total >= budget:
            break
    chosen = choose_documents(lengths, budget=budget, seed=5)
    np.testing.assert_array_equal(chosen, expected)


def test_a_tokenizer_is_trained_on_the_beginning_of_the_text():
    taken = []

    def documents():
        for text in ["one two " * 10, "three four " * 10, "five six " * 10]:
            taken.append(text)
            yield text

    train_tokenizer(documents(), 300, sample_bytes=100)
    assert len(taken) == 2


def test_a_saved_tokenizer_is_read_back_with_one_of_bos_and_eos(tmp_path):
    trained = train_tokenizer(TEXTS, 300)
    trained.save_pretrained(tmp_path)
    read = read_tokenizer(tmp_path)
    assert prefix_id(read) == prefix_id(trained) == trained.bos_token_id
    found = plain_tokenizer(read.backend_tokenizer).encode(TEXTS[3]).ids
    assert found == plain_tokenizer(trained.backend_tokenizer).encode(TEXTS[3]).ids
    # EOS stands in for a missing BOS.
    trained.bos_token = None
    trained.save_pretrained(tmp_path)
    read = read_tokenizer(tmp_path)
    assert read.bos_token_id is None
    assert prefix_id(read) == read.eos_token_id
    trained.eos_token = None
    trained.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="neither a BOS nor an EOS"):
        read_tokenizer(tmp_path)
