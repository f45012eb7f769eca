"""Is a training step faster than a plain torch loop on the same model and batches?

Each side runs in its own process on the one core, as its users start it: ours with
the memory settings that `train.pretrain` gives itself, torch as it is. They take turns
step by step, so that a slow moment of the machine meets both.
"""

import multiprocessing
import statistics
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from eval.speed.measure import (
    decoder_of,
    interleaved,
    median_ratio,
    random_ids,
    shape_of,
)

_SIZE = "30m"
_RATE = 1e-3
# Adam divides by the root of its second moment: roundings grow from step to step.
_COMPARED_STEPS = 3


def measure_train(rounds: int, *, tiny: bool) -> dict:
    """Tokens a second of both sides, their ratio, and how far their losses differ.

    Args:
        rounds: Steps of each side after the first ones, which compile.
        tiny: A small model, whose numbers mean nothing.

    Raises:
        RuntimeError: If the losses of the first steps differ: not the same work.
    """
    from jaxcontam.models.checkpoint import save_checkpoint

    n_rows, n_targets = (2, 32) if tiny else (8, 512)
    batches = np.stack(
        random_ids(
            shape_of(_SIZE, tiny=tiny).vocab_size, [n_targets + 1] * n_rows, seed=1
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        save_checkpoint(decoder_of(_SIZE, tiny=tiny), None, folder, model_type="gpt2")
        sides = {
            "jaxcontam": _Side(_our_steps, folder, batches),
            "torch": _Side(_torch_steps, folder, batches),
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
    gap = max(
        abs(a - b) for a, b in zip(losses["jaxcontam"], losses["torch"], strict=True)
    )
    if gap > 1e-3:
        raise RuntimeError(f"the two sides do not train the same model: {losses}")
    return {
        "rows": n_rows,
        "row_tokens": n_targets,
        "seconds": timed.seconds,
        "tokens_per_second": {
            name: [n_rows * n_targets / one for one in seconds]
            for name, seconds in timed.seconds.items()
        },
        "median_seconds": {
            name: statistics.median(seconds) for name, seconds in timed.seconds.items()
        },
        "ratio": median_ratio(timed.seconds["torch"], timed.seconds["jaxcontam"]),
        "n_losses": _COMPARED_STEPS,
        "largest_difference": gap,
    }


class _Side:
    """A process that makes a step when it is asked to."""

    def __init__(self, steps: Callable, folder: Path, batch: np.ndarray):
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(steps, str(folder), batch, theirs), daemon=True
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


def _serve(steps: Callable, folder: str, batch: np.ndarray, asked: Connection) -> None:
    step = steps(Path(folder), batch)
    try:
        while asked.recv():
            asked.send(step())
    except EOFError:
        return


def _our_steps(folder: Path, batch: np.ndarray) -> Callable[[], float]:
    """`train.step` with a constant rate and no clipping, as in the plain loop."""
    from train.population_workers import keep_freed_memory

    keep_freed_memory()
    import functools

    import jax
    import optax
    from flax import nnx

    from jaxcontam.models.checkpoint import load_decoder
    from train.step import training_step

    graphdef, params = nnx.split(load_decoder(folder))
    optimizer = optax.adamw(_RATE, weight_decay=0.01)
    state = [params, optimizer.init(params)]
    update = jax.jit(
        functools.partial(training_step, graphdef, optimizer), donate_argnums=(0, 1)
    )

    def step() -> float:
        *state[:], loss = update(*state, batch)
        return float(loss)

    return step


def _torch_steps(folder: Path, batch: np.ndarray) -> Callable[[], float]:
    """The loop of the tutorials: loss from the model, backward, AdamW."""
    from eval.speed.measure import import_torch

    torch = import_torch()
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder,
        attn_implementation="sdpa",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=_RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    tokens = torch.from_numpy(batch.astype(np.int64))

    def step() -> float:
        optimizer.zero_grad()
        # The model shifts the labels itself.
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
