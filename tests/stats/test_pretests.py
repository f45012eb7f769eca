"""Pre-tests: shuffled files pass, sorted and grouped ones are caught, blind or not."""

import inspect
import itertools
import math

import numpy as np
import pytest
import scipy.sparse.csgraph
import scipy.stats

from jaxcontam.stats.adjacency import double_centred
from jaxcontam.stats.pretests import (
    blind,
    blind_pretests,
    columns,
    gate,
    pretest_battery,
    similarity,
)
from jaxcontam.stats.pretests.attraction import attraction_of, far_apart
from jaxcontam.stats.pretests.battery import (
    autocorrelation,
    centred_ranks,
    equal_neighbours,
    steps,
    trend,
)
from jaxcontam.stats.pretests.blind import KINDS, direction_of, matrices_of, read_tokens
from jaxcontam.stats.pretests.fields import natural_order, numbers
from jaxcontam.stats.pretests.null import (
    draw_orders,
    ends_of,
    neighbour_pairs,
    permutation_p,
    tail_p,
)
from jaxcontam.stats.pretests.similarity import (
    NEAR_DUPLICATE,
    near_duplicates,
    similar_neighbours,
    tfidf,
    words_of,
)
from jaxcontam.stats.result import Pretest
from tests.support import pretest_files as files
from tests.support.pretest_files import VOCABULARY, duplicated, failed, sentences


# Seven seconds.
@pytest.mark.slow
def test_shuffled_files_fail_at_most_one_time_in_a_hundred():
    rng = np.random.default_rng(0)
    n_files, n = 300, 24
    n_failed = 0
    for _ in range(n_files):
        texts = sentences(rng, n - 4)
        texts += [text + " again" for text in texts[:4]]
        shuffled = [texts[i] for i in rng.permutation(n)]
        fields = {
            "label": rng.integers(0, 3, n).tolist(),
            "level": rng.integers(0, 5, n).tolist(),
            "passage": rng.integers(0, 15, n).tolist(),
        }
        n_failed += bool(failed(shuffled, fields))
    # Familywise level 0.01, plus 3.3 standard errors of 300 files.
    assert n_failed / n_files <= 0.01 + 3.3 * np.sqrt(0.01 * 0.99 / n_files)


ROWS = sentences(np.random.default_rng(1), 200)
ASKED = [f"Passage: {row} Question: {i}?" for row in ROWS[:50] for i in "ab"]
LENGTHS = np.random.default_rng(3).integers(1, 40, 100) + 100 * (np.arange(100) % 2)


@pytest.mark.parametrize(
    ("texts", "fields", "found", "passed"),
    [
        (sorted(ROWS, key=len), {}, {"length_autocorrelation", "length_trend"}, {}),
        # Many label fields do not drown it.
        (
            sorted(ROWS, key=len),
            {f"label{i}": np.roll(LENGTHS % 3, i).tolist() * 2 for i in range(30)},
            {"length_autocorrelation", "length_trend"},
            {},
        ),
        (sorted(ROWS), {}, {"alphabetical_trend", "alphabetical_steps"}, {}),
        # Four kinds, each a run: a trend, and no steps.
        (
            [f"{'abcd'[i // 50]} {row}" for i, row in enumerate(ROWS)],
            {},
            {"alphabetical_trend"},
            {"alphabetical_steps"},
        ),
        # Lengths and labels that alternate have no trend.
        (
            ["x" * n for n in LENGTHS.tolist()],
            {},
            {"length_autocorrelation"},
            {"length_trend", "length_steps", "alphabetical_trend"},
        ),
        (
            ROWS,
            {"label": [0, 1] * 100},
            {"equal_neighbours:label"},
            {"label_trend:label"},
        ),
        # A passage before each of its questions.
        (ASKED, {}, {"shared_beginning"}, {}),
        (ASKED[::2] + ASKED[1::2], {}, set(), {"shared_beginning"}),
        # Row numbers that no model reads prove nothing; turns that start again do.
        (ROWS, {"id": list(range(1000, 1200))}, set(), {"number_trend:id"}),
        (ROWS, {"turn": [1, 2, 3, 4] * 50}, {"label_steps:turn"}, {}),
    ],
)
def test_a_file_in_another_order_fails(texts, fields, found, passed):
    names = failed(texts, fields)
    assert found <= names and not names & set(passed)


def test_file_grouped_by_label_fails_and_permuting_within_the_label_passes():
    rng = np.random.default_rng(4)
    texts, labels = sentences(rng, 200), ["a"] * 100 + ["b"] * 100
    found = failed(texts, {"label": labels})
    assert found == {"equal_neighbours:label", "label_trend:label"}
    assert failed(texts, {"label": labels}, groups=labels) == set()


def test_statistics_are_those_of_scipy_and_constant_lengths_no_evidence():
    texts = sentences(np.random.default_rng(6), 50)
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    ranks = {
        "length_trend": [len(text) for text in texts],
        "alphabetical_trend": np.argsort(np.argsort(texts)),
    }
    for name, values in ranks.items():
        rho = scipy.stats.spearmanr(range(50), values).statistic
        assert battery[name].statistic == pytest.approx(rho)
    texts = [f"{i:04d}" for i in np.random.default_rng(0).permutation(100)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    for name in ("length_autocorrelation", "length_trend"):
        test = battery[name]
        assert (test.p_value, test.passed, test.applicable) == (1.0, True, False)
    assert battery["alphabetical_trend"].applicable


def test_every_field_is_looked_at_for_what_it_can_show():
    rows = [
        {
            "id": f"q{i}",
            "unread": 7 * i + 1000,
            "label": i % 2,
            "level": i % 3,
            "constant": "x",
            "passage": f"passage {'a' * (i // 2)}",
            "question": "why " * (i % 7) + chr(97 + i % 26) * i,
        }
        for i in range(40)
    ]
    texts = [f"{row['id']}: {row['question']}" for row in rows]
    battery = pretest_battery(texts, columns(rows), seed=0)
    names = {test.name for test in battery if not test.name.startswith("blind")}
    of_id = {"number_trend:id", "number_steps:id"}
    of_level = {f"label_{x}:level" for x in ("trend", "autocorrelation", "steps")}
    assert {name for name in names if ":" in name} == of_id | of_level | {
        "equal_neighbours:label",
        "label_trend:label",
        "equal_neighbours:level",
        "shared_context:passage",
        "alphabetical_trend:question",
        "alphabetical_steps:question",
    }
    # A reversal needs only what points forwards. The first number of these texts is
    # the id, which is checked by its own name.
    forward = ["numbers", "dates", "names", "references", "turns", "translations"]
    forward.append("lines")
    assert {test.name for test in battery if test.directional} == of_id | {
        *("length_trend", "length_steps", "label_steps:level", "learned_direction"),
        *("alphabetical_steps", "alphabetical_steps:question"),
        *(f"blind_direction:{kind}" for kind in ("words", "characters")),
        *(f"forward_{name}" for name in forward),
    }
    assert columns([None] * 40) == {}


def test_lines_of_one_text_are_known_in_any_order():
    """Rows that end alike are a template; a source file's do not."""
    lines = [line for line in inspect.getsource(blind).splitlines() if line.strip()]
    asked = [f"{row} Answer:" for row in ROWS]
    for texts, is_list in ((lines, False), (asked, True), (ROWS, True)):
        found = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
        assert found["forward_lines"].passed == is_list
        assert found["forward_lines"].note is None
    told = [f"It {row}" if i % 8 == 0 else row for i, row in enumerate(ROWS)]
    (note,) = (test.note for test in pretest_battery(told, {}, seed=0) if test.note)
    assert note.startswith("25 of 200 examples begin with a word such as this")


@pytest.mark.parametrize("suffix", ["", ":id"])
def test_numbers_in_the_order_of_the_file_fail(suffix):
    questions = duplicated(np.random.default_rng(19), 80, 0)
    texts, fields = [f"{q} (No. {i})" for i, q in enumerate(questions, 100)], {}
    if suffix:
        fields = {"id": [f"dev-{i}" for i in range(100, 180)], "q": questions}
        texts = [f"{q} 7 dev-{i}" for i, q in enumerate(questions, 100)]
    battery = pretest_battery(texts, fields, seed=0)
    wanted = {f"number_trend{suffix}", f"number_steps{suffix}", "forward_numbers"}
    assert {test.name for test in battery if not test.passed} == wanted
    # What fails without a remedy of its own takes that of another.
    named = {test.name: test.remedy for test in battery if test.remedy}
    assert named == (dict.fromkeys(wanted, "--text q") if suffix else {})


def test_orders_are_uniform_and_groups_stay_in_their_places():
    orders = np.concatenate(list(draw_orders(4, 24_000, seed=0)))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24 and scipy.stats.chisquare(counts).pvalue > 1e-3
    values = np.array([*"aabccca"])
    orders = np.concatenate(list(draw_orders(7, 50, seed=0, groups=values.tolist())))
    assert (values[orders] == values).all()
    assert (np.sort(orders, axis=1) == np.arange(7)).all()


@pytest.mark.parametrize("two_sided", [True, False])
def test_pvalues_are_near_those_of_all_orders(two_sided):
    values = centred_ranks([3, 1, 4, 1, 5, 9])
    orders = np.array(list(itertools.permutations(range(6))), np.int32)
    for statistic in (autocorrelation(values), trend(values), steps(values)):
        of_all = statistic(orders)
        above = np.mean(of_all >= of_all[0] - 1e-9)
        below = np.mean(of_all <= of_all[0] + 1e-9)
        exact = min(1.0, 2 * min(above, below)) if two_sided else above
        drawn = statistic(np.concatenate(list(draw_orders(6, 9_999, seed=1))))
        found = permutation_p(float(of_all[0]), drawn, two_sided=two_sided)
        # Four standard errors of 9,999 draws, doubled for two sides.
        assert found == pytest.approx(exact, abs=0.04 if two_sided else 0.02)


DEGENERATE = (["a", "b"], ["same"] * 30, [""] * 5, ["...", "?!", "...", ""], ["one"])


@pytest.mark.parametrize("texts", [*DEGENERATE, ["9" * 6_000, "1", "2", "3"]])
def test_degenerate_files_give_pvalues(texts):
    n = len(texts)
    fields = {
        "none": [None] * n,
        "empty": [""] * n,
        "mixed": ([math.nan, 10**400, "x", None, [1], True] * n)[:n],
        "numbers": ([1, math.nan, 10**400, None] * n)[:n],
    }
    battery = pretest_battery(texts, fields, seed=0)
    assert all(0 < test.p_value <= 1 for test in battery)
    assert not failed(texts)


def test_numbers_and_words_are_read_as_a_person_would():
    assert numbers([None, math.nan, 10**400])[2] == math.inf
    assert numbers(["1", " -2.5 "]).tolist() == [1.0, -2.5]
    assert numbers([True, 1]) is None
    assert words_of("Straße 漢字! GPT-4") == ["strasse", "漢", "字", "gpt", "4"]
    assert natural_order(["item 10", "item 9", None]).tolist()[:2] == [1, 0]


def test_gate_corrects_over_what_could_fail():
    tests = [
        Pretest("a", 1.0, 0.004, True),
        Pretest("b", 1.0, 0.02, True),
        Pretest("c", 0.0, 1.0, False, applicable=False),
    ]
    assert [test.passed for test in gate(tests)] == [False, True, True]
    assert gate([]) == ()


@pytest.mark.parametrize("counts", [True, False])
def test_law_of_long_files_is_near_that_of_more_orders(counts):
    rng = np.random.default_rng(25)
    if counts:
        values = equal_neighbours(rng.integers(200, size=600))
    else:
        values = autocorrelation(centred_ranks(rng.normal(size=600)))
    orders = np.concatenate(list(draw_orders(600, 30_000, seed=0)))
    drawn = values(orders)
    extreme = float(np.sort(drawn)[-60])
    expected = permutation_p(extreme, drawn, two_sided=False)
    found = tail_p(extreme, drawn[:999], two_sided=False, counts=counts)
    # 60 of 30,000 orders, a law fitted to 999: within a factor of 2.
    assert found == pytest.approx(expected, rel=0.5, abs=expected)
    assert tail_p(extreme, drawn[:999], two_sided=True, counts=counts) >= found


def test_rare_events_of_long_files_are_no_evidence_by_themselves():
    # Two equal neighbours where 999 orders had none: not 1e-15, as a normal law says.
    found = tail_p(2.0, np.zeros(999), two_sided=False, counts=True)
    assert 1e-8 < found < 1e-5


def test_near_duplicates_side_by_side_fail_and_scattered_ones_are_only_counted():
    rng = np.random.default_rng(11)
    texts = duplicated(rng, 200, 6)
    assert "adjacent_duplicates" in failed(texts)
    distinct = duplicated(rng, 50, 0)
    assert all(test.note is None for test in pretest_battery(distinct, {}, seed=0))
    scattered = [texts[i] for i in rng.permutation(len(texts))]
    found = {t.name: t for t in pretest_battery(scattered, {}, seed=0)}
    assert found["adjacent_duplicates"].passed
    told = "6 of 206 examples repeat or nearly repeat another one"
    assert found["adjacent_duplicates"].note.startswith(told)


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
    # In two runs they are no blocks.
    twice = [" ".join(rng.choice(VOCABULARY, 10)) for _ in range(60)]
    fields = {"passage": passages + names}
    battery = pretest_battery(questions + twice, fields, seed=0)
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


def blind_matrices(texts, kind):
    """Matrices of texts as they stand."""
    return matrices_of(read_tokens(texts, kind), kind)


def by_hand(a, b, others, cache, n_kinds):
    """log p(b | a) by loops over what was read; also the sum of p over all tokens."""
    a, b = [0, *a, 1], [0, *b, 1]
    heap = [token for row in others for token in (0, *row, 1)]
    total, sums = 0.0, []
    for t in range(1, len(b)):

        def p_of(token, t=t):
            p = (heap.count(token) + 1 / n_kinds) / (len(heap) + 1)
            for n, pseudocount in enumerate(cache.pseudocounts, 1):
                padding = [0] * (n - 1)
                own = padding + b[:t] + [token]
                other = padding + a
                context = own[t : t + n - 1]
                found = seen = 0.0
                for s in range(1, len(a)):
                    if other[s : s + n - 1] == context:
                        distance = len(a) - 1 - s + t
                        weight = 1 + 20 * math.exp(-distance / cache.memory)
                        seen += weight
                        found += weight * (a[s] == token)
                for s in range(1, t):
                    if own[s : s + n - 1] == context:
                        seen += 1
                        found += b[s] == token
                p = (found + pseudocount * p) / (seen + pseudocount)
            return p

        sums.append(sum(p_of(token) for token in range(n_kinds)))
        total += math.log(p_of(b[t]))
    return total, sums


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_those_of_counting_by_hand(kind):
    rng = np.random.default_rng(0)
    letters = [chr(2 + i) for i in range(3)]
    rows = [rng.choice(letters, rng.integers(0, 7)).tolist() for _ in range(9)]
    # Words are told apart by what stands between them.
    texts = [("" if kind == "characters" else " ").join(row) for row in rows]
    if kind == "words":
        texts = [text.translate({2: "x", 3: "y", 4: "z"}) for text in texts]
    seen = dict.fromkeys(letter for row in rows for letter in row)
    numbers = {letter: n for n, letter in enumerate(seen, 2)}
    tokens = [[numbers[letter] for letter in row] for row in rows]
    first = 0
    for matrix in blind_matrices(texts, kind):
        for i, j in itertools.permutations(range(len(matrix)), 2):
            others = tokens[: first + j] + tokens[first + j + 1 :]
            pair, n = (tokens[first + i], tokens[first + j]), len(numbers) + 2
            expected, sums = by_hand(*pair, others, blind._CACHES[kind], n)
            assert matrix[i, j] == pytest.approx(expected, abs=1e-9)
            assert sums == pytest.approx([1.0] * len(sums), abs=1e-9)
        first += len(matrix)
    assert first == 9


def test_long_rows_keep_their_ends_and_every_row_is_read(monkeypatch):
    cache = blind._Cache((50.0, 1.0), 3.0, 20 * 21)
    monkeypatch.setitem(blind._CACHES, "characters", cache)
    texts = ["a" * 15 + "ca" * (5 + i % 3) + "c" * 15 for i in range(21)]
    whole = blind_matrices(["a" * 10 + "c" * 10] * 21, "characters")
    cut = blind_matrices(texts, "characters")
    np.testing.assert_allclose(np.concatenate(cut), np.concatenate(whole))
    # Less than 16 tokens a row: smaller blocks, the same work.
    cache = blind._Cache((50.0, 1.0), 3.0, 10 * 21)
    monkeypatch.setitem(blind._CACHES, "characters", cache)
    sizes = [len(matrix) for matrix in blind_matrices(texts, "characters")]
    assert sum(sizes) == 21 and max(sizes) == 4


def test_work_in_parts_gives_the_same_matrices(monkeypatch):
    texts = files.sentences(np.random.default_rng(1), 40)
    at_once = blind_matrices(texts, "words")
    monkeypatch.setattr(blind, "_CELLS", 300)
    for one, other in zip(at_once, blind_matrices(texts, "words"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


LABELS = "labels_in_text labels_in_chat key_order spacing quotes prefixes habits"


@pytest.mark.parametrize("make", [*LABELS.split(), "documents", "dialogue"])
def test_files_in_natural_order_attract(make):
    found = refused(getattr(files, make)(np.random.default_rng(0), 600))
    assert found & {"blind_attraction:words", "blind_attraction:characters"}
    # Likeness reads the same backwards.
    assert not any("direction" in name for name in found)


@pytest.mark.parametrize(
    ("name", "makes"),
    [
        ("blind_lags:words", "later_copies zipped"),
        ("blind_direction:words", "names_handed_on chained_sums translations answered"),
    ],
)
def test_likeness_two_rows_away_and_direction_are_seen(name, makes):
    for make in makes.split():
        tests = blind_pretests(getattr(files, make)(np.random.default_rng(2), 300))
        found = {test.name: test for test in tests}[name]
        assert not found.passed and found.statistic > 0, make


def test_runs_that_fill_strata_are_seen_from_afar():
    rng = np.random.default_rng(7)
    styles = np.repeat(rng.permutation([0, 1] * 15), 16).tolist()
    rows = [("Q: {}.", "Question: {}")[k].format(files.text(rng)) for k in styles]
    found = refused(rows)
    assert "blind_runs:words" in found
    assert sorted(far_apart(37)) == list(range(32))
    assert far_apart(16).tolist()[:8] == [0, 1, 4, 5, 8, 9, 12, 13]


def test_rows_that_move_among_equal_values_only_are_not_refused():
    rng = np.random.default_rng(3)
    labels = np.repeat(rng.integers(3, size=60), 5).tolist()
    rows = [f"{files.text(rng)} {'abc'[label] * 5}" for label in labels]
    assert "blind_attraction:words" in refused(rows)
    assert not refused(rows, groups=labels)


def test_pvalues_of_few_strata_are_those_of_all_orders():
    rng = np.random.default_rng(5)
    matrices = [rng.normal(size=(4, 4)) + np.eye(4, k=1) for _ in range(2)]
    orders = np.array(list(itertools.permutations(range(4))))
    centred = [double_centred(matrix) for matrix in matrices]
    sums = [one[orders[:, :-1], orders[:, 1:]].sum(axis=1) for one in centred]
    of_all = np.add.outer(*sums).ravel()
    above, below = (np.mean(sign * (of_all - of_all[0]) >= -1e-9) for sign in (1, -1))
    near, _ = attraction_of(matrices, [np.zeros(4, int)] * 2)
    # Columns are 40,320 draws a stratum, not each order once: standard errors of 1 %.
    assert near.p_value == pytest.approx(min(1.0, 2 * min(above, below)), rel=0.05)
    one, other = (np.trace(matrix, 1) - np.trace(matrix, -1) for matrix in centred)
    # All signs of two, either way.
    p_value = 0.5 + 0.5 * (abs(one - other) >= abs(one + other))
    assert direction_of(matrices).p_value == p_value


def test_a_gain_at_each_boundary_is_the_statistic():
    gained = [0.7 * np.eye(8, k=1)] * 30
    near, _ = attraction_of(gained, [np.zeros(8, int)] * 30)
    assert near.statistic == pytest.approx(0.7, rel=0.05)
    # Groups turn on their own: with one row a group nothing turns.
    assert not direction_of(gained, [np.arange(8)] * 30).applicable
    # Centring takes 1 / 28 of what only points forward: it looks like row effects.
    assert direction_of(gained).statistic == pytest.approx(0.35 * (1 - 1 / 28))


def refused(texts, **kwargs):
    return {test.name for test in blind_pretests(texts, **kwargs) if not test.passed}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_once_and_moved_as_numbers(kind):
    """Also where a row, and tokens that it alone holds, are left out."""
    texts = ["a b", "c  d!", "", "zz 9", "b a c", "d d", "e", "a", "f g"]
    order = np.array([8, 0, 7, 2, 4, 6, 1, 5])
    moved = read_tokens(texts, kind).rows(order)
    again = blind_matrices([texts[i] for i in order.tolist()], kind)
    for one, other in zip(matrices_of(moved, kind), again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_read_of_a_long_row_is_its_ends():
    text = "ab" * 2_000
    assert ends_of(text) == text
    assert ends_of(f"{text}c") == f"{text[:2000]}\n{text[-1999:]}c"


def test_rows_of_equal_code_that_follow_each_other_are_pairs_of_their_stratum():
    pairs = neighbour_pairs(np.array([0, 1, 0, 0, 1, 1]), 3)
    assert [found.tolist() for found in pairs] == [[0, 4], [2, 5], [0, 1]]
    for codes, n in (([], 0), ([7], 0), ([7, 7], 1)):
        found = neighbour_pairs(np.array(codes, int), 3)
        assert [len(one) for one in found] == [n] * 3
