"""Chat models behind servers, as completers, and the words that name them."""

import itertools

import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError, parse_api
from jaxcontam.scoring.api.chat import ChatCompleter, answer_seed
from tests.support.api_server import chat, prompt_of, serving
from tests.support.api_transport import KEY, opened


def complete(url, prompts, *, journal=None, retry_refused=False, **settings):
    """Texts (or what was said of a refusal) of one sample a prompt."""
    how = {"api_key": None, "journal": journal, "retry_refused": retry_refused}
    with opened(url, **how) as client:
        completer = ChatCompleter(client)
        found = completer.complete(prompts, **{"max_tokens": 7} | settings)
    texts = [[one.refused or one.text for one in samples] for samples in found]
    return [own if len(own) > 1 else own[0] for own in texts]


def upper(body, number, handler):
    return chat(prompt_of(body).upper())


def said(message):
    return 400, {"error": {"message": message}}


def test_a_request_is_of_the_protocol():
    with serving(upper) as (url, seen), opened(url) as client:
        completer = ChatCompleter(client)
        ((found,),) = completer.complete(["hi"], max_tokens=7, stop=("\n",), seed=3)
        assert completer.name == "m"
        assert completer.complete([], max_tokens=7) == []
        complete(url, ["hi"], max_tokens=None)
    assert (found.text, found.refused) == ("HI", "")
    (path, headers, body), (_, no_key, less) = seen
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.0,
        "max_tokens": 7,
        "seed": answer_seed(3, 0),
        "stop": ["\n"],
    }
    assert "Authorization" not in no_key
    assert set(body) - set(less) == {"max_tokens", "stop"}


def test_each_sample_has_a_seed_of_its_own_and_answers_stand_by_prompt(tmp_path):
    def answer(body, number, handler):
        return chat(f"{prompt_of(body)} {body['seed']}")

    told, how = [], {"n_samples": 3, "seed": 5, "temperature": 0.8}
    how |= {"journal": Journal(tmp_path / "j"), "progress": lambda *n: told.append(n)}
    with serving(answer) as (url, seen):
        found = complete(url, ["a", "b"], **how)
        again = complete(url, ["b"], **how)
        # Four of these say whether the server samples.
        assert len(seen) == 6 + 4
    seeds = [answer_seed(5, i) for i in range(3)]
    assert found == [[f"{p} {seed}" for seed in seeds] for p in "ab"]
    assert again == found[1:]
    assert (6, 6) in told


def test_a_server_that_passes_over_the_temperature_gives_no_samples():
    """Equal samples are evidence only where samples could differ."""
    with serving(upper) as (url, seen):
        with pytest.raises(ApiError, match="the server does not sample") as e:
            complete(url, ["a"], n_samples=3, temperature=0.8)
        assert "compare samples" in e.value.hint
        assert all(prompt_of(body) != "a" for _, _, body in seen)
        assert {body["temperature"] for _, _, body in seen} == {1.0}
        # Likeliest tokens are the same by right.
        assert complete(url, ["a"], n_samples=2, temperature=0.0) == [["A", "A"]]


def test_whether_a_server_samples_is_asked_once():
    def answer(body, number, handler):
        return chat(str(body["seed"]) if "numbers" in prompt_of(body) else "same")

    with serving(answer) as (url, seen), opened(url) as client:
        completer = ChatCompleter(client)
        for prompts in (["a"], ["b", "c"]):
            completer.complete(prompts, max_tokens=3, temperature=0.7, n_samples=2)
    assert len(seen) == 4 + 6


def test_seeds_of_near_runs_have_none_in_common():
    seeds = [answer_seed(seed, sample) for seed in range(30) for sample in range(30)]
    assert len(set(seeds)) == 900
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a <think>b</think> c", "a <think>b</think> c"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ("half \ud83d", "half ?"),
        ("whole \U0001f600", "whole \U0001f600"),
        # The server goes on behind the first stop string.
        ("one two three", "one"),
    ],
)
def test_the_text_is_what_the_model_wrote_up_to_a_stop_string(content, text):
    with serving(lambda *_: chat(content)) as (url, _):
        assert complete(url, ["x"], stop=("three", " two")) == [text]


def refusing_fields(*names, status=400):
    """A server that says of each of these fields that it does not know it."""

    def answer(body, number, handler):
        for name in names:
            if name in body:
                words = f"Unsupported parameter: '{name}' is not supported"
                return status, {"error": {"message": words, "param": name}}
        return upper(body, number, handler)

    return answer


@pytest.mark.parametrize(
    ("names", "status"),
    [(["seed"], 400), (["stop"], 422), (["seed", "stop", "max_tokens"], 422)],
)
def test_a_field_that_the_server_does_not_know_is_left_out_once_for_all(
    tmp_path, names, status
):
    prompts = [f"p{i}" for i in range(9)]
    journal, renamed = tmp_path / "j.jsonl", "max_tokens" in names
    with serving(refusing_fields(*names, status=status)) as (url, seen):
        for n_sent in (9 + len(names), len(names)):
            seen.clear()
            found = complete(url, prompts, stop=("#",), journal=Journal(journal))
            assert found == [p.upper() for p in prompts]
            assert len(seen) == n_sent
            for _, _, body in seen[len(names) :]:
                assert ("max_tokens" in body) != renamed
                assert ("max_completion_tokens" in body) == renamed


def test_samples_without_seeds_are_asked_for_apart_and_each_seed_anew(tmp_path):
    numbers = itertools.count()

    def answer(body, number, handler):
        is_seeded = "seed" in body
        return said("unknown field: seed") if is_seeded else chat(str(next(numbers)))

    how = {"n_samples": 3, "temperature": 0.5, "journal": Journal(tmp_path / "j")}
    with serving(answer) as (url, _):
        found = [complete(url, ["a"], seed=seed, **how) for seed in (0, 1, 0, 1)]
    assert len({*found[0][0], *found[1][0]}) == 6
    assert found[2:] == found[:2]


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        # Named without being the fault: what was left out in vain is sent again.
        ("seed 'stop' and max_tokens: filtered", []),
        # A first text that is refused does not hide an unknown field.
        ("filtered", ["seed"]),
    ],
)
def test_a_text_that_is_refused_leaves_the_fields_to_the_others(words, unknown):
    def answer(body, number, handler):
        if prompt_of(body) == "bad":
            return said(words)
        return refusing_fields(*unknown)(body, number, handler)

    with serving(answer) as (url, seen):
        found = complete(url, ["bad", "a", "b"])
    assert found[0].endswith(f"HTTP 400 ({words})")
    assert found[1:] == ["A", "B"]
    assert {"seed", "max_tokens"} - {*unknown} <= set(seen[-1][2])


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (said("no such setting"), "check the name"),
        (said("seed, stop, max_tokens are wrong"), "lower --new-tok"),
        ((200, {"choices": []}), "check the name"),
        # Answers that no context holds, as vLLM says it.
        (said("This model's maximum context length is 512 tokens."), "lower --new-tok"),
    ],
)
def test_a_server_that_refuses_everything_is_found_out_at_once(tmp_path, answer, hint):
    journal = tmp_path / "j.jsonl"
    with (
        serving(lambda *_: answer) as (url, seen),
        pytest.raises(ApiError, match="for every request") as e,
    ):
        complete(url, [f"p{i}" for i in range(50)], journal=Journal(journal))
    assert not isinstance(e.value, RefusedError)
    assert e.value.hint.startswith(hint)
    assert journal.read_bytes() == b""
    assert len(seen) <= 1 + 8 + 1


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (chat("half", finish_reason="content_filter"), "a content filter cut off"),
        (
            (200, {"choices": [{"message": {"content": None, "refusal": "I\nwon't"}}]}),
            ": I won't",
        ),
        (said("filter"), "HTTP 400 (filter)"),
        ((413, {}), "HTTP 413 (Request Entity Too Large)"),
        ((451, b"<html>"), "HTTP 451 (Unavailable For Legal Reasons)"),
    ],
)
def test_a_refused_prompt_is_counted_kept_and_asked_again_if_wanted(
    tmp_path, reply, words
):
    replies = {"bad": reply}

    def answer(body, number, handler):
        return replies.get(prompt_of(body)) or upper(body, number, handler)

    def ask(**how):
        return complete(url, ["a", "bad"], journal=Journal(tmp_path / "j"), **how)

    with serving(answer) as (url, seen):
        first, refused = ask()
        assert first == "A" and refused.endswith(words)
        assert ask() == [first, refused]
        replies, n_seen = {}, len(seen)
        assert ask(retry_refused=True) == ask() == ["A", "BAD"]
    # The harmless one is asked where a refusal may be everybody's.
    assert len(seen) == n_seen + 1 <= 5


def test_an_answer_of_another_protocol_is_one_clear_line():
    value = {"choices": [{"index": 0, "text": "a"}]}
    with (
        serving(lambda *_: (200, value)) as (url, _),
        pytest.raises(ApiError, match=r"not an answer of the protocol.*, 3 times") as e,
    ):
        complete(url, ["x"])
    assert "before /chat/completions" in e.value.hint


def test_a_name_of_a_model_is_split_at_its_mark_and_no_password_is_repeated():
    expected = ApiModel("https://host/v1", "org/name:tag")
    for end in ("", "/", "/chat/completions"):
        words = f"api:https://host/v1{end}#org/name:tag"
        assert parse_api(words, flag="--judge") == expected
    with pytest.raises(InputError, match=r"^--judge .* got '\*\*\*@host/v1\?\*\*\*'$"):
        parse_api("https://me:pw@host/v1?key=sk#m", flag="--judge")
