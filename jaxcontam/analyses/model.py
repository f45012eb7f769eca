"""What people call a model, made one kind of thing."""

from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.budget import ApiOptions
from jaxcontam.scoring.mesh_shape import MeshShape
from jaxcontam.scoring.opened import OpenModel, open_model


def load(
    model: Any,
    *,
    tokenizer: Any = None,
    dtype: str = "float32",
    api: ApiOptions | None = None,
    mesh: MeshShape | None = None,
    plan_only: bool = False,
) -> OpenModel:
    """Load a model of any kind.

    Args:
        model: A directory or hub name; `api:URL#NAME`; `lm_eval:TYPE:ARGS`; a causal
            model of transformers or a decoder of ours in memory, with its tokenizer; a
            `vllm.LLM`; a function `log_likelihoods(pairs)` that takes (context,
            continuation) strings and returns log p(continuation | context) in nats; or
            what this function returned before.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a model directory.
        api: How to talk to a server.
        mesh: How devices share the work; None puts a copy on each.
        plan_only: Nothing will be scored: ask no server.

    Raises:
        InputError: If it is none of these, or its numbers are no log-probabilities.
    """
    if isinstance(model, OpenModel):
        return model
    if isinstance(model, str | Path):
        return open_model(
            str(model), dtype=dtype, api=api, mesh=mesh, plan_only=plan_only
        )
    from jaxcontam.scoring import in_memory

    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "vllm" in packages:
        return in_memory.opened_vllm(model)
    if "torch" in packages and hasattr(model, "config"):
        return in_memory.opened_torch(model, tokenizer)
    if {"flax", "jaxcontam"} <= packages:
        return in_memory.opened_decoder(model, tokenizer)
    if callable(model):
        return in_memory.opened_function(model)
    raise InputError(
        f"no model: {type(model).__name__}",
        hint="give a directory, a hub name, api:URL#NAME, a transformers model with "
        "its tokenizer, or a function log_likelihoods(pairs)",
    )
