"""Log-probabilities of a prompt: how they are asked for, and how the answer is read.

Nothing that is missing counts as 0: an answer that does not hold one number for each
token of the prompt is refused, with the place.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxcontam.scoring.api.address import Answer
from jaxcontam.scoring.api.answers import SGLANG

PATH = "/completions"
Prompt = str | tuple[int, ...]
"""Text, or token ids."""
# A log-probability of 0 is at times a little above it, after rounding.
_MOST = 1e-3
# Servers return this for a missing log-probability or minus infinity.
_NONE = -9999.0
# Characters of a prompt that errors show.
_SHOWN = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """Request form in which a server returns prompt log-probabilities.

    Attributes:
        echo: By `echo` and `logprobs`; else by `prompt_logprobs`.
        max_tokens: 0 where the server can write nothing, else 1.
        bos: The first token of a text has a log-probability: one stands before it.
        is_sglang: By SGLang's own protocol; else by OpenAI's completions.
    """

    echo: bool
    ids: bool
    max_tokens: int = 1
    bos: bool = False
    is_sglang: bool = False

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The request for the prompt's numbers, but for the model's name."""
        asked = {"echo": True, "logprobs": 1} if self.echo else {"prompt_logprobs": 1}
        return self.greedy(prompt, max_tokens=self.max_tokens, **asked)

    def greedy(self, prompt: Prompt, **asked: Any) -> dict[str, Any]:
        """A request of this form for a greedy continuation."""
        if self.is_sglang:
            asked["protocol"] = SGLANG
        sent = prompt if isinstance(prompt, str) else [list(prompt)]
        return {"prompt": sent, "temperature": 0, **asked}

    @property
    def words(self) -> str:
        """For errors."""
        asked = "echo with logprobs" if self.echo else "prompt_logprobs"
        if self.is_sglang:
            asked = "SGLang's own protocol"
        return f"{asked}, prompts as {'token ids' if self.ids else 'text'}"


def ways(*, ids: bool) -> tuple[Way, ...]:
    """Every way that servers are known to have, the cheapest first."""
    return (
        Way(echo=True, ids=ids, max_tokens=0),
        Way(echo=True, ids=ids),
        Way(echo=False, ids=ids),
        Way(echo=True, ids=ids, is_sglang=True),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PromptScores:
    """Log-probabilities of the tokens of a prompt.

    Attributes:
        logprobs: (T,) float64, nats, of the tokens that have one.
        starts: (T,) int64, the id of the prompt that each is of, or the character of
            the text at which it begins.
    """

    logprobs: np.ndarray
    starts: np.ndarray


class Shown(NamedTuple):
    """A prompt and its continuation as an answer shows them, unchecked.

    `n_read` and `n_written` are tokens as `usage` counts them; None where it does not.
    """

    tokens: list[str | None]
    values: list[Any]
    offsets: Any
    n_read: int | None
    n_written: int | None


def read_prompt_scores(answer: Answer, way: Way, prompt: Prompt) -> PromptScores:
    """Take the prompt's log-probabilities out of an answer, or raise ValueError."""
    shown = shown_tokens(answer, way, prompt)
    if isinstance(prompt, str):
        n_before, starts = text_starts(shown, way, prompt)
    else:
        n, n_values, n_before = len(prompt), len(shown.values), 0
        starts = list(range(n))
        if shown.n_read is not None and shown.n_read != n:
            raise ValueError(
                f"{shown.n_read} prompt tokens counted where {n} were sent"
            )
        if not 0 <= n_values - n <= way.max_tokens:
            raise ValueError(f"{n_values} log-probabilities for a prompt of {n} tokens")
    own = shown.values[n_before : n_before + len(starts)]
    if way.bos and own[0] is None:
        raise ValueError(
            "the first token has no log-probability, and the first answer gave one"
        )
    # Nothing predicts the first one, whatever the server says of it.
    first = 0 if way.bos else 1
    logprobs = [
        checked_logprob(value, f"token {first + i + 1} of {_shown(prompt)}")
        for i, value in enumerate(own[first:])
    ]
    return PromptScores(
        np.array(logprobs, np.float64), np.array(starts[first:], np.int64)
    )


def text_starts(shown: Shown, way: Way, text: str) -> tuple[int, list[int]]:
    """Start of each token of an answer in the text; see `token_starts`.

    What was written after the text is left out. It is the last token as `usage` counts
    where a text ends in parts of a character, since any part would fit there.
    """
    tokens, n_read = shown.tokens, shown.n_read
    fits: dict[int, tuple[int, list[int]]] = {}
    for n_after in range(1 + way.max_tokens * way.echo):
        n = len(tokens) - n_after
        some = shown.offsets[:n] if isinstance(shown.offsets, list) else None
        found = token_starts(text, [token or "" for token in tokens[:n]], some)
        if found is not None:
            fits[n_after] = found
    if not fits:
        raise ValueError(
            f"the {len(tokens)} tokens do not join to the text {_shown(text)}: "
            f"{tokens[:8]}"
        )
    n_after = next(iter(fits))
    if len(fits) > 1:
        n_after = shown.n_written
        if n_after not in fits and n_read is not None:
            n_after = len(tokens) - n_read
        if n_after not in fits:
            raise ValueError(
                "the answer does not say how many of its log-probabilities are of "
                f"{_shown(text)}"
            )
    # Not all servers show or count the token that they put before a text.
    n_shown = len(tokens) - n_after
    if n_read is not None and abs(n_read - n_shown) > 1:
        raise ValueError(
            f"{n_shown} log-probabilities where {n_read} prompt tokens are counted"
        )
    return fits[n_after]


def shown_tokens(answer: Answer, way: Way, prompt: Prompt) -> Shown:
    """Tokens of an answer, or a ValueError where none are."""
    (choice,) = answer["choices"]
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    n_read, n_written = (n if type(n) is int else None for n in counts)
    if not way.echo:
        tokens, values = _of_prompt_logprobs(choice.get("prompt_logprobs"), prompt)
        return Shown(tokens, values, None, n_read, n_written)
    found = choice.get("logprobs")
    if isinstance(found, dict) and found.get("content"):
        raise ValueError(
            "log-probabilities of what is written alone, as llama.cpp's server gives"
        )
    if not isinstance(found, dict) or not found.get("token_logprobs"):
        raise ValueError("no log-probabilities")
    values: Any = found["token_logprobs"]
    tokens: Any = found.get("tokens")
    if not isinstance(values, list):
        raise ValueError("token_logprobs is no list")
    if tokens is None and way.ids:
        tokens = [None] * len(values)
    if not isinstance(tokens, list) or len(tokens) != len(values):
        raise ValueError("as many tokens as log-probabilities are needed")
    if not all(token is None or isinstance(token, str) for token in tokens):
        raise ValueError("a token is no text")
    return Shown(tokens, values, found.get("text_offset"), n_read, n_written)


def checked_logprob(value: Any, place: str) -> float:
    """A log-probability, at most 0; or a ValueError that begins with the place."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared, and not made a float, for which an integer may be too large.
    if not is_number or not _NONE < value <= _MOST:
        raise ValueError(f"{place}: {repr(value)[:_SHOWN]} is no log-probability")
    return min(float(value), 0.0)


def _of_prompt_logprobs(
    found: Any, prompt: Prompt
) -> tuple[list[str | None], list[Any]]:
    """Entries of `prompt_logprobs`: null, or by token id what is said of it."""
    if not isinstance(found, list) or not found:
        raise ValueError("no log-probabilities")
    tokens: list[str | None] = []
    values: list[Any] = []
    for i, entry in enumerate(found):
        said: Any = {}
        if entry is not None:
            if not isinstance(entry, dict) or not entry:
                raise ValueError(f"token {i + 1} of {_shown(prompt)}: {entry!r}")
            said = next(iter(entry.values()))
            if not isinstance(prompt, str):
                said = entry.get(str(prompt[i])) if i < len(prompt) else None
        if not isinstance(said, dict):
            raise ValueError(f"token {i + 1} of {_shown(prompt)}: not of this token")
        token = said.get("decoded_token")
        tokens.append(token if isinstance(token, str) else None)
        values.append(said.get("logprob"))
    if isinstance(prompt, str) and tokens[0] is None:
        # The first token has no entry: its text is what the others leave.
        rest = "".join(token or "" for token in tokens[1:])
        if prompt.endswith(rest):
            tokens[0] = prompt[: len(prompt) - len(rest)]
    return tokens, values


def _shown(prompt: Prompt) -> str:
    """The start of a prompt, so that a reader finds it."""
    if isinstance(prompt, str):
        return repr(prompt[:_SHOWN])
    return f"the prompt of ids {list(prompt[:8])}"


def token_starts(
    text: str, tokens: Sequence[str], offsets: Any = None
) -> tuple[int, list[int]] | None:
    r"""Find where in a text each of the tokens begins that a server shows of it.

    "a fox" has the same answer with and without `<s>` before it:

        tokens   "<s>"  "a"  " f"  "ox"
        starts            0     1     3

    Servers differ: offsets count characters or bytes, from the text's start or from a
    token that they put before it, or are wrong. The tokens' own texts are surer, where
    they join to the text; offsets are taken where they do not, and each is checked.

    Tokens that are parts of one character all begin where it does. Some servers show
    the whole character for the first of them, and nothing for the others.

    One token may stand before those of the text, none after. Gives the number of tokens
    before the text, and where in it each of its own begins, 0 first and rising; None if
    they do not fit the text.
    """
    are_places = isinstance(offsets, list) and all(type(o) is int for o in offsets)
    if not are_places or len(offsets) != len(tokens):
        offsets = None
    for n_before in (0, 1):
        if (starts := _joined(text, tokens[n_before:])) is not None:
            return n_before, starts
    for n_before in (0, 1):
        own = tokens[n_before:]
        # An empty token is one that the server put before the text.
        if offsets is not None and own and own[0]:
            starts = _by_offsets(text, own, offsets[n_before:])
            if starts is not None:
                return n_before, starts
    return None


def _joined(text: str, tokens: Sequence[str]) -> list[int] | None:
    """Starts of tokens whose texts, one after the other, are the text."""
    starts, at = [], 0
    for i, token in enumerate(tokens):
        after = tokens[i + 1 : i + 2]
        if i == 0 and token[:1] == " " and not text.startswith(" "):
            # Some tokenizers put a space before every text.
            token = token[1:]
            if not text.startswith(token):
                return None
        elif not token:
            if not _may_have_parts(text, at):
                return None
            starts.append(at - 1)
            continue
        elif at == len(text):
            return None
        elif is_part(token):
            starts.append(at)
            if not any(map(is_part, after)):
                # The next whole token ends the parts.
                found = text.find(after[0], at + 1) if after else -1
                at = found if found >= 0 else len(text)
            continue
        elif not text.startswith(token, at):
            return None
        starts.append(at)
        at += len(token)
    return starts if at == len(text) and starts else None


def _may_have_parts(text: str, end: int) -> bool:
    """True if the character before a place can be of several tokens."""
    return 0 < end <= len(text) and not text[end - 1].isascii()


def _by_offsets(
    text: str, tokens: Sequence[str], offsets: Sequence[int]
) -> list[int] | None:
    """Starts as the server says, in one of the ways that servers count."""
    from_first = [offset - offsets[0] for offset in offsets]
    # Position in UTF-8 -> character.
    of_byte: list[int] = []
    for i, character in enumerate(text):
        of_byte += [i] * len(character.encode("utf-8", "surrogatepass"))
    of_byte.append(len(text))
    by_bytes = [of_byte[o] if 0 <= o < len(of_byte) else -1 for o in from_first]
    for said in (offsets, from_first, by_bytes):
        starts = list(said)
        for i, token in enumerate(tokens):
            if i == 0 or token:
                continue
            # An empty token behind a character is a part of it, or behind other parts.
            if said[i] > said[i - 1] and _may_have_parts(text, said[i]):
                starts[i] = said[i] - 1
            elif said[i] == said[i - 1] and not tokens[i - 1]:
                starts[i] = starts[i - 1]
        rises = all(a <= b for a, b in itertools.pairwise(starts))
        is_inside = starts[0] == 0 and starts[-1] < len(text)
        if rises and is_inside and _fit(text, tokens, starts):
            return starts
    return None


def _fit(text: str, tokens: Sequence[str], starts: Sequence[int]) -> bool:
    """True if whole tokens stand where they should, and none is left out."""
    shown = [(t, start) for t, start in zip(tokens, starts, strict=True) if t]
    ends = [*(start for _, start in shown[1:]), len(text)]
    # A space may be shown that the text has not, or left out.
    return all(
        is_part(token) or text[start:end].strip() == token.strip()
        for (token, start), end in zip(shown, ends, strict=True)
    )


def is_part(token: str) -> bool:
    """True if a token as shown is a part of a character."""
    return "\ufffd" in token or token.startswith("bytes:")
