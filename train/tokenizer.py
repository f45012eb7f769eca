"""A byte-level BPE tokenizer trained on the corpus, or one read from a directory."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import quiet_transformers, read_fast_tokenizer

BOS = "<|bos|>"
SAMPLE_BYTES = 64 << 20
"""Text that a tokenizer is trained on at most, as the trainer holds its words."""


def train_tokenizer(
    documents: Iterable[str], vocab_size: int, *, sample_bytes: int = SAMPLE_BYTES
):
    """Train on documents; returns a transformers fast tokenizer.

    Byte-level, so any text encodes. No prefix space and no post-processor: nothing is
    added that was not asked for.

    Args:
        documents: Texts; the first ones are taken, up to and with the one that reaches
            `sample_bytes`. This is the beginning of a larger corpus, not a random
            sample: later files do not affect the vocabulary.
        vocab_size: Ids, BOS included.
        sample_bytes: UTF-8 bytes of text to take.
    """
    quiet_transformers()
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(documents, sample_bytes), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS
    )


def read_tokenizer(directory: Path):
    """The transformers fast tokenizer of a directory; no remote code runs.

    Raises:
        InputError: If there is none, it does not load, or has neither BOS nor EOS.
    """
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no such folder", hint="a folder with tokenizer.json"
        )
    tokenizer = read_fast_tokenizer(directory)
    if tokenizer.bos_token_id is None and tokenizer.eos_token_id is None:
        raise InputError(
            f"{directory}: the tokenizer has neither a BOS nor an EOS token",
            hint="one of them stands before each document: name it in "
            "tokenizer_config.json",
        )
    return tokenizer


def prefix_id(tokenizer) -> int:
    """Id before each document and each copy: BOS, or EOS where there is no BOS."""
    for found in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if found is not None:
            return found
    raise ValueError("tokenizer must have a BOS or an EOS token")


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 of a tokenizer's JSON, as manifests have it."""
    return f"sha256:{hashlib.sha256(tokenizer.to_str().encode()).hexdigest()}"


def _beginning(documents: Iterable[str], n_bytes: int) -> Iterator[str]:
    """First documents, until they hold `n_bytes` bytes."""
    taken = 0
    for document in documents:
        yield document
        taken += len(document.encode("utf-8"))
        if taken >= n_bytes:
            return
