"""Files that pre-tests are asked about."""

from jaxcontam.stats.pretests import (
    pretest_battery,
)


def sentences(rng, n):
    words = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
    ]
    return [
        " ".join(rng.choice(words, size=rng.integers(3, 20))) + f" {rng.integers(1e9)}"
        for _ in range(n)
    ]


def failed(texts, fields=None, **kwargs):
    battery = pretest_battery(texts, fields or {}, seed=0, **kwargs)
    return {test.name for test in battery if not test.passed}


def duplicated(rng, n, n_twice):
    """Sentences, some followed by a near-copy with one word more."""
    texts = []
    for i in range(n):
        text = " ".join(rng.choice(VOCABULARY, 20))
        texts += [text, f"{text}, Indeed"] if i < n_twice else [text]
    return texts


VOCABULARY = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(400)]
