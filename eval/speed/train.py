"""Is a training step faster than torch's on the same shape and batches?

Each side runs in a process of its own, as its users start it, and processes take turns:
an accelerator cannot hold both at 1.4 B. In float32 on one core, in bfloat16 on an
accelerator. That both learn alike is a law of
tests/train/test_torch.py.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from eval.speed.measure import (
    Device,
    Table,
    in_fresh_process,
    median_ratio,
    peak_memory_gb,
    random_ids,
    torch_device,
)
from eval.speed.scoring import speed_cells
from eval.speed.subjects import Subject, subject, torch_model
from train.flops import forward_flops

Step = Callable[[], Any]
"""Trains on one batch; the loss before it, perhaps still on the device."""

_RATE, _BETAS, _DECAY, _CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0
_TURNS, _WARM_STEPS, _STEPS_A_ROUND = 2, 2, 5
# Random weights of the two sides are not the same; both begin near a uniform guess.
_MOST_FIRST_LOSS = 1.0


def measure_training(size: str, rounds: int, *, tiny: bool) -> Table:
    """Rates of both sides in turn, their ratio, and the share of the peak.

    That share counts three forward passes a step, whatever is computed again.

    Args:
        size: Name of a shape.
        rounds: Rounds of each turn of a side; a round is some steps.
        tiny: On any device, a model whose numbers mean nothing.

    Raises:
        RuntimeError: If a side's first loss is not that of a random model.
    """
    chosen = subject(size, tiny=tiny)
    device: Device = "cpu" if size == "30m" else "accelerator"
    # A TPU has one process at a time: this one leaves the device alone.
    rival = in_fresh_process(device, "measure", "torch_device")
    sides = ["jaxcontam", "torch"] if rival else ["jaxcontam"]
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(1 if tiny else _TURNS):
        for name in sides:
            turn = in_fresh_process(device, "train", "_turn", name, size, rounds, tiny)
            turns[name].append(turn)
    n_tokens = chosen.row_tokens or chosen.config.context
    flops = 3.0 * forward_flops(chosen.config, [n_tokens] * chosen.n_rows)
    peak = in_fresh_process(device, "subjects", "peaks", rounds, rival, tiny=tiny)
    seconds = {
        name: [one for turn in own for one in turn["seconds"]]
        for name, own in turns.items()
    }
    return {
        name: speed_cells(seconds[name], chosen.n_rows * n_tokens, flops, peak)
        | {
            "/ ours": median_ratio(seconds[name], seconds["jaxcontam"]),
            "rows": chosen.n_rows,
            "tokens": n_tokens,
            "remat": chosen.remat,
            "parts": chosen.micro_batches,
            "first loss": own[0]["loss"],
            "GB": own[0]["memory_gb"],
        }
        for name, own in turns.items()
    }


def _turn(side: str, size: str, rounds: int, tiny: bool) -> dict[str, Any]:
    """Seconds a step of one side, its first loss and its memory."""
    chosen = subject(size, tiny=tiny)
    config = chosen.config
    n_tokens = chosen.row_tokens or config.context
    rows = random_ids(config.vocab_size, [n_tokens + 1] * chosen.n_rows, seed=0)
    make = {"jaxcontam": _our_step, "torch": _torch_step}[side]
    step, memory_gb = make(chosen, np.stack(rows), in_float32=size == "30m")
    loss, uniform = float(step()), math.log(config.vocab_size)
    if not abs(loss - uniform) < _MOST_FIRST_LOSS:
        raise RuntimeError(f"{side}: a random model loses {uniform}, this one {loss}")
    for _ in range(_WARM_STEPS):
        float(step())
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(_STEPS_A_ROUND - 1):
            step()
        # Waits for all steps, of which each reads the weights of the one before.
        float(step())
        seconds.append((time.perf_counter() - start) / _STEPS_A_ROUND)
    return {"seconds": seconds, "loss": loss, "memory_gb": memory_gb()}


def _our_step(
    chosen: Subject, batch: np.ndarray, *, in_float32: bool
) -> tuple[Step, Callable[[], float | None]]:
    """`train.step` as `train.pretrain` runs it on one device, at a constant rate."""
    from jaxcontam.processes import keep_freed_memory

    # As `train.pretrain` does for small models.
    keep_freed_memory()
    import jax
    import optax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from train.loss import PLAIN, Compute
    from train.step import training_step

    compute = Compute(
        dtype="bfloat16", remat=chosen.remat, micro_batches=chosen.micro_batches
    )
    graphdef, params = nnx.split(Decoder(chosen.config, rngs=nnx.Rngs(0)))
    optimizer = optax.chain(
        optax.clip_by_global_norm(_CLIP),
        optax.adamw(_RATE, b1=_BETAS[0], b2=_BETAS[1], weight_decay=_DECAY),
    )
    state = [params, jax.jit(optimizer.init)(params)]
    del params
    update = jax.jit(
        functools.partial(
            training_step,
            graphdef,
            optimizer,
            compute=PLAIN if in_float32 else compute,
        ),
        donate_argnums=(0, 1),
    )
    rows = jax.device_put(batch)

    def step() -> Any:
        *state[:], metrics = update(*state, rows)
        return metrics["loss"]

    return step, peak_memory_gb


def _torch_step(
    chosen: Subject, batch: np.ndarray, *, in_float32: bool
) -> tuple[Step, Callable[[], float | None]]:
    """The usual loop: float32 weights, sdpa, AdamW; in bfloat16 by autocast."""
    import torch

    device = torch_device()
    assert device is not None, "asked for where torch has a device"
    # What is left in float32 may use the tensor cores too.
    torch.set_float32_matmul_precision("highest" if in_float32 else "high")
    model = torch_model(chosen.config, device, torch.float32).train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if chosen.remat:
        # Transformers 5 renamed the method on the way.
        newer = getattr(model, "activation_checkpointing_enable", None)
        (newer or model.gradient_checkpointing_enable)()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=_RATE,
        betas=_BETAS,
        weight_decay=_DECAY,
        fused=not in_float32,
    )
    n_parts = chosen.micro_batches
    tokens = torch.from_numpy(batch.astype(np.int64)).to(device)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for part in tokens.chunk(n_parts):
            with torch.autocast(device, torch.bfloat16, enabled=not in_float32):
                logits = model(input_ids=part[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), part[:, 1:].flatten()
            )
            (loss / n_parts).backward()
            total += loss.detach() / n_parts
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        return total

    def memory_gb() -> float | None:
        on_gpu = device == "cuda"
        return 1e-9 * torch.cuda.max_memory_allocated() if on_gpu else None

    return step, memory_gb
