"""Models by the names that people give them, made one kind of thing."""

import dataclasses
from pathlib import Path
from typing import Any

from jaxcontam.arguments import Dtype, public
from jaxcontam.data.model_files import is_score_file
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import PREFIX as API_PREFIX
from jaxcontam.scoring.api.budget import ApiOptions
from jaxcontam.scoring.opened import (
    LM_EVAL_PREFIX,
    VLLM_PREFIX,
    OpenModel,
    opened_checkpoint,
)
from jaxcontam.scoring.parts import MeshShape
from jaxcontam.scoring.shares import Division, mesh_here


@public
def load(
    model: Any,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    api: ApiOptions | None = None,
    mesh: MeshShape | None = None,
    plan_only: bool = False,
    weights: bool = True,
    division: Division | None = None,
    beside: Any = None,
) -> OpenModel:
    """Load a model of any kind.

    A directory or a hub name is loaded, and compiled programs are kept from here on. A
    server is asked a few requests that show whether its numbers can be trusted.

    Args:
        model: A directory or hub name; `api:URL#NAME`; `vllm:NAME`;
            `lm_eval:TYPE:ARGS`; a .jsonl file of scores; a causal model of transformers
            or a decoder of ours in memory, with its tokenizer; a `vllm.LLM`; a function
            `log_likelihoods(pairs)` that takes (context, continuation) strings and
            returns log p(continuation | context) in nats; or an `OpenModel`.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a model directory.
        api: How to talk to a server; of it others take the context alone.
        mesh: How devices share the work of a directory. None: each has a copy.
        plan_only: Nothing will be scored: ask no server.
        weights: False for a plan that times nothing: a directory's weights are not
            read.
        division: What this process scores of a directory. None: everything.
        beside: The model that this one is a reference for, whose server's key no other
            server sees: that of a reference elsewhere is REFERENCE_API_KEY.
    """
    if isinstance(model, OpenModel):
        return model
    if not isinstance(model, str | Path):
        return _in_memory(model, tokenizer)
    word = str(model)
    if word.startswith(API_PREFIX):
        from jaxcontam.scoring.remote import open_api

        options = api or ApiOptions()
        return open_api(word, options, plan_only=plan_only, beside=beside)
    if word.startswith(LM_EVAL_PREFIX):
        from jaxcontam.scoring.lm_eval_model import open_lm_eval

        return open_lm_eval(word)
    if is_score_file(word):
        from jaxcontam.scoring.score_file import open_score_file

        return open_score_file(Path(word))
    context = None if api is None else api.context
    if word.startswith(VLLM_PREFIX):
        from jaxcontam.scoring.in_memory import open_vllm

        return open_vllm(word, context=context)
    from jaxcontam.models.checkpoint import load_checkpoint
    from jaxcontam.scoring.identity import keep_compiled

    keep_compiled()
    devices = mesh_here(mesh or MeshShape())
    checkpoint = load_checkpoint(
        word, dtype=dtype, mesh=devices, context=context, values=weights
    )
    return opened_checkpoint(checkpoint, division=division)


def _in_memory(model: Any, tokenizer: Any) -> OpenModel:
    from jaxcontam.scoring import in_memory

    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "vllm" in packages:
        return in_memory.opened_vllm(model)
    if "torch" in packages and hasattr(model, "config"):
        opened = in_memory.opened_torch(model, tokenizer)
        return dataclasses.replace(opened, given_tokenizer=tokenizer)
    if {"flax", "jaxcontam"} <= packages:
        opened = in_memory.opened_decoder(model, tokenizer)
        return dataclasses.replace(opened, given_tokenizer=tokenizer)
    if callable(model):
        return in_memory.opened_function(model)
    raise InputError(
        f"not a model: {type(model).__name__}",
        hint="give a directory, a hub name, api:URL#NAME, a transformers model with "
        "its tokenizer, or a function log_likelihoods(pairs)",
    )
