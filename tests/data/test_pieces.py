"""Text of a continuation: with what stands before it the whole, in any tokenizer."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.scoring.completions import continuation_text
from tests.support.served_model import TEXTS, byte_tokenizer

SPACED = "the cat cat"
EMOJI = "a 👩‍👩‍👧 b\u0301 漢"


def bytes_of_llama():
    """Spaces as a mark, letters that it does not know as bytes, one space stripped."""
    words = ["<unk>", "▁", "▁the", "▁cat", "t", "h", "e", "c", "a", "s", "\n"]
    vocab = {word: i for i, word in enumerate(words)}
    vocab |= {f"<0x{i:02X}>": len(words) + i for i in range(256)}
    pairs = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "c"), ("a", "t"), ("▁c", "at")]
    for pair in pairs:
        vocab.setdefault("".join(pair), len(vocab))
    made = Tokenizer(models.BPE(vocab, pairs, byte_fallback=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    return plain_tokenizer(made)


TOKENIZERS = {
    "bytes": plain_tokenizer(byte_tokenizer().backend_tokenizer),
    "llama": bytes_of_llama(),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", [*TEXTS, SPACED, EMOJI])
def test_a_text_and_its_continuation_are_the_whole_wherever_it_is_cut(name, text):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for cut in range(1, len(ids)):
        before, after = ids[:cut], ids[cut:]
        known = tokenizer.decode(before)
        if not known.endswith("\ufffd"):
            assert known + continuation_text(tokenizer, before, after) == text
