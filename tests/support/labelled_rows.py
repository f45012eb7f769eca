"""Texts of one law, and records as lines of a file."""

import json

import numpy as np

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]


def drawn(n, rng, *, n_words=15):
    """Texts, distinct all but surely; `rng` may be a seed."""
    rng = np.random.default_rng(rng)
    return [" ".join(rng.choice(WORDS, size=n_words)) for _ in range(n)]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
