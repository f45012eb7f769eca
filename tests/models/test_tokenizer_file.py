"""Ids are those of tokenizer.json, whatever class a tokenizer_config.json names."""

import dataclasses
import json

import pytest
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import jaxcontam
from jaxcontam.data.encoding import (
    encode_texts,
    file_tokenizer,
    plain_tokenizer,
    text_tokenizer,
)
from jaxcontam.errors import InputError
from jaxcontam.members.passes import text_model
from jaxcontam.models import checkpoint
from jaxcontam.models.families import FAMILIES
from tests.faults.folders import confined
from tests.support.family_files import raw_config
from tests.support.served_model import save

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "In 2024, 12345678 people's DON'T  paid   $1,234.56!",
    "  two spaces   and more\n\n\ttabs\r\n ",
    "漢字とカタカナ 中文字符, ½ Ⅷ ﬁ e\u0301 Å",
    "emoji 🙂👩‍👩‍👧 ok",
    "x <s> y</s>z",
    "<s>first",
]
SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level(split=None):
    """As GPT-2's, or with another split before the bytes."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split is not None:
        first = pre_tokenizers.Split(Regex(split), "isolated")
        rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([first, rest])
    made.decoder = decoders.ByteLevel()
    return trained(made, pre_tokenizers.ByteLevel.alphabet(), SPECIAL)


def sentence_piece():
    """As Llama 2's: spaces are letters, and one stands before each text."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    spaces = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return trained(made, [], [*SPECIAL, *(f"<0x{i:02X}>" for i in range(256))])


def trained(made, alphabet, special):
    flags = {"special_tokens": special, "initial_alphabet": alphabet}
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, **flags)
    made.train_from_iterator(TEXTS * 9, trainer)
    return made


TOKENIZERS = {
    "gpt2": byte_level(),
    "cl100k": byte_level(CL100K),
    "each digit": byte_level(CL100K.replace("{1,3}", "")),
    "sentencepiece": sentence_piece(),
}
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}


def folder(path, tokenizer, model_type="llama", **fields):
    """A folder with a tokenizer and no weights."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps(raw_config(model_type)))
    (path / "tokenizer_config.json").write_text(json.dumps(NAMED | fields))
    return path


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("name", ["cl100k", "sentencepiece"])
def test_ids_are_the_files_in_every_family_and_class(tmp_path, model_type, name):
    expected = TOKENIZERS[name].encode_batch(TEXTS, add_special_tokens=False)
    plain = plain_tokenizer(TOKENIZERS[name])
    # No merge is left out at random.
    made = Tokenizer.from_str(TOKENIZERS[name].to_str())
    made.model.dropout = 0.9
    for kind in ("GPT2Tokenizer", "LlamaTokenizerFast", None):
        fields = {} if kind is None else {"tokenizer_class": kind}
        path = folder(tmp_path / str(kind), made, model_type, **fields)
        fast = checkpoint.read_fast_tokenizer(path)
        found = fast(TEXTS, add_special_tokens=False)["input_ids"]
        assert found == [one.ids for one in expected], kind
        read, prefix_id, eos_id = checkpoint.read_tokenizer(path, {})
        assert read.to_str() == plain.to_str(), kind
        assert (prefix_id, eos_id) == (1, 2), kind
        begun = encode_texts(read, TEXTS, begins=True)
        assert [one.tolist() for one in begun] == found, kind


def test_a_text_of_membership_begins_as_its_tokenizer_lets_it(tmp_path):
    made = TOKENIZERS["sentencepiece"]
    opened = jaxcontam.load(save(tmp_path))
    opened = dataclasses.replace(opened, tokenizer=text_tokenizer(made), prefix_id=1)
    found = text_model(opened, store=None).sequences(TEXTS)
    for text, ids in zip(TEXTS, found, strict=True):
        own = made.encode(text, add_special_tokens=False).ids
        assert ids.tolist() == (own if text.startswith("<s>") else [1, *own])


@pytest.mark.parametrize(
    ("writes", "flag", "first"),
    [(True, True, 1), (True, False, 1), (False, True, 1), (False, None, None)],
)
def test_a_bos_is_added_by_the_file_or_the_flag(tmp_path, writes, flag, first):
    made = Tokenizer.from_str(TOKENIZERS["cl100k"].to_str())
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    if writes:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    fields = {} if flag is None else {"add_bos_token": flag}
    ids = checkpoint.read_fast_tokenizer(folder(tmp_path, made, **fields)).encode("ab")
    own = made.encode("ab", add_special_tokens=False).ids
    assert ids == ([] if first is None else [first]) + own


def test_tokens_that_the_file_lacks_are_added_together(tmp_path):
    """One by one, 30,000 take many minutes."""
    made = TOKENIZERS["cl100k"]
    n = made.get_vocab_size()
    names = [*(f"<{i}>" for i in range(30_000)), "", "<1>", "<s>", "<far>"]
    more = {str(n + i): {"content": name} for i, name in enumerate(names)}
    path = folder(tmp_path, made, added_tokens_decoder=more) / "tokenizer.json"
    with confined(seconds=60):
        found = file_tokenizer(path)
    assert found.get_vocab_size() == n + 30_000
    own = made.encode("ab", add_special_tokens=False).ids
    for i in (0, 1, 29_999):
        ids = found.encode(f"ab<{i}>", add_special_tokens=False).ids
        assert ids == [*own, n + i]


def test_a_name_without_an_id_in_the_file_is_none(tmp_path):
    """Transformers gives it an id of its own, a row that no model was trained on."""
    made = TOKENIZERS["cl100k"]
    path = folder(tmp_path, made, bos_token="<|gone|>")
    fast = checkpoint.read_fast_tokenizer(path)
    assert fast.bos_token_id is None and fast.eos_token_id == 2
    plain, prefix_id, _ = checkpoint.read_tokenizer(path, {"bos_token_id": 0})
    assert prefix_id == 0 and plain.get_vocab() == made.get_vocab()


def test_another_split_in_the_file_is_another_model(tmp_path):
    """Scores are kept under the digest: none of the other ids' is taken."""
    digests = set()
    for split in ("cl100k", "each digit"):
        made = Tokenizer.from_str(TOKENIZERS["cl100k"].to_str())
        made.pre_tokenizer = TOKENIZERS[split].pre_tokenizer
        path = folder(save(tmp_path / split), made, tokenizer_class="GPT2Tokenizer")
        digests.add(checkpoint.model_fingerprint(str(path)))
    assert len(digests) == 2


def test_a_file_that_is_none_is_one_line(tmp_path):
    path = folder(tmp_path, TOKENIZERS["gpt2"])
    for broken in ("{", "[]", '{"model": {"type": "BPE"}}'):
        (path / "tokenizer.json").write_text(broken)
        with pytest.raises(InputError, match="the tokenizer does not load") as caught:
            checkpoint.read_fast_tokenizer(path)
        assert "\n" not in str(caught.value)


def test_a_tokenizer_that_takes_too_long_is_left_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxcontam.data.encoding._MOST_SECONDS", 0.01)
    made = Tokenizer.from_str(TOKENIZERS["gpt2"].to_str())
    made.normalizer = normalizers.Replace("a", "b" * (1 << 21))
    path = folder(tmp_path, made, add_bos_token=True)
    with pytest.raises(InputError, match=r"took over 0\.01 s"):
        checkpoint.read_fast_tokenizer(path)
