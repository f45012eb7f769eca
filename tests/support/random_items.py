"""Made-up answer options."""

WORDS = [*"abcdefghijklmnopqrstuvwxyz", "ape", "bear", "crow", "ferret", "lemming"]


def random_items(rng, n=30, sizes=(3, 4, 5)):
    """Items whose options stand in random order: the null, by construction."""
    return [
        [str(word) for word in rng.choice(WORDS, size=rng.choice(sizes), replace=False)]
        for _ in range(n)
    ]


HOUSE = ["kind", "able", "tree", "bone"]
