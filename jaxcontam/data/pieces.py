"""The text that tokens add to the tokens before them."""

from collections.abc import Sequence

from tokenizers import Tokenizer

# Ids before a continuation that decide how it begins (a space, the rest of a letter).
_BEFORE = 8
# Most bytes of a letter.
_LETTER = 4
# What an unfinished letter is decoded to.
_UNFINISHED = "\ufffd"


def continuation_text(
    tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]
) -> str:
    """Text that ids add after others, all decoded at once."""
    before = _last(tokenizer, before)
    return _decode(tokenizer, [*before, *ids])[len(_decode(tokenizer, before)) :]


def _last(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The last ids of a text, from where a letter begins if that is near."""
    starts = [max(0, len(ids) - _BEFORE - more) for more in range(_LETTER)]
    for start in starts:
        for n in range(1, _LETTER + 1):
            if _UNFINISHED not in _decode(tokenizer, ids[start : start + n]):
                return list(ids[start:])
    return list(ids[starts[0] :])


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=True)
