"""Is the kernel faster than transformers' torch model with the same weights?

Sequences of one length (64, 512, 1024 ids), and of real lengths, where our own path
with one sequence a call stands beside. Rates are in target tokens per second.
"""

import ctypes
import gc
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from eval.speed.measure import (
    Subject,
    interleaved,
    memory_mb,
    n_parameters,
    random_ids,
    real_lengths,
    sgemm_peaks,
    subject,
)
from train.flops import forward_flops

# Sequences of each length: few where a round of all ways would take minutes.
_CELLS = {"124m": {64: 8, 512: 4, 1024: 2}, "30m": {64: 32, 512: 8, 1024: 4}}
_N_REAL = 64
# Lengths that its own call pads each sequence to.
_ROUNDING = 32


def measure_kernel(size: str, rounds: int, *, tiny: bool) -> dict:
    """Sequences of one length, for each of three lengths.

    Returns:
        Size of the model, growth of memory in MB while it first scores, and one entry a
        length; see `_cell`.
    """
    with subject(size, tiny=tiny) as models:
        vocab_size = models.exact.config.vocab_size
        longest = random_ids(vocab_size, [512] * 2 if tiny else [512] * 8, seed=0)
        # A process of its own, whose peak is not that of something else.
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            growth = fresh.apply(memory_growth_mb, (str(models.folder), longest))
        cells = {}
        for length, n in ({64: 2} if tiny else _CELLS[size]).items():
            ids = random_ids(vocab_size, [length] * n, seed=length)
            # Full batches have one shape, so the first one compiles it.
            cells[str(length)] = _cell(
                models, ids, rounds, max(1, 512 // length), peak_rounds=1 if tiny else 5
            )
        return {
            "n_parameters": n_parameters(models.exact),
            "memory_growth_mb": growth,
            "cells": cells,
        }


def measure_real(size: str, rounds: int, *, tiny: bool) -> dict:
    """Sequences of real lengths; also our own path with one sequence a call."""
    lengths = real_lengths(4 if tiny else _N_REAL, tiny=tiny)
    with subject(size, tiny=tiny) as models:
        ids = random_ids(models.exact.config.vocab_size, lengths, seed=0)
        cell = _cell(
            models, ids, rounds, len(ids), peak_rounds=1 if tiny else 5, alone=True
        )
        return {"n_parameters": n_parameters(models.exact), "cells": {"real": cell}}


def _cell(
    models: Subject,
    sequences: list[np.ndarray],
    rounds: int,
    warm_rows: int,
    *,
    peak_rounds: int,
    alone: bool = False,
) -> dict:
    """Rates of every way on the same sequences.

    Args:
        models: The model.
        sequences: Ids.
        rounds: Interleaved.
        warm_rows: Sequences that compile every shape of ours.
        peak_rounds: Products of which the best is the peak.
        alone: Also time our own path with one sequence a call.

    Returns:
        Rates of every round, medians of the rounds' ratios, differences in nats, the
        share of the sgemm peak, compiled shapes and seconds of the first call.
    """
    from eval.speed.torch_ways import batched, one_by_one
    from jaxcontam.scoring.local import local_scorer

    exact, rounded = local_scorer(models.exact), local_scorer(models.rounded)
    scored: dict[str, Callable[[Sequence[np.ndarray]], list[np.ndarray]]] = {
        "torch": lambda ids: one_by_one(models.torch_exact, ids),
        "torch_batched": lambda ids: batched(models.torch_exact, ids),
        "torch_bf16": lambda ids: batched(models.torch_rounded, ids),
        "jaxcontam": lambda ids: _firsts(exact.tokens(ids)),
        "jaxcontam_bf16": lambda ids: _firsts(rounded.tokens(ids)),
    }
    if alone:
        scored["jaxcontam_alone"] = lambda ids: one_a_call(exact.forward, ids)
    is_ours = {name: name.startswith("jaxcontam") for name in scored}
    peaks = sgemm_peaks(peak_rounds)
    timed = interleaved(
        {name: lambda way=way: way(sequences) for name, way in scored.items()},
        rounds,
        # Torch compiles nothing: one sequence fills its caches.
        warm={
            name: lambda way=way, n=warm_rows if is_ours[name] else 1: way(
                sequences[:n]
            )
            for name, way in scored.items()
        },
    )
    lengths = [len(ids) - 1 for ids in sequences]
    rates = {
        name: [sum(lengths) / s for s in times] for name, times in timed.seconds.items()
    }
    flops = forward_flops(models.exact.config, lengths)
    gflops = 1e-9 * flops / timed.median("jaxcontam")
    _, batches = exact.plan(sequences)
    last = timed.last
    against = {name: timed.ratio(name, "jaxcontam") for name in scored}
    return {
        "n_sequences": len(sequences),
        "n_targets": sum(lengths),
        "tokens_per_second": rates,
        "ratio_to": against,
        "ratio_bf16": timed.ratio("torch_bf16", "jaxcontam_bf16"),
        "ratio_bf16_to_float32": timed.ratio("jaxcontam", "jaxcontam_bf16"),
        "largest_difference": _largest_difference(last["torch"], last["jaxcontam"]),
        "largest_difference_bf16": _largest_difference(
            last["jaxcontam"], last["jaxcontam_bf16"]
        ),
        "gflop_per_target": 1e-9 * flops / sum(lengths),
        "gflops": gflops,
        "sgemm_gflops": peaks,
        "share_of_peak": gflops / max(peaks.values()),
        "n_shapes": len({(b.n_rows, b.length) for b in batches}),
        "n_batches": len(batches),
        "positions": sum(b.n_rows * b.length for b in batches),
        "first_seconds": timed.warm_seconds,
    }


def one_a_call(forward, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Our own plain path: each sequence a call, padded to the next multiple of 32."""
    scores = []
    for ids in sequences:
        n = len(ids) - 1
        inputs_BS = np.zeros((1, -(-n // _ROUNDING) * _ROUNDING), np.int32)
        targets_BS = inputs_BS.copy()
        inputs_BS[0, :n], targets_BS[0, :n] = ids[:-1], ids[1:]
        scores.append(np.asarray(forward(inputs_BS, targets_BS)[0])[0, :n])
    return scores


def memory_growth_mb(directory: str, sequences: Sequence[np.ndarray]) -> float:
    """Growth of resident memory, at its peak, while a loaded model first scores.

    Compilation included.
    """
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.scoring.local import local_scorer

    scorer = local_scorer(load_decoder(Path(directory)))
    # Loading had its own peak and leaves garbage. Return it and make the kernel
    # forget the peak (5): the growth is the scorer's alone.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    scorer.tokens(list(sequences))
    return memory_mb("VmHWM") - before


def _firsts(scores: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Log-probabilities of each sequence."""
    return [part[0] for part in scores]


def _largest_difference(
    some: Sequence[np.ndarray], others: Sequence[np.ndarray]
) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(some, others, strict=True))
