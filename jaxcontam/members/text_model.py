"""A model that texts are scored under, with all that scoring them needs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.encoding import encode_texts
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.scoring.opened import OpenModel, SequenceScorer


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextModel:
    """A model and its scorers, one with moments where it can give them."""

    model: OpenModel
    plain: SequenceScorer
    with_moments: SequenceScorer | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The weights; InputError if they are not here."""
        return self.model.weights("this")

    @property
    def context(self) -> int:
        """Ids that are read at once."""
        return self.model.context

    @property
    def n_before(self) -> int:
        """Ids before each text: 1 where something stands before it, else 0."""
        return int(self.model.prefix_id is not None)

    def sequences(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, the tokenizer's BOS or EOS once before them if any."""
        prefix_id = self.model.prefix_id
        prefix = [] if prefix_id is None else [prefix_id]
        return [
            np.array([*prefix, *ids], np.int32)
            for ids in encode_texts(self.model.tokenizer, texts, after=prefix_id)
        ]

    def is_same_as(self, other: "TextModel") -> bool:
        """True if the two give the same scores."""
        mine, others = self.model, other.model
        return (mine.fingerprint, mine.info.dtype, mine.prefix_id) == (
            others.fingerprint,
            others.info.dtype,
            others.prefix_id,
        )


def text_model(
    model: OpenModel, *, store: Path | None, batch_tokens: int | None = None
) -> TextModel:
    """Make a model of any kind ready to score texts; a rerun resumes from the store."""
    plain = model.make_scorer(store=store, batch_tokens=batch_tokens)
    with_moments = None
    if model.has_moments:
        with_moments = model.make_scorer(
            store=store, batch_tokens=batch_tokens, moments=True
        )
    return TextModel(model=model, plain=plain, with_moments=with_moments)
