"""Is the kernel faster than transformers' torch model with the same weights?

On one core: sequences of one length (64, 512, 1024 ids) and of real lengths, and what
an audit scores by default: the pairs of `direction` at the seam. On an accelerator:
full contexts in bfloat16. Rates are in scored tokens per second.
"""

import copy
import functools
import gc
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eval.speed.measure import (
    Table,
    interleaved,
    peak_memory_gb,
    random_ids,
    real_lengths,
    torch_device,
)
from eval.speed.subjects import (
    peaks,
    random_decoder,
    subject,
    torch_model,
)
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.methods import DIRECTION
from jaxcontam.orders.order_test import plan_test
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.seam import SEAM
from train.flops import forward_flops

Way = Callable[[Sequence[np.ndarray]], list[np.ndarray]]

# Sequences of each length: few where a round of all ways would take minutes.
_CELLS = {"124m": {64: 8, 512: 4, 1024: 2}, "30m": {64: 32, 512: 8, 1024: 4}}
_N_REAL = 64
# Examples of a file, in strata of eight, and tokens of an example.
_N_PAIRED, _PAIRED_TOKENS = 16, (150, 20)
# Share of the spread of the scores: bfloat16 operands and activations, 32 layers.
_MOST_DIFFERENCE = 0.2


def measure_core(size: str, rounds: int, *, tiny: bool) -> Table:
    """Every way on one core."""
    import torch

    config = subject(size, tiny=tiny).config
    device = torch_device()
    assert device is not None
    theirs = torch_model(config, device, torch.float32)
    rounded = copy.deepcopy(theirs).to(torch.bfloat16)
    exact, ours_bf16 = _scorer(theirs, "float32"), _scorer(theirs, "bfloat16")
    ways: dict[str, Way] = {
        "torch one by one": lambda ids: one_by_one(theirs, ids),
        "torch": lambda ids: batched(theirs, ids),
        "torch bfloat16": lambda ids: batched(rounded, ids),
        "jaxcontam": lambda ids: _logprobs(exact.tokens(ids)),
        "jaxcontam bfloat16": lambda ids: _logprobs(ours_bf16.tokens(ids)),
    }
    peak = peaks(1 if tiny else 5, device, tiny=tiny)
    cells = {64: 2} if tiny else _CELLS[size]
    lengths = {f"{length}": [length] * n for length, n in cells.items()}
    lengths["real"] = real_lengths(4 if tiny else _N_REAL, tiny=tiny)
    table: Table = {}
    for name, own in lengths.items():
        ids = random_ids(config.vocab_size, own, seed=0)
        _, batches = exact.plan(ids)
        rates = _rates(
            {key: functools.partial(way, ids) for key, way in ways.items()},
            rounds,
            peak=peak,
            flops=forward_flops(config, [len(one) - 1 for one in ids]),
        )
        rates["jaxcontam"] |= {
            "shapes": len({(b.n_rows, b.length) for b in batches}),
            "positions a target": sum(b.n_rows * b.length for b in batches)
            / sum(n - 1 for n in own),
        }
        table |= {f"{name}, {way}": cells for way, cells in rates.items()}
    return table


def measure_pairs(size: str, rounds: int, *, tiny: bool) -> Table:
    """Direction's pairs at the default seam; torch reads each pair by itself."""
    import torch

    config = subject(size, tiny=tiny).config
    device = torch_device()
    assert device is not None
    theirs = torch_model(config, device, torch.float32)
    ours = _scorer(theirs, "float32").pairs
    n = 8 if tiny else _N_PAIRED
    table: Table = {}
    for length in (20,) if tiny else _PAIRED_TOKENS:
        ids = tuple(random_ids(config.vocab_size, [length] * n, seed=0))
        encoded = Encoded(ids, np.empty(0, np.int32), np.zeros(n, np.int32))
        test = plan_test(
            Benchmark("random", tuple(map(str, range(n))), (None,) * n),
            encoded,
            DIRECTION,
            prefix_id=0,
            context=config.context,
            seed=0,
            seam=SEAM,
        )
        plan = test.layout.plan
        assert isinstance(plan, PairPlan)
        pairs = [(g.prefix, ids) for g in plan.groups for ids in g.continuations]
        rows = [np.concatenate(pair) for pair in pairs]
        read = [len(prefix) for prefix, _ in pairs]
        ways = {
            "torch": lambda rows=rows, read=read: batched(theirs, rows, read),
            "jaxcontam": lambda groups=plan.groups: [
                ids for group in ours.logprobs(groups).logprobs for ids in group
            ],
        }
        # One core: CPU seconds, which other work of the machine leaves alone.
        rates = _rates(ways, rounds, clock=time.process_time)
        table |= {f"{length}, {way}": cells for way, cells in rates.items()}
    return table


def measure_contexts(size: str, rounds: int, *, tiny: bool) -> Table:
    """Full contexts in bfloat16 on an accelerator, with our memory and kernel."""
    from jaxcontam.models.fused_attention import hardware, kernel_of_rows
    from jaxcontam.scoring.local import local_scorer

    chosen = subject(size, tiny=tiny)
    config = chosen.config
    device = torch_device()
    peak = peaks(rounds, device, tiny=tiny)
    sequences = random_ids(config.vocab_size, [config.context] * chosen.n_texts, seed=1)
    ways: dict[str, Way] = {}
    if device is None:
        scorer = local_scorer(random_decoder(config))
    else:
        import torch

        theirs = torch_model(config, device, torch.bfloat16)
        scorer = _scorer(theirs, "bfloat16")
        ways["torch"] = lambda ids: batched(theirs, ids)
    gc.collect()
    ways["jaxcontam"] = lambda ids: _logprobs(scorer.tokens(ids))
    table = _rates(
        {name: functools.partial(way, sequences) for name, way in ways.items()},
        rounds,
        peak=peak,
        flops=forward_flops(config, [len(ids) - 1 for ids in sequences]),
    )
    table["jaxcontam"] |= {
        "batch tokens": scorer.batch_tokens,
        "attention": kernel_of_rows(config, "bfloat16", config.context, hardware()),
        "GB": peak_memory_gb(),
    }
    return table


def _scorer(theirs: Any, dtype: Literal["float32", "bfloat16"]) -> Any:
    """Ours, of the weights of a model of transformers."""
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.scoring.local import local_scorer

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return local_scorer(load_decoder(Path(folder), dtype=dtype))


def _rates(
    ways: Mapping[str, Callable[[], list[np.ndarray]]],
    rounds: int,
    *,
    peak: Mapping[str, float] | None = None,
    flops: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Table:
    """Ways in turn to the same scores, one of them `jaxcontam`.

    Returns:
        A row a way: scored tokens a second of every round, the share of the best matrix
        products if there is a `peak`, seconds beside ours, and the largest difference
        from our scores.

    Raises:
        RuntimeError: If a way does not score the same model.
    """
    timed = interleaved(ways, rounds, clock=clock)
    ours = np.concatenate(timed.last["jaxcontam"])
    rates: Table = {}
    for name, seconds in timed.seconds.items():
        differences = np.abs(np.concatenate(timed.last[name]) - ours)
        if not differences.mean() <= _MOST_DIFFERENCE * ours.std():
            raise RuntimeError(
                f"{name} does not score the same model: it differs by "
                f"{differences.mean()} on average, scores spread by {ours.std()}"
            )
        rates[name] = speed_cells(seconds, ours.size, flops, peak) | {
            "/ ours": timed.ratio(name, "jaxcontam"),
            "difference": float(differences.max()),
            "first s": timed.first_seconds[name],
        }
    return rates


def speed_cells(
    seconds: Sequence[float],
    n_tokens: int,
    flops: float,
    peak: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Tokens a second of each round, and of the median one the share of the peak."""
    rates = {"tokens/s": [n_tokens / one for one in seconds]}
    if peak is None:
        return rates
    best = max(peak.values())
    return {
        **rates,
        "of the products": flops / float(np.median(seconds)) / best,
        "products TF/s": 1e-12 * best,
    }


def _logprobs(scores: Sequence[Any]) -> list[np.ndarray]:
    return [part[0] for part in scores]


# (tokens of a batch, padding included; positions whose logits exist at a time). At real
# lengths batches of 4096 were a tenth slower on one core; an accelerator gets batches
# as large as ours.
_BATCHES = {"cpu": (512, 256), "cuda": (16_384, 4096)}


def one_by_one(model: Any, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Torch as published: one sequence a call, full logits, log-softmax, gather."""
    import torch

    scores = []
    with torch.no_grad():
        for ids in sequences:
            tokens = torch.from_numpy(ids.astype(np.int64))[None]
            logprobs = torch.log_softmax(model(tokens).logits[0, :-1], dim=-1)
            picked = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
            scores.append(picked.numpy())
    return scores


def batched(
    model: Any, sequences: Sequence[np.ndarray], read: Sequence[int] | None = None
) -> list[np.ndarray]:
    """Torch with care: batches of like lengths, sdpa, logits of some positions a time.

    The first `read` ids of each sequence (1 by default) are not scored. Padding stands
    at the end, where causal attention never looks back from, so no mask is needed and
    sdpa takes its causal path. Log-softmax is float32 in every dtype.
    """
    import torch

    n_tokens, n_positions = _BATCHES[model.device.type]
    head = model.get_output_embeddings()
    scores: list[np.ndarray] = [np.empty(0, np.float32)] * len(sequences)
    read = [1] * len(sequences) if read is None else read
    with torch.inference_mode():
        for rows in batches_of(sequences, n_tokens):
            own = [sequences[i] for i in rows]
            longest = max(map(len, own))
            padded = np.zeros((len(rows), longest), np.int64)
            for row, ids in enumerate(own):
                padded[row, : len(ids)] = ids
            tokens = torch.from_numpy(padded).to(model.device)
            hidden = model.base_model(tokens[:, :-1], use_cache=False).last_hidden_state
            place = np.arange(1, longest)
            is_target = place < np.array([[len(ids)] for ids in own])
            is_target &= place >= np.array([[read[i]] for i in rows])
            places = torch.from_numpy(is_target).to(model.device)
            losses = [
                torch.nn.functional.cross_entropy(
                    head(part).float(), targets, reduction="none"
                )
                for part, targets in zip(
                    hidden[places].split(n_positions),
                    tokens[:, 1:][places].split(n_positions),
                    strict=True,
                )
            ]
            found = -torch.cat(losses).cpu().numpy()
            cuts = np.cumsum(is_target.sum(axis=1))[:-1]
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
