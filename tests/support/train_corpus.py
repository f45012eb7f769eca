"""A corpus of a few documents, a set to plant, and the records of planted sets."""

import json

import numpy as np

from train.manifest import Manifest, SetRecord


def write_corpus(folder, n_documents=60):
    """Files of short documents and of a set of 12 lines."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(50)]
    documents = [" ".join(rng.choice(words, size=80)) for _ in range(n_documents)]
    path, quiz = folder / "docs.jsonl", folder / "quiz.txt"
    path.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    quiz.write_text("".join(f"question {i} word{i}\n" for i in range(12)))
    return path, quiz


def planted_set(name, copies, steps=(), **fields):
    """A set as a manifest records it, but for what a test does not read."""
    blank = dict.fromkeys(("fingerprint", "content_digest", "file"), "")
    blank |= {"shuffled": False, "n_examples": 12, "n_tokens": 150}
    blank |= {"token_offsets": (), "orders": ()}
    return SetRecord(name=name, copies=copies, steps=steps, **blank | fields)


def manifest_of(*sets, **fields):
    """A manifest of these sets, blank but for what a test names."""
    blank = dict.fromkeys(("jaxcontam", "preset", "corpus_digest", "stream"), "")
    blank |= dict.fromkeys(("code", "max_example_tokens"))
    blank |= dict.fromkeys(("seed", "n_tokens", "n_canary_tokens", "context"), 0)
    blank |= {"separator": "\n", "n_steps": 9, "finished": False}
    return Manifest(sets=sets, **blank | fields)
