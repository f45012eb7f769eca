"""The optimiser and its learning rate.

To add one: its name as a choice of `Optimizer.optimizer`, its flags as fields beside,
and a branch of `make_optimizer`. State of any form is sharded, kept and resumed.
Weights of layers are stacked, so that norms have two axes and kernels three.
"""

import dataclasses
from typing import Any, Literal

import jax
import optax

from train.options import ABOVE_0, AT_LEAST_0, BELOW_1, SHARE, option


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How weights are updated."""

    optimizer: Literal["adamw"] = option("adamw", "Update rule, on clipped gradients")
    peak_rate: float = option(..., "Largest learning rate", ABOVE_0)
    schedule: Literal["cosine", "constant"] = option(
        "cosine", "Learning rate after the warm-up"
    )
    warmup: float = option(0.05, "Share of the steps that the warm-up takes", SHARE)
    final_rate: float = option(0.1, "Share of the peak that the cosine ends at", SHARE)
    beta1: float = option(0.9, "AdamW's decay of the first moment", BELOW_1)
    beta2: float = option(0.95, "AdamW's decay of the second moment", BELOW_1)
    weight_decay: float = option(0.1, "AdamW's weight decay, of kernels", AT_LEAST_0)
    clip_norm: float = option(1.0, "Largest norm of the gradient", ABOVE_0)


def make_optimizer(options: Optimizer, n_steps: int) -> optax.GradientTransformation:
    """Updates of clipped gradients, with the learning rate of `n_steps`."""
    if options.optimizer != "adamw":
        raise ValueError(f"optimizer must be 'adamw', got {options.optimizer!r}")
    rate = learning_rate(options, n_steps)
    rule = optax.adamw(
        rate,
        b1=options.beta1,
        b2=options.beta2,
        weight_decay=options.weight_decay,
        mask=kernels,
    )
    return optax.chain(optax.clip_by_global_norm(options.clip_norm), rule)


def kernels(params: Any) -> Any:
    """A tree, true at kernels: norms, biases and embeddings set scales."""
    return jax.tree.map_with_path(
        lambda path, _: any(getattr(part, "key", None) == "kernel" for part in path),
        params,
    )


def learning_rate(options: Optimizer, n_steps: int) -> optax.Schedule:
    """Rate of each of `n_steps`, from 0."""
    n_warm = max(1, round(options.warmup * n_steps))
    if options.schedule == "constant":
        return optax.warmup_constant_schedule(0.0, options.peak_rate, n_warm)
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=options.peak_rate,
        warmup_steps=n_warm,
        decay_steps=max(2, n_steps),
        end_value=options.final_rate * options.peak_rate,
    )
