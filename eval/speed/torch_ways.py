"""How transformers' torch model is used to score texts, from plain to careful."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

# Positions whose logits exist at a time in the careful way.
_CHUNK = 256
# Tokens of its batches, padding included. At real lengths batches of 4096 were a tenth
# slower on one core.
_BATCH_TOKENS = 512


def one_by_one(model: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The published way: one sequence a call, full logits, log-softmax, gather."""
    scores = []
    with torch.no_grad():
        for ids in sequences:
            tokens = torch.from_numpy(ids.astype(np.int64))[None]
            logprobs = torch.log_softmax(model(tokens).logits[0, :-1], dim=-1)
            picked = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
            scores.append(picked.numpy())
    return scores


def batched(model: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The careful way: batches of like lengths, sdpa, logits of 256 positions a time.

    Padding stands at the end, where causal attention never looks back from, so no mask
    is needed and sdpa takes its causal path. Log-softmax is float32 in every dtype.
    """
    scores: list[np.ndarray] = [np.empty(0, np.float32)] * len(sequences)
    with torch.no_grad():
        for rows in batches_of(sequences):
            longest = max(len(sequences[i]) for i in rows)
            tokens = torch.zeros((len(rows), longest), dtype=torch.int64)
            for row, i in enumerate(rows):
                tokens[row, : len(sequences[i])] = torch.from_numpy(sequences[i])
            hidden = model.transformer(tokens, use_cache=False).last_hidden_state
            inputs = [hidden[r, : len(sequences[i]) - 1] for r, i in enumerate(rows)]
            targets = [tokens[r, 1 : len(sequences[i])] for r, i in enumerate(rows)]
            found = _logprobs(model, torch.cat(inputs), torch.cat(targets)).numpy()
            cuts = np.cumsum([len(part) for part in targets])[:-1]
            for i, part in zip(rows, np.split(found, cuts), strict=True):
                scores[i] = part
    return scores


def batches_of(
    sequences: Sequence[np.ndarray], batch_tokens: int = _BATCH_TOKENS
) -> list[list[int]]:
    """Indices by length, as many a batch as fit with their padding."""
    batches: list[list[int]] = [[]]
    for i in sorted(range(len(sequences)), key=lambda i: len(sequences[i])):
        if batches[-1] and (len(batches[-1]) + 1) * len(sequences[i]) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def _logprobs(model: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of targets, chunk by chunk."""
    parts = []
    for start in range(0, len(targets), _CHUNK):
        logits = model.lm_head(hidden[start : start + _CHUNK]).float()
        chunk = targets[start : start + _CHUNK, None]
        parts.append(torch.log_softmax(logits, dim=-1).gather(1, chunk)[:, 0])
    return torch.cat(parts)
