"""A served model as a scorer: answers read, aligned, refused, and summed."""

import json
import threading

import httpx2
import numpy as np
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import (
    PromptScores,
    Way,
    read_prompt_scores,
    token_starts,
)
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.remote import BEFORE_TEXT, RemoteScorer, ServedPrompts
from jaxcontam.scoring.rows import FIRST_K
from jaxcontam.scoring.scorer import Scorer

TEXT = Way(echo=True, ids=False, max_tokens=1)
IDS = Way(echo=True, ids=True, max_tokens=1)


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
    ],
)
def test_tokens_are_found_in_the_text(text, tokens, offsets, expected):
    assert token_starts(text, tokens, offsets) == expected


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        (["a", " f"], None),
        (["a", " cat"], [0, 1]),
        (["a", "fox"], [0, "2"]),
        (["a", " fox", ""], [0, 1, 5]),
        (["a", " fox", "\ufffd"], None),
        ([], []),
    ],
)
def test_tokens_of_another_text_are_not(tokens, offsets):
    assert token_starts("a fox", tokens, offsets) is None


def echoed(tokens, values, offsets=None, **usage):
    found = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets}
    return {"choices": [{"index": 0, "logprobs": found}], "usage": usage}


def test_echoed_ids_are_read_up_to_what_was_written():
    answer = echoed(["x", "y", "z", "!"], [None, -1, -2.5, -9], prompt_tokens=3)
    found = read_prompt_scores(answer, IDS, (7, 8, 9))
    assert found.logprobs.tolist() == [-1, -2.5]
    assert found.starts.tolist() == [1, 2]


def test_prompt_logprobs_are_those_of_the_ids_that_were_sent():
    entries = [
        None,
        {"3": {"logprob": -0.1, "rank": 1}, "8": {"logprob": -4.0, "rank": 7}},
        {"9": {"logprob": -0.5, "rank": 1}},
    ]
    way = Way(echo=False, ids=True)
    answer = {"choices": [{"index": 0, "prompt_logprobs": entries}]}
    found = read_prompt_scores(answer, way, (7, 8, 9))
    assert found.logprobs.tolist() == [-4, -0.5]
    with pytest.raises(ValueError, match="token 2 of the prompt of ids"):
        read_prompt_scores(answer, way, (7, 5, 9))


def test_prompt_logprobs_of_a_text_are_found_by_their_words():
    def entry(token, value):
        return {"1": {"logprob": value, "decoded_token": token}}

    without = {"choices": [{"prompt_logprobs": [None, entry(" fox", -2)]}]}
    way = Way(echo=False, ids=False)
    found = read_prompt_scores(without, way, "a fox")
    assert (found.starts.tolist(), found.logprobs.tolist()) == ([1], [-2])
    entries = [None, entry("a", -1), entry(" fox", -2)]
    with_bos = {"choices": [{"prompt_logprobs": entries}]}
    found = read_prompt_scores(with_bos, Way(echo=False, ids=False, bos=True), "a fox")
    assert (found.starts.tolist(), found.logprobs.tolist()) == ([0, 1], [-1, -2])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"choices": [{"index": 0, "text": "a fox"}]}, "no log-probabilities"),
        (echoed(["a", " fox"], [None]), "as many tokens as log-probabilities"),
        (echoed(["a", " fox"], [None, "NaN"]), "token 2 of 'a fox': 'NaN' is no"),
        (echoed(["a", " fox"], [None, None]), "token 2 of 'a fox': None is no"),
        (echoed(["a", " fox"], [None, True]), "True is no log-probability"),
        (echoed(["a", " fox"], [None, float("-inf")]), "-inf is no"),
        (echoed(["a", " fox"], [None, 0.7]), "0.7 is no log-probability"),
        (echoed(["a", " f"], [None, -1]), "do not join to the text 'a fox'"),
        (
            echoed(["a", " fox", "x", "y"], [None, -1, -1, -1]),
            "the 4 tokens do not join",
        ),
        (echoed(["a", " fox"], [None, -9999.0]), "-9999.0 is no log-probability"),
        (echoed(["a", " fox"], [None, -1], prompt_tokens=5), "5 prompt tokens are"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_place(answer, words):
    with pytest.raises(ValueError, match=r"log-prob|join|choice") as found:
        read_prompt_scores(answer, TEXT, "a fox")
    assert words in str(found.value)


PARTS = ["ab", " ", "\ufffd", "\ufffd", "\ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("usage", "n_own"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 1}, 5),
        ({"prompt_tokens": 5}, 5),
        # The token that was written is not shown.
        ({"prompt_tokens": 6, "completion_tokens": 0}, 6),
        # It is, and one before the text is counted that is not.
        ({"prompt_tokens": 6, "completion_tokens": 1}, 5),
    ],
)
def test_a_part_of_a_character_that_was_written_is_not_of_the_text(usage, n_own):
    values = [None, -1, -2, -3, -4, -50]
    found = read_prompt_scores(echoed(PARTS, values, **usage), TEXT, "ab 🦊")
    assert found.logprobs.tolist() == values[1:n_own]
    assert found.starts.tolist() == [2, 3, 3, 3, 3][: n_own - 1]
    with pytest.raises(ValueError, match="does not say how many"):
        read_prompt_scores(echoed(PARTS, values), TEXT, "ab 🦊")


@pytest.mark.parametrize(
    ("values", "usage"),
    [([None, -1], {}), ([None] + [-1] * 4, {}), ([None, -1, -1], {"prompt_tokens": 4})],
)
def test_another_number_of_tokens_than_were_sent_is_refused(values, usage):
    with pytest.raises(ValueError, match="prompt"):
        read_prompt_scores(echoed([""] * len(values), values, **usage), IDS, (7, 8, 9))


def table_logprob(ids, i):
    """A made-up model of ids: a number that depends on all before."""
    return -1 - (7 * int(ids[i]) + 3 * sum(map(int, ids[:i]))) % 11 / 4


class TableOfIds:
    """Asks the made-up model."""

    ids = True

    def key(self, prompt):
        return repr(prompt)

    def held(self, prompts):
        return [False] * len(prompts)

    def scores(self, prompts, progress):
        if progress is not None:
            progress(len(prompts), len(prompts))
        return [
            PromptScores(
                np.array([table_logprob(ids, i) for i in range(1, len(ids))]),
                np.arange(1, len(ids)),
            )
            for ids in prompts
        ]


def local_scorer(context):
    """The same model as a forward function."""

    def forward(inputs_BS, targets_BS):
        logprobs_BS = np.zeros(inputs_BS.shape, np.float32)
        for row, (inputs, targets) in enumerate(
            zip(inputs_BS, targets_BS, strict=True)
        ):
            for s in range(len(inputs)):
                whole = [*inputs[: s + 1], targets[s]]
                logprobs_BS[row, s] = table_logprob(whole, s + 1)
        return [logprobs_BS]

    return Scorer(forward, context=context, batch_tokens=64)


SEQUENCES = [
    np.random.default_rng(n).integers(0, 50, n).astype(np.int32)
    for n in (1, 2, 5, FIRST_K + 3, 16, 17, 40)
]


def test_sums_and_tokens_are_those_of_a_local_scorer_windows_too():
    here, there = local_scorer(16), RemoteScorer(TableOfIds(), context=16)
    mine, theirs = here.sums(SEQUENCES), there.sums(SEQUENCES)
    # Numbers of the made-up model are exact in float32.
    assert theirs.loglik.tolist() == mine.loglik.tolist()
    assert theirs.first.tolist() == mine.first.tolist()
    assert theirs.n_scored is not None
    assert theirs.n_scored.tolist() == [len(ids) - 1 for ids in SEQUENCES]
    scores = there.token_table(SEQUENCES).scores
    for ours, own in zip(here.tokens(SEQUENCES), scores, strict=True):
        np.testing.assert_array_equal(ours, own)


def test_a_pair_is_the_end_of_prefix_and_continuation():
    prefix, others = np.array([3, 1, 4]), (np.array([1, 5]), np.array([9]))
    pairs = RemoteScorer(TableOfIds(), context=16).pairs
    done = []
    found = pairs.logprobs(
        [PairGroup(prefix, others, 0, (1, 2))], lambda *now: done.append(now)
    )
    expected = [
        [table_logprob([3, 1, 4, *ids], 3 + i) for i in range(len(ids))]
        for ids in others
    ]
    assert [own.tolist() for own in found.logprobs[0]] == expected
    assert done == [(3, 3)]


def word_answer(prompt, *, bos=True):
    """A server's answer whose tokens are words with the space before, -1, -2, ..."""
    tokens = [" " * (i > 0) + word for i, word in enumerate(prompt.split(" "))]
    values: list[float | None] = [-1.0 - i for i in range(len(tokens))]
    if not bos:
        values[0] = None
    return echoed([*tokens, " more"], [*values, -0.5])


def served(handler, journal=None, way=TEXT):
    client = ApiClient(
        ApiModel("http://server/v1", "m"),
        api_key=None,
        journal=journal,
        sleep=lambda seconds: None,
        transport=httpx2.MockTransport(handler),
    )
    return ServedPrompts(client.__enter__(), way)


def code_points(text, *, bos=True):
    return np.array([*[BEFORE_TEXT] * bos, *map(ord, text)], np.int32)


def words_of(request):
    return json.loads(request.content)["prompt"]


@pytest.mark.parametrize("bos", [True, False])
def test_the_score_of_a_text_is_the_sum_of_the_servers_tokens(bos):
    way = Way(echo=True, ids=False, max_tokens=1, bos=bos)
    prompts = served(
        lambda request: httpx2.Response(
            200, json=word_answer(words_of(request), bos=bos)
        ),
        way=way,
    )
    scorer = RemoteScorer(prompts, context=100)
    sequence = code_points("one two three", bos=bos)
    found = scorer.sums([sequence])
    assert found.loglik.tolist() == [-6.0 if bos else -5.0]
    assert found.n_scored is not None
    assert found.n_scored.tolist() == [3 if bos else 2]
    # Its own tokens, and no zeros for the characters between.
    table = scorer.token_table([sequence])
    assert table.scores[0].tolist() == [[-1, -2, -3] if bos else [-2, -3]]
    assert table.starts is not None
    starts = table.starts[0] - bos
    assert starts.tolist() == ([0, 3, 7] if bos else [3, 7])


def test_a_token_counts_for_the_part_in_which_it_begins():
    way = Way(echo=True, ids=False, max_tokens=1, bos=True)
    prompts = served(
        lambda request: httpx2.Response(200, json=word_answer(words_of(request))),
        way=way,
    )
    # "two t" and "hree" stand in one token, which begins in the prefix.
    group = PairGroup(
        code_points("one two t"), (code_points("hree four", bos=False),), 0, (1,)
    )
    found = RemoteScorer(prompts, context=100).pairs.logprobs([group])
    assert np.flatnonzero(found.logprobs[0][0]).tolist() == [4]
    assert found.logprobs[0][0].sum() == -4
    assert found.n_scored == [[1]]


def test_a_bad_answer_is_asked_for_again_and_never_kept(tmp_path):
    bad = {"left": 2}

    def handler(request):
        answer = word_answer(words_of(request), bos=False)
        if words_of(request) == "three four" and bad["left"]:
            bad["left"] -= 1
            answer["choices"][0]["logprobs"]["token_logprobs"][1] = None
        return httpx2.Response(200, json=answer)

    journal = Journal(tmp_path / "requests.jsonl")
    prompts = served(handler, journal)
    texts = ["one two", "three four", "five"]
    found = prompts.scores(texts, None)
    assert [score.logprobs.tolist() for score in found] == [[-2], [-2], []]
    # What is kept is the good answer: a rerun sends nothing.
    again = served(lambda request: httpx2.Response(500), Journal(journal.path))
    found = again.scores(texts, None)
    assert [score.logprobs.tolist() for score in found] == [[-2], [-2], []]
    assert again.client.n_sent == 0


def test_answers_that_stay_bad_end_the_run_and_a_rerun_goes_on(tmp_path):
    asked = []
    are_asked = threading.Event()

    def handler(request, *, is_mended=False):
        asked.append(words_of(request))
        if len(set(asked)) == 3:
            are_asked.set()
        # The run ends at the third bad answer, whatever else is asked by then.
        assert is_mended or are_asked.wait(30)
        answer = word_answer(words_of(request), bos=False)
        if words_of(request) == "three four" and not is_mended:
            answer["choices"][0]["logprobs"]["token_logprobs"][1] = "NaN"
        return httpx2.Response(200, json=answer)

    path = tmp_path / "requests.jsonl"
    texts = ["one two", "three four", "five six"]
    with pytest.raises(InputError) as error:
        served(handler, Journal(path)).scores(texts, None)
    assert str(error.value) == (
        "http://server/v1: token 2 of 'three four': 'NaN' is no log-probability, "
        "3 times"
    )
    assert "what is answered is not asked again" in error.value.hint
    assert asked.count("one two") == 1
    asked.clear()
    prompts = served(lambda r: handler(r, is_mended=True), Journal(path))
    missing = [text for text in texts if not prompts.holds(text)]
    assert missing == ["three four"]
    found = prompts.scores(texts, None)
    assert [score.logprobs.tolist() for score in found] == [[-2], [-2], [-2]]
    assert asked == missing


def test_a_refused_prompt_is_named_with_what_makes_it_shorter():
    def handler(request):
        return httpx2.Response(400, json={"error": {"message": "longer than 16"}})

    with pytest.raises(InputError) as error:
        served(handler).scores(["one two"], None)
    assert "longer than 16" in str(error.value)
    assert "begins with 'one two' (7 long)" in str(error.value)
    assert "--context" in error.value.hint
