"""Replacements by a masked model, one token each; and by one that fills spans."""

import shutil
import sys
import types

import pytest

from jaxcontam.errors import InputError
from jaxcontam.models.masked import MaskedModel, SpanModel, load_neighbours

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "hat", "big", "##s", "##ly"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "The big cats sat on the mat, the dog ran"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random BERT of two layers and a WordPiece tokenizer of 17 words."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate([*SPECIAL, *WORDS, ","])}
    made = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    path = tmp_path_factory.mktemp("masked")
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        **{f"{name.strip('[]').lower()}_token": name for name in SPECIAL},
        model_max_length=12,
    ).save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 64}
    config = BertConfig(vocab_size=len(words), initializer_range=1.0, **sizes)
    BertForMaskedLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def masked(folder):
    return load_neighbours(folder)


def parts(text):
    return text.lower().replace(",", " , ").split()


def test_a_neighbour_differs_from_the_text_in_one_token_by_seed(masked):
    found = masked.replaced(TEXT, 6, 0)
    assert len(found) == len(set(found)) == 6
    for neighbour in found:
        differs = [a != b for a, b in zip(parts(neighbour), parts(TEXT), strict=True)]
        assert sum(differs) == 1
    assert masked.replaced(TEXT, 6, 0) == found != masked.replaced(TEXT, 6, 1)


def test_the_replacement_is_the_likeliest_other_token_of_its_kind(masked):
    import torch

    tokenizer = masked.tokenizer
    (neighbour,) = masked.replaced("cat sat", 1, 3)
    old, new = parts("cat sat"), parts(neighbour)
    (place,) = [i for i in range(2) if old[i] != new[i]]
    ids = tokenizer("cat sat", return_tensors="pt")["input_ids"]
    ids[0, place + 1] = tokenizer.mask_token_id
    with torch.no_grad():
        probs = masked.model(input_ids=ids).logits[0, place + 1].softmax(-1).numpy()
    original = tokenizer.convert_tokens_to_ids(old[place])
    ratios = probs / (1 - probs[original])
    starts = [tokenizer.convert_tokens_to_ids(word) for word in WORDS[:9]]
    best = max((i for i in starts if i != original), key=lambda i: ratios[i])
    assert new[place] == tokenizer.convert_ids_to_tokens(best)


def test_a_text_longer_than_the_context_is_changed_in_its_beginning(masked):
    long = " ".join(["the cat sat on the mat"] * 10)
    assert masked.context == 12
    for neighbour in masked.replaced(long, 8, 0):
        assert neighbour.endswith(long[60:])
        assert neighbour != long


@pytest.mark.parametrize("text", [" ", "\n\n", "x", "雨"])
def test_texts_that_the_tokenizer_does_not_know_have_neighbours_too(masked, text):
    found = masked.replaced(text, 3, 0)
    assert len(found) == 3
    assert all(found) and text not in found


def test_more_neighbours_than_places_take_the_next_best_token(masked):
    found = masked.replaced("cat", 5, 0)
    assert len(set(found)) == 5
    assert "cat" not in found
    with pytest.raises(ValueError, match="empty text"):
        masked.replaced("", 1, 0)


SIGNS = [f"<extra_id_{i}>" for i in range(12)]


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    """A random T5 of one layer, as a folder, and the model of it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        T5Config,
        T5ForConditionalGeneration,
    )

    names = ["<pad>", "</s>", "<unk>", *WORDS[:9], *SIGNS]
    words = {word: i for i, word in enumerate(names)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("spans")
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(
        tokenizer_object=made, extra_special_tokens=SIGNS, **special
    ).save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=len(words), decoder_start_token_id=0, **sizes)
    T5ForConditionalGeneration(config).save_pretrained(path)
    return path, load_neighbours(path)


def test_filled_spans_of_two_words_change_and_all_else_stays(spans):
    _, model = spans
    assert isinstance(model, SpanModel)
    # Words that the tokenizer does not know come back as they are, and line ends too.
    text = "\n".join(" ".join(f"{w}{i}" for w in "abcdefgh") for i in range(4))
    found = model.replaced(text, 5, 0)
    assert len(set(found)) == 5 and text not in found
    for other in found:
        given = iter(other.split())
        # 30 % of 32 words in spans of two between two others: two spans.
        kept = [word for word in text.split() if word in other.split()]
        assert 28 <= len(kept) < 32 and all(word in given for word in kept)
        assert set(other.split()) - {*kept} <= {*WORDS}
    assert model.replaced(text, 5, 0) == found != model.replaced(text, 5, 1)
    assert model.replaced(" ", 2, 0) == ["  "] * 2


def test_a_fill_stands_between_its_sign_and_the_next_special_token(spans):
    _, model = spans
    ids = model.tokenizer.convert_tokens_to_ids
    words = "<pad> <extra_id_0> cat sat <extra_id_2> <extra_id_1> dog </s> ran"
    assert model._fills(ids(words.split())) == {0: "cat sat", 1: "dog", 2: ""}
    assert model._fills(ids(["<extra_id_0>", "cat"])) == {}


def test_what_fills_no_span_is_refused_in_one_line(spans, folder, tmp_path):
    path, model = spans

    class Silent:
        device = model.model.device

        def generate(self, input_ids, **_):
            return input_ids[:, :1] * 0

    silent = SpanModel("x", Silent(), model.tokenizer, model.signs)
    with pytest.raises(InputError, match=r"^x: fills no span of a text \(10 tries\)$"):
        silent.replaced("the cat sat", 2, 0)
    # The tokenizer of a masked model has no signs for spans.
    shutil.copytree(path, tmp_path / "t5")
    for file in folder.glob("tokenizer*"):
        shutil.copy(file, tmp_path / "t5")
    with pytest.raises(InputError, match=r"^t5: its tokenizer has no <extra_id_0>"):
        load_neighbours(tmp_path / "t5")


class LastIsLikeliest:
    """A masked model whose likeliest token is the last of its words."""

    def __call__(self, input_ids):
        import torch

        scores = torch.arange(9.0).expand(*input_ids.shape, 9)
        return types.SimpleNamespace(logits=scores)


@pytest.mark.parametrize("kind", ["metaspace", "byte_level", "byte_level_untrimmed"])
def test_a_replaced_word_keeps_the_space_before_it(kind):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    first = "\u2581" if kind == "metaspace" else "\u0120"
    plain = ["hello", "world", "earth", "kind", "the", "sun"]
    words = ["<unk>", "<mask>", "<pad>", *(first + word for word in plain)]
    vocabulary = {word: i for i, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    if kind == "metaspace":
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        made.decoder = decoders.ByteLevel()
        trims = kind == "byte_level"
        made.post_processor = processors.ByteLevel(trim_offsets=trims)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", mask_token="<mask>", pad_token="<pad>"
    )
    model = MaskedModel("x", LastIsLikeliest(), tokenizer, 64)
    assert set(model.replaced("hello world the sun", 4, 0)) == {
        "sun world the sun",
        "hello sun the sun",
        "hello world sun sun",
        "hello world the the",
    }


def test_what_is_no_masked_model_is_refused_in_one_line(folder, tmp_path, monkeypatch):
    for _ in range(2):
        with pytest.raises(InputError, match="cannot load a masked model") as caught:
            load_neighbours(tmp_path)
        assert "\n" not in str(caught.value)
        # A pickle is not opened, not even where there is nothing else.
        for file in folder.iterdir():
            if file.suffix != ".safetensors":
                (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="a masked model needs torch") as caught:
        load_neighbours(folder)
    assert "pip install 'torch" in caught.value.hint
