"""A tiny model that knows texts, and the same one tuned away from half of them."""

import functools
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.kernel import target_scores
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import SIZES, WORDS

CONTEXT, BOS = 32, 0
# Some tokens are random in every step: a model that is certain of all texts has scores
# near 0, whose ratios say nothing.
_NOISE = 0.1


def drawn_texts(n, seed, *, n_words):
    """Random words: nothing but training tells texts apart."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=n_words)) for _ in range(n)]


N_TEXTS, N_WORDS, PROMPT_WORDS = 8, 12, 4
FORGOTTEN = drawn_texts(N_TEXTS, seed=21, n_words=N_WORDS)
KEPT = drawn_texts(N_TEXTS, seed=22, n_words=N_WORDS)


def word_tokenizer(words=WORDS):
    """One id a word."""
    vocab = {word: i for i, word in enumerate(["<s>", "</s>", *words])}
    made = Tokenizer(models.WordLevel(vocab, unk_token="</s>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def fresh_decoder(seed=0):
    """A model that has seen nothing."""
    shape = llama_shape(vocab_size=len(WORDS) + 2, context=CONTEXT, **SIZES)
    return Decoder(shape, rngs=nnx.Rngs(seed))


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
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(), bos_token="<s>", eos_token="</s>"
    )
    for name, decoder in zip(("original", "unlearned"), tuned_pair(), strict=True):
        save_checkpoint(decoder, tokenizer, folder / name)
    rows = [{"text": text} for text in FORGOTTEN + KEPT]
    texts = write_lines(folder / "texts.jsonl", rows)
    return folder / "original", folder / "unlearned", texts


def _trained(decoder, texts, *, steps, seed):
    graphdef, state = nnx.split(decoder)
    encoded = word_tokenizer().encode_batch(texts)
    ids_BT = np.array([[BOS, *one.ids] for one in encoded], np.int32)
    optimiser = optax.adam(optax.cosine_decay_schedule(2e-2, steps, alpha=0.05))

    @jax.jit
    def step(state, moments, tokens_BT):
        def loss(state):
            model = nnx.merge(graphdef, state)
            hidden_ND = model(tokens_BT[:, :-1]).reshape(-1, SIZES["d_model"])
            targets_N = tokens_BT[:, 1:].reshape(-1)
            found = target_scores(hidden_ND, model.head_VD, targets_N, moments=False)
            return -found.logprobs.mean()

        slope = jax.grad(loss)(state)
        updates, moments = optimiser.update(slope, moments)
        return optax.apply_updates(state, updates), moments

    rng = np.random.default_rng(seed)
    moments = optimiser.init(state)
    for _ in range(steps):
        random_BT = rng.integers(0, len(WORDS) + 2, ids_BT.shape)
        is_random = rng.random(ids_BT.shape) < _NOISE
        is_random[:, 0] = False
        tokens = np.where(is_random, random_BT, ids_BT).astype(np.int32)
        state, moments = step(state, moments, tokens)
    return nnx.merge(graphdef, state)
