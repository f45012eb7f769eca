"""Which kept answers of a server may be compared with one another: those of one era.

A server that moves, such as one that is restarted with other kernels, gives all texts
other numbers. Answers that were kept before stand for themselves, but beside new ones
they would show the move: a published order that was asked for earlier than the others
would seem preferred.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.agreement import REPEATS_WITHIN, is_same
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.logprobs import Prompt
from jaxcontam.scoring.api.probe import ANEW


@dataclasses.dataclass(frozen=True, slots=True)
class Eras:
    """The eras of a server in a journal; `now` is the number of this run's, from 0."""

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
