"""Does training go as torch's does?

Question: how far apart are the losses of `train.loop` and of transformers' model under
`torch.optim.AdamW`, from the same weights, on the same rows in the same order, with the
same schedule and constants, and how far apart are those of two seeds?
Command: `python -m eval.torch_curve` (needs torch). Hardware: 2 CPU cores, half an hour.
Headline: docs/log has the table.

A seed is that of the weights and of the order of the rows, drawn from Python's
documentation. Finished runs are kept.
"""

import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from eval.python_docs import read_python_docs
from eval.speed.measure import import_torch
from eval.speed.subjects import opened_torch
from eval.study import Clock, Grid, Records, StudyFlags, finish_study, run_study, say
from jaxcontam.models.checkpoint import save_checkpoint
from train.config import PRESETS, Config, config_to_json
from train.data import Rows, row_batches
from train.loop import Watch, train
from train.optimizer import learning_rate
from train.step import fresh_decoder
from train.tokens import BOS, train_tokenizer

_SEEDS = 3
# Losses are compared as means over so many parts of the steps: batches differ.
_WINDOWS = 10
# Optax's default, which `train.step` leaves as it is.
_EPS = 1e-8
# Modules of transformers that hold embeddings and heads, which are no kernels here.
_UNDECAYED = {"embed_tokens", "wte", "wpe", "lm_head"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TorchCurve(StudyFlags):
    """Train the same model here and in torch, and compare the losses."""

    preset: str = "5m"
    """Shape, batch and constants."""
    steps: int = 400
    """Steps of each run, which are the schedule's."""
    out: Path = Path("runs/torch_curve")
    """Folder for the table and finished runs."""

    positive = ("steps",)

    def run(self) -> dict[str, Any]:
        """Train what is not there yet, print the table; returns what is written."""
        import_torch()
        clock = Clock.start()
        config = PRESETS["pulse" if self.tiny else self.preset]
        n_steps = 30 if self.tiny else self.steps
        ids = _ids(config)
        records = Records(self.out / "curves")
        curves: dict[str, list[float]] = {}
        for i in range(_SEEDS):
            for side in ("jaxcontam", "torch") if i == 0 else ("jaxcontam",):
                name, seed = f"{side}-{self.seed + i}", self.seed + i
                inputs = side, seed, n_steps, config_to_json(config)
                found = records.read(name, *inputs)
                if found is None:
                    say(f"{name}: {n_steps} steps of {config.step_tokens:,} tokens")
                    batches = _batches(config, ids, n_steps, seed)
                    losses = _SIDES[side](config, batches, n_steps, seed)
                    found = {"losses": losses}
                    records.write(name, found, *inputs)
                curves[name] = found["losses"]
        rows = rows_of(list(curves.values()))
        return finish_study(
            "torch_curve",
            self,
            clock=clock,
            numbers={"curves": curves, "rows": rows},
            grids=[_grid(rows)],
            earlier_seconds=records.earlier_seconds,
        )


def _ids(config: Config) -> np.ndarray:
    """Documents after their first id, in a row."""
    documents = read_python_docs().documents
    tokenizer = train_tokenizer(documents, config.decoder.vocab_size)
    return np.array(
        tokenizer("".join(f"{BOS}{text}" for text in documents))["input_ids"]
    )


def _batches(
    config: Config, ids: np.ndarray, n_steps: int, seed: int
) -> grain.DatasetIterator:
    """Rows in random order, as often through the text as it takes."""
    starts = np.arange(0, len(ids), config.context)
    rng = np.random.default_rng(seed)
    n_rows = n_steps * config.batch_rows
    epochs = [rng.permutation(starts) for _ in range(-(-n_rows // len(starts)))]
    rows = Rows(ids, np.concatenate(epochs)[:n_rows], config.context)
    return row_batches(rows, batch_rows=config.batch_rows, n_steps=n_steps)


def _ours(
    config: Config, batches: grain.DatasetIterator, n_steps: int, seed: int
) -> list[float]:
    losses: list[float] = []
    train(
        config,
        fresh_decoder(config.decoder, seed=seed, mesh=None),
        batches,
        n_steps=n_steps,
        watch=Watch(steps=lambda _, found: losses.extend(found["loss"].tolist())),
    )
    return losses


def _torch(
    config: Config, batches: grain.DatasetIterator, n_steps: int, seed: int
) -> list[float]:
    import torch

    decoder = fresh_decoder(config.decoder, seed=seed, mesh=None)
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(decoder, None, Path(folder), model_type=config.model_type)
        model = opened_torch(Path(folder), "cpu", torch.float32).train()
    groups = decay_groups(model)
    told = config.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": weights, "weight_decay": told.weight_decay if decays else 0.0}
            for decays, weights in groups.items()
        ],
        betas=(told.beta1, told.beta2),
        eps=_EPS,
    )
    rate: Any = learning_rate(told, n_steps)
    losses = []
    for step in range(n_steps):
        for group in optimizer.param_groups:
            group["lr"] = float(rate(step))
        tokens = torch.from_numpy(next(batches).astype(np.int64))
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), told.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


def decay_groups(model: Any) -> dict[bool, list[Any]]:
    """Weights that decay and those that do not, as `train.optimizer.kernels` has it."""
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for name, weight in model.named_parameters():
        # Biases and norms have one axis.
        groups[weight.ndim > 1 and not _UNDECAYED & {*name.split(".")}].append(weight)
    return groups


_SIDES = {"jaxcontam": _ours, "torch": _torch}


def rows_of(curves: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Means of the losses over parts of the steps: ours, torch's, other seeds'."""
    n_windows = min(_WINDOWS, len(curves[0]))
    ours, theirs, *others = (np.array_split(curve, n_windows) for curve in curves)
    steps = np.cumsum([len(part) for part in ours])
    found = []
    for i, step in enumerate(steps):
        seeds = [float(np.mean(curve[i])) for curve in (ours, *others)]
        found.append(
            {
                "steps": int(step),
                "jaxcontam": seeds[0],
                "torch": float(np.mean(theirs[i])),
                "largest": float(np.abs(ours[i] - theirs[i]).max()),
                "deviation": statistics.stdev(seeds),
            }
        )
    return found


def _grid(rows: Sequence[dict[str, Any]]) -> Grid:
    return Grid.of(
        "Mean loss of the steps up to this one, nats per token; the largest difference "
        f"of a step; the standard deviation of the mean between {_SEEDS} seeds.",
        rows,
        {
            "step": "{r[steps]:,}",
            "jaxcontam": "{r[jaxcontam]:.4f}",
            "torch": "{r[torch]:.4f}",
            "largest difference": "{r[largest]:.1e}",
            "between seeds": "{r[deviation]:.4f}",
        },
    )


if __name__ == "__main__":
    sys.exit(run_study("torch_curve", TorchCurve, trains=True))
