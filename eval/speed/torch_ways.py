"""Ways to score texts with transformers' torch model, from plain to careful."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

# (tokens of a batch, padding included; positions whose logits exist at a time). At real
# lengths batches of 4096 were a tenth slower on one core; an accelerator gets batches
# as large as ours.
_BATCHES = {"cpu": (512, 256), "cuda": (16_384, 4096)}


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
    """The careful way: batches of like lengths, sdpa, logits of some positions a time.

    Padding stands at the end, where causal attention never looks back from, so no mask
    is needed and sdpa takes its causal path. Log-softmax is float32 in every dtype.
    """
    n_tokens, n_positions = _BATCHES[model.device.type]
    scores: list[np.ndarray] = [np.empty(0, np.float32)] * len(sequences)
    with torch.inference_mode():
        for rows in batches_of(sequences, n_tokens):
            own = [sequences[i] for i in rows]
            longest = max(map(len, own))
            padded = np.zeros((len(rows), longest), np.int64)
            for row, ids in enumerate(own):
                padded[row, : len(ids)] = ids
            tokens = torch.from_numpy(padded).to(model.device)
            hidden = model.base_model(tokens[:, :-1], use_cache=False).last_hidden_state
            is_target = np.arange(1, longest) < np.array([[len(ids)] for ids in own])
            places = torch.from_numpy(is_target).to(model.device)
            found = _logprobs(model, hidden[places], tokens[:, 1:][places], n_positions)
            cuts = np.cumsum([len(ids) - 1 for ids in own])[:-1]
            for i, part in zip(rows, np.split(found, cuts), strict=True):
                scores[i] = part
    return scores


def batches_of(sequences: Sequence[np.ndarray], n_tokens: int) -> list[list[int]]:
    """Indices by length, as many a batch as fit with their padding."""
    batches: list[list[int]] = [[]]
    for i in sorted(range(len(sequences)), key=lambda i: len(sequences[i])):
        if batches[-1] and (len(batches[-1]) + 1) * len(sequences[i]) > n_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def _logprobs(
    model: Any, hidden: torch.Tensor, targets: torch.Tensor, n_positions: int
) -> np.ndarray:
    """Log-probabilities of targets, some positions at a time."""
    head = model.get_output_embeddings()
    losses = [
        F.cross_entropy(
            head(hidden[i : i + n_positions]).float(),
            targets[i : i + n_positions],
            reduction="none",
        )
        for i in range(0, len(targets), n_positions)
    ]
    return -torch.cat(losses).cpu().numpy()
