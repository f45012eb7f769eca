"""Hits of `overlap` on labelled samples of Python's documentation."""

import numpy as np
import pytest

from eval.overlap import KINDS, framed_questions
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Document
from jaxcontam.overlap.index import example_index, forms_of
from jaxcontam.overlap.occurrences import occurrences


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


def test_filters_and_readers_are_compared(study):
    numbers = study("overlap").document
    assert numbers["hits"]["verbatim / jaxcontam"] in ("5 of 5", "4 of 4")
    assert numbers["hits"]["frame alone / jaxcontam"] == "0 of 1"
    readers = {"jsonl", "jsonl.gz", "parquet", "warc.gz"}
    for who in ("jaxcontam", "datatrove"):
        names = {f"read {name} / {who}" for name in readers}
        assert names <= numbers["megabytes_a_second"].keys()
