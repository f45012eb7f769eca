"""A BLEURT folder scores as torch does pair by pair; ids by hand."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from jaxcontam.errors import InputError
from jaxcontam.replication.bleurt import Bleurt, kept_tokens

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


def write_tokenizer(folder):
    """BERT's, of the few words here."""
    vocab = {word: i for i, word in enumerate([*SPECIAL, *WORDS, ",", "a"])}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.save(str(folder / "tokenizer.json"))


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
    write_tokenizer(folder)
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


def test_bleurt_20_is_told_by_its_shape(saved):
    import transformers

    bleurt = Bleurt.load(saved[0])
    assert bleurt.measure.whole_when_inside and not bleurt.measure.is_bleurt_20
    shape = {"num_hidden_layers": 32, "hidden_size": 1152, "num_attention_heads": 18}
    with torch.device("meta"):
        model = transformers.RemBertModel(transformers.RemBertConfig(**shape))
    assert dataclasses.replace(bleurt, model=model).measure.is_bleurt_20


def test_without_torch_the_extra_is_named(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="BLEURT needs torch, which is not") as caught:
        Bleurt.load(saved[0])
    assert caught.value.hint == "pip install 'jaxcontam[torch]'"


@pytest.mark.parametrize("kind", ["bert", "rembert"])
def test_converted_port_holds_the_same_model(kind, tmp_path, monkeypatch):
    """By the recipe of the page: `bleurt.` before names, an `embedding_projection`."""
    port = tmp_path / "BLEURT-20"
    model = torch_model(kind)
    model.save_pretrained(tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    renamed = {
        name.replace(f"{kind}.", "bleurt.").replace(
            "embedding_hidden_mapping_in", "embedding_projection"
        ): value
        for name, value in tensors.items()
    }
    renamed["bleurt.embeddings.position_ids"] = np.arange(CONTEXT)[None]
    port.mkdir()
    save_file(renamed, port / "model.safetensors")
    width = 8 if kind == "rembert" else SHAPE["hidden_size"]
    fields = {**SHAPE, "model_type": "bleurt", "embedding_size": width}
    (port / "config.json").write_text(json.dumps(fields))
    write_tokenizer(port)
    page = Path(__file__).parents[2] / "docs/how_to/replicate.md"
    recipe = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})
    found = Bleurt.load("BLEURT-20-converted").scores(PAIRS)
    np.testing.assert_allclose(found, torch_scores(model, PAIRS), **CLOSE)


def test_the_tokenizers_own_limit_cuts_pairs(tmp_path):
    model = torch_model("bert")
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    limit = {"model_max_length": CONTEXT - 4}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(limit))
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
        ("labels", "classifier.weight has shape (2, 16)"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path, damage, message):
    model = torch_model("bert")
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
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
        (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError) as caught:
        Bleurt.load(tmp_path / damage if damage == "nowhere" else tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
