"""The probe of a server: what it finds, and which servers it refuses."""

import hashlib
import re

import pytest

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiError, RefusedError
from jaxcontam.scoring.api.trust import probe

URL = "http://server/v1"
WRITTEN = [" and", " then", " the", " end", " came"]


class WordServer:
    """A server of a made-up model whose tokens are words with the space before.

    Attributes:
        bodies: What it was asked.
    """

    def __init__(
        self,
        *,
        bos=None,
        off_by_one=False,
        drops=(),
        refuses_no_tokens=None,
        noise=0.0,
        written=WRITTEN,
        constant=None,
        first=None,
    ):
        self.bodies = []
        self.bos, self.off_by_one, self.drops = bos, off_by_one, drops
        self.refuses_no_tokens, self.noise = refuses_no_tokens, noise
        self.written = written
        self.constant, self.first = constant, first

    def __call__(self, body, *, once=False):
        if "protocol" in body:
            raise RefusedError(f"{URL}: HTTP 404 (Not Found)", status=404)
        self.bodies.append(body)
        if body["max_tokens"] == 0 and self.refuses_no_tokens:
            assert once, "a fault would be tried again for half a minute"
            raise self.refuses_no_tokens
        assert isinstance(body["prompt"], str)
        prompt = words(body["prompt"])
        new = self.written[: body["max_tokens"]]
        tokens, values = [*prompt, *new], [*self.read(prompt), *self.write(prompt, new)]
        if not body.get("echo"):
            tokens, values = tokens[len(prompt) :], values[len(prompt) :]
        elif self.bos is not None:
            tokens, values = [self.bos, *tokens], [None, *values]
        offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
        choice = {"index": 0, "text": "".join(tokens)}
        if not set(self.drops) & set(body):
            choice["logprobs"] = {
                "tokens": tokens,
                "token_logprobs": values,
                "text_offset": offsets,
            }
        return {"choices": [choice]}

    def read(self, tokens):
        values = [
            # One token off: of a token after itself.
            logprob([*tokens[: i + 1], *[token] * self.off_by_one], token)
            for i, token in enumerate(tokens)
        ]
        wobble = self.noise * len(self.bodies)
        values = [value - wobble for value in values]
        if self.constant is not None:
            values = [self.constant] * len(values)
        if self.first is not None:
            return [self.first(tokens[0]), *values[1:]]
        return values if self.bos is not None else [None, *values[1:]]

    def write(self, prompt, new):
        if self.constant is not None:
            return [self.constant] * len(new)
        return [logprob([*prompt, *new[: i + 1]], token) for i, token in enumerate(new)]


def words(text):
    return re.findall(r"\s*\S+", text)


def logprob(prefix, token):
    """A number from -4 to 0, as if a model had said it."""
    digest = hashlib.sha256(repr((prefix, token)).encode()).digest()
    return -4 * digest[0] / 255


def refused(server, **settings):
    with pytest.raises(InputError) as found:
        probe(server, url=URL, **settings)
    return str(found.value), found.value.hint


@pytest.mark.parametrize("bos", [None, "", "<s>"])
def test_a_right_server_passes_and_its_bos_is_known(bos):
    server = WordServer(bos=bos)
    found = probe(server, url=URL)
    assert (found.way.echo, found.way.ids, found.way.max_tokens) == (True, False, 0)
    assert found.way.bos == (bos is not None)
    assert found.error == 0 and found.difference == 0
    assert len(server.bodies) <= 5


def test_a_server_that_stands_one_token_off_is_refused():
    words, hint = refused(WordServer(off_by_one=True))
    assert words.startswith(f"{URL}: wrong log-probabilities: ")
    assert "one token off" in words
    assert "replicate works by chat alone" in hint


def test_a_server_that_drops_what_it_does_not_know_is_refused():
    words, hint = refused(WordServer(drops=("echo", "prompt_logprobs")))
    assert words == (
        f"{URL}: no log-probabilities of the prompt (echo with logprobs, prompts as "
        "text: no log-probabilities; prompt_logprobs, prompts as text: no "
        "log-probabilities)"
    )
    assert "replicate" in hint


@pytest.mark.parametrize(
    "fault",
    [
        RefusedError(f"{URL}: HTTP 400 (at least 1)", status=400),
        ApiError(f"{URL}: HTTP 500 (llama_decode returned 1)", status=500),
    ],
)
def test_a_server_that_must_write_something_writes_one_token(fault):
    found = probe(WordServer(refuses_no_tokens=fault), url=URL)
    assert found.way.max_tokens == 1 and found.error == 0


@pytest.mark.parametrize("status", [429, 503, None, 500])
def test_a_first_fault_that_passes_does_not_change_how_is_asked(status):
    """Another way has other keys in the journal, and a rerun would pay again."""
    server, n_faults = WordServer(), [1]

    def post(body, *, once=False):
        if n_faults[0]:
            n_faults[0] -= 1
            raise ApiError(f"{URL}: a fault", status=status)
        return server(body)

    assert probe(post, url=URL).way.max_tokens == 0


def test_a_fault_that_stays_is_named_and_no_other_way_is_tried():
    asked = []

    def post(body, *, once=False):
        asked.append(body["max_tokens"])
        raise ApiError(f"{URL}: HTTP 503 (busy)", status=503)

    assert refused(post)[0] == f"{URL}: HTTP 503 (busy)"
    assert asked == [0, 0]


@pytest.mark.parametrize("constant", [0.0, -1.5])
def test_one_number_for_every_token_is_made_up(constant):
    words, hint = refused(WordServer(constant=constant))
    assert words == (f"{URL}: made-up log-probabilities: {constant:g} for every token")
    assert "replicate" in hint


def test_a_made_up_number_of_the_first_token_is_no_bos():
    found = probe(WordServer(first=lambda token: -100.0), url=URL)
    assert not found.way.bos
    # A number that depends on the token is one behind a token that is not shown.
    found = probe(WordServer(first=lambda token: logprob([token], token)), url=URL)
    assert found.way.bos


def test_a_name_that_no_model_has_is_told_from_a_server_without_numbers():
    def unknown(body, *, once=False):
        raise ApiError(f"{URL}: HTTP 404 (no model 'm' here)", status=404)

    words, hint = refused(unknown)
    assert "HTTP 404 (no model 'm' here)" in words
    assert hint.startswith("check the name of the model and the URL; ")


def test_a_server_that_cannot_be_reached_is_no_server_without_numbers():
    def gone(body, *, once=False):
        raise ApiError(f"{URL}: no answer (refused)", status=None)

    words, _ = refused(gone)
    assert words == f"{URL}: no answer (refused)"


def test_an_integer_that_is_no_float_is_no_log_probability():
    words, _ = refused(WordServer(constant=-(10**4000)))
    assert "token 2 of 'The quick brown fox jumps': -1000" in words
    assert "is no log-probability" in words and len(words) < 500


def test_values_that_nothing_can_be_compared_with_are_refused():
    words, _ = refused(WordServer(written=[]))
    assert "cannot be checked" in words


def test_a_model_that_writes_parts_of_characters_is_read_on_its_likeliest_words():
    server = WordServer(written=["\ufffd"] * 8)

    def post(body, *, once=False):
        answer = server(body)
        if "echo" not in body:
            first = [*words(body["prompt"]), " dog"]
            likeliest = {"\ufffd": -0.5, " dog": logprob(first, " dog")}
            answer["choices"][0]["logprobs"]["top_logprobs"] = [likeliest]
        return answer

    assert probe(post, url=URL).error == 0
    server.off_by_one = True
    assert "one token off" in refused(post)[0]


def test_a_server_that_does_not_repeat_itself_is_noticed():
    # Each answer is 0.004 nats below the one before it.
    found = probe(WordServer(noise=0.004), url=URL)
    assert found.difference == pytest.approx(0.004, abs=1e-12)


# A server's answers to one text, and what the model says that it read: llama-cpp-python
# 0.3.36 with a llama of random weights, with and without a token before the text.
TEXT = ["hell", "o", " world", " the", " quick", " brown", " fox"]
OFF_BY_ONE = [None, -5.27518, -5.43478, -5.85801, -5.70552, -5.93445, -5.53655]
TRUE = [None, -5.3164, -5.3726, -5.7438, -5.8237, -5.8905, -5.7385]
WITH_BOS = [None, -5.5649, -5.6610, -5.6630, -5.8047, -5.8352, -5.7636]
TRUE_WITH_BOS = [None, -5.5648, -5.6609, -5.6630, -5.8046, -5.8352, -5.7636]


def recorded(values, true):
    """A server that gives recorded answers, and writes the end of the text."""

    def post(body, *, once=False):
        if body["max_tokens"] == 0:
            raise ApiError(f"{URL}: HTTP 500 (llama_decode returned 1)", status=500)
        if not body.get("echo"):
            found = {"tokens": TEXT[4:], "token_logprobs": true[4:]}
            return {"choices": [{"index": 0, "text": "", "logprobs": found}]}
        n = TEXT.index(words(body["prompt"])[-1]) + 1
        offsets = [0, 4, 5, 11, 15, 21, 27][:n]
        found = {
            "tokens": TEXT[:n],
            "token_logprobs": values[:n],
            "text_offset": offsets,
        }
        return {"choices": [{"index": 0, "text": "", "logprobs": found}]}

    return post


def test_recorded_answers_of_a_server_one_token_off_are_refused():
    words, _ = refused(recorded(OFF_BY_ONE, TRUE), prompts=["hello world the"])
    # The mean of 0.11818, 0.04395 and 0.20195: the last three of the two lists.
    assert "by 0.12 nats on average" in words


def test_recorded_answers_of_the_same_server_with_bos_pass():
    found = probe(
        recorded(WITH_BOS, TRUE_WITH_BOS), url=URL, prompts=["hello world the"]
    )
    assert found.error < 1e-4
    # It shows no number for the first token, although it puts one before it.
    assert not found.way.bos
