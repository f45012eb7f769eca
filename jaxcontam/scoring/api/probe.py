"""Check a server's log-probabilities before anything is scored.

Servers drop what they do not know, with a 200; one that adds no token before a text
was seen to give each token the probability of the place after it. So the presence of
numbers shows nothing yet. What a server writes greedily, with its log-probability, is
sent back as the end of a prompt: there it must have the same log-probability again.

Servers need not identify their weights. The log-probabilities of the first text are
therefore kept beside the answers and compared at the start and end of each run, so that
no result mixes the answers of two models.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.scoring.agreement import EACH_WITHIN, MEAN_WITHIN, is_same
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.answers import PASSING
from jaxcontam.scoring.api.logprobs import (
    Prompt,
    Way,
    read_prompt_scores,
    shown_tokens,
    text_starts,
    ways,
)
from jaxcontam.scoring.api.request import RefusedError
from jaxcontam.scoring.api.written import (
    NEEDED,
    TOKEN_ID,
    Post,
    letters,
    read,
    written_and_read,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROMPTS = (
    "The quick brown fox jumps",
    "1, 2, 3, 4, 5, 6,",
    "Once upon a time there",
)
"""Texts of the probe; more than one, since a model may end a text at once."""

# Fewest values to compare.
_FEWEST = 3
# Statuses of a server that does not know the request.
_NOT_THIS = frozenset({400, 404, 405, 413, 422, 501})
# Some servers fail over a request that asks for no new token.
_FAILED = 500

ANEW = "a new folder (--out or --store) begins anew and asks for every answer again"
"""Hint where answers of two models would stand in one result."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """A model's log-probabilities of one text, or of its ids: (T,) float64, nats."""

    prompt: Prompt
    logprobs: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Abilities of a server, as the probe found them.

    Attributes:
        error: Mean difference between what is written and what is read, nats.
        difference: Largest difference between two answers to the same request, nats.
        witness: What the model says of the first text.
    """

    way: Way
    error: float
    difference: float
    n_requests: int
    witness: Witness


def probe(
    post: Post,
    *,
    url: str,
    tokenizer: "Tokenizer | None" = None,
    prefix: Sequence[int] = (),
    prompts: Sequence[str] = PROMPTS,
) -> Capability:
    """Find how a server gives log-probabilities, and whether they are right.

    What `post` sends must not come from a journal. With the model's tokenizer prompts
    are ids, after those of the prefix.
    """
    n_requests = 0

    def counted(body: Mapping[str, Any], *, once: bool = False) -> Mapping[str, Any]:
        nonlocal n_requests
        n_requests += 1
        return post(body, once=once)

    asked = [encoded(text, tokenizer, prefix) for text in prompts]
    way, witness = _find_way(counted, url, asked, tokenizer)
    errors: list[float] = []
    values: list[float] = []
    difference = 0.0
    for prompt in asked:
        found = written_and_read(counted, url, way, prompt, tokenizer)
        errors += found.errors
        values += found.values
        if found.prompt is not None:
            again = read(counted(way.body(found.prompt)), way, found.prompt, url)
            if len(again.logprobs) == len(found.values):
                change = np.abs(again.logprobs - found.values)
                difference = max(difference, float(change.max(initial=0.0)))
        if len(errors) >= _FEWEST:
            break
    if not errors:
        raise InputError(
            f"{url}: its log-probabilities cannot be checked: what it writes comes "
            "without them, or is read as other tokens",
            hint=NEEDED,
        )
    check_compared(url, errors, values)
    return Capability(
        way=way,
        error=float(np.mean(errors)),
        difference=difference,
        n_requests=n_requests,
        witness=witness,
    )


def encoded(text: str, tokenizer: "Tokenizer | None", prefix: Sequence[int]) -> Prompt:
    """A text of the probe as it is sent."""
    if tokenizer is None:
        return text
    return (*prefix, *tokenizer.encode(text, add_special_tokens=False).ids)


def check_compared(url: str, errors: Sequence[float], values: Sequence[float]) -> None:
    """Refuse numbers that are not of the prompt's tokens."""
    if len(values) >= _FEWEST and len(set(values)) == 1:
        raise InputError(
            f"{url}: made-up log-probabilities: {values[0]:g} for every token",
            hint=NEEDED,
        )
    # A shift changes every number: by several nats in a trained model, by a tenth on
    # average even in one of random weights.
    error = float(np.mean(errors))
    if error > MEAN_WITHIN or max(errors) > EACH_WITHIN:
        raise InputError(
            f"{url}: wrong log-probabilities: a token has another one when it is read "
            f"than when it was written (by {error:.2g} nats on average), as if they "
            "stood one token off, or came of a wrong prefix cache",
            hint=NEEDED,
        )


def _find_way(
    post: Post, url: str, prompts: Sequence[Prompt], tokenizer: "Tokenizer | None"
) -> tuple[Way, Witness]:
    """The first way that gives numbers, and those of the first prompt."""
    reasons: dict[str, str] = {}
    prompt = prompts[0]
    hint = "" if tokenizer is None else "leave out --tokenizer to send text; "
    for way in ways(ids=not isinstance(prompt, str)):
        try:
            answer = _first_answer(post, way, prompt)
            read_prompt_scores(answer, way, prompt)
        except InputError as e:
            if way.protocol is not None:
                # Most servers have never heard of it.
                continue
            if not _is_refusal(e, way):
                raise
            reasons[way.words] = str(e).removeprefix(f"{url}: ")
            if getattr(e, "status", None) == 404:
                ends = "" if url.rstrip("/").endswith("/v1") else " (most end in /v1)"
                hint = f"check the name of the model and the URL{ends}; "
            continue
        except ValueError as e:
            reasons[way.words] = str(e)
            continue
        if tokenizer is not None and not isinstance(prompt, str):
            _check_tokens(answer, way, prompt, tokenizer, url)
        way = dataclasses.replace(way, bos=_has_bos(post, answer, way, prompts))
        found = read_prompt_scores(answer, way, prompt)
        return way, Witness(prompt, found.logprobs)
    raise InputError(
        f"{url}: no log-probabilities of the prompt "
        f"({'; '.join(f'{words}: {why}' for words, why in reasons.items())})",
        hint=hint + NEEDED,
    )


def _first_answer(post: Post, way: Way, prompt: Prompt) -> Mapping[str, Any]:
    """Ask in one way; what only passes does not count against it."""
    body = way.body(prompt)
    if way.max_tokens:
        return post(body, once=way.protocol is not None)
    for is_last in (False, True):
        try:
            return post(body, once=True)
        except InputError as e:
            status = getattr(e, "status", None)
            if status == _FAILED and not is_last:
                # A fault of this request comes again.
                continue
            passes = status is None or status in PASSING - {_FAILED}
            if isinstance(e, RefusedError) or not passes:
                raise
            break
    return post(body)


def _is_refusal(error: InputError, way: Way) -> bool:
    """True if a server does not know a way, and may know another one."""
    status = getattr(error, "status", None)
    if status is None:
        # An answer without choices, where none is to be written.
        return isinstance(error, RefusedError) and not way.max_tokens
    return status in _NOT_THIS or status == _FAILED


def _has_bos(
    post: Post, answer: Mapping[str, Any], way: Way, prompts: Sequence[Prompt]
) -> bool:
    """Tell if the first token of a text has a log-probability.

    It has one where a token stands before it, which servers show, or count, or neither:
    then other first tokens must have other numbers.
    """
    if not isinstance(prompts[0], str):
        return False
    n_before, value = _first_value(answer, way, prompts[0])
    if value is None:
        return False
    usage = answer.get("usage")
    n_counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    _, starts = text_starts(answer, way, prompts[0])
    if n_before or n_counted == len(starts) + 1:
        return True
    for other in prompts[1:]:
        try:
            if _first_value(post(way.body(other)), way, other)[1] != value:
                return True
        except ValueError:
            continue
    return False


def _first_value(
    answer: Mapping[str, Any], way: Way, prompt: Prompt
) -> tuple[int, Any]:
    """Number of tokens before a text, and the log-probability of its first one."""
    _, values, _ = shown_tokens(answer, way, prompt)
    n_before, _ = text_starts(answer, way, prompt)
    return n_before, values[n_before]


def _check_tokens(
    answer: Mapping[str, Any],
    way: Way,
    prompt: tuple[int, ...],
    tokenizer: "Tokenizer",
    url: str,
) -> None:
    """Refuse a server whose words for ids are not the tokenizer's."""
    tokens, _, _ = shown_tokens(answer, way, prompt)
    named = [token for token in tokens[1 : len(prompt)] if token is not None]
    if len(named) < len(prompt) - 1 or any(TOKEN_ID in token for token in named):
        # The server shows no words.
        return
    own = tokenizer.decode(list(prompt[1:]), skip_special_tokens=False)
    if letters("".join(named)) != letters(own):
        raise InputError(
            f"{url}: reads the ids of --tokenizer as other tokens "
            f"({''.join(named)[:40]!r} for {own[:40]!r})",
            hint="--tokenizer names a folder with the tokenizer of this very model",
        )


def check_after(
    post: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    way: Way,
    model: ApiModel,
    witness: Witness,
) -> str | None:
    """Ask once more at the end of a run, and refuse a model that is another by now.

    Gives why it could not be asked, in words for a report; None if all is well.
    """
    try:
        answer = post(way.body(witness.prompt))
        found = read_prompt_scores(answer, way, witness.prompt)
    except (InputError, ValueError) as e:
        return f"whether the server's model changed during the run is not known ({e})"
    if not is_same(found.logprobs, witness.logprobs):
        raise InputError(
            f"{model.url}: the model changed during the run: a text has other "
            "log-probabilities at its end than at its start",
            hint=ANEW,
        )
    return None
