"""Compare log-probabilities of generated tokens with those of the same tokens read."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.alignment import is_part
from jaxcontam.scoring.api.logprobs import (
    Prompt,
    PromptScores,
    Way,
    checked_logprob,
    read_prompt_scores,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

N_WRITTEN = 8
"""Tokens to generate: enough that chance does not hide an offset by one."""
_N_LIKELIEST = 5
_MOST_TRIES = 2

NEEDED = (
    "order tests and membership scores need the log-probability of every token of a "
    "prompt; jaxcontam replicate works by chat alone"
)
"""Hint where a server gives no log-probabilities that can be used."""

TOKEN_ID = "token_id:"
"""Prefix of a token that a server cannot show as text."""


Post = Callable[..., Mapping[str, Any]]
"""Sends the body of a completion request, `post(body)`, and gives the answer; with
`once=True` it does not try again what fails. Its InputErrors have the `status` that the
server answers with, if any."""


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """Log-probabilities of tokens when generated and when read, in nats.

    `errors` are absolute differences, `values` all that was read; the prompt is None
    where nothing can be compared.
    """

    errors: list[float]
    values: list[float]
    prompt: Prompt | None


def written_and_read(
    post: Post, url: str, way: Way, prompt: Prompt, tokenizer: "Tokenizer | None"
) -> Compared:
    """Let the model write, and compare with what it says when it reads that."""
    answer = post(way.greedy(prompt, max_tokens=N_WRITTEN, logprobs=_N_LIKELIEST))
    n_tries = 0
    for written in _written(answer):
        whole, starts = _with_written(
            prompt, [token for token, _ in written], tokenizer
        )
        if not starts or n_tries == _MOST_TRIES:
            continue
        n_tries += 1
        found = read(post(way.body(whole)), way, whole, url)
        values = dict(zip(found.starts.tolist(), found.logprobs.tolist(), strict=True))
        ends = [*starts[1:], len(whole)]
        errors = []
        for (_, value), start, end in zip(written, starts, ends, strict=False):
            # A text may be read as other tokens than it was written in.
            is_same = start in values and not any(start < at < end for at in values)
            if not is_same:
                break
            errors.append(abs(values[start] - value))
        if errors:
            return Compared(errors, found.logprobs.tolist(), whole)
    return Compared([], [], None)


def _written(answer: Mapping[str, Any]) -> list[list[tuple[str, float]]]:
    """Texts to read again, as tokens with what the model says of each.

    What it wrote comes first, whole characters only; then each of the likeliest first
    tokens alone, for models that write parts of characters.
    """
    try:
        found = answer["choices"][0].get("logprobs")
        assert isinstance(found, dict)
        pairs = list(zip(found["tokens"], found["token_logprobs"], strict=True))
        likeliest = (found.get("top_logprobs") or [{}])[0] or {}
        written = _whole_tokens(pairs)
        alone = [_whole_tokens([pair]) for pair in likeliest.items()]
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError):
        return []
    return [tokens for tokens in (written, *alone) if tokens]


def _whole_tokens(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[str, float]]:
    """Tokens up to the first that is a part of a character, or none at all."""
    whole = []
    for token, value in pairs:
        if (
            not isinstance(token, str)
            or not token
            or is_part(token)
            or TOKEN_ID in token
        ):
            break
        whole.append((token, checked_logprob(value, "what is written")))
    return whole


def _with_written(
    prompt: Prompt, tokens: Sequence[str], tokenizer: "Tokenizer | None"
) -> tuple[Prompt, list[int]]:
    """The prompt with what was written after it, and where each token begins."""
    if isinstance(prompt, str):
        lengths = [len(token) for token in tokens]
        starts = [len(prompt) + sum(lengths[:i]) for i in range(len(tokens))]
        return prompt + "".join(tokens), starts
    assert tokenizer is not None
    of_letters = _ids_of_letters(tokenizer)
    ids = list(prompt)
    for token in tokens:
        candidates = of_letters.get(letters(token), [])
        if len(candidates) > 1:
            # With and without a space before it, as only the whole text tells.
            text = _decoded(tokenizer, ids) + token
            candidates = [
                i for i in candidates if _decoded(tokenizer, [*ids, i]) == text
            ]
        if len(candidates) != 1:
            break
        ids += candidates
    return tuple(ids), list(range(len(prompt), len(ids)))


# One run asks with one tokenizer; a vocabulary takes a second.
@functools.lru_cache(1)
def _ids_of_letters(tokenizer: "Tokenizer") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i in tokenizer.get_vocab().values():
        found.setdefault(letters(_decoded(tokenizer, [i])), []).append(i)
    return found


def _decoded(tokenizer: "Tokenizer", ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


def read(answer: Mapping[str, Any], way: Way, prompt: Prompt, url: str) -> PromptScores:
    """As `read_prompt_scores`, for answers that nobody would ask for again."""
    try:
        return read_prompt_scores(answer, way, prompt)
    except ValueError as e:
        raise InputError(f"{url}: {e}", hint=NEEDED) from None


def letters(text: str) -> str:
    """A text without spaces, which servers show in several ways."""
    return "".join(text.replace("▁", " ").split())
