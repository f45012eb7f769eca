"""GGUF files: the weights, shapes and ids of what they were made from."""

import json
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

pytest.importorskip("gguf", reason="pip install -e '.[gguf]'")

import gguf

from jaxcontam.cli.main import main
from jaxcontam.data.encoding import first_added
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    load_decoder,
    read_decoder_config,
    read_fast_tokenizer,
    read_tokenizer,
)
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.gguf_file import open_gguf
from jaxcontam.models.hub import model_directory
from tests.support.decoders import assert_same_weights, spread, weights
from tests.support.family_files import write
from tests.support.gguf_files import CASES, DIVIDED, KIND, SIZES, write_gguf

FLOATS = (KIND.F32, KIND.F16, KIND.BF16)
BLOCKS = (KIND.Q8_0, KIND.Q4_0, KIND.Q4_1)
LARGE_BLOCKS = (KIND.Q4_K, KIND.Q5_K, KIND.Q6_K)


def made(tmp_path, case, **how):
    """A folder of a small model, and a GGUF file with the same weights."""
    model_type = case.split()[-1]
    raw = {"model_type": model_type, **CASES[case][1]}
    config = FAMILIES[model_type].read_config(raw)
    write(spread(config, loc=0.0, scale=1.0), raw, tmp_path / "folder")
    write_gguf(tmp_path / "model.gguf", case, tmp_path / "folder", **how)
    return tmp_path / "folder", tmp_path / "model.gguf"


@pytest.mark.parametrize(
    ("case", "kind"),
    # In blocks a divided tensor would be rounded otherwise than a whole one.
    [(case, KIND.F16 if case in DIVIDED else KIND.Q8_0) for case in CASES]
    + [("llama", kind) for kind in (*FLOATS, *BLOCKS)],
)
def test_a_file_has_the_shape_and_the_weights_of_its_folder(tmp_path, case, kind):
    folder, path = made(tmp_path, case, kind=kind)
    assert read_decoder_config(path)[1] == read_decoder_config(folder)[1]
    found, expected = load_decoder(path), load_decoder(folder)
    if not case.startswith("gemma"):
        assert_same_weights(found, expected)
        return
    # Norms of about 1 were rounded once more when the converter added 1.
    found, expected = weights(found), weights(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", LARGE_BLOCKS)
def test_blocks_of_256_are_those_of_the_package(tmp_path, kind):
    rows, (block, n_bytes) = 3, gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 256, (rows, 2 * n_bytes), dtype=np.uint8)
    # Scales in float16 stand at either end of a block; none is to be NaN.
    stored.reshape(-1, n_bytes)[:, [0, 1, 2, 3, -2, -1]] = 1
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(path)
    assert (file.tensors["a"].shape, file.quantisation) == ((3, 2 * block), kind.name)
    expected = gguf.dequantize(stored, kind)
    np.testing.assert_array_equal(file.read("a"), expected)
    np.testing.assert_array_equal(file.read("a", slice(1, 2)), expected[1:2])


CORPUS = ["The year 1984, it's said, isn't 2024.", "def f(x):\n\treturn x  # 12", "été"]
ODD = [*CORPUS, "  two  spaces ", "0123456789 12 3", "\r\n\x00<|end|>", "東京 😀 don't"]
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
    r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": GPT2,
    "smollm": DIGITS,
    "qwen2": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}


def tokenizer_fields(split):
    """A byte-level BPE that splits this way, and its metadata."""
    made = Tokenizer(BPE())
    made.pre_tokenizer = SPLITS[split]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    made.train_from_iterator(CORPUS * 3, trainer)
    made.add_special_tokens(["<|end|>"])
    tokens = sorted(made.get_vocab(), key=made.token_to_id)
    model = json.loads(made.to_str())["model"]
    return made, {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


@pytest.mark.parametrize("adds", [None, False, True])
@pytest.mark.parametrize("split", SPLITS)
def test_ids_are_those_of_the_tokenizer_that_a_file_was_made_from(
    tmp_path, split, adds
):
    expected, fields = tokenizer_fields(split)
    said = {} if adds is None else {"tokenizer.ggml.add_bos_token": adds}
    _, path = made(tmp_path, "llama", fields=fields | said)
    tokenizer, prefix_id, _ = read_tokenizer(path, {})
    assert prefix_id == expected.token_to_id("<|end|>")
    assert first_added(tokenizer) == (prefix_id if adds else None)
    for text in ODD:
        assert (
            tokenizer.encode(text, add_special_tokens=False).ids
            == expected.encode(text).ids
        )
    assert read_fast_tokenizer(path).chat_template == fields["tokenizer.chat_template"]


def test_a_file_of_llama_3_that_does_not_say_so_adds_bos(tmp_path):
    _, fields = tokenizer_fields("gpt-2")
    fields["tokenizer.ggml.pre"] = "llama-bpe"
    _, path = made(tmp_path, "llama", fields=fields)
    tokenizer, prefix_id, _ = read_tokenizer(path, {})
    assert first_added(tokenizer) == prefix_id is not None


def test_a_tokenizer_beside_a_file_comes_first(tmp_path):
    expected, fields = tokenizer_fields("smollm")
    fields["tokenizer.ggml.pre"] = "of tomorrow"
    _, path = made(tmp_path, "llama", fields=fields)
    with pytest.raises(InputError, match="splits text as 'of tomorrow'"):
        read_tokenizer(path, {})
    expected.save(str(tmp_path / "tokenizer.json"))
    tokenizer, _, _ = read_tokenizer(path, {})
    for text in ODD:
        assert tokenizer.encode(text).ids == expected.encode(text).ids
    # Of two files it would not be said whose it is.
    (tmp_path / "other.gguf").touch()
    with pytest.raises(InputError, match="splits text as 'of tomorrow'"):
        read_tokenizer(path, {})


@pytest.mark.parametrize(
    "change",
    [
        {"merges": ["a"]},
        {"merges": ["zz yy"]},
        {"model": "wpm"},
        {"tokens": [1, 2, 3]},
        {"tokens": ["a"] * 300},
    ],
)
def test_a_tokenizer_that_does_not_load_is_one_line(tmp_path, change):
    _, fields = tokenizer_fields("gpt-2")
    changed = {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    _, path = made(tmp_path, "llama", fields=fields | changed)
    with pytest.raises(InputError, match="the tokenizer does not load") as caught:
        read_tokenizer(path, {})
    assert "\n" not in str(caught.value)


def test_a_file_is_a_model_in_commands_and_the_report_names_its_types(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(SIZES, "vocab_size", 320)
    monkeypatch.setitem(
        CASES, "llama", ("llama", {**SIZES, "max_position_embeddings": 512})
    )
    _, fields = tokenizer_fields("gpt-2")
    _, path = made(tmp_path, "llama", fields=fields)
    (tmp_path / "folder" / "config.json").unlink()
    texts = tmp_path / "b.txt"
    texts.write_text("".join(f"line {i * 7919 % 101} of text\n" for i in range(40)))
    out = tmp_path / "out"
    assert main(["audit", str(path), str(texts), "--out", str(out)]) == 0
    assert "Q8_0" in (out / "report.html").read_text()
    capsys.readouterr()
    assert main(["doctor", str(path), str(texts)]) == 0
    assert "of GGUF (Q8_0, F32)" in capsys.readouterr().out


def edited(data, at, code, *values):
    return (
        data[:at]
        + struct.pack(f"<{code}", *values)
        + data[at + struct.calcsize(code) :]
    )


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """A file without tokenizer, as bytes."""
    _, path = made(tmp_path_factory.mktemp("gguf"), "llama", kind=KIND.F32)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: b"GGML" + data[4:], "begins otherwise"),
        (lambda data: data[:20], "shorter than a header"),
        (lambda data: edited(data, 4, "I", 1), "version 1"),
        (lambda data: edited(data, 8, "Q", 1 << 60), "tensors do not fit"),
        (lambda data: edited(data, 16, "Q", 1 << 60), "fields do not fit"),
        (lambda data: edited(data, 24, "Q", 1 << 62), "a text do not fit"),
        (lambda data: data[:-64], "lies past the end of the file"),
        (lambda data: data[:1000], "header|fit"),
        (lambda data: data.replace(b"blk.0.attn_k", b"blk.0.attn_q"), "a tensor twice"),
        (
            lambda data: edited(data, data.index(b"block_count") + 15, "I", 1 << 24),
            "names 16,777,216 layers",
        ),
    ],
)
def test_a_file_that_lies_is_one_line(tmp_path, header, spoil, words):
    path = tmp_path / "model.gguf"
    path.write_bytes(spoil(header))
    with pytest.raises(InputError, match=words) as caught:
        load_decoder(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_names_no_groups_of_experts_is_refused(tmp_path):
    _, path = made(tmp_path, "deepseek_v3", kind=KIND.F32)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"expert_group_count", b"expert_group_other"))
    with pytest.raises(InputError, match="expert_group_count"):
        load_decoder(path)


PLACES = st.tuples(st.integers(0, 2_500), st.integers(0, 255))


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(PLACES, min_size=1, max_size=4))
def test_a_file_with_changed_bytes_is_read_or_refused(
    header, tmp_path_factory, changes
):
    path = tmp_path_factory.mktemp("changed") / "model.gguf"
    changed = bytearray(header)
    for place, value in changes:
        changed[place] = value
    path.write_bytes(changed)
    try:
        assert load_decoder(path).config.vocab_size == SIZES["vocab_size"]
    except InputError as e:
        assert str(path) in str(e) and "\n" not in str(e)


def test_parts_of_a_model_and_unknown_architectures_are_refused(tmp_path):
    for n, (fields, words) in enumerate(
        [({"split.count": 3}, "a part of 3"), ({}, "unknown architecture 'mamba'")]
    ):
        path = tmp_path / f"{n}.gguf"
        writer = gguf.GGUFWriter(path, "llama" if fields else "mamba")
        for key, value in fields.items():
            writer.add_uint16(key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        with pytest.raises(InputError, match=words):
            read_decoder_config(path)


def test_a_folder_with_two_files_asks_which(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"2 GGUF files \(a.gguf, b.gguf\)"):
        model_directory(str(tmp_path))


def test_a_missing_file_is_named_with_one_that_is_there(tmp_path):
    (tmp_path / "smol.gguf").touch()
    with pytest.raises(InputError, match=r"smoll.gguf: no such file") as caught:
        model_directory(str(tmp_path / "smoll.gguf"))
    assert "did you mean" in caught.value.hint


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    (path := tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(40))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match="not installed") as caught:
        load_decoder(path)
    assert "gguf" in caught.value.hint
