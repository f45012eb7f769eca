"""Audit any engine: all that is needed is a function of (context, continuation) pairs.

The engine here is a character 12-gram model. One that has read the file is found, one
that has read the same sentences in another order is not.

    python examples/any_engine.py
"""

import collections
import math
import random

import jaxcontam

ORDER = 12


def train(text: str) -> dict[str, collections.Counter[str]]:
    """Counts of the character after each context of up to ORDER - 1 characters."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for i, character in enumerate(text):
        for n in range(ORDER):
            if n <= i:
                counts[text[i - n : i]][character] += 1
    return counts


def engine(counts: dict[str, collections.Counter[str]]):
    """Log p(continuation | context) of pairs, in nats."""

    def nats(context: str, own: str) -> float:
        """Log-probability of a character, interpolated over all context lengths."""
        p = 1 / 256
        for n in range(ORDER):
            found = counts.get(context[len(context) - n :] if n else "")
            if found is not None:
                p = (found[own] + p) / (found.total() + 1)
        return math.log(p)

    def log_likelihoods(pairs: list[tuple[str, str]]) -> list[float]:
        return [
            sum(nats(before + own[:i], character) for i, character in enumerate(own))
            for before, own in pairs
        ]

    return log_likelihoods


def sentences(seed: int) -> list[str]:
    """A small benchmark whose order is random."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=4)) for _ in range(200)]
    return [" ".join(rng.choices(words, k=8)) + "." for _ in range(80)]


def main() -> dict[str, jaxcontam.AuditResult]:
    """Audit both engines."""
    published = sentences(0)
    shuffled = random.Random(1).sample(published, len(published))
    results = {}
    for name, read in (("read the file", published), ("read it shuffled", shuffled)):
        model = engine(train("\n".join(read) + "\n"))
        # The order was drawn at random above: whoever knows that may say so.
        results[name] = jaxcontam.audit(model, published, order="random")
        print(f"{name}: {results[name].verdict}, p = {results[name].p_value:.2g}")
    return results


if __name__ == "__main__":
    main()
