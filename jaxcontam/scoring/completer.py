"""A model that follows prompts, and what it answers."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

from jaxcontam.progress import Progress

# All up to the last end of thoughts, whose beginning a chat template may have written;
# and thoughts that were cut off before their end.
_THOUGHTS = re.compile(r"(?is)\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of a model.

    Attributes:
        text: What it wrote; "" where it wrote nothing or the request was refused.
        refused: What the server said where it refused the request; else "".
    """

    text: str
    refused: str = ""


class Completer(Protocol):
    """A model that follows prompts: one of our own, or one behind an API.

    Finished prompts are kept, so that a rerun asks for none twice.
    """

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        n_samples: int = 1,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        progress: Progress | None = None,
    ) -> list[tuple[Completion, ...]]:
        """`n_samples` answers to each prompt, in the prompts' order.

        An answer has at most `max_tokens`, and ends before the first string of `stop`.
        A temperature of 0 takes the likeliest token at each place. Seed, prompt and the
        sample's index seed each answer, where the model lets seeds be chosen. Progress
        is in answers.
        """
        ...


def without_thoughts(answer: str) -> str:
    """An answer without what a reasoning model writes for itself before it."""
    return _THOUGHTS.sub("", answer).strip()
