"""Prompts to log-probabilities: through a client, or only counted and estimated."""

import dataclasses
import functools
import math
import weakref
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_after
from jaxcontam.scoring.api.address import (
    Answer,
    ApiModel,
    Body,
    RefusedError,
    request_key,
)
from jaxcontam.scoring.api.budget import Budget, Usage, about_usage
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import (
    PATH,
    Prompt,
    PromptScores,
    Way,
    read_prompt_scores,
    ways,
)
from jaxcontam.scoring.api.trust import Eras, SpotChecks
from jaxcontam.scoring.asked import going_out, put_back

# Requests in a block, of which one row is tested.
_AT_ONCE = 128
# So many tokens of no text have the same number in a model.
_FEWEST_ALIKE = 8
# English and code in the tokenizers of today.
_CHARACTERS_PER_TOKEN = 4


class ServedPrompts:
    """Asks a server; the client is closed with this object."""

    def __init__(
        self,
        client: ApiClient,
        way: Way,
        spots: SpotChecks | None = None,
        eras: Eras | None = None,
    ):
        """Wrap a client; without eras all kept answers are compared."""
        self.client = client
        self.ids = way.ids
        self._way, self._spots = way, spots
        self._eras, self._era = eras, 0
        # Scorers live as long as a run needs them, which no `with` block shows.
        weakref.finalize(self, client.__exit__, None, None, None)

    def holds(self, prompt: Prompt) -> bool:
        """True if the journal has the answer."""
        return self.client.holds(PATH, self._way.body(prompt), repeat=-self._era)

    def held(self, prompts: Sequence[Prompt]) -> list[bool]:
        """True for each answer of `scores` that the journal has."""
        self._choose_era(prompts)
        return [self.holds(prompt) for prompt in prompts]

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Log-probabilities of each prompt, asked for in a random order.

        All answers of one call are of one era, since they will be compared.
        """
        self._choose_era(prompts)
        order, found = going_out(len(prompts)), []
        for start in range(0, len(prompts), _AT_ONCE):
            block = [prompts[i] for i in order[start : start + _AT_ONCE]]
            hears = progress_after(progress, start, len(prompts))
            ask = functools.partial(self._asked, progress=hears)
            if self._spots is None or all(map(self.holds, block)):
                found += ask([(prompt, 0) for prompt in block])
            else:
                found += self._spots.scored(block, ask)
        return put_back(order, found)

    def _choose_era(self, prompts: Sequence[Prompt]) -> None:
        if self._eras is not None:
            bodies = map(self._way.body, prompts)
            self._era = self._eras.of_call([self.client.key(PATH, b) for b in bodies])

    def _asked(
        self, asked: Sequence[tuple[Prompt, int]], progress: Progress | None
    ) -> list[PromptScores]:
        """Log-probabilities of prompts, each with what tells its repeats apart."""
        answers = self.client.post_all(
            PATH,
            [self._way.body(prompt) for prompt, _ in asked],
            progress,
            repeats=[repeat or -self._era for _, repeat in asked],
            check=self._check,
        )
        for (prompt, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, RefusedError):
                which = f"for {len(prompt)} ids"
                if isinstance(prompt, str):
                    start = f"{prompt[:40]!r} ({len(prompt)} long)"
                    which = f"for the text that begins with {start}"
                hint = "if it is too long for the model, --context N makes requests "
                raise InputError(f"{answer}, {which}", hint=f"{hint}shorter")
        return answers

    def _check(self, body: Body, answer: Answer) -> PromptScores:
        prompt = body["prompt"]
        prompt = prompt if isinstance(prompt, str) else tuple(prompt[0])
        found = read_prompt_scores(answer, self._way, prompt)
        values = found.logprobs
        if len(values) >= _FEWEST_ALIKE and (values == values[0]).all():
            raise ValueError(
                f"made-up log-probabilities: {values[0]:g} for every token"
            )
        return found


class CountedPrompts:
    """Sends nothing; counts what would be sent."""

    def __init__(self, model: ApiModel, way: Way, journal: Journal | None):
        self.ids = way.ids
        self._model, self._way, self._journal = model, way, journal
        # Lengths of different requests by key; None where the journal has the answer.
        self._lengths: dict[str, int | None] = {}

    def held(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Count what is to be sent: True for what is not, as an answer will be there.

        Which way the server takes is not known before it is asked: any will do.
        """
        found = []
        for prompt in prompts:
            own, *others = (
                request_key(self._model, PATH, way.body(prompt))
                for way in (self._way, *ways(ids=self.ids))
            )
            found.append(own in self._lengths)
            if own not in self._lengths:
                kept = () if self._journal is None else self._journal
                found[-1] = any(key in kept for key in (own, *others))
                self._lengths[own] = None if found[-1] else len(prompt)
        return found

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Numbers of the right form, made up."""
        del progress
        places = [np.arange(1, len(prompt)) for prompt in prompts]
        return [PromptScores(np.full(len(at), -1.0), at) for at in places]

    def estimate(self, budget: Budget) -> "ApiEstimate":
        """Requests so far, of which each writes a token at most."""
        lengths = [n for n in self._lengths.values() if n is not None]
        per_token = 1 if self.ids else _CHARACTERS_PER_TOKEN
        usage = Usage(len(lengths), math.ceil(sum(lengths) / per_token), len(lengths))
        return _estimate(usage, len(self._lengths) - len(lengths), budget)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiEstimate:
    """Requests still to be sent, and their estimated cost.

    Attributes:
        prompt_tokens: Exact for ids, else a quarter of the bytes.
        completion_tokens: Upper bound.
        cost: At most, in the currency of the prices; None without prices.
    """

    n_requests: int
    n_journalled: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None

    def words(self) -> str:
        """One line for `--dry-run`."""
        cost = "" if self.cost is None else f", at most about {self.cost:.4g} to pay"
        return (
            f"{self.n_requests:,} requests to send, {self.n_journalled:,} answered "
            f"before; about {self.prompt_tokens:,} prompt tokens and at most "
            f"{self.completion_tokens:,} new ones{cost}"
        )


def estimate(
    model: ApiModel,
    path: str,
    bodies: Sequence[Body],
    *,
    journal: Journal | None = None,
    budget: Budget | None = None,
) -> ApiEstimate:
    """Estimate a call of `ApiClient.post_all`; sends nothing."""
    of_key = {request_key(model, path, body): body for body in bodies}
    to_send = [b for key, b in of_key.items() if journal is None or key not in journal]
    usage = sum(map(about_usage, to_send), Usage())
    return _estimate(usage, len(of_key) - len(to_send), budget or Budget())


def _estimate(usage: Usage, n_journalled: int, budget: Budget) -> ApiEstimate:
    return ApiEstimate(
        **dataclasses.asdict(usage),
        n_journalled=n_journalled,
        cost=budget.cost(usage) if budget.has_prices else None,
    )


def sending_words(found: ApiEstimate) -> str:
    """For the terminal, after a dry run of scoring."""
    return (
        f"{found.words()}. Some twenty more, before and after them, and one in twenty "
        "among them show what the server can do, and that its model stays the same. "
        "Nothing was sent."
    )
