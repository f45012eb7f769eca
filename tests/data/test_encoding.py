"""Examples to ids: blocks that any order only permutes, and tokenizers made plain."""

import itertools

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from jaxcontam.data.encoding import encode_examples, plain_tokenizer
from jaxcontam.errors import InputError

# One id a character, but "b" before a line feed and a line feed before "a" merge.
CHARACTERS = ["<unk>", "<s>", "</s>", "\n", " ", "▁", "Ġ", "a", "b", "c", "d"]
MERGED = ["b\n", "\na"]
TEXTS = ["ab", "a b c", "", "dcb", "ab", " a"]


def characters(merges=(), *, splits=(), normal=()):
    """A fresh tokenizer over `CHARACTERS`."""
    vocab = {token: i for i, token in enumerate([*CHARACTERS, *MERGED])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=list(merges), unk_token="<unk>"))
    if splits:
        made.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    if normal:
        made.normalizer = normalizers.Sequence(list(normal))
    return made


def merging():
    """Like `characters`, with merges over line ends."""
    return characters([("b", "\n"), ("\n", "a")])


def tokens(tokenizer, ids):
    return [tokenizer.id_to_token(int(i)) for i in ids]


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("tokenizer", [characters(), merging()])
def test_each_example_is_its_own_ids_and_then_the_separators(tokenizer):
    encoded = encode_examples(tokenizer, TEXTS, separator="\n ")
    assert encoded.separator.tolist() == ids_of(tokenizer, "\n ")
    for text, ids in zip(TEXTS, encoded.ids, strict=True):
        assert ids.tolist() == ids_of(tokenizer, text) + ids_of(tokenizer, "\n ")
        assert ids.dtype == np.int32
    assert encoded.lengths.tolist() == [len(text) + 2 for text in TEXTS]
    assert encoded.n_cut_ids.tolist() == [0] * len(TEXTS)


@pytest.mark.parametrize("max_example_tokens", [None, 3])
def test_any_order_of_the_examples_is_a_permutation_of_their_blocks(max_example_tokens):
    def encode(texts):
        return encode_examples(
            merging(), texts, max_example_tokens=max_example_tokens
        ).ids

    texts = TEXTS[:4]
    blocks = encode(texts)
    for order in itertools.permutations(range(4)):
        permuted = encode([texts[i] for i in order])
        np.testing.assert_array_equal(
            np.concatenate(permuted), np.concatenate([blocks[i] for i in order])
        )


def test_special_tokens_are_never_added():
    tokenizer = characters()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    assert tokenizer.encode("ab").tokens == ["<s>", "a", "b", "</s>"]
    encoded = encode_examples(plain_tokenizer(tokenizer), ["ab", "c"])
    assert [tokens(tokenizer, ids) for ids in encoded.ids] == [[*"ab\n"], [*"c\n"]]


def test_cut_keeps_the_separator_and_counts_what_it_removed():
    tokenizer = characters()
    encoded = encode_examples(
        tokenizer, ["abcd", "abc", "ab", ""], separator=" \n", max_example_tokens=5
    )
    found = ["".join(tokens(tokenizer, ids)) for ids in encoded.ids]
    assert found == ["abc \n", "abc \n", "ab \n", " \n"]
    assert encoded.n_cut_ids.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6, 7, None])
def test_cutting_later_equals_encoding_with_that_limit(length):
    texts = ["abcd", "a", "abc"]
    whole = encode_examples(characters(), texts)
    limited = encode_examples(characters(), texts, max_example_tokens=length)
    for i, expected in enumerate(limited.ids):
        np.testing.assert_array_equal(whole.cut(i, length), expected)


@pytest.mark.parametrize(
    ("texts", "flags", "message"),
    [
        (["a"], {"max_example_tokens": 1}, "exceed the separator's 2 tokens, got 1"),
        (["a"], {"max_example_tokens": 2}, "exceed the separator's 2 tokens, got 2"),
        (["a", ""], {"separator": ""}, "example 2: no tokens in ''"),
    ],
)
def test_examples_without_room_or_any_id_are_refused(texts, flags, message):
    with pytest.raises(InputError, match=message):
        encode_examples(characters(), texts, **{"separator": " \n"} | flags)


def bare(part):
    """The same part by itself, not in a sequence."""
    made = characters()
    name = "normalizer" if isinstance(part, normalizers.Normalizer) else "pre_tokenizer"
    setattr(made, name, part)
    return made


def split(*parts):
    return characters(splits=parts)


def metaspace(scheme):
    return pre_tokenizers.Metaspace(prepend_scheme=scheme)


def byte_level(prefixes):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefixes)


NEVER, NFC = metaspace("never"), normalizers.NFC()
MARKS, DIGITS = pre_tokenizers.Punctuation(), pre_tokenizers.Digits()
REPLACE, PREPEND = normalizers.Replace(" ", "▁"), normalizers.Prepend("▁")
NOTHING, NESTED = normalizers.Sequence([]), normalizers.Sequence([PREPEND])


@pytest.mark.parametrize(
    ("prefixing", "without"),
    [
        (bare(metaspace("always")), bare(NEVER)),
        (bare(metaspace("first")), bare(NEVER)),
        (split(MARKS, metaspace("always")), split(MARKS, NEVER)),
        (characters(normal=[PREPEND, REPLACE]), characters(normal=[REPLACE])),
        (characters(normal=[NFC, PREPEND]), characters(normal=[NFC])),
        (characters(normal=[NESTED, REPLACE]), characters(normal=[NOTHING, REPLACE])),
        (bare(PREPEND), characters()),
        (bare(byte_level(True)), bare(byte_level(False))),
        (split(DIGITS, byte_level(True)), split(DIGITS, byte_level(False))),
        *((characters(), None), (bare(NEVER), None), (merging(), None)),
        # A normalizer, which adds no prefix, and still loads.
        (characters(normal=[normalizers.ByteLevel()]), None),
    ],
)
def test_dummy_prefix_space_is_removed_and_all_else_stays(prefixing, without):
    plain = plain_tokenizer(prefixing)
    if without is not None:
        assert ids_of(prefixing, "ab") != ids_of(without, "ab"), "it does add a prefix"
    for text in [*TEXTS, "\n", "a  b", " ab ", "ab\na"]:
        assert ids_of(plain, text) == ids_of(without or prefixing, text)


def test_truncation_and_padding_are_switched_off_in_a_copy():
    tokenizer = bare(byte_level(True))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    before = tokenizer.to_str()
    encoded = encode_examples(plain_tokenizer(tokenizer), ["abcd", "a"])
    assert encoded.lengths.tolist() == [5, 2]
    assert tokenizer.to_str() == before
