"""Hits of `overlap` on labelled samples of Python's documentation."""

import itertools
import random
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from eval.overlap import KINDS, framed_questions
from eval.python_docs import read_python_docs
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Document
from jaxcontam.overlap.index import example_index, forms_of
from jaxcontam.overlap.nearest import NearestSearch, StaticEmbeddings
from jaxcontam.overlap.occurrences import occurrences

PARAPHRASES = Path(__file__).with_name("overlap_paraphrases.toml")


def reworded_sentences(n, seed):
    """Kind -> (sentence, the same in new words): by hand, or n with every k-th new."""
    docs, rng = read_python_docs(), random.Random(seed)
    by_hand = tomllib.loads(PARAPHRASES.read_text(encoding="utf-8"))
    known = {q.answer: q.sentence for q in docs.questions}
    pairs = {"by hand": [(known[k], by_hand[k]) for k in by_hand if k in known]}
    long = [q.sentence for q in docs.questions if 9 <= len(q.sentence.split()) <= 30]
    vocabulary = " ".join(docs.documents).split()
    for step in (9, 4, 3, 2):
        kind = pairs[f"one word in {step} new"] = []
        for sentence in rng.sample(long, n):
            words = sentence.split()
            for place in range(step // 2, len(words), step):
                words[place] = rng.choice(vocabulary)
            kind.append((sentence, " ".join(words)))
    return pairs


@pytest.mark.slow
def test_whole_copies_are_found_and_clean_questions_in_their_frame_are_not():
    n = 100
    texts, documents, _ = framed_questions(n, seed=0)
    benchmark = Benchmark("questions", tuple(texts), (None,) * len(texts))
    index = example_index(forms_of(benchmark, is_chosen=True))
    found = index.find(Document(text, line=i) for i, text in enumerate(documents, 1))
    rows = occurrences(index, found)
    assert all(row.rule for row in rows), "all share the frame with the corpus"
    found = np.array([row.is_found for row in rows]).reshape(len(KINDS), n).sum(axis=1)
    hits = dict(zip(KINDS, found.tolist(), strict=True))
    # Whole copies and quotations are hits; of the clean ones, in 100 no more than 5.
    assert hits["verbatim"] == hits["case and marks"] == hits["quote"] == n
    assert hits["clean"] <= 5 and hits["one word in 9 new"] <= 5
    exact = [i for i, row in enumerate(rows) if row.is_found and "exact" in row.rules]
    assert exact == list(range(n))


@pytest.mark.slow
def test_nearest_stretch_is_found_while_most_words_stay():
    docs, rng = read_python_docs(), random.Random(0)
    pairs = reworded_sentences(60, seed=0)
    texts = itertools.chain(docs.documents, *itertools.chain(*pairs.values()))
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # A random vector a word: what words mean has no part in it.
    table_VD = np.random.default_rng(0).normal(size=(len(vocabulary), 64))
    right = {}
    for kind, own in pairs.items():
        corpus, n = list(docs.documents), len(own) // 2
        for _, text in own[:n]:
            at = rng.randrange(len(corpus))
            corpus[at] = f"{corpus[at]}\n{text}\n"
        embeddings = StaticEmbeddings(tokenizer, table_VD.astype(np.float32), "random")
        search = NearestSearch(embeddings, [sentence for sentence, _ in own])
        found = search.add([Document(text, line=i) for i, text in enumerate(corpus, 1)])
        asked = [{*text.split()} for _, text in own[:n]]
        around = [{*found.nearest[i].around.split()} for i in range(n)]
        shared = zip(asked, around, strict=True)
        right[kind] = np.mean([2 * len(a & b) > len(a) for a, b in shared])
    assert right["one word in 9 new"] > 0.8 > right["by hand"]


def test_filters_and_readers_are_compared(study):
    numbers = study("overlap").document
    assert numbers["hits"]["verbatim / jaxcontam"] in ("5 of 5", "4 of 4")
    assert numbers["hits"]["frame alone / jaxcontam"] == "0 of 1"
    readers = {"jsonl", "jsonl.gz", "parquet", "warc.gz"}
    for who in ("jaxcontam", "datatrove"):
        names = {f"read {name} / {who}" for name in readers}
        assert names <= numbers["megabytes_a_second"].keys()
