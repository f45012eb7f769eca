"""The probe of a server: what it finds, and which servers it refuses.

Answers of other engines are replayed; each file of `engine_answers` says where their
shape was taken from.
"""

import hashlib
import json
import re
from pathlib import Path

import httpx2
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiError, RefusedError
from jaxcontam.scoring.api.logprobs import PATH, Way
from jaxcontam.scoring.api.trust import probe
from jaxcontam.scoring.remote import ServedPrompts
from tests.support.api_transport import opened

URL = "http://server/v1"
WRITTEN = [" and", " then", " the", " end", " came"]


class WordServer:
    """A server of a made-up model whose tokens are words with the space before.

    Attributes:
        bodies: What it was asked.
    """

    bos = refuses_no_tokens = constant = first = None
    off_by_one, noise, drops, written = False, 0.0, (), WRITTEN

    def __init__(self, **changes):
        self.bodies = []
        vars(self).update(changes)

    def __call__(self, body, *, once=False):
        if "protocol" in body:
            raise RefusedError(f"{URL}: HTTP 404 (Not Found)", status=404)
        self.bodies.append(body)
        if body["max_tokens"] == 0 and self.refuses_no_tokens:
            assert once, "a fault would be tried again for half a minute"
            raise self.refuses_no_tokens
        prompt = self.tokens(body["prompt"])
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

    def tokens(self, prompt):
        return words(prompt)

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


def failing(status, said):
    def post(body, *, once=False):
        raise ApiError(f"{URL}: {said}", status=status)

    return post


@pytest.mark.parametrize("bos", [None, "", "<s>"])
def test_a_right_server_passes_and_its_bos_is_known(bos):
    server = WordServer(bos=bos)
    found = probe(server, url=URL)
    assert found.way == Way(echo=True, ids=False, max_tokens=0, bos=bos is not None)
    assert (found.error, found.difference) == (0, 0)
    assert len(server.bodies) <= 5
    # Each answer is 0.004 nats below the one before it.
    found = probe(WordServer(bos=bos, noise=0.004), url=URL)
    assert found.difference == pytest.approx(0.004, abs=1e-12)


_NO_NUMBERS = "no log-probabilities"


@pytest.mark.parametrize(
    ("server", "said", "hint"),
    [
        (
            WordServer(off_by_one=True),
            "shifted by one token",
            "replicate, which needs only chat",
        ),
        (
            WordServer(drops=("echo", "prompt_logprobs")),
            f"{URL}: no log-probabilities of the prompt (echo with logprobs, prompts "
            f"as text: {_NO_NUMBERS}; prompt_logprobs, prompts as text: {_NO_NUMBERS})",
            "replicate",
        ),
        (WordServer(constant=0.0), "made-up log-probabilities: 0 for every", "replica"),
        (WordServer(constant=-1.5), "-1.5 for every token", "replicate"),
        # An integer that is no float.
        (
            WordServer(constant=-(10**4000)),
            "token 2 of 'The quick brown fox jumps': -1000",
            "",
        ),
        (WordServer(written=[]), "cannot be checked", ""),
        (
            failing(404, "HTTP 404 (no model 'm' here)"),
            "HTTP 404 (no model 'm' here)",
            "check the name of the model and the URL; ",
        ),
        # No server without numbers.
        (failing(None, "no answer (refused)"), f"{URL}: no answer (refused)", ""),
        (failing(503, "HTTP 503 (busy)"), f"{URL}: HTTP 503 (busy)", ""),
    ],
)
def test_a_server_that_gives_no_right_numbers_is_refused(server, said, hint):
    with pytest.raises(InputError) as found:
        probe(server, url=URL)
    assert said in str(found.value) and len(str(found.value)) < 500
    assert hint in found.value.hint


@pytest.mark.parametrize(
    ("status", "stays"),
    # Another way has other keys in the journal, and a rerun would pay again: a fault
    # that passes does not change how is asked.
    [(429, 0), (503, 0), (None, 0), (500, 0), (400, 1), (500, 1)],
)
def test_a_server_that_must_write_something_writes_one_token(status, stays):
    kind = RefusedError if status == 400 else ApiError
    fault = kind(f"{URL}: a fault", status=status)
    server, faults = WordServer(refuses_no_tokens=fault if stays else None), [fault]

    def post(body, *, once=False):
        if stays or not faults:
            return server(body, once=once)
        raise faults.pop()

    found = probe(post, url=URL)
    assert (found.way.max_tokens, found.error) == (stays, 0)


def test_a_made_up_number_of_the_first_token_is_no_bos():
    found = probe(WordServer(first=lambda token: -100.0), url=URL)
    assert not found.way.bos
    # A number that depends on the token is one behind a token that is not shown.
    found = probe(WordServer(first=lambda token: logprob([token], token)), url=URL)
    assert found.way.bos


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
    with pytest.raises(InputError, match="shifted by one token"):
        probe(post, url=URL)


VOCABULARY = ["The", " quick", " brown", " fox", " jumps", *WRITTEN]


class IdServer(WordServer):
    """The same by ids; a prompt's tokens have the names that the server gives them."""

    name = staticmethod(VOCABULARY.__getitem__)

    def tokens(self, prompt):
        return [VOCABULARY[i] for i in prompt[0]]

    def __call__(self, body, *, once=False):
        answer = super().__call__(body, once=once)
        if body.get("echo"):
            tokens = answer["choices"][0]["logprobs"]["tokens"]
            tokens[: len(body["prompt"][0])] = map(self.name, body["prompt"][0])
        return answer


def probe_ids(name):
    tokenizer = Tokenizer(
        models.WordLevel({w.strip(): i for i, w in enumerate(VOCABULARY)})
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    prompts = ["".join(VOCABULARY[:5])]
    return probe(IdServer(name=name), url=URL, tokenizer=tokenizer, prompts=prompts)


@pytest.mark.parametrize(
    "name",
    [
        VOCABULARY.__getitem__,
        lambda i: f"token_id:{i}",
        # One that stands for itself, or is not shown, hides no other words.
        lambda i: f"token_id:{i}" if i == 2 else VOCABULARY[i],
        lambda i: None if i == 2 else VOCABULARY[i],
    ],
)
def test_a_server_that_shows_the_words_of_ids_or_hides_them_passes(name):
    assert probe_ids(name).error == 0


def test_a_server_that_reads_ids_as_other_words_is_refused():
    with pytest.raises(InputError, match="ids of --tokenizer as other tokens") as found:
        probe_ids(lambda i: VOCABULARY[(i + 1) % len(VOCABULARY)])
    assert "of this very model" in found.value.hint


ANSWERS = Path(__file__).parents[1] / "engine_answers"
READ = [-5.25, -6.125, -2.375, -0.5625, -1.75]


def replaying(name):
    """A client of a server that gives recorded answers, and knows nothing else."""
    recorded = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    assert recorded["source"]
    exchanges = recorded["exchanges"]

    def answer(request):
        asked = request.url.path, json.loads(request.content)
        for one in exchanges:
            if asked == (one["path"], one["request"]):
                return httpx2.Response(200, json=one["answer"])
        return httpx2.Response(404, json={"error": {"message": "not recorded"}})

    return opened(answer)


def probe_engine(name):
    def post(body, *, once=False):
        return client.post(PATH, body, is_kept=False, tries=1 if once else None)

    client = replaying(name)
    return probe(post, url=URL)


@pytest.mark.parametrize(
    ("name", "words", "bos"),
    [
        ("vllm", "echo with logprobs, prompts as text", False),
        ("sglang", "SGLang's own protocol, prompts as text", True),
    ],
)
def test_an_engine_is_found_and_passes_the_probe(name, words, bos):
    found = probe_engine(name)
    assert (found.way.words, found.way.bos) == (words, bos)
    assert found.logprobs.tolist() == READ[not bos :]
    # What it wrote, five tokens, has the same numbers when it is read.
    assert (found.error, found.difference) == (0, 0)


def sglang_scores(client, prompt):
    way = Way(echo=True, ids=not isinstance(prompt, str), is_sglang=True)
    return ServedPrompts(client, way).scores([prompt], None)


def test_token_ids_go_to_sglang_as_they_are_and_other_answers_are_refused():
    prompt = (791, 4062, 14198, 39935, 35308)
    (found,) = sglang_scores(replaying("sglang"), prompt)
    assert found.logprobs.tolist() == READ[1:]
    assert found.starts.tolist() == [1, 2, 3, 4]
    answer = {"meta_info": {"prompt_tokens": 1}}
    client = opened(lambda _: httpx2.Response(200, json=answer))
    with pytest.raises(InputError, match="no answer of SGLang's own protocol"):
        sglang_scores(client, "a fox")


def test_an_engine_without_numbers_of_prompts_is_refused_in_one_line():
    with pytest.raises(InputError) as found:
        probe_engine("llama_cpp")
    words = (
        "echo with logprobs, prompts as text: log-probabilities of new tokens only, as "
        "from llama.cpp's server"
    )
    assert words in str(found.value) and "\n" not in str(found.value)
