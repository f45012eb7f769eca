"""Test a server on the rows that it scores, at random places and times.

A server may answer the probe's public sentences as a model does, and rows of a
benchmark otherwise. So the probe's comparison is made with texts of the rows' own
tokens, too, and one request in a hundred repeats an earlier one.

A server may also keep what it read before and take it up wrongly (vllm#42019). So these
texts begin as no row does: nothing of them is kept when they are read first, and all
is when they are read again, after other texts.
"""

import contextlib
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.scoring.agreement import MEAN_WITHIN
from jaxcontam.scoring.api.answers import Answer
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import PATH, Prompt, PromptScores, Way
from jaxcontam.scoring.api.probe import ANEW, check_compared
from jaxcontam.scoring.api.request import Body, RefusedError
from jaxcontam.scoring.api.written import N_WRITTEN, read, written_and_read

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# One request of so many asks again.
_EVERY = 100
# Texts that are continued, each beside one that is read twice: at the start of a run
# as long as the longest row, and later on, in each block of requests, as a row drawn.
# A server keeps whole blocks of ids, of which rows may have none.
_FIRST_TEXTS, _LATER_TEXTS = 3, 1
# Shorter rows make no text.
_FEWEST = 8
# Ids or words at the start of a text that are drawn, so that it was never sent before.
_DRAWN = 4


class SpotChecks:
    """Comparisons of one run.

    Attributes:
        n_again: Requests that were asked again.
        difference: Largest difference between two answers to one request, nats.
        n_compared: Tokens that the model wrote after texts, and read again.
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
        rows = [prompt for prompt in prompts if len(prompt) >= _FEWEST]
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
        """A text of the rows' tokens that nobody sends but for this check.

        Of at most `n` ids or characters; these end before a space.
        """
        rows = self._rng.sample(rows, len(rows))
        if self._way.ids:
            first, ids = int(rows[0][0]), [int(i) for row in rows for i in row[1:]]
            return (first, *self._rng.choices(ids, k=_DRAWN), *ids)[:n]
        words = " ".join(map(str, rows)).split(" ")
        text = " ".join([*self._rng.choices(words, k=_DRAWN), *words])[:n]
        return text[: max(text.rfind(" "), 0) or n]
