"""A byte-level BPE tokenizer trained on the corpus."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxcontam.models.checkpoint import quiet_transformers

BOS = "<|bos|>"


def train_tokenizer(documents: Iterable[str], vocab_size: int):
    """Train on documents; returns a transformers fast tokenizer.

    Byte-level, so any text encodes. No prefix space and no post-processor: nothing is
    added that was not asked for.
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
    tokenizer.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS
    )
