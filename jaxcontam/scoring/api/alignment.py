"""Align the tokens a server returns with the text that was sent.

Servers differ: offsets count characters or bytes, from the text's start or from a token
that they put before it, or are wrong. The tokens' own texts are surer, where they join
to the text; offsets are taken where they do not, and each is checked.
"""

import itertools
from collections.abc import Sequence
from typing import Any

# Marks of a token that holds part of a character.
_PART_OF_CHARACTER = "\ufffd"
_BYTES = "bytes:"


def token_starts(
    text: str, tokens: Sequence[str], offsets: Any = None
) -> tuple[int, list[int]] | None:
    r"""Find where in a text each of the tokens begins that a server shows of it.

    "a fox" has the same answer with and without `<s>` before it:

        tokens   "<s>"  "a"  " f"  "ox"
        starts            0     1     3

    Tokens that are parts of one character all begin where it does. Some servers show
    the whole character for the first of them, and nothing for the others.

    One token may stand before those of the text, none after. Gives the number of tokens
    before the text, and where in it each of its own begins, 0 first and rising; None if
    they do not fit the text.
    """
    for n_before in (0, 1):
        starts = _joined(text, tokens[n_before:])
        if starts is not None:
            return n_before, starts
    for n_before in (0, 1):
        starts = _by_offsets(text, tokens[n_before:], offsets, n_before)
        if starts is not None:
            return n_before, starts
    return None


def _joined(text: str, tokens: Sequence[str]) -> list[int] | None:
    """Starts of tokens whose texts, one after the other, are the text."""
    starts, at = [], 0
    for i, token in enumerate(tokens):
        if i == 0 and token[:1] == " " and not text.startswith(" "):
            # Some tokenizers put a space before every text.
            starts.append(0)
            at = len(token) - 1
            if not text.startswith(token[1:]):
                return None
            continue
        if not token:
            if not _may_have_parts(text, at):
                return None
            starts.append(at - 1)
            continue
        if at == len(text):
            return None
        if is_part(token):
            starts.append(at)
            if i + 1 == len(tokens) or not is_part(tokens[i + 1]):
                at = _after_parts(text, at, tokens[i + 1 :])
            continue
        if not text.startswith(token, at):
            return None
        starts.append(at)
        at += len(token)
    return starts if at == len(text) and starts else None


def _may_have_parts(text: str, at: int) -> bool:
    """True if the character before a place can be of several tokens."""
    return at > 0 and not text[at - 1].isascii()


def _after_parts(text: str, at: int, rest: Sequence[str]) -> int:
    """Start of the next whole token after partial characters."""
    if rest:
        found = text.find(rest[0], at + 1)
        if found >= 0:
            return found
    return len(text)


def _by_offsets(
    text: str, tokens: Sequence[str], offsets: Any, n_before: int
) -> list[int] | None:
    """Starts as the server says, in one of the ways that servers count."""
    if not _are_numbers(offsets) or len(offsets) != n_before + len(tokens):
        return None
    if not tokens or not tokens[0]:
        # An empty token is one that the server put before the text.
        return None
    own = list(offsets[n_before:])
    from_first = [offset - own[0] for offset in own]
    # Position in UTF-8 -> character.
    of_byte: list[int] = []
    for i, character in enumerate(text):
        of_byte += [i] * len(character.encode("utf-8", "surrogatepass"))
    of_byte.append(len(text))
    by_bytes = [
        of_byte[offset] if 0 <= offset < len(of_byte) else -1 for offset in from_first
    ]
    for starts in (own, from_first, by_bytes):
        starts = _of_characters(text, tokens, starts)
        rises = all(a <= b for a, b in itertools.pairwise(starts))
        is_inside = starts[0] == 0 and starts[-1] < len(text)
        if rises and is_inside and _fit(text, tokens, starts):
            return starts
    return None


def _of_characters(
    text: str, tokens: Sequence[str], starts: Sequence[int]
) -> list[int]:
    """Starts; an empty token behind a character is a part of it."""
    found = list(starts)
    for i, token in enumerate(tokens):
        is_behind = not token and i > 0 and starts[i] > starts[i - 1]
        if is_behind and starts[i] <= len(text) and _may_have_parts(text, starts[i]):
            found[i] = starts[i] - 1
    # Parts may stand behind one another.
    for i, token in enumerate(tokens):
        if not token and i > 0 and not tokens[i - 1] and starts[i] == starts[i - 1]:
            found[i] = found[i - 1]
    return found


def _fit(text: str, tokens: Sequence[str], starts: Sequence[int]) -> bool:
    """True if whole tokens stand where they should, and none is left out."""
    shown = [(t, start) for t, start in zip(tokens, starts, strict=True) if t]
    ends = [*(start for _, start in shown[1:]), len(text)]
    for (token, start), end in zip(shown, ends, strict=True):
        if is_part(token):
            continue
        # A space may be shown that the text has not, or left out.
        if text[start:end].strip() != token.strip():
            return False
    return True


def is_part(token: str) -> bool:
    """True if a token as shown is a part of a character."""
    return _PART_OF_CHARACTER in token or token.startswith(_BYTES)


def _are_numbers(offsets: Any) -> bool:
    return isinstance(offsets, list) and all(type(o) is int for o in offsets)
