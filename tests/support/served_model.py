"""A tiny model in a folder, whose tokens depend strongly on what stands before them."""

import functools

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from tests.support.decoders import spread

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
    return spread(shape, seed=seed, scale=0.25)


def save(folder, **changes):
    """Write the model; `changes` are attributes of its tokenizer."""
    tokenizer = byte_tokenizer()
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    save_checkpoint(decoder(), tokenizer, folder)
    return folder
