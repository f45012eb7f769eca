"""Is the kernel faster than transformers' torch model with the same weights?

On one core: sequences of one length (64, 512, 1024 ids), and of real lengths, where our
own path with one sequence a call is timed as well. On an accelerator: full contexts in
bfloat16. Rates are in target tokens per second.
"""

import ctypes
import gc
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.speed.measure import (
    Timed,
    in_fresh_process,
    interleaved,
    memory_mb,
    peak_memory_gb,
    random_ids,
    real_lengths,
)
from eval.speed.subjects import (
    decoder_of,
    opened_torch,
    peaks,
    random_decoder,
    subject,
    torch_device,
    torch_model,
)
from jaxcontam.models.config import DecoderConfig
from train.flops import forward_flops

Way = Callable[[Sequence[np.ndarray]], list[np.ndarray]]

# Sequences of each length: few where a round of all ways would take minutes.
_CELLS = {"124m": {64: 8, 512: 4, 1024: 2}, "30m": {64: 32, 512: 8, 1024: 4}}
_N_REAL = 64
# Lengths that its own call pads each sequence to.
_ROUNDING = 32
# Share of the spread of the scores: bfloat16 operands and activations, 32 layers.
_MOST_DIFFERENCE = 0.2


def measure_kernel(size: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Sequences of one length, for each of three lengths, on one core.

    Returns:
        Growth of memory in MB while the model first scores, and one entry a length; see
        `_core_cell`.
    """
    V = subject(size, tiny=tiny).config.vocab_size
    with tempfile.TemporaryDirectory() as name:
        folder = _saved(size, Path(name), tiny=tiny)
        longest = random_ids(V, [512] * 2 if tiny else [512] * 8, seed=0)
        # A process of its own, whose peak is not that of something else.
        growth = in_fresh_process(memory_growth_mb, str(folder), longest)
        cells = {
            # Full batches have one shape, so the first one compiles it.
            str(length): _core_cell(
                size,
                folder,
                random_ids(V, [length] * n, seed=length),
                rounds,
                max(1, 512 // length),
                tiny=tiny,
            )
            for length, n in ({64: 2} if tiny else _CELLS[size]).items()
        }
        return {"memory_growth_mb": growth, "cells": cells}


def measure_real(size: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Sequences of real lengths; also our own path with one sequence a call."""
    lengths = real_lengths(4 if tiny else _N_REAL, tiny=tiny)
    ids = random_ids(subject(size, tiny=tiny).config.vocab_size, lengths, seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = _saved(size, Path(name), tiny=tiny)
        cell = _core_cell(size, folder, ids, rounds, len(ids), tiny=tiny, alone=True)
        return {"cells": {"real": cell}}


def _saved(size: str, folder: Path, *, tiny: bool) -> Path:
    from jaxcontam.models.checkpoint import save_checkpoint

    save_checkpoint(decoder_of(size, tiny=tiny), None, folder, model_type="gpt2")
    return folder


def _core_cell(
    size: str,
    folder: Path,
    sequences: list[np.ndarray],
    rounds: int,
    warm_rows: int,
    *,
    tiny: bool,
    alone: bool = False,
) -> dict[str, Any]:
    """Rates of every way on the same sequences, and what our batches are.

    `warm_rows` compile every shape of ours; `alone` also times our own path with one
    sequence a call.
    """
    import torch

    from eval.speed.torch_ways import batched, one_by_one
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.scoring.local import local_scorer

    device = torch_device(on_cpu=True)
    theirs, theirs_bf16 = (
        opened_torch(folder, "cpu", dtype).eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    exact = local_scorer(decoder_of(size, tiny=tiny))
    rounded = local_scorer(load_decoder(folder, dtype="bfloat16"))
    ways: dict[str, Way] = {
        "torch": lambda ids: one_by_one(theirs, ids),
        "torch_batched": lambda ids: batched(theirs, ids),
        "torch_bf16": lambda ids: batched(theirs_bf16, ids),
        "jaxcontam": lambda ids: _logprobs(exact.tokens(ids)),
        "jaxcontam_bf16": lambda ids: _logprobs(rounded.tokens(ids)),
    }
    if alone:
        ways["jaxcontam_alone"] = lambda ids: one_a_call(exact.forward, ids)
    # Torch compiles nothing: one sequence fills its caches.
    warm = {name: warm_rows if "jaxcontam" in name else 1 for name in ways}
    peak = peaks(1 if tiny else 5, device, tiny=tiny)
    timed, cell = _rates(
        ways, sequences, subject(size, tiny=tiny).config, rounds, peak, warm
    )
    _, batches = exact.plan(sequences)
    last = timed.last
    return {
        **cell,
        "ratio_to": {name: timed.ratio(name, "jaxcontam") for name in ways},
        "ratio_bf16": timed.ratio("torch_bf16", "jaxcontam_bf16"),
        "ratio_bf16_to_float32": timed.ratio("jaxcontam", "jaxcontam_bf16"),
        "largest_difference": _largest_difference(last["torch"], last["jaxcontam"]),
        "largest_difference_bf16": _largest_difference(
            last["jaxcontam"], last["jaxcontam_bf16"]
        ),
        "n_shapes": len({(b.n_rows, b.length) for b in batches}),
        "n_batches": len(batches),
        "positions": sum(b.n_rows * b.length for b in batches),
    }


def measure_scoring(
    size: str, rounds: int, *, tiny: bool, batch_tokens: int | None = None
) -> dict[str, Any]:
    """Full contexts in bfloat16 on an accelerator: both sides, our memory and kernel.

    Args:
        size: Name of a shape in subjects.toml.
        rounds: Interleaved.
        tiny: On any device, a model whose numbers mean nothing.
        batch_tokens: Tokens of our batches; None is what users get.

    Raises:
        RuntimeError: If the two sides do not score the same model.
    """
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.models.fused_attention import hardware, kernel_of_rows
    from jaxcontam.scoring.local import local_scorer

    chosen = subject(size, tiny=tiny)
    config = chosen.config
    device = torch_device(on_cpu=tiny)
    peak = peaks(rounds, device, tiny=tiny)
    sequences = random_ids(config.vocab_size, [config.context] * chosen.n_texts, seed=1)
    ways: dict[str, Way] = {}
    if device is None:
        decoder = random_decoder(config)
    else:
        import torch

        from eval.speed.torch_ways import batched

        theirs = torch_model(config, device, torch.bfloat16).eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            decoder = load_decoder(Path(folder), dtype="bfloat16")
        ways["torch"] = lambda ids: batched(theirs, ids)
    scorer = local_scorer(decoder, batch_tokens=batch_tokens)
    del decoder
    gc.collect()
    ways["jaxcontam"] = lambda ids: _logprobs(scorer.tokens(ids))
    timed, cell = _rates(ways, sequences, config, rounds, peak)
    if device is not None:
        _check_same(timed.last["jaxcontam"], timed.last["torch"])
    return {
        **cell,
        "batch_tokens": scorer.batch_tokens,
        "attention": kernel_of_rows(config, "bfloat16", config.context, hardware()),
        "ratio": None if device is None else timed.ratio("torch", "jaxcontam"),
        "memory_gb": peak_memory_gb(),
    }


def _rates(
    ways: Mapping[str, Way],
    sequences: Sequence[np.ndarray],
    config: DecoderConfig,
    rounds: int,
    peak: Mapping[str, float],
    warm: Mapping[str, int] | None = None,
) -> tuple[Timed, dict[str, Any]]:
    """Ways in turn on the same sequences.

    Returns:
        Their times; target tokens a second of every round, seconds of the first call,
        FLOP a target, FLOP/s of the peaks, and the share of the larger one that each
        way reaches.
    """
    timed = interleaved(
        {name: lambda way=way: way(sequences) for name, way in ways.items()},
        rounds,
        warm={
            name: lambda way=ways[name], n=n: way(sequences[:n])
            for name, n in (warm or {}).items()
        },
    )
    lengths = [len(ids) - 1 for ids in sequences]
    flops = forward_flops(config, lengths)
    return timed, {
        "n_sequences": len(sequences),
        "n_targets": sum(lengths),
        "tokens_per_second": {
            name: [sum(lengths) / s for s in seconds]
            for name, seconds in timed.seconds.items()
        },
        "first_seconds": timed.warm_seconds,
        "gflop_per_token": 1e-9 * flops / sum(lengths),
        "peak_tflops": {name: 1e-12 * one for name, one in peak.items()},
        "utilisation": {
            name: flops / timed.median(name) / max(peak.values()) for name in ways
        },
    }


def one_a_call(forward: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Our own plain path: each sequence a call, padded to the next multiple of 32."""
    scores = []
    for ids in sequences:
        n = len(ids) - 1
        inputs_BS = np.zeros((1, -(-n // _ROUNDING) * _ROUNDING), np.int32)
        targets_BS = inputs_BS.copy()
        inputs_BS[0, :n], targets_BS[0, :n] = ids[:-1], ids[1:]
        scores.append(np.asarray(forward(inputs_BS, targets_BS)[0])[0, :n])
    return scores


def memory_growth_mb(folder: str, sequences: Sequence[np.ndarray]) -> float:
    """Growth of resident memory, at its peak, while a loaded model first scores.

    Compilation included.
    """
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.scoring.local import local_scorer

    scorer = local_scorer(load_decoder(Path(folder)))
    # Loading had its own peak and leaves garbage. Return it and make the kernel
    # forget the peak (5): the growth is the scorer's alone.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    scorer.tokens(list(sequences))
    return memory_mb("VmHWM") - before


def _logprobs(scores: Sequence[Any]) -> list[np.ndarray]:
    """Log-probabilities of each sequence."""
    return [part[0] for part in scores]


def _largest_difference(
    some: Sequence[np.ndarray], others: Sequence[np.ndarray]
) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(some, others, strict=True))


def _check_same(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
    a, b = np.concatenate(ours), np.concatenate(theirs)
    difference, spread = float(np.abs(a - b).mean()), float(a.std())
    if not difference <= _MOST_DIFFERENCE * spread:
        raise RuntimeError(
            f"the two sides do not score the same model: they differ by {difference} "
            f"on average, scores spread by {spread}"
        )
