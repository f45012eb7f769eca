"""Answers in the shapes of other engines, replayed: read, checked, or refused.

Each file of `engine_answers` says where the shape of its answers was taken from.
"""

import json
from pathlib import Path

import httpx2
import pytest

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.logprobs import PATH, Way
from jaxcontam.scoring.api.trust import probe
from jaxcontam.scoring.remote import ServedPrompts
from tests.support.api_transport import MODEL, opened

ANSWERS = Path(__file__).parent / "engine_answers"
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


def probed(name):
    client = replaying(name)
    return probe(
        lambda body, once=False: client.post(
            PATH, body, is_kept=False, tries=1 if once else None
        ),
        url=MODEL.url,
    )


@pytest.mark.parametrize(
    ("name", "words", "bos"),
    [
        ("vllm", "echo with logprobs, prompts as text", False),
        ("sglang", "SGLang's own protocol, prompts as text", True),
    ],
)
def test_an_engine_is_found_and_passes_the_probe(name, words, bos):
    found = probed(name)
    assert (found.way.words, found.way.bos) == (words, bos)
    assert found.logprobs.tolist() == READ[not bos :]
    # What it wrote, five tokens, has the same numbers when it is read.
    assert (found.error, found.difference) == (0, 0)


def test_token_ids_go_to_sglang_as_they_are():
    prompts = ServedPrompts(
        replaying("sglang"), Way(echo=True, ids=True, is_sglang=True)
    )
    (found,) = prompts.scores([(791, 4062, 14198, 39935, 35308)], None)
    assert found.logprobs.tolist() == READ[1:]
    assert found.starts.tolist() == [1, 2, 3, 4]


def test_an_engine_without_numbers_of_prompts_is_refused_in_one_line():
    with pytest.raises(InputError) as found:
        probed("llama_cpp")
    words = (
        "echo with logprobs, prompts as text: log-probabilities of what is written "
        "alone, as llama.cpp's server gives"
    )
    assert words in str(found.value) and "\n" not in str(found.value)


def test_another_answer_is_none_of_the_protocol():
    answer = {"meta_info": {"prompt_tokens": 1}}
    client = opened(lambda _: httpx2.Response(200, json=answer))
    prompts = ServedPrompts(client, Way(echo=True, ids=False, is_sglang=True))
    with pytest.raises(InputError, match="no answer of SGLang's own protocol"):
        prompts.scores(["a fox"], None)
