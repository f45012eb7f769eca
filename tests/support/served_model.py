"""A tiny model in a folder, whose tokens depend strongly on what stands before them."""

import functools

import jax
import numpy as np
import transformers
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder

CONTEXT, BOS, EOS = 64, 0, 1
# Byte-level: any text has tokens, and a letter may be several of them.
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("o", "n"), ("i", "n"), ("Ġ", "in")]
TEXTS = ["the one in the inn", "thé 漢字 then", "x", "one\ntwo  three\n"]


def byte_tokenizer():
    """A fast tokenizer with a BOS that it does not add by itself."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "</s>", *alphabet, *(a + b for a, b in MERGES)]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>"
    )


@functools.cache
def decoder(seed=0):
    """Weights far from their start."""
    sizes = {"d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 20}
    words = len(byte_tokenizer())
    shape = llama_shape(vocab_size=words, context=CONTEXT, **sizes)
    made = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def drawn(path, leaf):
        mean = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        values = rng.normal(loc=mean, scale=0.25, size=leaf.shape)
        return jax.numpy.asarray(values.astype(np.float32))

    nnx.update(made, jax.tree.map_with_path(drawn, nnx.state(made)))
    return made


def save(folder, **changes):
    """Write the model; `changes` are attributes of its tokenizer."""
    tokenizer = byte_tokenizer()
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    save_checkpoint(decoder(), tokenizer, folder)
    return folder
