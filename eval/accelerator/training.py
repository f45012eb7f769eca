"""Tokens trained on a second, beside torch with bfloat16 autocast and sdpa.

The two sides cannot share a GPU's memory at 1.4 B, so each runs in a process of its
own, and the processes take turns.
"""

import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from eval.accelerator.subjects import (
    in_fresh_process,
    jax_peak,
    peak_memory_gb,
    subject,
    torch_device,
    torch_model,
    torch_peak,
)
from eval.speed.measure import median_ratio
from train.flops import forward_flops

_TURNS = 2
_WARM_STEPS = 2
_STEPS_A_ROUND = 5
_RATE = 1e-4
# Random weights of the two sides are not the same; both begin near a uniform guess.
_MOST_FIRST_LOSS = 1.0


def measure_training(size: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """One shape: rates, utilisation and the ratio to torch.

    Utilisation counts three forward passes a step, whatever is computed again.

    Args:
        size: Name of a shape in `subjects`.
        rounds: Rounds of each turn of a side; a round is some steps.
        tiny: On any device, a model whose numbers mean nothing.

    Raises:
        RuntimeError: If a side's first loss is not that of a random model.
    """
    chosen = subject(size, tiny=tiny)
    config = chosen.config
    sides = ["jaxcontam"]
    if torch_device(tiny=tiny) is not None:
        sides.append("torch")
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(1 if tiny else _TURNS):
        for name in sides:
            turns[name].append(in_fresh_process(_turn, name, size, rounds, tiny))
    step_tokens = chosen.n_rows * config.context
    seconds = {
        name: [one for turn in found for one in turn["seconds"]]
        for name, found in turns.items()
    }
    peaks = {name: max(turn["peak"] for turn in found) for name, found in turns.items()}
    flops = 3.0 * forward_flops(config, [config.context] * chosen.n_rows)
    ratio = None
    if "torch" in sides:
        ratio = median_ratio(seconds["torch"], seconds["jaxcontam"])
    return {
        "rows": chosen.n_rows,
        "row_tokens": config.context,
        "remat": chosen.remat,
        "n_micro": chosen.n_micro,
        "tokens_per_second": {
            name: [step_tokens / one for one in found]
            for name, found in seconds.items()
        },
        "first_losses": {name: found[0]["loss"] for name, found in turns.items()},
        "gflop_per_token": 1e-9 * flops / step_tokens,
        "peak_tflops": {name: 1e-12 * peak for name, peak in peaks.items()},
        "utilisation": {
            name: flops / statistics.median(found) / max(peaks.values())
            for name, found in seconds.items()
        },
        "ratio": ratio,
        "memory_gb": {name: found[0]["memory_gb"] for name, found in turns.items()},
    }


def _turn(side: str, size: str, rounds: int, tiny: bool) -> dict[str, Any]:
    """Seconds a step of one side, its first loss, its peak and its memory."""
    chosen = subject(size, tiny=tiny)
    config = chosen.config
    rng = np.random.default_rng(0)
    shape = (chosen.n_rows, config.context + 1)
    batch = rng.integers(config.vocab_size, size=shape, dtype=np.int32)
    if side == "torch":
        device = torch_device(tiny=tiny)
        assert device is not None, "asked for where torch has a device"
        peak = torch_peak(rounds, device, tiny=tiny)
        step, memory_gb = _torch_step(size, batch, device, tiny=tiny)
    else:
        peak = jax_peak(rounds, tiny=tiny)
        step, memory_gb = _our_step(size, batch, tiny=tiny)
    loss = float(step())
    uniform = math.log(config.vocab_size)
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
    return {"seconds": seconds, "loss": loss, "peak": peak, "memory_gb": memory_gb()}


def _our_step(
    size: str, batch: np.ndarray, *, tiny: bool
) -> tuple[Callable[[], Any], Callable[[], float | None]]:
    """`train.step` as `train.pretrain` runs it on one device."""
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from train.step import Compute, adamw, training_step

    chosen = subject(size, tiny=tiny)
    graphdef, params = nnx.split(Decoder(chosen.config, rngs=nnx.Rngs(0)))
    optimizer = adamw(_RATE, 1000, params)
    state = [params, jax.jit(optimizer.init)(params)]
    del params
    update = jax.jit(
        functools.partial(
            training_step,
            graphdef,
            optimizer,
            compute=Compute(
                dtype="bfloat16", remat=chosen.remat, n_micro=chosen.n_micro
            ),
        ),
        donate_argnums=(0, 1),
    )
    rows = jax.device_put(batch)

    def step() -> Any:
        *state[:], loss = update(*state, rows)
        return loss

    return step, peak_memory_gb


def _torch_step(
    size: str, batch: np.ndarray, device: str, *, tiny: bool
) -> tuple[Callable[[], Any], Callable[[], float | None]]:
    """The usual loop: float32 weights, bfloat16 autocast, sdpa, fused AdamW."""
    import torch

    chosen = subject(size, tiny=tiny)
    # What is left in float32 may use the tensor cores too.
    torch.set_float32_matmul_precision("high")
    model = torch_model(chosen.config, device, torch.float32).train()
    if chosen.remat:
        compute_blocks_again(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    tokens = torch.from_numpy(batch[:, :-1].astype(np.int64)).to(device)
    targets = torch.from_numpy(batch[:, 1:].astype(np.int64)).to(device)
    parts = list(
        zip(tokens.chunk(chosen.n_micro), targets.chunk(chosen.n_micro), strict=True)
    )

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for read, wanted in parts:
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(input_ids=read, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), wanted.flatten()
            )
            (loss / len(parts)).backward()
            total += loss.detach() / len(parts)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total

    def memory_gb() -> float | None:
        return 1e-9 * torch.cuda.max_memory_allocated() if device == "cuda" else None

    return step, memory_gb


def compute_blocks_again(model: Any) -> None:
    """Rematerialise; transformers 5 renamed the method on the way."""
    newer = getattr(model, "activation_checkpointing_enable", None)
    (newer or model.gradient_checkpointing_enable)()
