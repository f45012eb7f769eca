"""A stand-in for a server: completions with a model's log-probabilities."""

import contextlib
import itertools
import threading

import jax
import numpy as np

from tests.support.api_server import serving

_N_LIKELIEST = 5
# JAX compiles once, whatever the number of clients that ask together.
_lock = threading.Lock()


@contextlib.contextmanager
def running_server(checkpoint):
    """Yields the URL of a server of one model, for as long as the block lasts."""

    def answer(body, *_):
        if body["model"] != checkpoint.name:
            return 404, {"error": {"message": f"no model {body['model']!r} here"}}
        prompts = body["prompt"]
        if isinstance(prompts, str) or isinstance(prompts[0], int):
            prompts = [prompts]
        try:
            with _lock:
                choices = [_choice(checkpoint, prompt, body) for prompt in prompts]
        except ValueError as e:
            return 400, {"error": {"message": str(e)}}
        n_new = body["max_tokens"] * len(prompts)
        n_prompt = sum(choice.pop("n_prompt") for choice in choices)
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_new}
        return 200, {"choices": choices, "model": body["model"], "usage": usage}

    with serving(answer) as (url, _):
        yield url


def logprobs_of(decoder, ids):
    """(n_ids, V) float32, log-probabilities of what follows each id."""
    padded_BT = np.zeros((1, decoder.config.context), np.int32)
    padded_BT[0, : len(ids)] = ids
    return np.asarray(_read(decoder, padded_BT))[: len(ids)]


@jax.jit
def _read(decoder, ids_BT):
    with jax.default_matmul_precision("highest"):
        return jax.nn.log_softmax(decoder(ids_BT)[0] @ decoder.head_VD.T)


def _choice(checkpoint, prompt, body):
    tokenizer, decoder = checkpoint.tokenizer, checkpoint.decoder
    if isinstance(prompt, str):
        encoding = tokenizer.encode(prompt, add_special_tokens=False)
        ids = [checkpoint.prefix_id, *encoding.ids]
        pieces = ["", *(prompt[start:end] for start, end in encoding.offsets)]
    else:
        ids, pieces = list(prompt), [_word(tokenizer, i) for i in prompt]
    n_prompt = len(ids)
    if n_prompt + body["max_tokens"] > decoder.config.context:
        raise ValueError(f"the context is of {decoder.config.context} tokens")
    for _ in range(body["max_tokens"]):
        ids.append(int(logprobs_of(decoder, ids)[-1].argmax()))
        pieces.append(_word(tokenizer, ids[-1]))
    table_TV = logprobs_of(decoder, ids)
    own, likeliest = [None], [None]
    for logprobs_V, target in zip(table_TV[:-1], ids[1:], strict=True):
        own.append(float(logprobs_V[target]))
        best = np.argsort(-logprobs_V)[:_N_LIKELIEST].tolist()
        likeliest.append({_word(tokenizer, i): float(logprobs_V[i]) for i in best})
    first = 0 if body.get("echo") else n_prompt
    ends = itertools.accumulate(map(len, pieces), initial=0)
    logprobs = {
        "tokens": pieces[first:],
        "token_logprobs": own[first:],
        "top_logprobs": likeliest[first:],
        "text_offset": [*ends][first:-1],
    }
    text = "".join(pieces[first:])
    return {"text": text, "n_prompt": n_prompt, "logprobs": logprobs}


def _word(tokenizer, token):
    return tokenizer.decode([token], skip_special_tokens=False)
