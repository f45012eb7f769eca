"""Peakedness and first rows by hand, and where published code goes another way."""

import json

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.comparisons import (
    cdd,
    first_instances,
    format_signs,
    match_of,
    peakedness,
    ted_kept,
    token_distances,
    words_and_marks,
)
from jaxcontam.scoring.completer import Completion
from tests.support.completers import Scripted, comparison_inputs
from tests.support.instances import edits, instance

WORDS = [f"w{i}" for i in range(400)]


def second(i):
    return " ".join(WORDS[30 * i : 30 * i + 30])


def knows(prompt, temperature, k):
    """Writes the second piece, with one word changed in every other sample."""
    words = second(int(prompt.split()[-1])).split()
    if temperature and k % 2:
        words = [*words[:-1], f"x{k}"]
    return " ".join(words)


def varies(prompt, temperature, k):
    """Writes something else each time."""
    rng = np.random.default_rng([k, int(temperature * 10), len(prompt)])
    return " ".join(rng.choice(WORDS, 30))


def run(answer, n=4, progress=None, **options):
    completer = Scripted(answer)
    texts = {"prompts": [f"go on: first {i}" for i in range(n)]}
    texts["instances"] = [instance("first", second(i), index=3 * i) for i in range(n)]
    result, rows = cdd(comparison_inputs(completer, **texts | options), progress)
    return result, rows, completer


def test_distances_equal_the_plain_table():
    # With a first row of zeros, which one library has, this would be 0.
    assert token_distances("xxxxabc", ["abc"]) == [4]
    rng = np.random.default_rng(0)
    for _ in range(60):
        a, b = (list(rng.choice(list("abcd"), rng.integers(0, 25))) for _ in range(2))
        assert token_distances(a, [b]) == [edits(a, b)]
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
    # A product just below a whole number is that number.
    assert 0.29 * 100 < 29
    sample = [*range(71), *range(500, 529)]  # differs in 29 of 100
    assert peakedness(range(100), [sample], alpha=0.29) == 1.0


def test_ted_leaves_out_copies_and_repeats():
    # A copy, one that is two away, one twice, one that is three away.
    samples = [*map(list, ("abcdef", "abcdxy", "uvwxyz", "uvwxyz", "abcxyz"))]
    assert ted_kept(samples[0], samples) == (2, 4)
    assert ted_kept(samples[0], samples[:1]) == ()


def test_a_model_that_knows_the_data_is_peaked_and_one_that_does_not_is_not():
    known, known_rows, _ = run(knows)
    assert (known.n_found, known.rate, known.n_instances) == (4, 1.0, 4)
    found = [(row["index"], row["peakedness"]) for row in known_rows]
    assert found == [(0, 1.0), (3, 1.0), (6, 1.0), (9, 1.0)]
    assert known.warnings == () and "100 words and marks" in known.setting
    assert "stop" not in known.setting
    # Letters as tokens: one word of 30 is more than 5 % of them no longer.
    assert "100 tokens" in run(knows, tokenize=list)[0].setting
    unknown, rows, _ = run(varies)
    assert (unknown.n_found, unknown.rate) == (0, 0.0)
    assert all(row["n_kept"] == row["n_samples"] == 20 for row in rows)
    assert known.verdict is unknown.verdict is None and not known.primary
    # Thoughts are no part of an answer.
    assert run(lambda *a: f"<think>{varies(*a)}</think>{knows(*a)}")[0].rate == 1.0


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


def test_an_empty_greedy_answer_is_no_copy_of_empty_samples():
    result, rows, _ = run(lambda *_: "")
    assert result.rate is None and result.n_found == 0
    assert all(row["peakedness"] is None for row in rows)
    assert "4 greedy answers are empty (apart from reasoning)" in result.warnings[0]


@pytest.mark.parametrize(
    ("text", "words"), [("another text " * 15, "unlike"), ("Yes.", "of fewer ")]
)
def test_answers_that_agree_and_prove_nothing_are_warned_about(text, words):
    result, rows, _ = run(lambda *_: text)
    assert result.rate == 1.0 and rows[0]["rouge_l_greedy"] == 0.0
    said = f"4 of 4 peaked instances have a greedy answer {words}"
    assert said in result.warnings[0]
    # What ROUGE cannot read is not measured.
    other = [instance("first", "кот сидел на ковре")]
    result, (row,), _ = run(lambda *_: text, n=1, instances=other)
    assert row["found"] and row["rouge_l_greedy"] is None
    assert "ROUGE" not in result.finding
    assert not any("another text" in words for words in result.warnings)


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


SENTENCES = [
    "The harbour master counted eleven grey boats before the fog came in",
    "Nobody in the village remembered who had painted the old water tower",
    "A retired teacher sold her piano to the circus for forty crowns",
    "Rain had kept the beekeeper indoors since early on Tuesday morning",
    "Two engineers argued about the bridge until the last train was gone",
    "My cousin keeps a lighthouse where no ship has passed in years",
]
NOISE = "A man walks in a park. A woman reads a book. The film was quite good."


def of_rows(*rows):
    return Benchmark("claims", tuple(map(json.dumps, rows)), rows)


VERDICTS = ("supports", "refutes")
CLAIMS = of_rows(
    *(
        {"premise_text": text, "verdict": VERDICTS[i % 2], "uid": f"zq_{1000 + i}"}
        for i, text in enumerate(SENTENCES)
    )
)


def ask(answer, data=CLAIMS, **options):
    completer = Scripted(lambda *_: answer)
    options |= {"dataset": "Claims", "split": "dev", "benchmark": data}
    result, rows = first_instances(comparison_inputs(completer, **options))
    return result, rows, completer


def test_a_model_that_writes_the_file_is_suspected_of_having_read_it():
    copied = "\n".join(CLAIMS.texts[:5])
    result, rows, completer = ask(copied, max_tokens=99, seed=5)
    assert (result.finding, result.verdict) == ("copied", "suspected")
    assert (result.n_found, result.n_instances, result.rate) == (5, 5, 1.0)
    assert [row["match"] for row in rows] == ["exact"] * 5
    assert (result.method, result.primary) == ("first_instances", False)
    assert result.fingerprint == CLAIMS.fingerprint
    # One greedy request, that names the split.
    (call,) = completer.calls
    (prompt,) = call["prompts"]
    assert "first 5 instances" in prompt and "dev split of the Claims" in prompt
    assert (call["temperature"], call["max_tokens"], call["seed"]) == (0.0, 99, 5)
    assert not any(sentence in prompt for sentence in SENTENCES)


JSON_TEXT = 'Caf\u00e9 owners met on Monday.\nThey chose a new "mayor" of nine streets.'
JSON_ROW = {"body": JSON_TEXT, "kind": "news"}
SIGNS = "\u65e9\u4e0a\u4ed6\u53bb\u6e2f\u53e3\u770b\u8239"


def lines(*texts, rows=None):
    return Benchmark("lines", texts, rows or (None,) * len(texts))


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (SENTENCES[4], CLAIMS),
        (f"1) {SENTENCES[3].upper()}!\n{NOISE}", CLAIMS),
        (f"premise | label\n{SENTENCES[0]} | ?", CLAIMS),
        (SENTENCES[2].replace(" ", "\n"), CLAIMS),
        (f"- {SENTENCES[1]}", lines(*SENTENCES)),
        # JSON with escapes and without, of the same text.
        (json.dumps([JSON_ROW]), lines(json.dumps(JSON_ROW), rows=(JSON_ROW,))),
        (json.dumps(JSON_ROW, ensure_ascii=False), lines("", rows=(JSON_ROW,))),
        # Scripts without spaces have a word a character.
        (f"1. {SIGNS}\u3002", lines(SIGNS)),
    ],
)
def test_one_exact_copy_is_enough_in_any_layout(answer, data):
    assert ask(answer, data)[0].finding == "copied"
    # The last one is no more among the first rows.
    for other in (NOISE, SENTENCES[5]):
        result, rows, _ = ask(other, data)
        found = result.finding, result.verdict, result.n_found, result.rate
        assert found == ("nothing found", "no evidence", 0, 0.0)
        assert {row["match"] for row in rows} == {"no"}


def test_two_near_copies_are_enough_and_one_is_suspicious():
    near = [text.replace("the ", "a ", 1) for text in SENTENCES[:2]]
    assert near[0] != SENTENCES[0] and near[1] != SENTENCES[1]
    two, rows, _ = ask("\n".join(near))
    assert [row["match"] for row in rows[:2]] == ["near", "near"]
    assert two.finding == "copied"
    one, _, _ = ask(near[0])
    assert (one.finding, one.verdict, one.n_found) == ("suspicious", "no evidence", 1)


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        ('{"premise_text": "?", "verdict": "?", "uid": 1}', "field names"),
        ("Each claim is one that supports or refutes it.", "all labels of 'verdict'"),
        ("zq_1002: no idea", "an identifier (zq_1002)"),
    ],
)
def test_what_looks_like_the_file_is_suspicious(answer, sign):
    result, _, _ = ask(answer)
    assert (result.finding, result.verdict) == ("suspicious", "no evidence")
    assert sign in result.warnings[-1]


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        # An identifier of a later row, or inside another word.
        (lambda i: {"uid": f"zq_{1000 + i}"}, "zq_1005 and xzq_10021"),
        # Numbers are no labels.
        (lambda i: {"year": (1998, 1999)[i % 2]}, "films of 1998 and 1999"),
        # Anybody would guess these names and labels.
        (
            lambda i: {"label": ("positive", "negative")[i % 2], "id": str(i)},
            '{"id": 0, "text": "Good film.", "label": "positive"} or negative, 1 2 3',
        ),
        # A refusal that names what every such set has.
        (
            lambda i: {"label": ("entailment", "contradiction")[i % 2], "premise": i},
            "I cannot recite it. Each instance has a premise, a text and a label, "
            "which is entailment or contradiction.",
        ),
    ],
)
def test_what_anybody_would_guess_is_no_sign(fields, answer):
    data = of_rows(*({"text": SENTENCES[i], **fields(i)} for i in range(6)))
    assert format_signs(data, 5, answer) == ()
    assert ask(answer, data)[0].finding == "nothing found"


def test_short_rows_cannot_be_told_from_chance():
    data = Benchmark("short", ("yes it is", "no"), (None, None))
    result, rows, _ = ask("yes it is\nno", data)
    assert [row["match"] for row in rows] == [None, None]
    assert result.rate is None and result.n_found == 0
    assert "2 of 2 rows have fewer than 8 words" in result.warnings[0]
    # Short values that make a long row count together.
    values = ["one fine day", "of early spring", "with much sun"]
    assert match_of(values, "One fine day, of early spring: with much sun.") == "exact"
    assert match_of(values, "one fine day of early spring with some sun") == "near"


def test_a_refused_request_and_an_empty_answer_say_nothing():
    refused, _, _ = ask(Completion(text="", refused="filtered"))
    assert (refused.finding, refused.verdict) == ("refused", None)
    assert refused.n_refused == 1 and refused.rate is None
    empty, _, _ = ask("<think>I should not</think>")
    assert (empty.finding, empty.verdict, empty.rate) == ("no answer", None, None)
