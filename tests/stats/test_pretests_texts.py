"""Pre-tests of texts: duplicates, topics and passages side by side."""

import numpy as np
import scipy.sparse.csgraph
import scipy.stats

from jaxcontam.stats.pretests import columns, pretest_battery, similarity
from jaxcontam.stats.pretests.similarity import (
    NEAR_DUPLICATE,
    near_duplicates,
    similar_neighbours,
    tfidf,
    words_of,
)
from tests.support.pretest_files import VOCABULARY, duplicated, failed


def test_near_duplicates_side_by_side_fail_and_scattered_ones_are_only_counted():
    rng = np.random.default_rng(11)
    texts = duplicated(rng, 200, 6)
    assert "adjacent_duplicates" in failed(texts)
    scattered = [texts[i] for i in rng.permutation(len(texts))]
    found = {t.name: t for t in pretest_battery(scattered, {}, seed=0)}
    assert found["adjacent_duplicates"].passed
    note = found["adjacent_duplicates"].note
    assert note is not None
    assert note.startswith("6 of 206 examples repeat or nearly repeat another one")


def test_file_without_duplicates_has_no_note():
    texts = duplicated(np.random.default_rng(12), 50, 0)
    assert all(test.note is None for test in pretest_battery(texts, {}, seed=0))


def test_copies_with_ids_of_their_own_are_still_duplicates():
    rng = np.random.default_rng(13)
    questions = [" ".join(rng.choice(VOCABULARY, 6)) for _ in range(60)]
    rows = [{"id": f"x{rng.integers(1e9)}", "q": q} for q in questions + questions[:9]]
    texts = [f"{row['id']} {row['q']}" for row in rows]
    battery = pretest_battery(texts, columns(rows), seed=0)
    notes = [test.note for test in battery if test.note]
    assert len(notes) == 1
    assert notes[0].startswith("9 of 69 ")


def test_near_duplicates_are_those_of_all_pairs():
    """The search by rare words against every cosine."""
    rng = np.random.default_rng(14)
    texts = []
    for _ in range(60):
        text = rng.choice(VOCABULARY[:60], 12)
        texts.append(" ".join(text))
        for n_changed in (1, 2):
            copy = text.copy()
            copy[:n_changed] = rng.choice(VOCABULARY, n_changed)
            texts.append(" ".join(copy))
    words = [words_of(text) for text in texts]
    vectors = tfidf(words)
    cosines = (vectors @ vectors.T).toarray()
    graph = scipy.sparse.coo_array(cosines >= NEAR_DUPLICATE)
    n_expected, expected = scipy.sparse.csgraph.connected_components(graph)
    assert 60 < n_expected < 170
    found = near_duplicates(words, texts, vectors)
    pairs = set(zip(found.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == n_expected == len(set(found.tolist()))


def test_similarity_of_neighbours_is_the_sum_of_their_cosines():
    rng = np.random.default_rng(15)
    vectors = tfidf([rng.choice(VOCABULARY[:50], 8).tolist() for _ in range(30)])
    cosines = (vectors @ vectors.T).toarray()
    orders = np.stack([rng.permutation(30) for _ in range(5)]).astype(np.int32)
    expected = [cosines[order[:-1], order[1:]].sum() for order in orders]
    # Each of 29 cosines is rounded to the next of 255 steps.
    np.testing.assert_allclose(
        similar_neighbours(vectors)(orders), expected, atol=29 * 0.5 / 255 + 1e-5
    )


def test_strata_of_a_long_file_find_grouped_topics_too(monkeypatch):
    monkeypatch.setattr(similarity, "MATRIX_EXAMPLES", 100)
    rng = np.random.default_rng(16)
    topics = np.repeat(rng.permutation(40), 8)
    texts = [
        " ".join(rng.choice(VOCABULARY[10 * k : 10 * k + 10], 8))
        for k in rng.permutation(topics)
    ]
    assert "tfidf_adjacency" not in failed(texts)
    texts = [" ".join(rng.choice(VOCABULARY[10 * k : 10 * k + 10], 8)) for k in topics]
    assert "tfidf_adjacency" in failed(texts)


def test_words_without_spaces_are_their_characters():
    assert words_of("Straße 漢字! GPT-4") == ["strasse", "漢", "字", "gpt", "4"]


def test_examples_that_share_a_passage_in_runs_fail_with_blocks_as_remedy():
    rng = np.random.default_rng(17)
    questions = [" ".join(rng.choice(VOCABULARY, 10)) for _ in range(120)]
    names = [f"p{rng.integers(1e8, 1e9)}" for _ in range(60)]
    passages = [name for name in names for _ in range(2)]
    found = {
        test.name: test
        for test in pretest_battery(questions, {"my passage": passages}, seed=0)
    }
    context = found["shared_context:my passage"]
    assert not context.passed
    assert context.statistic == 60
    assert context.remedy == "--block-field 'my passage'"
    # Among themselves they are no longer a fault.
    assert not failed(questions, {"passage": passages}, groups=passages)


def test_passage_in_two_runs_is_permuted_within_instead():
    rng = np.random.default_rng(24)
    questions = [" ".join(rng.choice(VOCABULARY, 10)) for _ in range(150)]
    names = [f"p{rng.integers(1e8, 1e9)}" for _ in range(50)]
    passages = [name for name in names for _ in range(2)] + names
    battery = pretest_battery(questions, {"passage": passages}, seed=0)
    remedies = {test.name: test.remedy for test in battery if not test.passed}
    assert remedies == {"shared_context:passage": "--group-field passage"}


def test_vectors_are_those_of_the_formula():
    """Entries of a row in the order in which its words come, to the last bit."""
    rows = [["b", "a", "b"], [], ["a", "c", "a", "a"], ["c"], ["b", "d"]]
    vectors = tfidf(rows)
    number = {"b": 0, "a": 1, "c": 2, "d": 3}
    df = {word: sum(word in row for row in rows) for word in number}
    for i, row in enumerate(rows):
        own = {
            word: (1 + np.log(float(row.count(word)))) * np.log(len(rows) / df[word])
            for word in dict.fromkeys(row)
        }
        norm = np.sqrt(sum(weight**2 for weight in own.values())) or 1.0
        at = slice(vectors.indptr[i], vectors.indptr[i + 1])
        assert vectors.indices[at].tolist() == [number[word] for word in own]
        expected = np.array([weight / norm for weight in own.values()], np.float32)
        np.testing.assert_array_equal(vectors.data[at], expected)


def test_words_of_a_file_are_read_once_for_all_checks(monkeypatch):
    asked = []

    def counted(text):
        asked.append(text)
        return words_of(text)

    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(VOCABULARY, 10)) for _ in range(80)]
    monkeypatch.setattr(similarity, "words_of", counted)
    told = []
    labels = [f"s{i // 20}" for i in range(80)]
    pretest_battery(texts, {"label": labels}, seed=0, say=told.append)
    assert asked == texts
    assert told[:2] == ["words and fields", "random orders"]


def test_cosines_of_strata_are_those_of_pairs_at_their_places():
    """Strata of 3, 3 and 2 rows in another order, against each product alone."""
    words = [["a", "b"], ["b"], ["c", "a"], ["d"], ["a", "d"], ["b", "c"], ["a"], ["c"]]
    vectors = tfidf(words)
    order = np.array([5, 0, 2, 7, 4, 6, 1, 3])
    found = similarity.stratum_cosines(vectors, order, 3)
    assert [len(one) for one in found] == [3, 3, 2]
    dense = vectors.toarray()
    begin = 0
    for one in found:
        rows = dense[order[begin : begin + len(one)]]
        expected = rows @ rows.T
        np.fill_diagonal(expected, 0)
        np.testing.assert_allclose(one, expected, atol=1e-6)
        begin += len(one)
