"""Pre-tests of the ten published canary sets: as they are, and with spoiled orders."""

import os
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.stats.pretests import columns, pretest_battery
from jaxcontam.stats.pretests.similarity import tfidf, words_of

FOLDER = Path(os.environ.get("JAXCONTAM_CANARIES", "no folder of canary sets"))
NAMES = (
    "boolq",
    "hellaswag",
    "mmlu_high_school_psychology",
    "mmlu_professional_law",
    "mmlu_professional_psychology",
    "mnli",
    "naturalquestions",
    "openbookqa",
    "piqa",
    "truthfulqa",
)
LABELS = {
    "boolq": "answer",
    "hellaswag": "split_type",
    "mmlu_high_school_psychology": "target",
    "mmlu_professional_law": "target",
    "mmlu_professional_psychology": "target",
    "mnli": "genre",
    "openbookqa": "answerKey",
    "truthfulqa": "completion",
}
# Enough examples to catch every spoiled order, few enough for a quick test.
N = 300

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="JAXCONTAM_CANARIES names no folder of canary sets"
)


@pytest.fixture(scope="module", params=NAMES)
def benchmark(request):
    path = FOLDER / f"{request.param}.jsonl"
    return load_benchmark(path, limit=N)


def failed(texts, rows, seed=0):
    battery = pretest_battery(texts, columns(rows), seed=seed)
    return {test.name for test in battery if not test.passed}


def reordered(benchmark, order):
    rows = [benchmark.rows[i] for i in order]
    return failed([benchmark.texts[i] for i in order], rows)


@pytest.mark.parametrize("name", NAMES)
def test_published_order_passes(name):
    benchmark = load_benchmark(FOLDER / f"{name}.jsonl")
    assert not failed(benchmark.texts, benchmark.rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", NAMES)
def test_published_order_passes_at_every_seed(name, seed):
    benchmark = load_benchmark(FOLDER / f"{name}.jsonl")
    assert not failed(benchmark.texts, benchmark.rows, seed)


def test_sorted_by_length_is_caught(benchmark):
    order = sorted(range(N), key=lambda i: len(benchmark.texts[i]))
    assert {"length_trend", "length_steps", "length_autocorrelation"} <= reordered(
        benchmark, order
    )


def test_sorted_alphabetically_is_caught(benchmark):
    order = sorted(range(N), key=lambda i: benchmark.texts[i])
    assert "alphabetical_trend" in reordered(benchmark, order)


def test_clusters_of_like_examples_are_caught(benchmark):
    """Each example with the three that are most like it, clusters at random."""
    vectors = tfidf([words_of(text) for text in benchmark.texts])
    cosines = (vectors @ vectors.T).toarray()
    left = np.random.default_rng(0).permutation(N).tolist()
    order = []
    while left:
        head = left.pop(0)
        near = sorted(left, key=lambda i: -cosines[head, i])[:3]
        order += [head, *near]
        left = [i for i in left if i not in near]
    assert "tfidf_adjacency" in reordered(benchmark, order)


def test_blocks_of_a_label_are_caught(benchmark):
    label = LABELS.get(benchmark.name)
    if label is None:
        pytest.skip("no label in this set")
    order = sorted(range(N), key=lambda i: str(benchmark.rows[i][label]))
    rows = [benchmark.rows[i] for i in order]
    battery = pretest_battery(
        [benchmark.texts[i] for i in order], columns(rows), seed=0
    )
    failing = {test.name: test.remedy for test in battery if not test.passed}
    assert failing[f"equal_neighbours:{label}"] == f"--group-field {label}"


def test_questions_numbered_in_the_text_are_caught(benchmark):
    texts = [f"Question {i}: {text}" for i, text in enumerate(benchmark.texts, 1)]
    assert {"number_trend", "number_steps"} <= failed(texts, benchmark.rows)


def test_near_copies_are_caught_side_by_side_and_counted_when_scattered(benchmark):
    texts, rows = [], []
    for i, (text, row) in enumerate(zip(benchmark.texts, benchmark.rows, strict=True)):
        texts.append(text)
        rows.append(row)
        if i % 50 == 7:
            texts.append(text.replace(" the ", " a ", 1))
            rows.append(row)
    assert "adjacent_duplicates" in failed(texts, rows)
    order = np.random.default_rng(0).permutation(len(texts))
    scattered = [texts[i] for i in order], [rows[i] for i in order]
    battery = pretest_battery(scattered[0], columns(scattered[1]), seed=0)
    assert all(test.passed for test in battery)
    assert any(test.note and "of 306 examples" in test.note for test in battery)
