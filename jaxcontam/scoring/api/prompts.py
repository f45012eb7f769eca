"""Prompts to log-probabilities: through a client, or only counted.

An answer that does not hold what was asked for is asked for again and, if it comes
again, ends the run; it is struck out of the journal, so that a rerun asks anew.
"""

import itertools
import weakref
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.errors import RefusedError
from jaxcontam.scoring.api.logprobs import (
    PATH,
    Prompt,
    PromptScores,
    Way,
    read_prompt_scores,
    ways,
)
from jaxcontam.scoring.api.request import request_key
from jaxcontam.scoring.progress import progress_after
from jaxcontam.scoring.stored import Progress

# Answers with log-probabilities are large: so many are held together.
_AT_ONCE = 512
# An answer of another form than the protocol's may be an accident.
_MORE_TRIES = 2


class ServedPrompts:
    """Asks a server; the client is closed with this object."""

    def __init__(self, client: ApiClient, way: Way, journal: Journal | None):
        """Wrap a client.

        Args:
            client: Entered.
            way: How the server gives log-probabilities.
            journal: The client's own, or None.
        """
        self.client = client
        self._way = way
        self._journal = journal
        # Scorers live as long as a run needs them, which no `with` block shows.
        weakref.finalize(self, client.__exit__, None, None, None)

    @property
    def ids(self) -> bool:
        """Whether prompts are token ids; else they are text."""
        return self._way.ids

    def key(self, prompt: Prompt) -> str:
        """Equal for equal requests."""
        return self.client.key(PATH, self._way.body(prompt))

    def holds(self, prompt: Prompt) -> bool:
        """Whether the journal has the answer."""
        return _holds(self._journal, self.key(prompt))

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Log-probabilities of each prompt.

        Args:
            prompts: Equal ones are sent once.
            progress: Told of prompts.

        Raises:
            InputError: If the server refuses a prompt, its answer is not usable, or
                the client raises.
        """
        found: list[PromptScores] = []
        for start in range(0, len(prompts), _AT_ONCE):
            some = prompts[start : start + _AT_ONCE]
            answers = self.client.post_all(
                PATH,
                [self._way.body(prompt) for prompt in some],
                progress_after(progress, start, len(prompts)),
            )
            for prompt, answer in zip(some, answers, strict=True):
                if isinstance(answer, RefusedError):
                    raise InputError(f"{answer}, {_shown(prompt)}", hint=_TOO_LONG)
                found.append(self._read(prompt, answer))
        return found

    def _read(self, prompt: Prompt, answer: dict) -> PromptScores:
        """Read an answer; ask again if it is not usable.

        Raises:
            InputError: If it never is.
        """
        for attempt in itertools.count():
            try:
                scores = read_prompt_scores(answer, self._way, prompt)
            except ValueError as e:
                if attempt == 0 and self._journal is not None:
                    self._journal.add(self.key(prompt), None)
                if attempt == _MORE_TRIES:
                    raise InputError(
                        f"{self.client.model.url}: {e}",
                        hint="the same command goes on from here once the server "
                        "gives the log-probability of every token",
                    ) from None
                answer = self.client.post(PATH, self._way.body(prompt), is_kept=False)
                continue
            if attempt and self._journal is not None:
                self._journal.add(self.key(prompt), {"answer": answer})
            return scores
        raise AssertionError


class CountedPrompts:
    """Sends nothing and counts what would be sent.

    Attributes:
        lengths: Key of each request -> characters or ids of its prompt.
    """

    def __init__(self, model: ApiModel, way: Way, journal: Journal | None):
        """Count requests to a model.

        Args:
            model: What would be asked.
            way: How, as far as that is known.
            journal: Answers that are there; or None.
        """
        self.lengths: dict[str, int] = {}
        self._held: set[str] = set()
        self._model = model
        self._way = way
        self._journal = journal

    @property
    def n_held(self) -> int:
        """Different requests asked about whose answers the journal has."""
        return len(self._held)

    @property
    def ids(self) -> bool:
        """Whether prompts are token ids; else they are text."""
        return self._way.ids

    def key(self, prompt: Prompt) -> str:
        """Equal for equal requests."""
        return request_key(self._model, PATH, self._way.body(prompt))

    def holds(self, prompt: Prompt) -> bool:
        """Whether the journal has the answer; counts it if so.

        Which way the server takes is not known before it is asked: any will do.
        """
        for way in (self._way, *ways(ids=self.ids)):
            key = request_key(self._model, PATH, way.body(prompt))
            if _holds(self._journal, key):
                self._held.add(self.key(prompt))
                return True
        return False

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Count, and make up numbers of the right form."""
        del progress
        found = []
        for prompt in prompts:
            if not self.holds(prompt):
                self.lengths[self.key(prompt)] = len(prompt)
            places = np.arange(1, len(prompt))
            found.append(PromptScores(np.full(len(places), -1.0), places))
        return found


def _holds(journal: Journal | None, key: str) -> bool:
    """Whether an answer is there that was not struck out."""
    return journal is not None and key in journal and journal[key] is not None


def _shown(prompt: Prompt) -> str:
    """Which prompt, for errors."""
    if isinstance(prompt, str):
        return f"for the text that begins with {prompt[:40]!r} ({len(prompt)} long)"
    return f"for {len(prompt)} ids"


_TOO_LONG = "if it is too long for the model, --context N makes requests shorter"
