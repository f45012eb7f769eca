"""Similarity of a completion with its reference by the embeddings of a model."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.methods.replication.overlap import Measure
from jaxcontam.models.checkpoint import Checkpoint, load_checkpoint


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EmbeddingOverlap:
    """The measure over a model that is open.

    Cosines of a plain language model are high for any two texts of one language; what
    counts is how much higher they are with the guided instruction.

    Attributes:
        name: Name of the measure.
        checkpoint: Any decoder that is read here.
    """

    checkpoint: Checkpoint
    name: str = "embedding"

    @classmethod
    def load(cls, model: str) -> "EmbeddingOverlap":
        """Open a folder or a name on the hub; see `load_checkpoint`."""
        return cls(load_checkpoint(model))

    @property
    def version(self) -> str:
        """Name and digest of the model, for a report."""
        digest = self.checkpoint.fingerprint.removeprefix("sha256:")
        return f"{self.checkpoint.name} {digest[:12]}"

    @property
    def measure(self) -> Measure:
        """For `overlap_scores`, with the truncation of BLEURT."""
        return Measure(name=self.name, whole_when_inside=True, score=self.scores)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosine of each pair's mean hidden states.

        Args:
            pairs: (reference, candidate), cut as the caller wants them compared.

        Returns:
            (N,) float64; 0 where one of the texts has no tokens.
        """
        from jaxcontam.scoring.embedding import text_embeddings

        if not pairs:
            return np.zeros(0)
        # A reference stands in two pairs, one an instruction: it is read once.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        place = {text: i for i, text in enumerate(texts)}
        vectors_ND = text_embeddings(self.checkpoint, texts).astype(np.float64)
        first_ND, second_ND = (
            vectors_ND[[place[pair[side]] for pair in pairs]] for side in (0, 1)
        )
        return np.sum(first_ND * second_ND, axis=1)
