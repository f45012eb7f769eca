"""Text of each token, such that the concatenation is the whole text."""

from collections.abc import Sequence

from tokenizers import Encoding, Tokenizer

# Ids of left context that a continuation is decoded with (a space, a split letter).
_BEFORE = 8
# Most bytes of a letter.
_LETTER = 4
# What an unfinished letter is decoded to.
_UNFINISHED = "\ufffd"


def text_spans(encoding: Encoding) -> list[tuple[int, int]]:
    """(start, end) of each token in the text that was encoded, in characters.

    Spans do not overlap: of the tokens that share a letter the first has it, and the
    others are empty.
    """
    spans, done = [], 0
    for start, end in encoding.offsets:
        start, end = max(start, done), max(end, done, start)
        spans.append((start, end))
        done = end
    return spans


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Text that each token adds to that of the tokens before it.

    A letter of several tokens is added by the last of them.

    Args:
        tokenizer: Any.
        ids: Token ids of a text, or of a part of one.
    """
    pieces: list[str] = []
    # Where whole letters end. Decoding begins at the first, since tokenizers that write
    # letters as bytes read none of a run of bytes that begins within one; the text up
    # to the last is out.
    bounds = [0]
    for stop in range(1, len(ids) + 1):
        before = _decode(tokenizer, ids[bounds[0] : bounds[-1]])
        text = _decode(tokenizer, ids[bounds[0] : stop])
        if len(text) <= len(before) or text.endswith(_UNFINISHED):
            pieces.append("")
            continue
        pieces.append(text[len(before) :])
        bounds.append(stop)
        while bounds[1] <= stop - _BEFORE:
            del bounds[0]
    if bounds[-1] < len(ids):
        # What stays unfinished belongs to the last token.
        before = _decode(tokenizer, ids[bounds[0] : bounds[-1]])
        pieces[-1] = _decode(tokenizer, ids[bounds[0] :])[len(before) :]
    return pieces


def continuation_text(
    tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]
) -> str:
    """Text that ids add after others, all decoded at once.

    If they begin inside a letter, the result may differ from the concatenation of
    `continuation_texts`.
    """
    before = _last(tokenizer, before)
    return _decode(tokenizer, [*before, *ids])[len(_decode(tokenizer, before)) :]


def continuation_texts(
    tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]
) -> list[str]:
    """Text that each id adds after others; special tokens add none."""
    before = _last(tokenizer, before)
    return token_texts(tokenizer, [*before, *ids])[len(before) :]


def texts_behind(
    tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]
) -> list[str]:
    """Text that each id alone would add after others; see `continuation_text`."""
    before = _last(tokenizer, before)
    known = len(_decode(tokenizer, before))
    return [_decode(tokenizer, [*before, token])[known:] for token in ids]


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
