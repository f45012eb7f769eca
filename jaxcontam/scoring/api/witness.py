"""Detect that a server's model has changed between or during runs.

Servers need not identify their weights. The log-probabilities of the probe's first text
are therefore kept beside the answers and compared at the start and end of each run, so
that no result mixes the answers of two models.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.logprobs import Prompt, Way, read_prompt_scores

MEAN_WITHIN = 0.05
"""Nats by which the numbers of one model may differ on average: bfloat16 resolves a
logit of 16 to an eighth, and servers compute otherwise for other batches."""

EACH_WITHIN = 0.3
"""Nats by which each of them may differ."""

ANEW = "a new folder (--out or --store) begins anew and asks for every answer again"
"""Hint where answers of two models would stand in one result."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """A model's log-probabilities of one text.

    Attributes:
        prompt: The text, or its ids.
        logprobs: (T,) float64, nats.
    """

    prompt: Prompt
    logprobs: np.ndarray


def check_before(journal: Journal, model: ApiModel, witness: Witness) -> None:
    """Compare with the start of the runs whose answers a journal holds.

    Raises:
        InputError: If the model is another one, or the journal cannot be written.
    """
    key = journal_key("witness", model.url, model.name, witness.prompt)
    if key not in journal:
        journal.add(key, witness.logprobs.tolist())
    elif not is_same(np.array(journal[key], np.float64), witness.logprobs):
        raise InputError(
            f"{model.url}: another model than the one whose answers are in "
            f"{journal.path}: a text has other log-probabilities than it had then",
            hint=ANEW,
        )


def check_after(
    post: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    way: Way,
    model: ApiModel,
    witness: Witness,
) -> str | None:
    """Ask once more at the end of a run.

    Returns:
        Why it could not be asked, in words for a report; None if all is well.

    Raises:
        InputError: If the model is another one by now.
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


def is_same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two lists of log-probabilities can be of one model and one text."""
    if first.shape != second.shape:
        return False
    change = np.abs(first - second)
    return change.max(initial=0.0) <= EACH_WITHIN and (
        change.sum() <= MEAN_WITHIN * max(1, change.size)
    )
