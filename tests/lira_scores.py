"""Made-up scores of a population whose members are known."""

import numpy as np

N, E = 24, 30


def population(seed=0, *, n=N, e=E, shift=1.0):
    """Scores with a level of their own for each text, higher where it was read."""
    rng = np.random.default_rng(seed)
    read = rng.random((n, e)) < 0.5
    return rng.normal(shift * read + 2 * rng.normal(size=e)), read
