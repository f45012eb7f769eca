"""BLEURT: how close a completion is to its reference, by a model trained on ratings.

Dimension key
    N  pairs
    B  pairs of a batch
    T  tokens, padding at the end
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.methods.replication.overlap import Measure
from jaxcontam.models.regression import RegressionModel, load_regression
from jaxcontam.scoring.batching import plan_batches

# Layers and width of the stream.
_BLEURT_20 = (32, 1152)
# Tokens of a batch, padding included.
_BATCH_TOKENS = 2048


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bleurt:
    """BLEURT with an open checkpoint.

    A score is about 0 for unrelated texts and about 1 for equal ones; it has no bounds,
    and scores of two checkpoints are not comparable.

    Attributes:
        model: From `load_regression`.
        name: Name of the measure.
    """

    model: RegressionModel
    name: str = "bleurt"

    @classmethod
    def load(cls, directory: str | Path) -> "Bleurt":
        """Open a folder; see `load_regression`."""
        return cls(load_regression(directory))

    @property
    def version(self) -> str:
        """Name and digest of the checkpoint, for a report."""
        digest = self.model.fingerprint.removeprefix("sha256:")
        return f"{self.model.name} {digest[:12]}"

    @property
    def is_bleurt_20(self) -> bool:
        """Whether the encoder has BLEURT-20's shape, whose scores `judge_local` reads.

        Distilled and earlier checkpoints have other shapes and other scores.
        """
        config = self.model.model.config
        return (config.num_hidden_layers, config.hidden_size) == _BLEURT_20

    @property
    def measure(self) -> Measure:
        """The measure for `overlap_scores`; BLEURT compares whole sentences."""
        return Measure(name=self.name, whole_when_inside=True, score=self.scores)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Score of each pair.

        Args:
            pairs: (reference, candidate). A pair that is too long loses tokens at the
                end of its longer text.

        Returns:
            (N,) float64.

        Source:
            Sellam et al., arXiv:2004.04696: the reference comes first, and the score is
            the head's output.
        """
        import torch

        model = self.model
        encoded = [_pair_ids(model, *ids) for ids in _text_ids(model.tokenizer, pairs)]
        scores_N = np.zeros(len(pairs))
        for batch in plan_batches(
            [len(ids) for ids, _ in encoded],
            context=model.context,
            batch_tokens=_BATCH_TOKENS,
        ):
            # The rows of a batch as they are: torch compiles no shapes.
            shape = len(batch.rows), max(len(encoded[i][0]) for i in batch.rows)
            ids_BT, segments_BT, is_token_BT = np.zeros((3, *shape), np.int64)
            for b, i in enumerate(batch.rows):
                ids, n_first = encoded[i]
                ids_BT[b, : len(ids)] = ids
                segments_BT[b, n_first : len(ids)] = 1
                is_token_BT[b, : len(ids)] = 1
            with torch.inference_mode():
                logits_B1 = model.model(
                    input_ids=torch.tensor(ids_BT, device=model.model.device),
                    token_type_ids=torch.tensor(segments_BT, device=model.model.device),
                    attention_mask=torch.tensor(is_token_BT, device=model.model.device),
                ).logits
            scores_N[list(batch.rows)] = logits_B1[:, 0].cpu().numpy()
        return scores_N


def kept_tokens(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Tokens that are kept of each text: the longer one loses its end first.

    Where both are equally long the second one loses a token.

    Source:
        The function that BLEURT's and BERT's own code truncates pairs with, one token
        after the other; this is its closed form.
    """
    room = max(room, 0)
    if n_first + n_second <= room:
        return n_first, n_second
    # Each is cut to the half; a shorter one is kept whole.
    half = room // 2
    if n_second <= half:
        return room - n_second, n_second
    if n_first <= room - half:
        return n_first, room - n_first
    return room - half, half


def _text_ids(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]):
    texts = [text for pair in pairs for text in pair]
    ids = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return zip(ids[::2], ids[1::2], strict=True)


def _pair_ids(
    model: RegressionModel, first: list[int], second: list[int]
) -> tuple[list[int], int]:
    """`[CLS] first [SEP] second [SEP]`, and where the second segment begins."""
    n_first, n_second = kept_tokens(len(first), len(second), model.context - 3)
    ids = [model.first_id, *first[:n_first], model.separator_id]
    return [*ids, *second[:n_second], model.separator_id], len(ids)
