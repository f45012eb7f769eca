"""The stretch of a corpus that is nearest in meaning, by embeddings made here."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.cli.main import main

N_MEANINGS = 400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Embeddings in which words a7 and b7 mean the same, and a corpus of b-words."""
    monkeypatch.chdir(tmp_path)
    words = [f"{side}{i}" for side in "ab" for i in range(N_MEANINGS)]
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "model").mkdir()
    tokenizer.save("model/tokenizer.json")
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((N_MEANINGS, 16), np.float32)
    table = np.concatenate([np.zeros((1, 16), np.float32), vectors, vectors])
    save_file({"embeddings": table}, "model/model.safetensors")
    meanings = rng.integers(N_MEANINGS, size=(60, 300))
    examples = rng.integers(N_MEANINGS, size=(5, 32))
    meanings[40, 96:128] = examples[2]
    meanings[17, :32] = examples[3][::-1]
    documents = [" ".join(f"b{i}" for i in row) for row in meanings]
    lines = [json.dumps({"text": text}) + "\n" for text in documents]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    texts = [" ".join(f"a{i}" for i in row) for row in examples]
    (tmp_path / "benchmark.txt").write_text("\n".join(texts) + "\n")
    return tmp_path


def overlap(out, *more):
    flags = ["--embeddings", "model", "--out", out]
    return main(["overlap", "corpus.jsonl", "benchmark.txt", *flags, *more])


def test_a_text_in_other_words_is_nearest_where_it_was_planted(folder, capsys):
    assert overlap("out") == 0
    result = json.loads((folder / "out/overlap.json").read_text())
    rows = result["examples"]
    assert result["totals"]["found"] == 0, "no word of it is in the corpus"
    assert [rows[i]["nearest"]["line"] for i in (2, 3)] == [41, 18]
    cosines = [row["nearest"]["cosine"] for row in rows]
    assert cosines[2] == pytest.approx(1)
    assert cosines[3] == pytest.approx(1), "the order of words does not count"
    assert max(cosines[i] for i in (0, 1, 4)) < 0.9
    planted = rows[2]["nearest"]
    assert planted["corpus"].split() == [
        word.replace("a", "b") for word in planted["example"].split()
    ]
    printed = capsys.readouterr().out
    first = printed.index("corpus.jsonl:41"), printed.index("corpus.jsonl:18")
    assert max(first) < printed.index("corpus.jsonl:", max(first) + 1)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"embeddings": np.ones((3, 4), np.float32)}, "one row for each of 801"),
        (
            {"e": np.ones((801, 4), np.float32), "mapping": np.ones(801, np.int64)},
            "not static embeddings",
        ),
        ({"e": np.full((801, 4), np.nan, np.float32)}, "not finite"),
        (None, "no weights to read"),
    ],
)
def test_other_models_are_refused(folder, capsys, tensors, words):
    (folder / "model/model.safetensors").unlink()
    if tensors is not None:
        save_file(tensors, folder / "model/model.safetensors")
    assert overlap("out") == 2
    assert words in capsys.readouterr().err
