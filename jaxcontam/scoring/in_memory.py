"""Models that are there already: a function, a torch model, an nnx decoder, vLLM."""

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.encoding import (
    CharacterTokenizer,
    Encoder,
    text_of,
    text_tokenizer,
)
from jaxcontam.errors import InputError, first_line
from jaxcontam.scoring.asked import Ask, AskedScorer, Request, make_asked_scorer
from jaxcontam.scoring.opened import (
    VLLM_PREFIX,
    ModelInfo,
    OpenModel,
    opened_checkpoint,
)

LogLikelihoods = Callable[[list[tuple[str, str]]], Any]
"""(context, continuation) strings -> log p(continuation | context) of each, nats."""

UNBOUNDED = 2**31 - 1
"""Context of what is not windowed: a function must read what it is given."""

# Positions of a batch; its logits are [positions, vocabulary].
_BATCH_TOKENS = 2_048
_NO_CACHE = "vLLM gives no log-probabilities of cached prompt tokens"
_CACHE_OFF = "LLM(..., enable_prefix_caching=False)"
# Values of each weight that enter a digest in memory, beside its sum.
_DIGEST_VALUES = 1_024


def opened_function(function: LogLikelihoods) -> OpenModel:
    """A function as a model; lengths are characters, for it needs no tokenizer."""
    name = getattr(function, "__name__", type(function).__name__).strip("<>")

    def ask(requests: Sequence[Request]) -> Any:
        return function([(text_of(one), text_of(own)) for one, own in requests])

    return opened_asked(
        ask,
        name=name,
        fingerprint=_digest(name),
        tokenizer=CharacterTokenizer(),
        prefix_id=None,
        context=UNBOUNDED,
        has_tokens=False,
    )


def opened_torch(model: Any, tokenizer: Any) -> OpenModel:
    """A `PreTrainedModel` that gives logits, on its device; its mode is put back."""
    config = model.config.to_dict()
    fields = ("max_position_embeddings", "n_positions", "n_ctx")
    named = [config[f] for f in fields if isinstance(config.get(f), int)]
    encoder, prefix_id = _tokenizer(tokenizer, config)
    parts = [str(sorted(config.items(), key=str))]
    for name, value in model.state_dict().items():
        flat = value.detach().reshape(-1)
        parts += [
            f"{name} {tuple(value.shape)} {value.dtype}",
            flat[:_DIGEST_VALUES].double().cpu().numpy().tobytes().hex(),
            float(flat.double().sum()).hex(),
        ]
    return opened_asked(
        functools.partial(_torch_logprobs, model),
        name=getattr(model, "name_or_path", "") or type(model).__name__,
        fingerprint=_digest(*parts),
        tokenizer=encoder,
        prefix_id=prefix_id,
        # Where a config says nothing.
        context=named[0] if named else 2_048,
        has_tokens=True,
        dtype=str(model.dtype).removeprefix("torch."),
        n_parameters=sum(value.numel() for value in model.parameters()),
        vocab_size=config.get("vocab_size"),
    )


def open_vllm(word: str, *, context: int | None = None) -> OpenModel:
    """Start the engine that `vllm:NAME` names, in this process, to read prompts.

    NAME is what `vllm.LLM` takes as a model; without a context it is the model's own.
    """
    # JAX would take most of a device's memory as soon as it looks for one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        from vllm import LLM  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise InputError(
            f"{word}: the package vllm is not installed",
            hint="pip install vllm, or start it elsewhere (api:URL#NAME)",
        ) from e
    try:
        llm = LLM(
            model=word.removeprefix(VLLM_PREFIX),
            max_model_len=None if context is None else context + 1,
            # What is cached has no log-probabilities, or those of another request.
            enable_prefix_caching=False,
            # Log-probabilities of a step's prompt tokens take a vocabulary each, which
            # vLLM does not reckon with: few tokens at once, and memory left for them.
            max_num_batched_tokens=_BATCH_TOKENS,
            gpu_memory_utilization=0.8,
        )
    except (OSError, ValueError, RuntimeError) as e:
        raise InputError(f"{word}: {first_line(e)}") from e
    return opened_vllm(llm)


def opened_vllm(llm: Any) -> OpenModel:
    """An offline `vllm.LLM`, asked for the log-probabilities of its prompts.

    Its prefix cache must be off: for cached prompt tokens vLLM gives nothing, or what
    depends on the order of requests.
    """
    cache = getattr(llm.llm_engine, "vllm_config", llm.llm_engine).cache_config
    if cache.enable_prefix_caching:
        raise InputError(_NO_CACHE, hint=_CACHE_OFF)
    config = llm.llm_engine.model_config
    folder = Path(str(getattr(config, "tokenizer", config.model)))
    if folder.is_dir():
        from jaxcontam.scoring.remote import read_local_tokenizer

        # The engine's own may be built by a class that reads other ids.
        local = read_local_tokenizer(folder)
        encoder, prefix_id = local.encoder, local.prefix_id
    else:
        encoder, prefix_id = _tokenizer(llm.get_tokenizer(), {})
    return opened_asked(
        functools.partial(_vllm_logprobs, llm),
        name=str(config.model),
        fingerprint=_digest("vllm", str(config.model), str(config.dtype)),
        tokenizer=encoder,
        prefix_id=prefix_id,
        # One id is written, and stands in the context, too.
        context=int(config.max_model_len) - 1,
        has_tokens=True,
        dtype=str(config.dtype).removeprefix("torch."),
    )


def opened_decoder(decoder: Any, tokenizer: Any) -> OpenModel:
    """A `Decoder`, such as one that is being trained, with the tokenizer of its ids."""
    import jax
    from flax import nnx

    from jaxcontam.models.checkpoint import Checkpoint

    encoder, prefix_id = _tokenizer(tokenizer, {})
    parts = [repr(decoder.config)]
    for path, leaf in jax.tree.leaves_with_path(nnx.state(decoder)):
        parts += [
            f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}",
            np.asarray(leaf.ravel()[:_DIGEST_VALUES], np.float64).tobytes().hex(),
            float(leaf.astype("float32").sum()).hex(),
        ]
    fingerprint = _digest(*parts)
    return opened_checkpoint(
        Checkpoint("decoder", decoder, encoder, prefix_id, fingerprint)  # pyright: ignore
    )


def opened_asked(
    ask: Ask,
    *,
    name: str,
    fingerprint: str,
    tokenizer: Encoder,
    prefix_id: int | None,
    context: int,
    has_tokens: bool,
    dtype: str = "unknown",
    n_parameters: int | None = None,
    vocab_size: int | None = None,
) -> OpenModel:
    """A function of requests as a model; `has_tokens` as for `AskedScorer`."""
    scorer = AskedScorer(
        ask,
        name=name,
        context=context,
        ids=not isinstance(tokenizer, CharacterTokenizer),
        has_tokens=has_tokens,
    )
    return OpenModel(
        name="".join(c if c.isalnum() or c in "-._" else "-" for c in name),
        fingerprint=fingerprint,
        tokenizer=tokenizer,
        prefix_id=prefix_id,
        context=context,
        info=ModelInfo(
            name=name,
            fingerprint=fingerprint,
            n_parameters=n_parameters,
            dtype=dtype,
            precision="unknown",
            context=None if context == UNBOUNDED else context,
        ),
        device=None,
        checkpoint=None,
        make_scorer=functools.partial(make_asked_scorer, scorer),
        vocab_size=vocab_size,
        notes=lambda: scorer.notes,
    )


def _tokenizer(tokenizer: Any, config: dict[str, Any]) -> tuple[Any, int | None]:
    """The plain tokenizer, and the id before a text, chosen as for a checkpoint."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise InputError(
            "a model in memory needs its fast tokenizer "
            f"(got {type(tokenizer).__name__})",
            hint="tokenizer=AutoTokenizer.from_pretrained(...)",
        )
    for prefix_id in (
        getattr(tokenizer, "bos_token_id", None),
        config.get("bos_token_id"),
        getattr(tokenizer, "eos_token_id", None),
    ):
        if isinstance(prefix_id, int):
            return text_tokenizer(backend), prefix_id
    return text_tokenizer(backend), None


def _torch_logprobs(model: Any, requests: Sequence[Request]) -> list[np.ndarray]:
    """Log-probabilities of continuations, in padded batches of like lengths."""
    import torch

    lengths = [len(context) + len(own) for context, own in requests]
    by_length = sorted(range(len(requests)), key=lambda i: lengths[i])
    found: list[np.ndarray] = [np.empty(0)] * len(requests)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            while by_length:
                # The longest first: memory is known to suffice from there on.
                n_rows = max(1, _BATCH_TOKENS // lengths[by_length[-1]])
                batch, by_length = by_length[-n_rows:], by_length[:-n_rows]
                longest = max(lengths[i] for i in batch)
                ids_BT, mask_BT = np.zeros((2, len(batch), longest), np.int64)
                for row, i in enumerate(batch):
                    ids_BT[row, : lengths[i]] = np.concatenate(requests[i])
                    mask_BT[row, : lengths[i]] = 1
                ids = torch.from_numpy(ids_BT).to(model.device)
                mask = torch.from_numpy(mask_BT).to(model.device)
                logits_BTV = model(input_ids=ids, attention_mask=mask).logits
                for row, i in enumerate(batch):
                    first = len(requests[i][0])
                    # The logits at t score the id at t + 1.
                    logprobs_TV = torch.log_softmax(
                        logits_BTV[row, first - 1 : lengths[i] - 1].float(), dim=-1
                    )
                    own = ids[row, first : lengths[i], None]
                    found[i] = logprobs_TV.gather(1, own)[:, 0].cpu().numpy()
    finally:
        model.train(was_training)
    return found


def _vllm_logprobs(llm: Any, requests: Sequence[Request]) -> list[np.ndarray]:
    """Log-probabilities of continuations from `prompt_logprobs`."""
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    prompts = [
        {"prompt_token_ids": np.concatenate(request).tolist()} for request in requests
    ]
    found = []
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for request, prompt, output in zip(requests, prompts, outputs, strict=True):
        ids, n = prompt["prompt_token_ids"], len(request[0])
        entries = output.prompt_logprobs[n:]
        if any(entry is None for entry in entries):
            raise InputError(_NO_CACHE, hint=_CACHE_OFF)
        pairs = zip(entries, ids[n:], strict=True)
        found.append(np.array([entry[i].logprob for entry, i in pairs]))
    return found


def _digest(*parts: str) -> str:
    """SHA-256 of parts; of weights in memory it tells versions apart, not forgeries."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() + b"\0")
    return f"sha256:{found.hexdigest()}"
