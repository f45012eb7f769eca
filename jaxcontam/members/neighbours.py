"""Neighbours of a text without a model: small edits of its words and characters."""

import hashlib
import math
import re
from collections.abc import Callable

import numpy as np

SHARE = 0.3
"""Share of words that an edit touches, rounded up."""

# White space is kept with the word before it, so that a joined text loses none.
_SPACED_WORD = re.compile(r"\S+\s*|\s+")


def edited(text: str, n: int, seed: int) -> list[str]:
    """Neighbours of a text: about 30 % of its words are edited in each.

    An edit drops a word, repeats it, swaps it with the next one, or swaps, drops or
    repeats characters inside it. Other than words chosen by a masked model, these make
    a text worse to read, so that every model finds the text likelier than its
    neighbours. The draws depend on the seed and on the text, not on the texts beside
    it. Neighbours are neither empty nor the text itself; they may repeat.
    """
    if not text:
        raise ValueError("an empty text has no neighbours")
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
    words = np.frombuffer(digest, "<u4").tolist()
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
    return [_neighbour(text, rng) for _ in range(n)]


def _neighbour(text: str, rng: np.random.Generator) -> str:
    parts = _SPACED_WORD.findall(text)
    n_edits = math.ceil(SHARE * len(parts) - 1e-9)
    # From the end on, so that an edit moves no word that is still to be edited.
    for place in sorted(rng.choice(len(parts), n_edits, replace=False), reverse=True):
        edit = _EDITS[rng.integers(len(_EDITS))]
        edit(parts, int(place), rng)
    changed = "".join(parts)
    # Dropping the only word, or swapping two equal ones, is no neighbour; a character
    # said twice always is.
    return changed if changed and changed != text else _stuttered(text, rng)


def _drop(parts: list[str], place: int, rng: np.random.Generator) -> None:
    del parts[place]


def _repeat(parts: list[str], place: int, rng: np.random.Generator) -> None:
    word = parts[place]
    spaced = word if word[-1].isspace() else word + " "
    parts[place : place + 1] = [spaced, word]


def _swap(parts: list[str], place: int, rng: np.random.Generator) -> None:
    """Swap two words; each place keeps its own white space."""
    if place + 1 == len(parts):
        return
    (a, a_space), (b, b_space) = _split(parts[place]), _split(parts[place + 1])
    parts[place], parts[place + 1] = b + a_space, a + b_space


def _swap_characters(parts: list[str], place: int, rng: np.random.Generator) -> None:
    word, space = _split(parts[place])
    if len(word) < 2:
        return
    i = int(rng.integers(len(word) - 1))
    parts[place] = word[:i] + word[i + 1] + word[i] + word[i + 2 :] + space


def _drop_character(parts: list[str], place: int, rng: np.random.Generator) -> None:
    word, space = _split(parts[place])
    if len(word) < 2:
        return
    i = int(rng.integers(len(word)))
    parts[place] = word[:i] + word[i + 1 :] + space


def _repeat_character(parts: list[str], place: int, rng: np.random.Generator) -> None:
    parts[place] = _stuttered(parts[place], rng)


_EDITS: tuple[Callable[[list[str], int, np.random.Generator], None], ...] = (
    _drop,
    _repeat,
    _swap,
    _swap_characters,
    _drop_character,
    _repeat_character,
)


def _split(part: str) -> tuple[str, str]:
    """A word and the white space after it."""
    word = part.rstrip()
    return word, part[len(word) :]


def _stuttered(text: str, rng: np.random.Generator) -> str:
    """A text with one of its characters said twice; never the text itself."""
    i = int(rng.integers(len(text)))
    return text[: i + 1] + text[i:]
