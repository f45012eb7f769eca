"""Tokens scored a second, beside transformers' torch model with the same weights."""

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from eval.accelerator.subjects import (
    jax_peak,
    peak_memory_gb,
    random_decoder,
    same_decoder,
    subject,
    torch_device,
    torch_model,
    torch_peak,
)
from eval.speed.measure import interleaved, random_ids
from train.flops import forward_flops

# The rival's batches and the positions whose logits it makes at a time: chosen as large
# as ours. Whether others would be faster for torch was not measured.
_TORCH_BATCH_TOKENS = 16_384
_TORCH_CHUNK = 4096
# Share of the spread of the scores: bfloat16 operands and activations, 32 layers.
_MOST_DIFFERENCE = 0.2


def measure_scoring(
    size: str, rounds: int, batch_tokens: int | None, tiny: bool
) -> dict[str, Any]:
    """One shape: rates, utilisation and the ratio to torch.

    Args:
        size: Name of a shape in `subjects`.
        rounds: Interleaved.
        batch_tokens: Tokens of our batches; None is what users get.
        tiny: On any device, a model whose numbers mean nothing.

    Returns:
        Target tokens a second of every round by way, FLOP a target token, the peak of
        the run, the share of it that ours reaches, the ratio to torch or None, the
        largest memory of ours in GB, and the kernel that attended.

    Raises:
        RuntimeError: If the two sides do not score the same model.
    """
    from jaxcontam.models.fused_attention import hardware, kernel_of_rows
    from jaxcontam.scoring.local import local_scorer

    chosen = subject(size, tiny=tiny)
    config = chosen.config
    device = torch_device(tiny=tiny)
    peaks = {"jax": jax_peak(rounds, tiny=tiny)}
    ways = {}
    sequences = random_ids(config.vocab_size, [config.context] * chosen.n_texts, seed=1)
    if device is None:
        decoder = random_decoder(config)
    else:
        import torch

        peaks["torch"] = torch_peak(rounds, device, tiny=tiny)
        theirs = torch_model(config, device, torch.bfloat16).eval()
        decoder = same_decoder(theirs)
        ways["torch"] = lambda: torch_scores(theirs, sequences)
    scorer = local_scorer(decoder, batch_tokens=batch_tokens)
    del decoder
    gc.collect()
    ways["jaxcontam"] = lambda: [part[0] for part in scorer.tokens(sequences)]
    timed = interleaved(ways, rounds)
    lengths = [len(ids) - 1 for ids in sequences]
    if device is not None:
        _check_same(timed.last["jaxcontam"], timed.last["torch"])
    flops = forward_flops(config, lengths)
    return {
        "n_texts": len(sequences),
        "n_targets": sum(lengths),
        "batch_tokens": scorer.batch_tokens,
        "attention": kernel_of_rows(config, "bfloat16", config.context, hardware()),
        "tokens_per_second": {
            name: [sum(lengths) / s for s in seconds]
            for name, seconds in timed.seconds.items()
        },
        "first_seconds": timed.warm_seconds,
        "gflop_per_token": 1e-9 * flops / sum(lengths),
        "peak_tflops": {name: 1e-12 * peak for name, peak in peaks.items()},
        "utilisation": {
            name: flops / timed.median(name) / max(peaks.values()) for name in ways
        },
        "ratio": None if device is None else timed.ratio("torch", "jaxcontam"),
        "memory_gb": peak_memory_gb(),
    }


def torch_scores(model: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Log-probabilities as a careful user of transformers computes them.

    Batches of equal lengths without a mask, so that sdpa takes its causal path; logits
    of some positions at a time, their cross-entropy in float32.
    """
    import torch
    import torch.nn.functional as F

    head = model.get_output_embeddings()
    n_rows = max(1, _TORCH_BATCH_TOKENS // len(sequences[0]))
    scores: list[np.ndarray] = []
    with torch.inference_mode():
        for start in range(0, len(sequences), n_rows):
            rows = np.stack(sequences[start : start + n_rows]).astype(np.int64)
            tokens = torch.from_numpy(rows).to(model.device)
            hidden = model.base_model(tokens[:, :-1], use_cache=False)
            hidden = hidden.last_hidden_state.flatten(0, 1)
            targets = tokens[:, 1:].flatten()
            losses = [
                F.cross_entropy(
                    head(hidden[i : i + _TORCH_CHUNK]).float(),
                    targets[i : i + _TORCH_CHUNK],
                    reduction="none",
                )
                for i in range(0, len(targets), _TORCH_CHUNK)
            ]
            found = -torch.cat(losses).view(len(rows), -1)
            scores += list(found.cpu().numpy())
    return scores


def _check_same(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
    a, b = np.concatenate(ours), np.concatenate(theirs)
    difference, spread = float(np.abs(a - b).mean()), float(a.std())
    if not difference <= _MOST_DIFFERENCE * spread:
        raise RuntimeError(
            f"the two sides do not score the same model: they differ by {difference} "
            f"on average, scores spread by {spread}"
        )
