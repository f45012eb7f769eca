"""Test a server on the rows that it scores, at random places and times.

A server may answer the probe's public sentences as a model does, and rows of a
benchmark otherwise. So the probe's comparison is made with parts of the rows, too, and
one request in a hundred repeats an earlier one.
"""

import contextlib
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.scoring.agreement import MEAN_WITHIN
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import PATH, Prompt, PromptScores, Way
from jaxcontam.scoring.api.probe import ANEW, check_compared
from jaxcontam.scoring.api.request import RefusedError
from jaxcontam.scoring.api.written import written_and_read

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# One request of so many asks again.
_EVERY = 100
# Rows whose continuation is written and read: at the start of a run, and later on in
# each block of requests.
_FIRST_ROWS, _LATER_ROWS = 3, 1
# A shorter prompt has no part to continue.
_FEWEST = 8


class SpotChecks:
    """What was compared in one run.

    Attributes:
        n_again: Requests that were asked again.
        difference: Largest difference between two answers to one request, nats.
        n_compared: Tokens that the model wrote after parts of rows, and read again.
    """

    def __init__(
        self,
        client: ApiClient,
        way: Way,
        tokenizer: "Tokenizer | None",
        rng: random.Random | None = None,
    ):
        """Nothing is sent yet."""
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
        """Compare repeats with first answers, and give those of the prompts.

        Raises:
            InputError: If they cannot be of one model; says by how much they differ.
        """
        n = len(prompts)
        known = self._earlier | dict(zip(prompts, scores[:n], strict=True))
        for prompt, again in zip(self._again, scores[n:], strict=True):
            self._check_again(known[prompt], again)
        for prompt in self._rng.choices(prompts, k=len(self._again)):
            self._earlier[prompt] = known[prompt]
        return list(scores[:n])

    def check_rows(self, prompts: Sequence[Prompt]) -> None:
        """Let the model go on from parts of some prompts, and read what it wrote.

        Raises:
            InputError: If the numbers differ, or are made up.
        """
        n = _FIRST_ROWS if self._is_first else _LATER_ROWS
        self._is_first = False
        rows = [prompt for prompt in prompts if len(prompt) >= _FEWEST]
        for prompt in self._rng.sample(rows, min(n, len(rows))):
            # A content filter may refuse a part of a text.
            with contextlib.suppress(RefusedError):
                found = written_and_read(
                    lambda body: self._client.post(PATH, body, is_kept=False),
                    self._client.model.url,
                    self._way,
                    self._part(prompt),
                    self._tokenizer,
                )
                self.n_compared += len(found.errors)
                if found.errors:
                    check_compared(self._client.model.url, found.errors, found.values)

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
            "during the run",
            hint=ANEW,
        )

    def _part(self, prompt: Prompt) -> Prompt:
        """A start of a prompt; of a text one that ends before a space."""
        end = self._rng.randint(len(prompt) // 2, 3 * len(prompt) // 4)
        if isinstance(prompt, str):
            end = max(prompt.rfind(" ", 1, end + 1), 0) or end
        return prompt[:end]
