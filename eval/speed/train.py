"""Is a training step faster than torch's on the same model and batches?

Each side runs in a process of its own, as its users start it. On one core, in float32,
the two begin with the same weights and take turns step by step, so that a slow moment
of the machine meets both. An accelerator cannot hold both at 1.4 B: there, in bfloat16,
whole processes take turns.
"""

import functools
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from eval.speed.measure import (
    import_torch,
    in_fresh_process,
    interleaved,
    median_ratio,
    peak_memory_gb,
    random_ids,
)
from eval.speed.subjects import (
    Subject,
    decoder_of,
    jax_peak,
    opened_torch,
    subject,
    torch_device,
    torch_model,
    torch_peak,
)
from train.flops import forward_flops

Step = Callable[[], Any]
"""Trains on one batch; the loss before it, perhaps still on the device."""

_CORE_SIZE, _CORE_RATE, _RATE = "30m", 1e-3, 1e-4
_BETAS, _DECAY, _CLIP = (0.9, 0.95), 0.1, 1.0
# Adam divides by the root of its second moment: roundings grow from step to step.
_COMPARED_STEPS = 3
_MOST_DIFFERENCE = 1e-3
_TURNS, _WARM_STEPS, _STEPS_A_ROUND = 2, 2, 5
# Random weights of the two sides are not the same; both begin near a uniform guess.
_MOST_FIRST_LOSS = 1.0


def measure_core(rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Tokens a second of both sides on one core, and how far their losses differ.

    Raises:
        RuntimeError: If the losses of the first steps differ: not the same work.
    """
    from jaxcontam.models.checkpoint import save_checkpoint

    n_rows, n_targets = (2, 32) if tiny else (8, 512)
    V = subject(_CORE_SIZE, tiny=tiny).config.vocab_size
    batch = np.stack(random_ids(V, [n_targets + 1] * n_rows, seed=1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(
            decoder_of(_CORE_SIZE, tiny=tiny), None, folder, model_type="gpt2"
        )
        sides = {
            "jaxcontam": _Side(_our_core_step, folder, batch),
            "torch": _Side(_torch_core_step, folder, batch),
        }
        try:
            losses = {
                name: [side.step() for _ in range(_COMPARED_STEPS)]
                for name, side in sides.items()
            }
            timed = interleaved(
                {name: side.step for name, side in sides.items()}, rounds
            )
        finally:
            for side in sides.values():
                side.close()
    ours, theirs = losses["jaxcontam"], losses["torch"]
    gap = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if not gap <= _MOST_DIFFERENCE:
        raise RuntimeError(f"the two sides do not train the same model: {losses}")
    return {
        **_rates(timed.seconds, n_rows, n_targets),
        "n_losses": _COMPARED_STEPS,
        "largest_difference": gap,
    }


def measure_training(size: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """One shape on an accelerator: rates, the ratio to torch, share of the peak.

    That share counts three forward passes a step, whatever is computed again.

    Args:
        size: Name of a shape in subjects.toml.
        rounds: Rounds of each turn of a side; a round is some steps.
        tiny: On any device, a model whose numbers mean nothing.

    Raises:
        RuntimeError: If a side's first loss is not that of a random model.
    """
    chosen = subject(size, tiny=tiny)
    config = chosen.config
    sides = ["jaxcontam"]
    if torch_device(on_cpu=tiny) is not None:
        sides.append("torch")
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(1 if tiny else _TURNS):
        for name in sides:
            turns[name].append(in_fresh_process(_turn, name, size, rounds, tiny))
    seconds = {
        name: [one for turn in found for one in turn["seconds"]]
        for name, found in turns.items()
    }
    peaks = {name: max(turn["peak"] for turn in found) for name, found in turns.items()}
    flops = 3.0 * forward_flops(config, [config.context] * chosen.n_rows)
    return {
        **_rates(seconds, chosen.n_rows, config.context),
        "remat": chosen.remat,
        "micro_batches": chosen.micro_batches,
        "first_losses": {name: found[0]["loss"] for name, found in turns.items()},
        "gflop_per_token": 1e-9 * flops / (chosen.n_rows * config.context),
        "peak_tflops": {name: 1e-12 * peak for name, peak in peaks.items()},
        "utilisation": {
            name: flops / statistics.median(found) / max(peaks.values())
            for name, found in seconds.items()
        },
        "memory_gb": {name: found[0]["memory_gb"] for name, found in turns.items()},
    }


def _rates(
    seconds: Mapping[str, Sequence[float]], n_rows: int, n_targets: int
) -> dict[str, Any]:
    """Tokens a second of each side, and how often ours steps while torch does."""
    ratio = None
    if "torch" in seconds:
        ratio = median_ratio(seconds["torch"], seconds["jaxcontam"])
    return {
        "rows": n_rows,
        "row_tokens": n_targets,
        "tokens_per_second": {
            name: [n_rows * n_targets / one for one in own]
            for name, own in seconds.items()
        },
        "ratio": ratio,
    }


class _Side:
    """A process that makes a step when it is asked to."""

    def __init__(self, make: Callable[..., Step], folder: Path, batch: np.ndarray):
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(make, folder, batch, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def step(self) -> float:
        """The loss before the step.

        Raises:
            EOFError: If the process ended.
        """
        self._ours.send(True)
        return self._ours.recv()

    def close(self) -> None:
        self._ours.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.terminate()


def _serve(
    make: Callable[..., Step], folder: Path, batch: np.ndarray, asked: Connection
) -> None:
    step = make(folder, batch)
    try:
        while asked.recv():
            asked.send(float(step()))
    except EOFError:
        return


def _our_core_step(folder: Path, batch: np.ndarray) -> Step:
    from jaxcontam.processes import keep_freed_memory

    # As `train.pretrain` does for small models.
    keep_freed_memory()
    from jaxcontam.models.checkpoint import load_decoder

    return _our_step(load_decoder(folder), batch, rate=_CORE_RATE)


def _torch_core_step(folder: Path, batch: np.ndarray) -> Step:
    torch = import_torch()
    model = opened_torch(folder, "cpu", torch.float32)
    return _torch_step(model, batch, rate=_CORE_RATE)


def _turn(side: str, size: str, rounds: int, tiny: bool) -> dict[str, Any]:
    """Seconds a step of one side, its first loss, its peak and its memory."""
    chosen = subject(size, tiny=tiny)
    config = chosen.config
    rng = np.random.default_rng(0)
    shape = (chosen.n_rows, config.context + 1)
    batch = rng.integers(config.vocab_size, size=shape, dtype=np.int32)
    memory_gb: Callable[[], float | None] = peak_memory_gb
    if side == "torch":
        device = torch_device(on_cpu=tiny)
        assert device is not None, "asked for where torch has a device"
        import torch

        peak = torch_peak(rounds, device, tiny=tiny)
        # What is left in float32 may use the tensor cores too.
        torch.set_float32_matmul_precision("high")
        model = torch_model(config, device, torch.float32)
        step = _torch_step(model, batch, rate=_RATE, like=chosen)
        if device == "cuda":
            memory_gb = lambda: 1e-9 * torch.cuda.max_memory_allocated()  # noqa: E731
        else:
            memory_gb = lambda: None  # noqa: E731
    else:
        from flax import nnx

        from jaxcontam.models.decoder import Decoder

        peak = jax_peak(rounds, tiny=tiny)
        decoder = Decoder(config, rngs=nnx.Rngs(0))
        step = _our_step(decoder, batch, rate=_RATE, like=chosen)
        del decoder
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
    return {"seconds": seconds, "loss": loss, "peak": peak, "memory_gb": memory_gb()}


def _our_step(
    decoder: Any, batch: np.ndarray, *, rate: float, like: Subject | None = None
) -> Step:
    """`train.step` as `train.pretrain` runs it on one device, at a constant rate.

    It computes in bfloat16 as `like` says; None computes plainly in float32.
    """
    import jax
    import optax
    from flax import nnx

    from train.loss import PLAIN, Compute
    from train.step import training_step

    compute = PLAIN
    if like is not None:
        compute = Compute(
            dtype="bfloat16", remat=like.remat, micro_batches=like.micro_batches
        )
    graphdef, params = nnx.split(decoder)
    optimizer = optax.chain(
        optax.clip_by_global_norm(_CLIP),
        optax.adamw(rate, b1=_BETAS[0], b2=_BETAS[1], weight_decay=_DECAY),
    )
    state = [params, jax.jit(optimizer.init)(params)]
    update = jax.jit(
        functools.partial(training_step, graphdef, optimizer, compute=compute),
        donate_argnums=(0, 1),
    )
    rows = jax.device_put(batch)

    def step() -> Any:
        *state[:], metrics = update(*state, rows)
        return metrics["loss"]

    return step


def _torch_step(
    model: Any, batch: np.ndarray, *, rate: float, like: Subject | None = None
) -> Step:
    """The usual loop: float32 weights, sdpa, AdamW; in bfloat16 by autocast."""
    import torch

    device = model.device.type
    model.train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if like is not None and like.remat:
        compute_blocks_again(model)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=rate,
        betas=_BETAS,
        weight_decay=_DECAY,
        fused=like is not None,
    )
    n_parts = 1 if like is None else like.micro_batches
    tokens = torch.from_numpy(batch.astype(np.int64)).to(device)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for part in tokens.chunk(n_parts):
            with torch.autocast(device, torch.bfloat16, enabled=like is not None):
                logits = model(input_ids=part[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), part[:, 1:].flatten()
            )
            (loss / n_parts).backward()
            total += loss.detach() / n_parts
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        return total

    return step


def compute_blocks_again(model: Any) -> None:
    """Rematerialise; transformers 5 renamed the method on the way."""
    newer = getattr(model, "activation_checkpointing_enable", None)
    (newer or model.gradient_checkpointing_enable)()
