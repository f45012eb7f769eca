"""A tiny model that knows texts, and the same one tuned away from half of them."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.scoring.kernel import target_scores
from tests.membership_model import drawn_texts, fresh_decoder, tokenizer

N_TEXTS, N_WORDS, PROMPT_WORDS = 8, 10, 4
FORGOTTEN = drawn_texts(N_TEXTS, seed=21, n_words=N_WORDS)
KEPT = drawn_texts(N_TEXTS, seed=22, n_words=N_WORDS)
# Some tokens are random in every step: a model that is certain of all texts has scores
# near 0, whose ratios say nothing.
_NOISE = 0.1


@functools.cache
def tuned_pair():
    """The model that knows all texts, and the one that was tuned away from a half.

    For the texts that are to be forgotten the second one learns another continuation of
    each beginning, as in Eldan and Russinovich, arXiv:2310.02238.
    """
    original = _trained(fresh_decoder(), FORGOTTEN + KEPT, steps=180, seed=0)
    others = drawn_texts(N_TEXTS, seed=23, n_words=N_WORDS)
    replaced = [
        " ".join(text.split()[:PROMPT_WORDS] + other.split()[PROMPT_WORDS:])
        for text, other in zip(FORGOTTEN, others, strict=True)
    ]
    unlearned = _trained(original, replaced + KEPT, steps=70, seed=1)
    return original, unlearned


def write_pair(folder: Path):
    """Directories of both models, and the texts as a table."""
    for name, decoder in zip(("original", "unlearned"), tuned_pair(), strict=True):
        save_checkpoint(decoder, tokenizer(), folder / name)
    texts = folder / "texts.jsonl"
    rows = [{"text": text} for text in FORGOTTEN + KEPT]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "original", folder / "unlearned", texts


def _trained(decoder, texts, *, steps, seed):
    graphdef, state = nnx.split(decoder)
    ids = [
        [tokenizer().bos_token_id, *tokenizer()(text)["input_ids"]] for text in texts
    ]
    longest = max(map(len, ids))
    padded_BT = np.array([row + [0] * (longest - len(row)) for row in ids], np.int32)
    counts_BS = np.arange(1, longest)[None] < np.array([len(r) for r in ids])[:, None]
    optimiser = optax.adam(optax.cosine_decay_schedule(2e-2, steps, alpha=0.05))

    @jax.jit
    def step(state, moments, tokens_BT):
        def loss(state):
            model = nnx.merge(graphdef, state)
            hidden = model(tokens_BT[:, :-1])
            scores = target_scores(
                hidden.reshape(-1, hidden.shape[-1]),
                model.head_VD,
                tokens_BT[:, 1:].reshape(-1),
                moments=False,
            )
            return -jnp.mean(scores.logprobs, where=counts_BS.reshape(-1))

        slope = jax.grad(loss)(state)
        updates, moments = optimiser.update(slope, moments)
        return optax.apply_updates(state, updates), moments

    rng = np.random.default_rng(seed)
    moments = optimiser.init(state)
    for _ in range(steps):
        random_BT = rng.integers(0, len(tokenizer()), padded_BT.shape)
        is_random = rng.random(padded_BT.shape) < _NOISE
        is_random[:, 0] = False
        tokens = np.where(is_random, random_BT, padded_BT).astype(np.int32)
        state, moments = step(state, moments, tokens)
    return nnx.merge(graphdef, state)
