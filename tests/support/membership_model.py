"""A tiny model that knows some texts by heart, and texts that it never saw."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxcontam.data.encoding import encode_texts, plain_tokenizer
from jaxcontam.members.passes import TextModel, text_model
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.kernel import target_scores
from jaxcontam.scoring.opened import opened_checkpoint

N_TEXTS = 24
CONTEXT = 96
SIZES = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64}
WORDS = [f"{a}{b}" for a in "bcdfgklm" for b in ("a", "eno", "ist", "or", "un")]


def drawn_texts(n, seed, *, n_words=10):
    """Sentences of one distribution, so that nothing but training tells them apart."""
    rng = np.random.default_rng(seed)
    drawn = (" ".join(rng.choice(WORDS, size=n_words)) for _ in range(n))
    return [f"{text.capitalize()}." for text in drawn]


MEMBERS = drawn_texts(N_TEXTS, seed=1)
OTHERS = drawn_texts(N_TEXTS, seed=2)
SHOTS = drawn_texts(2, seed=3, n_words=4)


@functools.cache
def tokenizer():
    """Byte-level BPE whose id 0 is a BOS token; transformers takes long to import."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    flags = {"special_tokens": ["<|bos|>"], "initial_alphabet": alphabet}
    trainer = trainers.BpeTrainer(vocab_size=320, show_progress=False, **flags)
    made.train_from_iterator([*drawn_texts(40, seed=9), *SHOTS], trainer)
    return made


def fast_tokenizer():
    """The same, as transformers holds it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), bos_token="<|bos|>", eos_token="<|bos|>"
    )


def checkpoint_of(decoder, *, prefix=True, fingerprint="sha256:tiny"):
    """A checkpoint that is on no disk."""
    fields = {"name": "tiny", "decoder": decoder, "fingerprint": fingerprint}
    fields |= {"prefix_id": 0 if prefix else None}
    return Checkpoint(tokenizer=plain_tokenizer(tokenizer()), **fields)


def fresh_decoder(seed=0):
    """A model that has seen nothing."""
    shape = llama_shape(
        vocab_size=tokenizer().get_vocab_size(), context=CONTEXT, **SIZES
    )
    return Decoder(shape, rngs=nnx.Rngs(seed))


@functools.cache
def overfitted(texts=None) -> TextModel:
    """A model trained on some texts alone, or on `MEMBERS`, for some seconds."""
    decoder = fresh_decoder()
    graphdef, state = nnx.split(decoder)
    encoded = encode_texts(tokenizer(), texts or MEMBERS)
    ids = [np.array([0, *own]) for own in encoded]
    S = max(len(row) for row in ids) - 1
    padded_BT = np.stack([np.pad(row, (0, S + 1 - len(row))) for row in ids])
    mask_BS = np.arange(S)[None] < np.array([len(row) - 1 for row in ids])[:, None]
    optimiser = optax.adam(1e-2)

    def loss(state):
        model = nnx.merge(graphdef, state)
        hidden_ND = model(padded_BT[:, :-1]).reshape(-1, 32)
        targets_N = jnp.asarray(padded_BT[:, 1:].reshape(-1))
        found = target_scores(hidden_ND, model.head_VD, targets_N, moments=False)
        return -found.logprobs.mean(where=mask_BS.reshape(-1))

    def step(carry, _):
        state, memory = carry
        value, gradients = jax.value_and_grad(loss)(state)
        updates, memory = optimiser.update(gradients, memory, state)
        return (optax.apply_updates(state, updates), memory), value

    # One program: compiling piece by piece takes longer than training.
    @jax.jit
    def train(state):
        return jax.lax.scan(step, (state, optimiser.init(state)), None, length=100)

    (state, _), losses = train(state)
    assert losses[-1] < 1.0, "it knows them by heart"
    made = checkpoint_of(nnx.merge(graphdef, state))
    return text_model(opened_checkpoint(made), store=None)


def save_overfitted(folder, texts=None):
    """Write an overfitted model as a directory that commands open."""
    from transformers import PreTrainedTokenizerFast

    from jaxcontam.models.checkpoint import save_checkpoint

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), bos_token="<|bos|>")
    model = overfitted() if texts is None else overfitted(texts)
    save_checkpoint(model.checkpoint.decoder, fast, folder)


def sequences(seed=0, lengths=(2, 5, 40, CONTEXT, CONTEXT + 1, 3 * CONTEXT)):
    """Token ids, after the BOS, of texts shorter and longer than the context."""
    rng = np.random.default_rng(seed)
    return [np.r_[0, rng.integers(1, 300, n - 1)].astype(np.int32) for n in lengths]
