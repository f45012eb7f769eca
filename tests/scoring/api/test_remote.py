"""A served model as a scorer: answers read, aligned, refused, and summed."""

import json
import threading

import httpx2
import numpy as np
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.logprobs import (
    PromptScores,
    Way,
    read_prompt_scores,
    token_starts,
)
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.remote import BEFORE_TEXT, RemoteScorer, ServedPrompts
from jaxcontam.scoring.rows import FIRST_K, windows
from tests.support.api_transport import fault, opened

TEXT = Way(echo=True, ids=False, max_tokens=1)
IDS = Way(echo=True, ids=True, max_tokens=1)
# By prompt_logprobs.
BESIDE, IDS_BESIDE = Way(echo=False, ids=False), Way(echo=False, ids=True)


@pytest.mark.parametrize(
    ("text", "tokens", "offsets", "expected"),
    [
        ("a fox", ["a", " f", "ox"], None, (0, [0, 1, 3])),
        # A token before the text, whose length shifts the server's offsets.
        ("a fox", ["<s>", "a", " f", "ox"], [0, 3, 4, 6], (1, [0, 1, 3])),
        ("a fox", ["", "a", " f", "ox"], [0, 0, 1, 3], (1, [0, 1, 3])),
        # Texts join, so that wrong offsets do no harm.
        ("a fox", ["a", " f", "ox"], [0, 0, 9], (0, [0, 1, 3])),
        # A tokenizer that puts a space before every text.
        ("a fox", [" a", " fox"], None, (0, [0, 1])),
        # Parts of one character.
        ("a 🦊 b", ["a", " ", "\ufffd", "\ufffd", " b"], None, (0, [0, 1, 2, 2, 3])),
        ("a é", ["a", " ", "bytes:\\xc3", "bytes:\\xa9"], None, (0, [0, 1, 2, 2])),
        # The first part shown as the whole character, the others as nothing.
        ("x日本", ["", "x", "日", "", "", "本", ""], None, (1, [0, 1, 1, 1, 2, 2])),
        ("é 日", ["é", "日", "", ""], [0, 2, 3, 3], (0, [0, 2, 2, 2])),
        ("é 日", ["é", "日", "", ""], [0, 3, 4, 5], (0, [0, 2, 2, 2])),
        # Spaces that the server does not show: its offsets tell, in characters,
        ("é fox", ["é", "fox"], [0, 2], (0, [0, 2])),
        # or in bytes of UTF-8.
        ("é fox.", ["é", "fox", "."], [0, 3, 6], (0, [0, 2, 5])),
        # Tokens of another text.
        ("a fox", ["a", " cat"], [0, 1], None),
        ("a fox", ["a", "fox"], [0, "2"], None),
        ("a fox", ["a", " fox", ""], [0, 1, 5], None),
        ("a fox", ["a", " fox", "\ufffd"], None, None),
        ("a fox", [], [], None),
    ],
)
def test_tokens_are_found_in_the_text(text, tokens, offsets, expected):
    assert token_starts(text, tokens, offsets) == expected


def echoed(tokens, values, offsets=None, **usage):
    found = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets}
    return {"choices": [{"index": 0, "logprobs": found}], "usage": usage}


def beside(*entries):
    return {"choices": [{"index": 0, "prompt_logprobs": [None, *entries]}]}


def worded(token, value):
    return {"1": {"logprob": value, "decoded_token": token}}


ENTRIES = (
    {"3": {"logprob": -0.1, "rank": 1}, "8": {"logprob": -4.0, "rank": 7}},
    {"9": {"logprob": -0.5, "rank": 1}},
)
PARTS = ["ab", " ", "\ufffd", "\ufffd", "\ufffd", "\ufffd"]
PART_VALUES = [None, -1, -2, -3, -4, -50]


@pytest.mark.parametrize(
    ("answer", "way", "prompt", "starts", "logprobs"),
    [
        # Up to what was written.
        (
            echoed(["x", "y", "z", "!"], [None, -1, -2.5, -9], prompt_tokens=3),
            *(IDS, (7, 8, 9), [1, 2], [-1, -2.5]),
        ),
        # Of the ids that were sent, not of the likeliest.
        (beside(*ENTRIES), IDS_BESIDE, (7, 8, 9), [1, 2], [-4, -0.5]),
        # Of a text by their words, with and without a token before it.
        (beside(worded(" fox", -2)), BESIDE, "a fox", [1], [-2]),
        (
            beside(worded("a", -1), worded(" fox", -2)),
            *(Way(echo=False, ids=False, bos=True), "a fox", [0, 1], [-1, -2]),
        ),
        # A part of a character that was written is not of the text.
        *(
            (
                echoed(PARTS, PART_VALUES, **usage),
                *(TEXT, "ab 🦊", [2, 3, 3, 3, 3][: n - 1], PART_VALUES[1:n]),
            )
            for usage, n in [
                ({"prompt_tokens": 5, "completion_tokens": 1}, 5),
                ({"prompt_tokens": 5}, 5),
                # The token that was written is not shown.
                ({"prompt_tokens": 6, "completion_tokens": 0}, 6),
                # It is, and one before the text is counted that is not.
                ({"prompt_tokens": 6, "completion_tokens": 1}, 5),
            ]
        ),
    ],
)
def test_each_value_of_an_answer_is_of_a_token_of_the_prompt(
    answer, way, prompt, starts, logprobs
):
    found = read_prompt_scores(answer, way, prompt)
    assert (found.starts.tolist(), found.logprobs.tolist()) == (starts, logprobs)


def fox(values, tokens=("a", " fox"), **usage):
    return echoed([*tokens], [None, *values], **usage), TEXT, "a fox"


def ids(n, **usage):
    return echoed([""] * n, [None, *[-1] * (n - 1)], **usage), IDS, (7, 8, 9)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (({"choices": [{"index": 0, "text": "a"}]}, TEXT, "a"), "no log-probabilities"),
        (fox([]), "numbers of tokens and log-probabilities"),
        (fox([None]), "token 2 of 'a fox': None is not a log-probability"),
        (fox([True]), "True is not a log-probability"),
        (fox([float("-inf")]), "-inf is not a log-probability"),
        (fox([0.7]), "0.7 is not a log-probability"),
        (fox([-9999.0]), "-9999.0 is not a log-probability"),
        (fox([-1], ["a", " f"]), "do not join to the text 'a fox'"),
        (fox([-1] * 3, ["a", " fox", "x", "y"]), "the 4 tokens do not join"),
        (fox([-1], prompt_tokens=5), "5 prompt tokens are"),
        ((echoed(PARTS, PART_VALUES), TEXT, "ab 🦊"), "does not say how many"),
        ((beside(*ENTRIES), IDS_BESIDE, (7, 5, 9)), "token 2 of the prompt of ids"),
        ((beside(ENTRIES[0], {}), IDS_BESIDE, (7, 8, 9)), "token 3 of the prompt of"),
        (
            (echoed(["a", " fox"], [None, -1]), Way(True, False, bos=True), "a fox"),
            "the first token has no log-probability",
        ),
        # Another number than was sent.
        (ids(2), "for a prompt of 3 tokens"),
        (ids(5), "for a prompt of 3 tokens"),
        (ids(3, prompt_tokens=4), "4 prompt tokens counted, but 3"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_place(asked, words):
    with pytest.raises(ValueError, match=r"log-prob|join|choice|prompt") as found:
        read_prompt_scores(*asked)
    assert words in str(found.value)


def table_logprob(ids, i):
    """A made-up model of ids: a number that depends on all before."""
    return -1 - (7 * int(ids[i]) + 3 * sum(map(int, ids[:i]))) % 11 / 4


class TableOfIds:
    """Asks the made-up model."""

    ids, key = True, staticmethod(repr)

    def held(self, prompts):
        return [False] * len(prompts)

    def scores(self, prompts, progress):
        if progress is not None:
            progress(len(prompts), len(prompts))
        found = [[table_logprob(ids, i) for i in range(1, len(ids))] for ids in prompts]
        return [PromptScores(np.array(o), np.arange(len(o)) + 1) for o in found]


SEQUENCES = [
    np.random.default_rng(n).integers(0, 50, n).astype(np.int32)
    for n in (1, 2, 5, FIRST_K + 3, 16, 17, 40)
]


def direct(ids, context):
    """Its log-probabilities, each in its window."""
    return [
        table_logprob(ids[window.start :], target - window.start)
        for window in windows(len(ids), context)
        for target in range(window.first_target, window.stop)
    ]


def test_sums_tokens_and_pairs_are_those_of_the_model_windows_too():
    scorer = RemoteScorer(TableOfIds(), context=16)
    found, expected = scorer.sums(SEQUENCES), [direct(ids, 16) for ids in SEQUENCES]
    # Numbers of the made-up model are exact in float32.
    assert found.loglik.tolist() == list(map(sum, expected))
    assert found.first.tolist() == [sum(own[:FIRST_K]) for own in expected]
    assert found.n_scored.tolist() == list(map(len, expected))
    table = scorer.token_table(SEQUENCES)
    assert [scores.tolist() for scores in table.scores] == [[own] for own in expected]
    # A pair is the end of prefix and continuation.
    prefix, others = np.array([3, 1, 4]), (np.array([1, 5]), np.array([9]))
    group, done = PairGroup(prefix, others, 0, (1, 2)), []
    found = scorer.pairs.logprobs([group], lambda *now: done.append(now))
    expected = [direct([3, 1, 4, *ids], 16)[2:] for ids in others]
    assert [own.tolist() for own in found.logprobs[0]] == expected
    assert done == [(3, 3)]


def word_answer(prompt, *, bos=True):
    """A server's answer whose tokens are words with the space before, -1, -2, ..."""
    tokens = [" " * (i > 0) + word for i, word in enumerate(prompt.split(" "))]
    values: list[float | None] = [-1.0 - i for i in range(len(tokens))]
    if not bos:
        values[0] = None
    return echoed([*tokens, " more"], [*values, -0.5])


def served(answer, journal=None, way=TEXT):
    """Prompts of a server; `answer(prompt)` gives JSON, or a response."""

    def respond(request):
        found = answer(json.loads(request.content)["prompt"])
        is_json = not isinstance(found, httpx2.Response)
        return httpx2.Response(200, json=found) if is_json else found

    return ServedPrompts(opened(respond, journal), way)


def code_points(text, *, bos=True):
    return np.array([*[BEFORE_TEXT] * bos, *map(ord, text)], np.int32)


@pytest.mark.parametrize("bos", [True, False])
def test_the_score_of_a_text_is_the_sum_of_the_servers_tokens(bos):
    way = Way(echo=True, ids=False, max_tokens=1, bos=bos)
    prompts = served(lambda prompt: word_answer(prompt, bos=bos), way=way)
    scorer = RemoteScorer(prompts, context=100)
    sequence = code_points("one two three", bos=bos)
    found = scorer.sums([sequence])
    assert found.loglik.tolist() == [-6.0 if bos else -5.0]
    assert found.n_scored.tolist() == [3 if bos else 2]
    # Its own tokens, and no zeros for the characters between.
    table = scorer.token_table([sequence])
    assert table.scores[0].tolist() == [[-1, -2, -3] if bos else [-2, -3]]
    starts = table.starts[0] - bos
    assert starts.tolist() == ([0, 3, 7] if bos else [3, 7])


def test_a_token_counts_for_the_part_in_which_it_begins():
    way = Way(echo=True, ids=False, max_tokens=1, bos=True)
    prompts = served(word_answer, way=way)
    # "two t" and "hree" stand in one token, which begins in the prefix.
    group = PairGroup(
        code_points("one two t"), (code_points("hree four", bos=False),), 0, (1,)
    )
    found = RemoteScorer(prompts, context=100).pairs.logprobs([group])
    assert np.flatnonzero(found.logprobs[0][0]).tolist() == [4]
    assert found.logprobs[0][0].sum() == -4
    assert found.n_scored == [[1]]


def test_answers_that_stay_bad_end_the_run_and_a_rerun_goes_on(tmp_path):
    asked, is_mended = [], False
    are_asked = threading.Event()

    def answer(prompt):
        asked.append(prompt)
        if len(set(asked)) == 3:
            are_asked.set()
        # The run ends at the third bad answer, whatever else is asked by then.
        assert is_mended or are_asked.wait(30)
        found = word_answer(prompt, bos=False)
        if prompt == "three four" and not is_mended:
            found["choices"][0]["logprobs"]["token_logprobs"][1] = "NaN"
        return found

    prompts = served(answer, Journal(tmp_path / "requests.jsonl"))
    texts = ["one two", "three four", "five six seven"]
    with pytest.raises(InputError) as error:
        prompts.scores(texts, None)
    assert str(error.value) == (
        "http://host/v1: token 2 of 'three four': 'NaN' is not a log-probability, 3 "
        "times"
    )
    assert "answers are kept" in error.value.hint
    assert asked.count("one two") == 1
    asked.clear()
    is_mended = True
    assert [prompts.holds(text) for text in texts] == [True, False, True]
    found = prompts.scores(texts, None)
    assert [score.logprobs.tolist() for score in found] == [[-2], [-2], [-2, -3]]
    assert asked == ["three four"]


def test_a_refused_prompt_is_named_with_what_makes_it_shorter():
    with pytest.raises(InputError) as error:
        served(lambda _: fault(400, "longer than 16")).scores(["one two"], None)
    assert "longer than 16" in str(error.value)
    assert "begins with 'one two' (7 long)" in str(error.value)
    assert "--context" in error.value.hint
