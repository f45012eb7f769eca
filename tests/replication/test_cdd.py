"""Peakedness by hand, where published code goes another way, and both ends of it."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.replication.comparisons import (
    cdd,
    peakedness,
    ted_kept,
    token_distances,
    words_and_marks,
)
from jaxcontam.scoring.completer import Completion
from tests.support.completers import Scripted, comparison_inputs
from tests.support.instances import instance

WORDS = [f"w{i}" for i in range(400)]


def instances(n):
    return [
        instance(f"first {i}", " ".join(WORDS[30 * i : 30 * i + 30]), index=3 * i)
        for i in range(n)
    ]


def prompts(n):
    return [f"go on: first {i}" for i in range(n)]


def knows(prompt, temperature, k):
    """Writes the second piece, with one word changed in every other sample."""
    i = int(prompt.split()[-1])
    words = WORDS[30 * i : 30 * i + 30]
    if temperature and k % 2:
        words = [*words[:-1], f"x{k}"]
    return " ".join(words)


def varies(prompt, temperature, k):
    """Writes something else each time."""
    rng = np.random.default_rng([k, int(temperature * 10), len(prompt)])
    return " ".join(rng.choice(WORDS, 30))


def run(answer, n=4, progress=None, **options):
    completer = Scripted(answer)
    texts = {"instances": instances(n), "prompts": prompts(n)}
    result, rows = cdd(comparison_inputs(completer, **texts | options), progress)
    return result, rows, completer


def table_distance(a, b):
    """Levenshtein's distance by the plain table, its first row and column counted up.

    With zeros there, which one library has, ED("xxxxabc", "abc") would be 0.
    """
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            table[i + 1, j + 1] = min(
                table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + (a[i] != b[j])
            )
    return int(table[-1, -1])


def test_distances_equal_the_plain_table():
    assert token_distances("xxxxabc", ["abc"]) == [4]
    rng = np.random.default_rng(0)
    for _ in range(60):
        a, b = (list(rng.choice(list("abcd"), rng.integers(0, 25))) for _ in range(2))
        assert token_distances(a, [b]) == [table_distance(a, b)]
    # Tokens are counted, not characters: one other word of 20 is within 5 %.
    words = [f"word{i}" for i in range(20)]
    assert peakedness(words, [[*words[:-1], "tokens"]]) == 1.0
    assert words_and_marks("It's 3.5?") == ["It", "'", "s", "3", ".", "5", "?"]


@pytest.mark.parametrize(
    ("greedy", "samples", "share"),
    [
        # A share, no count.
        (range(40), [[*range(39), 99], *3 * [range(100, 140)]], 0.25),
        # The longest answer sets the threshold: 5 % of 19 would allow none, of 20 one.
        (range(19), [range(19)], 1.0),
        (range(19), [range(20)], 1.0),
        (range(19), [range(18)], 0.0),
        # What stands behind the length does not count.
        (range(100), [[*range(100), *range(500, 900)]], 1.0),
    ],
)
def test_peakedness_of_hand_cases(greedy, samples, share):
    assert peakedness(greedy, samples) == share


def test_a_product_just_below_a_whole_number_is_that_number():
    sample = [*range(71), *range(500, 529)]  # differs in 29 of 100
    assert 0.29 * 100 < 29
    assert peakedness(range(100), [sample], alpha=0.29) == 1.0


def test_ted_leaves_out_copies_and_repeats():
    greedy = list("abcdef")
    samples = [
        greedy,
        list("abcdxy"),  # two away
        list("uvwxyz"),
        list("uvwxyz"),
        list("abcxyz"),  # three away
    ]
    assert ted_kept(greedy, samples) == (2, 4)
    assert ted_kept(greedy, [greedy]) == ()


def test_a_model_that_knows_the_data_is_peaked_and_one_that_does_not_is_not():
    known, known_rows, _ = run(knows)
    assert (known.n_found, known.rate, known.n_instances) == (4, 1.0, 4)
    found = [(row["index"], row["peakedness"]) for row in known_rows]
    assert found == [(0, 1.0), (3, 1.0), (6, 1.0), (9, 1.0)]
    assert known.warnings == () and "100 words and marks" in known.setting
    assert "stop" not in known.setting
    unknown, rows, _ = run(varies)
    assert (unknown.n_found, unknown.rate) == (0, 0.0)
    assert all(row["n_kept"] == row["n_samples"] == 20 for row in rows)
    assert known.verdict is unknown.verdict is None and not known.primary


def test_ted_takes_from_the_overlap_what_is_known_by_heart():
    def half(prompt, temperature, k):
        return knows(prompt, 0, 0) if k < 10 else varies(prompt, temperature, k)

    result, rows, _ = run(half)
    for row in rows:
        assert row["peakedness"] == 0.5 and row["n_kept"] == 10
        # Ten samples repeat the reference whole.
        assert row["rouge_l"] >= 0.5 > row["rouge_l_kept"]
    assert "by TED" in result.finding


def test_requests_are_one_greedy_and_the_samples():
    told, asked = [], {"n_samples": 5, "seed": 7, "max_tokens": 64, "stop": ("\n",)}
    asked["progress"] = lambda done, total: told.append((done, total))
    result, _, completer = run(knows, n=3, **asked)
    greedy, sampled = completer.calls
    assert (greedy["temperature"], greedy["n_samples"]) == (0.0, 1)
    assert (sampled["temperature"], sampled["n_samples"]) == (0.8, 5)
    for call in completer.calls:
        assert (call["seed"], call["max_tokens"], len(call["prompts"])) == (7, 64, 3)
        assert call["stop"] == ("\n",)
    assert told[-1] == (18, 18) and told == sorted(told)
    assert result.setting.endswith(', stop=["\\n"]')


def test_a_tokenizer_of_the_model_is_used():
    # Letters as tokens: one word of 30 is more than 5 % of them no longer.
    assert "100 tokens" in run(knows, tokenize=list)[0].setting


def test_an_empty_greedy_answer_is_no_copy_of_empty_samples():
    result, rows, _ = run(lambda *_: "")
    assert result.rate is None and result.n_found == 0
    assert all(row["peakedness"] is None for row in rows)
    assert "4 greedy answers are empty, thoughts aside" in result.warnings[0]


@pytest.mark.parametrize(
    ("text", "words"), [("another text " * 15, "unlike"), ("Yes.", "of fewer ")]
)
def test_answers_that_agree_and_prove_nothing_are_warned_about(text, words):
    result, rows, _ = run(lambda *_: text)
    assert result.rate == 1.0 and rows[0]["rouge_l_greedy"] == 0.0
    said = f"4 of 4 peaked instances have a greedy answer {words}"
    assert said in result.warnings[0]


def test_refused_requests_are_counted_and_not_judged():
    def partly(prompt, temperature, k):
        if prompt.endswith("0") or (temperature and k < 15):
            return Completion(text="", refused="filtered")
        return knows(prompt, temperature, k)

    result, rows, _ = run(partly, n=2)
    assert rows[0]["refused"] and rows[0]["found"] is None
    assert rows[1]["n_samples"] == 5 and rows[1]["found"]
    assert (result.n_found, result.rate) == (1, 1.0)
    # 21 of the first instance, 15 samples of the second.
    assert result.n_refused == 36
    everything, _, _ = run(lambda *_: Completion(text="", refused="no"))
    assert everything.finding == "refused" and everything.rate is None


def test_thoughts_are_no_part_of_an_answer():
    def thinks(*asked):
        return f"<think>{varies(*asked)}</think>\n{knows(asked[0], 0, 0)}"

    assert run(thinks)[0].rate == 1.0


def test_overlap_with_a_text_that_rouge_cannot_read_is_not_measured():
    one = dataclasses.replace(instances(1)[0], second_piece="кот сидел на ковре")
    result, (row,), _ = run(lambda *_: "кот сидел на ковре " * 6, n=1, instances=(one,))
    assert row["found"]
    assert row["rouge_l_greedy"] is None
    assert "ROUGE" not in result.finding
    assert not any("another text" in words for words in result.warnings)
