"""Trust in a server: probed before, tested meanwhile, compared with earlier runs.

Servers drop what they do not know, with a 200; one that adds no token before a text
was seen to give each token the probability of the place after it. So the presence of
numbers shows nothing yet. What a server writes greedily, with its log-probability, is
sent back as the end of a prompt: there it must have the same log-probability again.

Servers need not identify their weights. The log-probabilities of the first text are
therefore kept beside the answers and compared at the start and end of each run, so that
no result mixes the answers of two models.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.amounts import amount
from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import Answer, ApiError, ApiModel, RefusedError
from jaxcontam.scoring.api.answers import PASSING
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import (
    PATH,
    Prompt,
    PromptScores,
    Way,
    checked_logprob,
    is_part,
    read_prompt_scores,
    shown_tokens,
    text_starts,
    ways,
)
from jaxcontam.scoring.asked import (
    EACH_WITHIN,
    MEAN_WITHIN,
    REPEATS_WITHIN,
    is_same,
    put_back,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# One request of so many asks again.
_EVERY = 100
# Texts that are continued, each beside one that is read twice: at the start of a run
# as long as the longest row, and later on, in each block of requests, as a row drawn.
# A server keeps whole blocks of ids, of which rows may have none.
_FIRST_TEXTS, _LATER_TEXTS = 3, 1
# Shorter rows make no text.
_SHORTEST_ROW = 8
# Ids or words at the start of a text that are drawn, so that it was never sent before.
_DRAWN = 4
# Texts of the probe; more than one, since a model may end a text at once.
_PROMPTS = ("The quick brown fox jumps", "1, 2, 3, 4, 5, 6,", "Once upon a time there")
# Tokens to generate: enough that chance does not hide an offset by one.
_N_WRITTEN = 8
_N_LIKELIEST = 5
_MOST_TRIES = 2
# Prefix of a token that a server cannot show as text.
_TOKEN_ID = "token_id:"
# Fewest values to compare.
_FEWEST = 3
# Statuses of a server that does not know the request. Some servers fail (500) over one
# that asks for no new token.
_NOT_THIS = frozenset({400, 404, 405, 413, 422, 500, 501})

_NEEDED = (
    "use jaxcontam replicate, which needs only chat: order tests and membership scores "
    "need the log-probability of every token of a prompt"
)
_ANEW = "name a new folder (--out or --store) to request every answer again"

Post = Callable[..., Answer]
"""Sends the body of a completion request, `post(body)`, past any journal, and gives the
answer; with `once=True` it does not try again what fails."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """Abilities of a server; its witness is a text, or ids, and (T,) logprobs.

    In nats: `error` is the mean difference between what is written and what is read,
    `difference` the largest one between two answers to the same request.
    """

    way: Way
    error: float
    difference: float
    text: Prompt
    logprobs: np.ndarray


def probe(
    post: Post,
    *,
    url: str,
    tokenizer: "Tokenizer | None" = None,
    prefix: Sequence[int] = (),
    prompts: Sequence[str] = _PROMPTS,
) -> Capability:
    """Find how a server gives log-probabilities, and whether they are right.

    With the model's tokenizer prompts are ids, after those of the prefix.
    """
    asked: list[Prompt] = [
        text
        if tokenizer is None
        else (*prefix, *tokenizer.encode(text, add_special_tokens=False).ids)
        for text in prompts
    ]
    way, logprobs = _find_way(post, url, asked, tokenizer)
    reader = _Reader(post, url, way, tokenizer)
    errors: list[float] = []
    values: list[float] = []
    difference = 0.0
    for prompt in asked:
        whole, own, read = reader.written_and_read(prompt)
        errors += own
        values += read
        if whole is not None:
            again = reader.read(whole).logprobs
            if len(again) == len(read):
                difference = max([difference, *np.abs(again - read).tolist()])
        if len(errors) >= _FEWEST:
            break
    if not errors:
        raise InputError(
            f"{url}: its log-probabilities cannot be checked: its output comes without "
            "them, or is read as other tokens",
            hint=_NEEDED,
        )
    reader.check(errors, values)
    error = float(np.mean(errors))
    return Capability(way, error, difference, asked[0], logprobs)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader:
    """Lets a server write, and read what it wrote."""

    post: Post
    url: str
    way: Way
    tokenizer: "Tokenizer | None"

    def read(self, prompt: Prompt) -> PromptScores:
        """Log-probabilities of a prompt, which nobody would ask for again."""
        try:
            answer = self.post(self.way.body(prompt))
            return read_prompt_scores(answer, self.way, prompt)
        except ValueError as e:
            raise InputError(f"{self.url}: {e}", hint=_NEEDED) from None

    def written_and_read(
        self, prompt: Prompt
    ) -> tuple[Prompt | None, list[float], list[float]]:
        """Compare what the model writes with what it says when it reads that.

        Gives the text that was read, or None; by how much tokens of it differ, and all
        that was read, in nats.
        """
        asked = {"max_tokens": _N_WRITTEN, "logprobs": _N_LIKELIEST}
        n_tries = 0
        for written in _written(self.post(self.way.greedy(prompt, **asked))):
            whole, starts = _with_written(
                prompt, [token for token, _ in written], self.tokenizer
            )
            if not starts or n_tries == _MOST_TRIES:
                continue
            n_tries += 1
            found = self.read(whole)
            values = dict(
                zip(found.starts.tolist(), found.logprobs.tolist(), strict=True)
            )
            errors = []
            ends = [*starts[1:], len(whole)]
            for (_, value), start, end in zip(written, starts, ends, strict=False):
                # A text may be read as other tokens than it was written in.
                if start not in values or any(start < at < end for at in values):
                    break
                errors.append(abs(values[start] - value))
            if errors:
                return whole, errors, found.logprobs.tolist()
        return None, [], []

    def check(self, errors: Sequence[float], values: Sequence[float]) -> None:
        """Refuse numbers that are not of the prompt's tokens."""
        if len(values) >= _FEWEST and len(set(values)) == 1:
            raise InputError(
                f"{self.url}: made-up log-probabilities: {values[0]:g} for every token",
                hint=_NEEDED,
            )
        # A shift changes every number: by several nats in a trained model, by a tenth
        # on average even in one of random weights.
        error = float(np.mean(errors))
        if error > MEAN_WITHIN or max(errors) > EACH_WITHIN:
            raise InputError(
                f"{self.url}: wrong log-probabilities: a token's value differs between "
                f"reading and writing (by {amount(error)} nats on average), as if "
                "shifted by one token or taken from a wrong prefix cache",
                hint=_NEEDED,
            )


def _written(answer: Answer) -> list[list[tuple[str, float]]]:
    """Texts to read again, as tokens with nats: what is written, likeliest starts."""
    try:
        found = answer["choices"][0]["logprobs"]
        pairs = list(zip(found["tokens"], found["token_logprobs"], strict=True))
        likeliest = (found.get("top_logprobs") or [{}])[0] or {}
        texts = [_whole_tokens(some) for some in (pairs, *zip(likeliest.items()))]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    return [tokens for tokens in texts if tokens]


def _whole_tokens(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[str, float]]:
    """Tokens up to the first that is a part of a character, or none at all."""
    whole = []
    for token, value in pairs:
        is_text = isinstance(token, str) and token and _TOKEN_ID not in token
        if not is_text or is_part(token):
            break
        whole.append((token, checked_logprob(value, "what is written")))
    return whole


def _with_written(
    prompt: Prompt, tokens: Sequence[str], tokenizer: "Tokenizer | None"
) -> tuple[Prompt, list[int]]:
    """The prompt with what was written after it, and where each token begins."""
    if isinstance(prompt, str):
        ends = itertools.accumulate(map(len, tokens), initial=len(prompt))
        return prompt + "".join(tokens), list(ends)[:-1]
    assert tokenizer is not None
    ids = list(prompt)
    for token in tokens:
        candidates = _ids_of_letters(tokenizer).get(_letters(token), [])
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
        found.setdefault(_letters(_decoded(tokenizer, [i])), []).append(i)
    return found


def _decoded(tokenizer: "Tokenizer", ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False)


def _letters(text: str) -> str:
    """A text without spaces, which servers show in several ways."""
    return "".join(text.replace("▁", " ").split())


def _find_way(
    post: Post, url: str, prompts: Sequence[Prompt], tokenizer: "Tokenizer | None"
) -> tuple[Way, np.ndarray]:
    """The first way that gives numbers, and those of the first prompt."""
    reasons: dict[str, str] = {}
    prompt = prompts[0]
    hint = "" if tokenizer is None else "leave out --tokenizer to send text; "
    needed = _NEEDED
    for way in ways(ids=tokenizer is not None):
        try:
            answer = _first_answer(post, way, prompt)
            read_prompt_scores(answer, way, prompt)
        except ApiError as e:
            if way.is_sglang:
                # Most servers have never heard of it.
                continue
            # An answer without choices, where none is to be written.
            is_empty = isinstance(e, RefusedError) and not way.max_tokens
            if e.status not in _NOT_THIS and not (e.status is None and is_empty):
                raise
            reasons[way.words] = str(e).removeprefix(f"{url}: ")
            if e.status in (500, 501):
                hint = "look at the server's log; if it serves chat alone, "
            if e.status == 404:
                hint = "check the name of the model and the URL; "
                if not url.rstrip("/").endswith("/v1"):
                    # Where nothing is served, nothing is known of what it gives.
                    hint, needed = "check the URL: most end in /v1", ""
            continue
        except ValueError as e:
            reasons[way.words] = str(e)
            continue
        if tokenizer is not None:
            _check_tokens(answer, way, prompt, tokenizer, url)
        way = dataclasses.replace(way, bos=_has_bos(post, answer, way, prompts))
        return way, read_prompt_scores(answer, way, prompt).logprobs
    raise InputError(
        f"{url}: no log-probabilities of the prompt "
        f"({'; '.join(f'{words}: {why}' for words, why in reasons.items())})",
        hint=hint + needed,
    )


def _first_answer(post: Post, way: Way, prompt: Prompt) -> Answer:
    """Ask in one way; what only passes does not count against it."""
    body = way.body(prompt)
    if way.max_tokens:
        return post(body, once=way.is_sglang)
    try:
        try:
            return post(body, once=True)
        except ApiError as e:
            # A fault of this request comes again.
            if e.status != 500:
                raise
            return post(body, once=True)
    except ApiError as e:
        passes = e.status is None or e.status in PASSING - {500}
        if isinstance(e, RefusedError) or not passes:
            raise
    return post(body)


def _has_bos(post: Post, answer: Answer, way: Way, prompts: Sequence[Prompt]) -> bool:
    """Tell if the first token of a text has a log-probability: one stands before it."""

    def first_value(answer: Answer, text: str) -> tuple[Any, bool]:
        """The first log-probability; if a token before it is shown or counted."""
        shown = shown_tokens(answer, way, text)
        n_before, starts = text_starts(shown, way, text)
        return shown.values[n_before], n_before > 0 or shown.n_read == len(starts) + 1

    text, *others = prompts
    if not isinstance(text, str):
        return False
    value, is_shown = first_value(answer, text)
    if value is None or is_shown:
        return value is not None
    # If neither, other first tokens must have other numbers.
    for other in others:
        with contextlib.suppress(ValueError):
            if first_value(post(way.body(other)), str(other))[0] != value:
                return True
    return False


def _check_tokens(
    answer: Answer, way: Way, prompt: Prompt, tokenizer: "Tokenizer", url: str
) -> None:
    """Refuse a server whose words for ids are not the tokenizer's."""
    tokens = shown_tokens(answer, way, prompt).tokens[1 : len(prompt)]
    named = [token for token in tokens if token is not None]
    if len(named) < len(prompt) - 1 or any(_TOKEN_ID in token for token in named):
        # The server shows no words.
        return
    own = _decoded(tokenizer, [int(i) for i in prompt[1:]])
    if _letters("".join(named)) != _letters(own):
        raise InputError(
            f"{url}: reads the ids of --tokenizer as other tokens "
            f"({''.join(named)[:40]!r} for {own[:40]!r})",
            hint="give --tokenizer a folder with the tokenizer of this very model",
        )


def check_after(post: Post, url: str, found: Capability) -> str | None:
    """Refuse a model that is another by now; gives why it could not be asked, if so."""
    try:
        answer = post(found.way.body(found.text))
        now = read_prompt_scores(answer, found.way, found.text)
    except (InputError, ValueError) as e:
        return f"it is unknown if the server's model changed during the run ({e})"
    if not is_same(now.logprobs, found.logprobs):
        raise InputError(
            f"{url}: the model changed during the run: a text's log-probabilities at "
            "the end differ from those at the start",
            hint=_ANEW,
        )
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Eras:
    """Eras of a server in a journal, whose answers are compared with their own alone.

    A server that moves, such as one that is restarted with other kernels, gives all
    texts other numbers. Answers that were kept before stand for themselves, but beside
    new ones they would show the move: a published order that was asked for earlier than
    the others would seem preferred. `now` is the number of this run's, from 0.
    """

    journal: Journal
    model: ApiModel
    now: int

    def of_call(self, keys: Sequence[str]) -> int:
        """Era of the answers to the requests of one call, which are compared.

        That in which the same requests were first asked for together, so that a call
        that was cut off goes on; for others, this run's.
        """
        call = journal_key("call", self.model.url, self.model.name, *sorted(set(keys)))
        if call not in self.journal:
            self.journal.add(call, self.now)
        return self.journal[call]


def find_eras(
    journal: Journal, model: ApiModel, prompt: Prompt, logprobs: np.ndarray
) -> Eras:
    """Compare a text's numbers with those it had in earlier runs on a journal.

    A difference above `REPEATS_WITHIN` from the last era's begins another one; one that
    is of another model is refused. `logprobs` is (T,), in nats.
    """

    def key(era: int) -> str:
        parts = (era,) if era else ()
        return journal_key("witness", model.url, model.name, prompt, *parts)

    kept: list[np.ndarray] = []
    while key(len(kept)) in journal:
        kept.append(np.array(journal[key(len(kept))], np.float64))
    if kept and not is_same(kept[0], logprobs):
        raise InputError(
            f"{model.url}: the model differs from the one whose answers are in "
            f"{journal.path}: a text's log-probabilities have changed",
            hint=_ANEW,
        )
    if kept and np.abs(kept[-1] - logprobs).max(initial=0.0) <= REPEATS_WITHIN:
        return Eras(journal, model, len(kept) - 1)
    journal.add(key(len(kept)), logprobs.tolist())
    return Eras(journal, model, len(kept))


class SpotChecks:
    """Tests of a server on rows that it scores, at random places and times of one run.

    A server may answer the probe's public sentences as a model does, and rows of a
    benchmark otherwise. So the probe's comparison is made with texts of the rows' own
    tokens, too, and one request in a hundred repeats an earlier one.

    A server may also keep what it read before and take it up wrongly (vllm#42019). So
    these texts begin as no row does: nothing of them is kept when they are read first,
    and all is when they are read again, after other texts.

    Attributes:
        difference: Largest difference between two answers to one request, nats.
    """

    def __init__(
        self,
        client: ApiClient,
        way: Way,
        tokenizer: "Tokenizer | None",
        rng: random.Random | None = None,
    ):
        self.n_again, self.n_compared, self.difference = 0, 0, 0.0
        post = functools.partial(client.post, PATH, is_kept=False)
        self._reader = _Reader(post, client.model.url, way, tokenizer)
        self._rng = rng or random.SystemRandom()
        self._is_first = True
        # A sample of what was answered, for later blocks.
        self._earlier: dict[Prompt, PromptScores] = {}

    def scored(
        self,
        prompts: Sequence[Prompt],
        ask: Callable[[Sequence[tuple[Prompt, int]]], list[PromptScores]],
    ) -> list[PromptScores]:
        """Numbers of a block of prompts, after tests and with repeats among them.

        `ask` gets prompts, each with what tells a repeat apart from the first one.
        """
        self._check_rows(prompts)
        n = math.ceil(len(prompts) / _EVERY)
        again = self._rng.choices([*self._earlier] or prompts, k=n)
        asked = [(prompt, 0) for prompt in prompts]
        asked += [(prompt, self._rng.randrange(1, 2**48)) for prompt in again]
        # An order that nobody foresees.
        order = self._rng.sample(range(len(asked)), len(asked))
        scores = put_back(order, ask([asked[i] for i in order]))
        known = self._earlier | dict(zip(prompts, scores, strict=False))
        for prompt, repeated in zip(again, scores[len(prompts) :], strict=True):
            self._check_again(known[prompt], repeated)
        for prompt in self._rng.choices(prompts, k=n):
            self._earlier[prompt] = known[prompt]
        return scores[: len(prompts)]

    def _check_rows(self, prompts: Sequence[Prompt]) -> None:
        """Let the model read what it wrote after such texts, and another text twice."""
        rows = [prompt for prompt in prompts if len(prompt) >= _SHORTEST_ROW]
        if not rows:
            return
        lengths = self._rng.choices([*map(len, rows)], k=_LATER_TEXTS)
        if self._is_first:
            lengths = [max(map(len, rows))] * min(_FIRST_TEXTS, len(rows))
        self._is_first = False
        reader = self._reader
        for n in lengths:
            # What is written needs room, too.
            text = self._fresh(rows, max(n // 2, n - _N_WRITTEN))
            other = self._fresh(rows, n)
            # A content filter may refuse a text.
            with contextlib.suppress(RefusedError):
                first = reader.read(other)
                _, errors, values = reader.written_and_read(text)
                self.n_compared += len(errors)
                if errors:
                    reader.check(errors, values)
                self._check_again(first, reader.read(other))

    def _check_again(self, first: PromptScores, again: PromptScores) -> None:
        self.n_again += 1
        words = "another number of tokens"
        if first.logprobs.shape == again.logprobs.shape:
            change = np.abs(first.logprobs - again.logprobs)
            self.difference = max(self.difference, float(change.max(initial=0.0)))
            # In a long text bfloat16 may move one token by more than in a short one.
            if change.sum() <= MEAN_WITHIN * max(1, change.size):
                return
            mean = amount(float(change.mean()))
            words = f"log-probabilities that differ by {mean} nats on average"
        raise InputError(
            f"{self._reader.url}: the same request was answered with {words} during "
            "the run; the cause may be a wrong prefix cache or another model",
            hint=f"vllm serve --no-enable-prefix-caching; {_ANEW}",
        )

    def _fresh(self, rows: Sequence[Prompt], n: int) -> Prompt:
        """A text of the rows' tokens that only this check sends, at most `n` long."""
        rows = self._rng.sample(rows, len(rows))
        if self._reader.way.ids:
            first, ids = int(rows[0][0]), [int(i) for row in rows for i in row[1:]]
            return (first, *self._rng.choices(ids, k=_DRAWN), *ids)[:n]
        words = " ".join(map(str, rows)).split(" ")
        text = " ".join([*self._rng.choices(words, k=_DRAWN), *words])[:n]
        return text[: max(text.rfind(" "), 0) or n]
