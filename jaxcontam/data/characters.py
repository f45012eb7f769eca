"""Code points as token ids, for models without a local tokenizer.

The scorer of such a model turns ids back into text, so that plans, windows and orders
consist of ids for every kind of model.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class Characters:
    """An encoded text.

    Attributes:
        ids: Its code points.
    """

    ids: list[int]


class CharacterTokenizer:
    """An `Encoder` whose ids are code points."""

    def encode(self, sequence: Any, /, *, add_special_tokens: bool) -> Characters:
        """Code points of a text; there are no special tokens."""
        del add_special_tokens
        return Characters([ord(character) for character in sequence])

    def encode_batch(
        self, input: Any, /, *, add_special_tokens: bool
    ) -> Sequence[Characters]:
        """Code points of each text."""
        return [
            self.encode(text, add_special_tokens=add_special_tokens) for text in input
        ]


def text_of(ids: np.ndarray | Iterable[int]) -> str:
    """The text of code points."""
    return "".join(map(chr, ids))
