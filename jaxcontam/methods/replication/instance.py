"""An instance in two pieces; see `scoring.completer` for who writes after the first."""

import dataclasses
from typing import Literal

from jaxcontam.progress import Progress
from jaxcontam.scoring.completer import Completer, Completion

__all__ = ["Completer", "Completion", "Cut", "Instance", "Progress"]

Cut = Literal["sentence", "inside", "pair"]
"""Where the second piece begins: after a sentence of several, inside the only one, or
with the second text of a pair."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a partition, cut in two.

    Attributes:
        index: Its place in the file, from 0.
        first_piece: What the model is shown.
        second_piece: What the model should write if it knows the instance.
        label: As the file has it, or None.
        cut: Where the second piece begins.
    """

    index: int
    first_piece: str
    second_piece: str
    label: str | None
    cut: Cut
