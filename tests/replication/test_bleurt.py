"""A BLEURT folder scores as torch does pair by pair; ids by hand."""

import dataclasses
import itertools
import json
import re
import shutil
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
VOCAB = {word: i for i, word in enumerate([*SPECIAL, *WORDS, ",", "a"])}
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
    "hidden_act": "gelu",
}
WIDTH = {"input_embedding_size": 8}


def torch_model(kind):
    """A random sequence classifier of one label."""
    import transformers

    torch.manual_seed(1)
    name, more = ("Bert", {}) if kind == "bert" else ("RemBert", WIDTH)
    config = getattr(transformers, f"{name}Config")(**SHAPE, **more)
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    # Biases and norms that start as zeros and ones would hide a wrong name.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def ids_of(text):
    """Ids by hand: a plural is a word and its s; [, sep and ] are unknown."""
    found = []
    for word in text.lower().replace(",", " , ").replace("[sep]", " ? ? ? ").split():
        whole = word == "?" or word in VOCAB
        parts = [word] if whole else [word[:-1], f"##{word[-1]}"]
        found += [VOCAB[part] if part != "?" else 1 for part in parts]
    return found


def kept_by_hand(a, b, room):
    """Token by token the longer one ends earlier, of two alike the second."""
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def torch_scores(model, context=CONTEXT):
    """One pair at a time, without padding."""
    scores = []
    for pair in PAIRS:
        a, b = map(ids_of, pair)
        cut = kept_by_hand(len(a), len(b), context - 3)
        a, b = a[: cut[0]], b[: cut[1]]
        tokens = torch.tensor([[2, *a, 3, *b, 3]])
        segments = torch.tensor([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
        with torch.no_grad():
            logits = model(input_ids=tokens, token_type_ids=segments).logits
        scores.append(logits.item())
    return np.array(scores)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders that transformers wrote, and the torch models."""
    tokenizer = Tokenizer(models.WordPiece(VOCAB, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made = {}
    for kind in ("bert", "rembert"):
        folder, model = tmp_path_factory.mktemp("saved") / kind, torch_model(kind)
        model.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        made[kind] = folder, model
    return made


@pytest.fixture(params=["bert", "rembert"])
def saved(request, folders):
    return folders[request.param]


@pytest.fixture
def bert(folders, tmp_path):
    """A copy of BERT's folder."""
    return shutil.copytree(folders["bert"][0], tmp_path / "bert")


def test_scores_of_a_batch_are_those_of_each_pair_alone(saved, monkeypatch):
    folder, model = saved
    expected = torch_scores(model)
    # No two are alike: reference and candidate cannot change places.
    assert len(set(np.round(expected, 3))) == len(PAIRS)
    bleurt = Bleurt.load(folder)
    np.testing.assert_allclose(bleurt.scores(PAIRS), expected, **CLOSE)
    one, other = bleurt.scores([PAIRS[1], PAIRS[1][::-1]])
    assert abs(one - other) > 1e-3 and bleurt.scores([]).shape == (0,)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="BLEURT needs torch, which is not") as caught:
        Bleurt.load(folder)
    assert caught.value.hint == "pip install 'torch>=2.6'"


def test_bleurt_20_is_told_by_its_shape(bert):
    import transformers

    bleurt = Bleurt.load(bert)
    assert bleurt.measure.whole_when_inside and not bleurt.measure.is_bleurt_20
    shape = {"num_hidden_layers": 32, "hidden_size": 1152, "num_attention_heads": 18}
    with torch.device("meta"):
        model = transformers.RemBertModel(transformers.RemBertConfig(**shape))
    assert dataclasses.replace(bleurt, model=model).measure.is_bleurt_20


def test_converted_port_holds_the_same_model(saved, tmp_path, monkeypatch):
    """By the recipe of the page: `bleurt.` before names, an `embedding_projection`."""
    folder, model = saved
    port = tmp_path / "BLEURT-20"
    shutil.copytree(folder, port)
    tensors = {
        name.replace(f"{folder.name}.", "bleurt.").replace(
            "embedding_hidden_mapping_in", "embedding_projection"
        ): value
        for name, value in load_file(port / "model.safetensors").items()
    }
    tensors["bleurt.embeddings.position_ids"] = np.arange(CONTEXT)[None]
    save_file(tensors, port / "model.safetensors")
    width = 8 if folder.name == "rembert" else SHAPE["hidden_size"]
    fields = {**SHAPE, "model_type": "bleurt", "embedding_size": width}
    (port / "config.json").write_text(json.dumps(fields))
    page = Path(__file__).parents[2] / "docs/how_to/replicate.md"
    recipe = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})
    found = Bleurt.load("BLEURT-20-converted").scores(PAIRS)
    np.testing.assert_allclose(found, torch_scores(model), **CLOSE)


def test_the_tokenizers_own_limit_cuts_pairs(folders, bert):
    limit = {"model_max_length": CONTEXT - 4}
    (bert / "tokenizer_config.json").write_text(json.dumps(limit))
    expected = torch_scores(folders["bert"][1], context=CONTEXT - 4)
    np.testing.assert_allclose(Bleurt.load(bert).scores(PAIRS), expected, **CLOSE)


def test_cut_pairs_are_those_of_the_token_by_token_rule():
    for lengths in itertools.product(range(15), repeat=3):
        assert kept_tokens(*lengths) == kept_by_hand(*lengths)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"classifier.weight": None}, "missing tensor classifier.weight"),
        ({"surplus": (1,)}, "unknown tensors: surplus"),
        ({"classifier.weight": (2, 16)}, "classifier.weight has shape (2, 16)"),
        ({"intermediate_size": 41}, "config says"),
        ({"model_type": "roberta"}, "unknown model_type 'roberta'"),
        ({"model.safetensors": "pytorch_model.bin"}, "only pickled weights"),
        ({"tokenizer.json": "nowhere"}, "no tokenizer"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(bert, damage, message):
    weights, config = bert / "model.safetensors", bert / "config.json"
    tensors, fields = load_file(weights), json.loads(config.read_text())
    for name, value in damage.items():
        if (bert / name).exists():
            (bert / name).rename(bert / value)
        elif name in fields:
            config.write_text(json.dumps(fields | {name: value}))
        else:
            changed = {} if value is None else {name: np.zeros(value, np.float32)}
            tensors.pop(name, None)
            save_file(tensors | changed, weights)
    with pytest.raises(InputError) as caught:
        Bleurt.load(bert)
    assert message in str(caught.value) and "\n" not in str(caught.value)
