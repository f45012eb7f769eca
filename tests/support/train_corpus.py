"""A corpus of a few documents, and a set to plant."""

import json

import numpy as np


def write_corpus(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(50)]
    documents = [" ".join(rng.choice(words, size=80)) for _ in range(60)]
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    canaries = tmp_path / "quiz.txt"
    canaries.write_text("".join(f"question {i} word{i}\n" for i in range(12)))
    return path, canaries
