"""Parts of a text at word boundaries: its beginning, and random snippets.

A word is a run of characters without white space. A part is a slice of the text, with
the line breaks and spaces inside it, since a model was trained on those; white space
around it is stripped.
"""

import hashlib
import re

import numpy as np

_WORD = re.compile(r"\S+")


def cut_words(text: str, n_words: int) -> str:
    """First words of a text, or the whole text if it has no more."""
    if n_words < 1:
        raise ValueError(f"n_words must be at least 1, got {n_words}")
    for number, word in enumerate(_WORD.finditer(text), 1):
        if number == n_words:
            return text[: word.end()]
    return text


def count_words(text: str) -> int:
    """Runs of characters without white space."""
    return len(text.split())


def random_snippets(
    text: str, *, n_snippets: int, n_words: int, seed: int
) -> tuple[str, ...]:
    """Snippets of a text at random places, in its order, none sharing a word.

    W words hold at most floor(W / n_words) snippets: a text too short for `n_snippets`
    gives that many, one with fewer than `n_words` words gives itself, whole, and one
    without words gives none. Every set of places is equally likely. The text's
    digest seeds them too: they depend neither on its name nor on the books beside it.
    """
    if n_snippets < 1 or n_words < 1:
        raise ValueError(
            f"n_snippets and n_words must be at least 1, got {n_snippets} and {n_words}"
        )
    spans = [word.span() for word in _WORD.finditer(text)]
    if not spans:
        return ()
    if len(spans) < n_words:
        return (text[spans[0][0] : spans[-1][1]],)
    n_fit = min(n_snippets, len(spans) // n_words)
    # Places without overlap are places among the words that no snippet holds: one slot
    # for each such word and each snippet, and a random choice of the snippets' slots.
    n_slots = len(spans) - n_fit * (n_words - 1)
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
    slots = np.sort(rng.choice(n_slots, n_fit, replace=False))
    starts = slots + np.arange(n_fit) * (n_words - 1)
    return tuple(
        text[spans[start][0] : spans[start + n_words - 1][1]]
        for start in starts.tolist()
    )
