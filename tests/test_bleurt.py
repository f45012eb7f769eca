"""BLEURT folders in each layout score as torch does pair by pair; ids by hand."""

import dataclasses
import json
import struct
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.methods.replication.bleurt import Bleurt, kept_tokens
from jaxcontam.methods.replication.overlap import EmbeddingOverlap
from jaxcontam.models.regression import _HIDDEN, _sentence_pieces, load_regression

torch = pytest.importorskip("torch")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "hat", "big", "##s", "##ly"]
CONTEXT = 16
PAIRS = [
    ("The cat sat on the mat", "the cat sat on the mat"),
    ("the dog ran", "a big, big hat on the cats"),
    ("", "dogs"),
    ("cat", ""),
    ("the cat " * 30, "on the mat " * 3),
    ("the dog", "ran [SEP] the hat " * 20),
]
# Float32 sums in another order. Measured: 1e-6.
CLOSE = {"rtol": 0, "atol": 1e-5}
SHAPE = {
    "vocab_size": len(SPECIAL) + len(WORDS) + 3,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.5,
    "num_labels": 1,
}


def torch_model(kind, act="gelu"):
    """A random sequence classifier of one label."""
    import transformers

    torch.manual_seed(1)
    if kind == "bert":
        config = transformers.BertConfig(**SHAPE, hidden_act=act)
        model = transformers.BertForSequenceClassification(config)
    else:
        config = transformers.RemBertConfig(
            **SHAPE, hidden_act=act, input_embedding_size=8
        )
        model = transformers.RemBertForSequenceClassification(config)
    # Biases and norms that start as zeros and ones would hide a wrong name.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def write_vocab(folder):
    lines = [*SPECIAL, *WORDS, ",", "a"]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")


def torch_scores(model, pairs, context=CONTEXT):
    """One pair at a time, without padding, from ids that are made by hand."""
    vocab = {word: i for i, word in enumerate([*SPECIAL, *WORDS, ",", "a"])}

    def ids(text):
        found = []
        for word in text.lower().replace(",", " , ").replace("[sep]", " ( ").split():
            if word == "(":  # [, sep and ] are three unknown tokens
                found += [1, 1, 1]
            elif word in vocab:
                found.append(vocab[word])
            else:
                assert word.endswith("s") and word[:-1] in vocab
                found += [vocab[word[:-1]], vocab["##s"]]
        return found

    scores = []
    for first, second in pairs:
        a, b = ids(first), ids(second)
        while len(a) + len(b) > context - 3:
            (a if len(a) > len(b) else b).pop()
        tokens = torch.tensor([[2, *a, 3, *b, 3]])
        segments = torch.tensor([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
        with torch.no_grad():
            logits = model(input_ids=tokens, token_type_ids=segments).logits
        assert logits.shape == (1, 1)
        scores.append(float(logits))
    return np.array(scores)


@pytest.fixture(scope="module", params=["bert", "rembert"])
def saved(request, tmp_path_factory):
    """A folder that transformers wrote, and the torch model."""
    folder = tmp_path_factory.mktemp(request.param)
    model = torch_model(request.param)
    model.save_pretrained(folder)
    write_vocab(folder)
    return folder, model


def test_scores_of_a_batch_are_those_of_each_pair_alone(saved):
    folder, model = saved
    expected = torch_scores(model, PAIRS)
    assert len(set(np.round(expected, 3))) == len(PAIRS)
    np.testing.assert_allclose(Bleurt.load(folder).scores(PAIRS), expected, **CLOSE)


def test_the_reference_and_the_candidate_cannot_change_places(saved):
    bleurt = Bleurt.load(saved[0])
    one, other = bleurt.scores([PAIRS[1], PAIRS[1][::-1]])
    assert abs(one - other) > 1e-3
    assert bleurt.scores([]).shape == (0,)


def test_the_measure_compares_whole_texts_that_were_cut_inside(saved):
    from jaxcontam.methods.replication.instance import Completion, Instance
    from jaxcontam.methods.replication.overlap import overlap_scores

    bleurt = Bleurt.load(saved[0])
    instances = [
        Instance(index=0, first_piece="the", second_piece="cat", label=None, cut=cut)
        for cut in ("inside", "sentence")
    ]
    completions = [Completion(text="dog")] * 2
    found = overlap_scores(bleurt.measure, instances, completions)
    expected = bleurt.scores([("the cat", "the dog"), ("cat", "dog")])
    np.testing.assert_array_equal(found, expected)


def test_bleurt_20_is_told_by_its_shape(saved):
    import transformers

    bleurt = Bleurt.load(saved[0])
    assert not bleurt.is_bleurt_20
    shape = {"num_hidden_layers": 32, "hidden_size": 1152, "num_attention_heads": 18}
    with torch.device("meta"):
        model = transformers.RemBertModel(transformers.RemBertConfig(**shape))
    assert Bleurt(dataclasses.replace(bleurt.model, model=model)).is_bleurt_20


def test_without_torch_the_extra_is_named(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="BLEURT needs torch, which is not") as caught:
        load_regression(saved[0])
    assert caught.value.hint == "pip install 'jaxcontam[torch]'"


def test_the_ports_names_hold_the_same_model(tmp_path):
    """`bleurt.` before each name, and an `embedding_projection`."""
    model = torch_model("rembert")
    model.save_pretrained(tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    renamed = {
        name.replace("rembert.", "bleurt.").replace(
            "embedding_hidden_mapping_in", "embedding_projection"
        ): value
        for name, value in tensors.items()
    }
    renamed["bleurt.embeddings.position_ids"] = np.arange(CONTEXT)[None]
    save_file(renamed, tmp_path / "model.safetensors")
    fields = {**SHAPE, "model_type": "bleurt", "embedding_size": 8, "pad_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    write_vocab(tmp_path)
    expected = torch_scores(model, PAIRS)
    np.testing.assert_allclose(Bleurt.load(tmp_path).scores(PAIRS), expected, **CLOSE)


def tensorflow_name(name):
    """Name of a variable in an official checkpoint, and whether it lies otherwise."""
    name = name.replace("rembert.", "bert.").replace(".", "/")
    name = name.replace("layer/", "layer_").replace("classifier/", "dense/")
    if "LayerNorm" in name:
        return name.replace("weight", "gamma").replace("bias", "beta"), False
    if "embeddings/" in name:
        return name.removesuffix("/weight"), False
    return name.replace("weight", "kernel"), name.endswith("weight")


@pytest.mark.parametrize("kind", ["bert", "rembert"])
def test_an_official_folder_with_its_variables_holds_the_same_model(tmp_path, kind):
    """Its `gelu` is the tanh form, and its limit of tokens its own."""
    model = torch_model(kind, act="gelu_new")
    model.save_pretrained(tmp_path / "saved")
    variables = {}
    for name, value in load_file(tmp_path / "saved" / "model.safetensors").items():
        theirs, is_other = tensorflow_name(name)
        variables[theirs] = np.ascontiguousarray(value.T if is_other else value)
    assert "bert/encoder/layer_2/attention/self/query/kernel" in variables
    variables["global_step"] = np.array([3])
    save_file(variables, tmp_path / "model.safetensors")
    fields = {k: v for k, v in SHAPE.items() if k != "num_labels"}
    fields["hidden_act"] = "gelu"
    if kind == "rembert":
        fields["embedding_size"] = 8
    (tmp_path / "bert_config.json").write_text(json.dumps(fields))
    settings = {"max_seq_length": CONTEXT - 4, "do_lower_case": True, "sp_model": None}
    (tmp_path / "bleurt_config.json").write_text(json.dumps(settings))
    write_vocab(tmp_path)
    found = load_regression(tmp_path)
    assert found.context == CONTEXT - 4
    expected = torch_scores(model, PAIRS, context=CONTEXT - 4)
    np.testing.assert_allclose(Bleurt.load(tmp_path).scores(PAIRS), expected, **CLOSE)


def test_cut_pairs_are_those_of_the_token_by_token_rule():
    for first in range(15):
        for second in range(15):
            for room in range(15):
                a, b = first, second
                while a + b > room:
                    if a > b:
                        a -= 1
                    else:
                        b -= 1
                assert kept_tokens(first, second, room) == (a, b)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("classifier", "missing tensor classifier.weight"),
        ("shape", "config says"),
        ("unknown", "unknown tensors: surplus"),
        ("type", "unknown model_type 'roberta'"),
        ("pickle", "only pickled weights"),
        ("tokenizer", "no tokenizer"),
        ("json", "not JSON"),
        ("nowhere", "no such folder"),
        ("words", "vocab.txt: not UTF-8"),
        ("labels", "classifier.weight has shape (2, 16)"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path, damage, message):
    model = torch_model("bert")
    model.save_pretrained(tmp_path)
    write_vocab(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors, fields = load_file(weights), json.loads(config.read_text())
    if damage == "classifier":
        del tensors["classifier.weight"]
    elif damage == "shape":
        fields["intermediate_size"] = 41
    elif damage == "unknown":
        tensors["surplus"] = np.zeros(1, np.float32)
    elif damage == "type":
        fields["model_type"] = "roberta"
    elif damage == "labels":
        tensors["classifier.weight"] = np.zeros((2, 16), np.float32)
    save_file(tensors, weights)
    config.write_text(json.dumps(fields) if damage != "json" else "{")
    if damage == "pickle":
        weights.rename(tmp_path / "pytorch_model.bin")
    elif damage == "tokenizer":
        (tmp_path / "vocab.txt").unlink()
    elif damage == "words":
        (tmp_path / "vocab.txt").write_bytes("caf\u00e9\n".encode("latin-1"))
    with pytest.raises(InputError) as caught:
        load_regression(tmp_path / damage if damage == "nowhere" else tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number, value):
    """One field of a protocol buffer: a number, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def piece(text, score=0.0, kind=1):
    return field(
        1,
        field(1, text.encode())
        + bytes([2 << 3 | 5])
        + struct.pack("<f", score)
        + field(3, kind),
    )


def sentencepiece_file(folder, **settings):
    """<unk>, two control pieces, and a few pieces whose best cuts are known."""
    normalizer = field(3, settings.get("prefix", 1)) + field(
        4, settings.get("strip", 1)
    )
    pieces = [
        piece("<unk>", kind=2),
        piece("[CLS]", kind=3),
        piece("[SEP]", kind=3),
        piece("\u2581the", -2.0),
        piece("\u2581ca", -3.0),
        piece("t", -3.5),
        piece("\u2581cat", -4.0),
        piece("s", -3.0),
        piece("\u2581", -2.5),
        piece("[", -6.0),
        piece("CLS", -6.0),
        piece("]", -6.0),
    ]
    path = folder / "sent_piece.model"
    path.write_bytes(b"".join(pieces) + field(2, field(3, 1)) + field(3, normalizer))
    return path


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("the cats", [3, 6, 7]),
        # White space at the ends and more than one space inside count for nothing.
        ("  the   cats ", [3, 6, 7]),
        # Neighbouring unknown characters are one unknown piece.
        ("the xyz", [3, 8, 0]),
        # A control piece never stands for text that spells it.
        ("[CLS]", [8, 9, 10, 11]),
        ("", []),
    ],
)
def test_sentencepiece_cuts_are_the_likeliest(tmp_path, text, ids):
    made = _sentence_pieces(sentencepiece_file(tmp_path))
    assert made.encode(text, add_special_tokens=False).ids == ids
    assert made.token_to_id(_HIDDEN + "[SEP]") == 2


def test_sentencepiece_settings_of_spaces_are_kept(tmp_path):
    kept = _sentence_pieces(sentencepiece_file(tmp_path, strip=0))
    assert kept.encode(" the  cat").ids == [8, 3, 8, 6]
    bare = _sentence_pieces(sentencepiece_file(tmp_path, prefix=0))
    assert bare.encode("s the").ids == [7, 3]


def test_a_sentencepiece_checkpoint_scores_pairs(tmp_path):
    model = torch_model("rembert")
    model.save_pretrained(tmp_path)
    sentencepiece_file(tmp_path)
    (found,) = Bleurt.load(tmp_path).scores([("the cats", "[CLS] cat")])
    tokens = torch.tensor([[1, 3, 6, 7, 2, 8, 9, 10, 11, 6, 2]])
    segments = torch.tensor([[0] * 5 + [1] * 6])
    with torch.no_grad():
        expected = float(model(input_ids=tokens, token_type_ids=segments).logits)
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("data", [b"", b"\x0a\xff", b"no pieces at all", b"\x08"])
def test_a_file_that_is_no_sentencepiece_model_is_refused(tmp_path, data):
    path = tmp_path / "sent_piece.model"
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a SentencePiece model"):
        _sentence_pieces(path)


def test_a_model_of_merges_is_refused(tmp_path):
    path = tmp_path / "sent_piece.model"
    path.write_bytes(piece("<unk>", kind=2) + field(2, field(3, 2)))
    with pytest.raises(InputError, match="not a unigram model"):
        _sentence_pieces(path)


def test_embedding_overlap_is_the_cosine_of_mean_states():
    from jaxcontam.models.checkpoint import Checkpoint
    from jaxcontam.scoring.embedding import text_embeddings
    from tests.unlearning_models import BOS, fresh_decoder, word_tokenizer

    checkpoint = Checkpoint(
        name="tiny",
        decoder=fresh_decoder(3),
        tokenizer=word_tokenizer(),
        prefix_id=BOS,
        fingerprint="sha256:" + "ab" * 32,
    )
    overlap = EmbeddingOverlap(checkpoint)
    pairs = [("beno bist", "beno bist"), ("beno bist", "ka keno"), ("ka", "")]
    same, other, empty = overlap.scores(pairs)
    assert same == pytest.approx(1.0, abs=1e-6) and empty == 0
    a, b, *_ = text_embeddings(checkpoint, ["beno bist", "ka keno", "ka"])
    # Float32 vectors, multiplied in another order.
    assert other == pytest.approx(float(a @ b), abs=1e-6)
    assert overlap.scores([]).shape == (0,)
    assert overlap.version == "tiny abababababab"
