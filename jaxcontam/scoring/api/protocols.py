"""Servers' own protocols, for those whose completions give no prompt's numbers.

A request names one as its `protocol`; everything else in it, and what is made of the
answer, is as in OpenAI's completions, so that nothing else has to know of these.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """How one kind of server is asked; all are at `/generate`, beside `/v1`.

    Attributes:
        request: Our request -> the server's.
        choice: (the server's answer, our request) -> the choice of a completion, and
            the numbers of tokens of prompt and answer.
    """

    words: str
    takes_ids: bool
    request: Callable[[Fields], dict[str, Any]]
    choice: Callable[[Fields, Fields], tuple[dict[str, Any], tuple[int | None, int]]]

    def url(self, base: str) -> str:
        """Where requests go."""
        return f"{base.removesuffix('/v1')}/generate"

    def completion(self, answer: Fields, request: Fields) -> dict[str, Any]:
        """The server's answer to our request, as one of completions."""
        try:
            choice, (n_prompt, n_written) = self.choice(answer, request)
        except (LookupError, TypeError, AttributeError) as e:
            raise ValueError(f"no answer of {self.words}") from e
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_written}
        return {"choices": [choice], "usage": usage}


def _sglang_request(request: Fields) -> dict[str, Any]:
    prompt, is_echo = request["prompt"], bool(request.get("echo"))
    return {
        **({"text": prompt} if isinstance(prompt, str) else {"input_ids": prompt[0]}),
        "sampling_params": {
            "temperature": request["temperature"],
            "max_new_tokens": request["max_tokens"],
        },
        "return_logprob": True,
        # -1: of what is written alone.
        "logprob_start_len": 0 if is_echo else -1,
        "top_logprobs_num": 0 if is_echo else request["logprobs"],
        "return_text_in_logprobs": True,
    }


def _sglang_choice(
    answer: Fields, request: Fields
) -> tuple[dict[str, Any], tuple[int | None, int]]:
    """Each token is [log-probability, id, text]."""
    found = answer["meta_info"]
    part = "input" if request.get("echo") else "output"
    shown = [(text, value) for value, _, text in found[f"{part}_token_logprobs"]]
    likeliest = [
        {text: value for value, _, text in place or ()}
        for place in found.get("output_top_logprobs") or ()
    ]
    counts = found["prompt_tokens"], found["completion_tokens"]
    return _choice(answer["text"], shown, likeliest), counts


def _tgi_request(request: Fields) -> dict[str, Any]:
    # Greedy unless a temperature is sent, which must not be 0.
    parameters = {"max_new_tokens": request["max_tokens"], "details": True}
    if request.get("echo"):
        parameters["decoder_input_details"] = True
    else:
        parameters["top_n_tokens"] = request["logprobs"]
    return {"inputs": request["prompt"], "parameters": parameters}


def _tgi_choice(
    answer: Fields, request: Fields
) -> tuple[dict[str, Any], tuple[int | None, int]]:
    """Each token has id, text and logprob."""

    def pair(token: Fields) -> tuple[str, Any]:
        return token["text"].replace("▁", " "), token["logprob"]

    details, is_echo = answer["details"], bool(request.get("echo"))
    shown = [pair(token) for token in details["prefill" if is_echo else "tokens"]]
    likeliest = [dict(map(pair, place)) for place in details.get("top_tokens") or ()]
    counts = len(shown) if is_echo else None, details["generated_tokens"]
    return _choice(answer["generated_text"], shown, likeliest), counts


def _choice(
    text: str, shown: Sequence[tuple[str | None, Any]], likeliest: list[dict[str, Any]]
) -> dict[str, Any]:
    logprobs = {
        "tokens": [token for token, _ in shown],
        "token_logprobs": [value for _, value in shown],
        "top_logprobs": likeliest,
    }
    return {"index": 0, "text": text, "logprobs": logprobs}


PROTOCOLS: Mapping[str, Protocol] = {
    "sglang": Protocol("SGLang's own protocol", True, _sglang_request, _sglang_choice),
    "tgi": Protocol(
        "TGI's own protocol (needs --enable-prefill-logprobs)",
        False,
        _tgi_request,
        _tgi_choice,
    ),
}
