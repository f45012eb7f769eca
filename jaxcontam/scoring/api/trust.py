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
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel, Body, RefusedError
from jaxcontam.scoring.api.answers import PASSING, Answer
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import (
    N_WRITTEN,
    NEEDED,
    PATH,
    TOKEN_ID,
    Post,
    Prompt,
    PromptScores,
    Way,
    letters,
    read,
    read_prompt_scores,
    shown_tokens,
    text_starts,
    ways,
    written_and_read,
)
from jaxcontam.scoring.asked import EACH_WITHIN, MEAN_WITHIN, REPEATS_WITHIN, is_same

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


PROMPTS = ("The quick brown fox jumps", "1, 2, 3, 4, 5, 6,", "Once upon a time there")
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
    kept: list[np.ndarray] = []
    while (key := _witness_key(model, prompt, len(kept))) in journal:
        kept.append(np.array(journal[key], np.float64))
    if kept and not is_same(kept[0], logprobs):
        raise InputError(
            f"{model.url}: another model than the one whose answers are in "
            f"{journal.path}: a text has other log-probabilities than it had then",
            hint=ANEW,
        )
    if kept and np.abs(kept[-1] - logprobs).max(initial=0.0) <= REPEATS_WITHIN:
        return Eras(journal, model, len(kept) - 1)
    journal.add(key, logprobs.tolist())
    return Eras(journal, model, len(kept))


def _witness_key(model: ApiModel, prompt: Prompt, era: int) -> str:
    parts = (era,) if era else ()
    return journal_key("witness", model.url, model.name, prompt, *parts)


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
        self._client, self._way, self._tokenizer = client, way, tokenizer
        self._rng = rng or random.SystemRandom()
        self._is_first = True
        # A sample of what was answered, for later blocks, and what this one repeats.
        self._earlier: dict[Prompt, PromptScores] = {}
        self._again: list[Prompt] = []

    def with_repeats(
        self, prompts: Sequence[Prompt]
    ) -> tuple[list[tuple[Prompt, int]], list[int]]:
        """Requests of a block in an order that nobody foresees, repeats among them.

        Returns:
            Each request with what tells a repeat apart from the first one; and the
            place in them of each prompt, then of each repeat.
        """
        n = math.ceil(len(prompts) / _EVERY)
        self._again = self._rng.choices([*self._earlier] or prompts, k=n)
        asked = [(prompt, 0) for prompt in prompts]
        asked += [(prompt, self._rng.randrange(1, 2**48)) for prompt in self._again]
        order = self._rng.sample(range(len(asked)), len(asked))
        places = sorted(range(len(asked)), key=order.__getitem__)
        return [asked[i] for i in order], places

    def checked(
        self, prompts: Sequence[Prompt], scores: Sequence[PromptScores]
    ) -> list[PromptScores]:
        """Compare repeats with first answers, and give those of the prompts."""
        n = len(prompts)
        known = self._earlier | dict(zip(prompts, scores[:n], strict=True))
        for prompt, again in zip(self._again, scores[n:], strict=True):
            self._check_again(known[prompt], again)
        for prompt in self._rng.choices(prompts, k=len(self._again)):
            self._earlier[prompt] = known[prompt]
        return list(scores[:n])

    def check_rows(self, prompts: Sequence[Prompt]) -> None:
        """Let the model go on from texts of the prompts' tokens and read what it wrote.

        Before that another text is read, and again after it.
        """
        rows = [prompt for prompt in prompts if len(prompt) >= _SHORTEST_ROW]
        if not rows:
            return
        lengths = self._rng.choices([*map(len, rows)], k=_LATER_TEXTS)
        if self._is_first:
            lengths = [max(map(len, rows))] * min(_FIRST_TEXTS, len(rows))
        self._is_first = False
        url, way = self._client.model.url, self._way
        for n in lengths:
            # What is written needs room, too.
            text = self._fresh(rows, max(n // 2, n - N_WRITTEN))
            other = self._fresh(rows, n)
            # A content filter may refuse a text.
            with contextlib.suppress(RefusedError):
                first = read(self._post(way.body(other)), way, other, url)
                found = written_and_read(self._post, url, way, text, self._tokenizer)
                self.n_compared += len(found.errors)
                if found.errors:
                    check_compared(url, found.errors, found.values)
                again = read(self._post(way.body(other)), way, other, url)
                self._check_again(first, again)

    def _post(self, body: Body) -> Answer:
        return self._client.post(PATH, body, is_kept=False)

    def _check_again(self, first: PromptScores, again: PromptScores) -> None:
        self.n_again += 1
        if first.logprobs.shape != again.logprobs.shape:
            raise self._changed("another number of tokens")
        change = np.abs(first.logprobs - again.logprobs)
        self.difference = max(self.difference, float(change.max(initial=0.0)))
        # In a text of a thousand tokens bfloat16 may move one by more than in a few.
        if change.sum() > MEAN_WITHIN * max(1, change.size):
            raise self._changed(
                f"log-probabilities that differ by {change.mean():.2g} nats on average"
            )

    def _changed(self, words: str) -> InputError:
        return InputError(
            f"{self._client.model.url}: the same request was answered with {words} "
            "during the run, as by a wrong prefix cache or another model",
            hint=f"vllm serve --no-enable-prefix-caching; {ANEW}",
        )

    def _fresh(self, rows: Sequence[Prompt], n: int) -> Prompt:
        """A text of the rows' tokens that only this check sends, at most `n` long."""
        rows = self._rng.sample(rows, len(rows))
        if self._way.ids:
            first, ids = int(rows[0][0]), [int(i) for row in rows for i in row[1:]]
            return (first, *self._rng.choices(ids, k=_DRAWN), *ids)[:n]
        words = " ".join(map(str, rows)).split(" ")
        text = " ".join([*self._rng.choices(words, k=_DRAWN), *words])[:n]
        return text[: max(text.rfind(" "), 0) or n]
