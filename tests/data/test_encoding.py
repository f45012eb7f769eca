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


def characters(merges=()):
    """A fresh tokenizer over `CHARACTERS`."""
    vocab = {token: i for i, token in enumerate([*CHARACTERS, *MERGED])}
    return Tokenizer(models.BPE(vocab=vocab, merges=list(merges), unk_token="<unk>"))


def merging():
    """Like `characters`, with merges over line ends."""
    return characters([("b", "\n"), ("\n", "a")])


def tokens(tokenizer, ids):
    return [tokenizer.id_to_token(int(i)) for i in ids]


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_each_example_is_its_own_ids_and_then_the_separators():
    tokenizer = characters()
    encoded = encode_examples(tokenizer, TEXTS, separator=" \n")
    assert encoded.separator.tolist() == ids_of(tokenizer, " \n")
    for text, ids in zip(TEXTS, encoded.ids, strict=True):
        assert ids.tolist() == ids_of(tokenizer, text) + ids_of(tokenizer, " \n")
        assert ids.dtype == np.int32
    assert encoded.lengths.tolist() == [len(text) + 2 for text in TEXTS]
    assert encoded.n_cut_ids.tolist() == [0] * len(TEXTS)


def test_tokenizer_never_sees_the_joined_string():
    tokenizer = merging()
    assert tokens(tokenizer, ids_of(tokenizer, "ab\na")) == ["a", "b\n", "a"]
    joined = np.concatenate(encode_examples(tokenizer, ["ab", "a"]).ids)
    assert tokens(tokenizer, joined) == ["a", "b", "\n", "a", "\n"]


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
    assert [tokens(tokenizer, ids) for ids in encoded.ids] == [
        ["a", "b", "\n"],
        ["c", "\n"],
    ]


def test_cut_keeps_the_separator_and_counts_what_it_removed():
    tokenizer = characters()
    encoded = encode_examples(
        tokenizer, ["abcd", "abc", "ab", ""], separator=" \n", max_example_tokens=5
    )
    assert [tokens(tokenizer, ids) for ids in encoded.ids] == [
        ["a", "b", "c", " ", "\n"],
        ["a", "b", "c", " ", "\n"],
        ["a", "b", " ", "\n"],
        [" ", "\n"],
    ]
    assert encoded.n_cut_ids.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6, 7, None])
def test_cutting_later_equals_encoding_with_that_limit(length):
    texts = ["abcd", "a", "abc"]
    whole = encode_examples(characters(), texts)
    limited = encode_examples(characters(), texts, max_example_tokens=length)
    for i, expected in enumerate(limited.ids):
        np.testing.assert_array_equal(whole.cut(i, length), expected)


def test_separator_that_fills_the_limit_is_refused():
    for limit in (1, 2):
        with pytest.raises(InputError) as caught:
            encode_examples(
                characters(), ["a"], separator=" \n", max_example_tokens=limit
            )
        assert str(caught.value) == (
            f"--max-example-tokens must exceed the separator's 2 tokens, got {limit}"
        )


def test_example_without_any_id_is_named():
    with pytest.raises(InputError) as caught:
        encode_examples(characters(), ["a", ""], separator="")
    assert str(caught.value) == "example 2: no tokens in ''"


def metaspace(scheme):
    tokenizer = characters()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


def metaspace_in_a_sequence(scheme):
    tokenizer = characters()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )
    return tokenizer


def normalised(*parts):
    tokenizer = characters()
    tokenizer.normalizer = normalizers.Sequence(list(parts))
    return tokenizer


def prepended_alone():
    tokenizer = characters()
    tokenizer.normalizer = normalizers.Prepend("▁")
    return tokenizer


def byte_level(*, add_prefix_space):
    tokenizer = characters()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=add_prefix_space
    )
    return tokenizer


def byte_level_in_a_sequence(*, add_prefix_space):
    tokenizer = characters()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(),
            pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space),
        ]
    )
    return tokenizer


REPLACE = normalizers.Replace(" ", "▁")
PREPEND = normalizers.Prepend("▁")


@pytest.mark.parametrize(
    ("prefixing", "without"),
    [
        (metaspace("always"), metaspace("never")),
        (metaspace("first"), metaspace("never")),
        (metaspace_in_a_sequence("always"), metaspace_in_a_sequence("never")),
        (normalised(PREPEND, REPLACE), normalised(REPLACE)),
        (normalised(normalizers.NFC(), PREPEND), normalised(normalizers.NFC())),
        (
            normalised(normalizers.Sequence([PREPEND]), REPLACE),
            normalised(normalizers.Sequence([]), REPLACE),
        ),
        (prepended_alone(), characters()),
        (byte_level(add_prefix_space=True), byte_level(add_prefix_space=False)),
        (
            byte_level_in_a_sequence(add_prefix_space=True),
            byte_level_in_a_sequence(add_prefix_space=False),
        ),
    ],
    ids=[
        "metaspace-always",
        "metaspace-first",
        "metaspace-in-sequence",
        "prepend-replace",
        "prepend-last",
        "prepend-nested",
        "prepend-alone",
        "byte-level",
        "byte-level-in-sequence",
    ],
)
def test_dummy_prefix_space_is_removed_and_real_spaces_stay(prefixing, without):
    plain = plain_tokenizer(prefixing)
    assert ids_of(prefixing, "ab") != ids_of(without, "ab"), "it does add a prefix"
    for text in [*TEXTS, "\n", "a  b", " ab "]:
        assert ids_of(plain, text) == ids_of(without, text)


@pytest.mark.parametrize("tokenizer", [characters(), metaspace("never"), merging()])
def test_tokenizer_without_a_prefix_stays_as_it_is(tokenizer):
    plain = plain_tokenizer(tokenizer)
    for text in [*TEXTS, "ab\na"]:
        assert ids_of(plain, text) == ids_of(tokenizer, text)


def test_byte_level_normalizer_is_no_prefix_and_still_loads():
    tokenizer = normalised(normalizers.ByteLevel())
    assert ids_of(plain_tokenizer(tokenizer), "a b") == ids_of(tokenizer, "a b")


def test_truncation_and_padding_are_switched_off():
    tokenizer = characters()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    encoded = encode_examples(plain_tokenizer(tokenizer), ["abcd", "a"])
    assert encoded.lengths.tolist() == [5, 2]


def test_plain_copy_leaves_the_original_alone():
    tokenizer = byte_level(add_prefix_space=True)
    tokenizer.enable_padding(length=9)
    before = tokenizer.to_str()
    plain_tokenizer(tokenizer)
    assert tokenizer.to_str() == before
