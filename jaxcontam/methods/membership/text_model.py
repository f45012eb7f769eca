"""A model that texts are scored under, with all that scoring them needs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.encoding import encode_texts
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.scorer import Scorer


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextModel:
    """A checkpoint and its scorers.

    Attributes:
        checkpoint: The model.
        plain: Gives log-probabilities alone.
        with_moments: Gives means, variances and tops too; None if the model cannot.
    """

    checkpoint: Checkpoint
    plain: Scorer
    with_moments: Scorer | None = None

    @property
    def n_before(self) -> int:
        """Ids before each text: 1 where the tokenizer has BOS or EOS, else 0."""
        return int(self.checkpoint.prefix_id is not None)

    def sequences(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, the tokenizer's BOS or EOS before them if it has one."""
        prefix_id = self.checkpoint.prefix_id
        prefix = [] if prefix_id is None else [prefix_id]
        return [
            np.array([*prefix, *ids], np.int32)
            for ids in encode_texts(self.checkpoint.tokenizer, texts)
        ]

    def is_same_as(self, other: "TextModel") -> bool:
        """Whether the two give the same scores."""
        mine, others = self.checkpoint, other.checkpoint
        return (mine.fingerprint, mine.decoder.dtype, mine.prefix_id) == (
            others.fingerprint,
            others.decoder.dtype,
            others.prefix_id,
        )


def text_model(
    checkpoint: Checkpoint, *, store: Path | None, batch_tokens: int | None = None
) -> TextModel:
    """Make a checkpoint ready to score texts.

    Args:
        checkpoint: The model.
        store: Folder in which scores are kept, from which a rerun goes on; or None.
        batch_tokens: Tokens of a batch on one device; None chooses by platform.

    Raises:
        InputError: If the store is no folder, or not readable.
    """
    plain, with_moments = (
        checkpoint_scorer(
            checkpoint, store=store, batch_tokens=batch_tokens, moments=moments
        )
        for moments in (False, True)
    )
    return TextModel(checkpoint=checkpoint, plain=plain, with_moments=with_moments)
