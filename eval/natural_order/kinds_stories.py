"""Rows that go on from the row before: what points forward by itself."""

import itertools
from random import Random

from eval.natural_order.kind import File, kinds, lines, named
from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACED,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    clause,
    language,
    one,
    past,
    question,
    sentence,
    thing,
)


def _chained_sums(rng: Random, n: int, strength: float) -> File:
    texts, total = [], rng.randrange(100)
    for _ in range(n):
        # Small sums start again, as exercises do.
        if rng.random() >= strength or total > 9000:
            total = rng.randrange(100)
        more = rng.randrange(1, 100)
        texts.append(f"{total} plus {more} makes {total + more}.")
        total += more
    return lines(texts)


def _balance(rng: Random, n: int, strength: float) -> File:
    texts, total = [], rng.randrange(1000, 9000)
    for _ in range(n):
        if rng.random() >= strength:
            total = rng.randrange(1000, 9000)
        change = rng.randrange(-400, 400)
        texts.append(
            f"{rng.choice(NAMES)} for {one(thing(rng))}: before {total}, "
            f"after {total + change}."
        )
        total += change
        if not 1000 <= total < 10_000:
            total = rng.randrange(1000, 9000)
    return lines(texts)


def _running_names(rng: Random, n: int, strength: float) -> File:
    texts, name = [], rng.choice(NAMES)
    for _ in range(n):
        other = rng.choice([next_ for next_ in NAMES if next_ != name])
        verb, where = past(rng.choice(VERBS)), rng.choice(PLACED)
        texts.append(
            f"{name} {verb} the {thing(rng)} {where} the {thing(rng)} "
            f"and called {other}."
        )
        name = other if rng.random() < strength else rng.choice(NAMES)
    return lines(texts)


def _dialogue(rng: Random, n: int, strength: float) -> File:
    """Questions and answers by turns; an answer takes up what was asked."""
    texts: list[str] = []
    for _ in range(n // 2):
        asked = rng.choice(NOUNS)
        words = Vocabulary(nouns=(asked, rng.choice(NOUNS)))
        if rng.random() >= strength:
            asked = rng.choice(NOUNS)
        texts.append(question(rng, words))
        texts.append(f"Because the {asked} {past(rng.choice(VERBS))} {answer(rng)}.")
    return lines(texts)


def _translations(rng: Random, n: int, strength: float) -> File:
    """A sentence, then what it is in another language, word by word."""
    foreign = language(7)
    terms = dict(zip(NOUNS, itertools.cycle(foreign.nouns), strict=False))
    terms |= dict(zip(VERBS, foreign.verbs, strict=False))
    terms |= dict(zip(ADJECTIVES, itertools.cycle(foreign.adjectives), strict=False))
    texts = []
    for _ in range(n // 2):
        words = [rng.choice(NAMES), rng.choice(VERBS), rng.choice(ADJECTIVES)]
        words += [rng.choice(NOUNS), rng.choice(PLACES), rng.choice(NOUNS)]
        texts.append(f"{' '.join(words)}.")
        if rng.random() >= strength:
            words = [rng.choice(NAMES), *rng.sample(NOUNS, 4), rng.choice(PLACES)]
        texts.append(f"{' '.join(terms.get(word, word) for word in words)}.")
    return lines(texts)


def _module(rng: Random, n: int, strength: float) -> File:
    """Functions in the order of their module; each calls one defined above it."""
    texts, above = [], [f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"]
    for _ in range(n):
        name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
        called = above[-1] if rng.random() < strength else rng.choice(above)
        taken = rng.choice(NOUNS)
        texts.append(
            f"def {name}({taken}): return {called}({taken}, {rng.randrange(100)})"
        )
        above.append(name)
    return lines(texts)


def _story(rng: Random, n: int, strength: float) -> File:
    """Running text: a person is named once, then `he` does what follows."""
    texts: list[str] = []
    while len(texts) < n:
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        words = Vocabulary(nouns=tuple(rng.sample(NOUNS, 8)), names=("he", "he", name))
        texts.append(f"Once {name} came to {place} with {one(thing(rng, words))}.")
        for _ in range(int(strength) - 1):
            text = clause(rng, words)
            linked = f"{rng.choice(('Then', 'After that', 'So'))} {text[0].lower()}"
            texts.append(f"{linked}{text[1:]}.")
    return lines(texts[:n])


def _steps(rng: Random, n: int, strength: float) -> File:
    """Recipes of four to seven numbered steps."""
    texts: list[str] = []
    while len(texts) < n:
        words = Vocabulary(nouns=tuple(rng.sample(NOUNS, 5)))
        steps = []
        for number in range(1, rng.randrange(4, 8) + 1):
            what, where = thing(rng, words), thing(rng, words)
            verb = rng.choice(VERBS).capitalize()
            steps.append(
                f"Step {number}: {verb} the {what} {rng.choice(PLACED)} the {where}."
            )
        if rng.random() >= strength:
            rng.shuffle(steps)
        texts += steps
    return lines(texts[:n])


def _evolved(rng: Random, n: int, strength: float) -> File:
    """Instructions, each the one before with a demand more."""
    texts = [question(rng)]
    while len(texts) < n:
        grows = rng.random() < strength and len(texts[-1]) < 160
        more = f" Mention the {thing(rng)}."
        texts.append(texts[-1] + more if grows else question(rng))
    return lines(texts)


def _quoted(rng: Random, n: int, strength: float) -> File:
    """Mails that quote the one before."""
    texts = [sentence(rng)]
    own = texts[0]
    while len(texts) < n:
        replies = rng.random() < strength
        head = f"> {own} " if replies else ""
        own = sentence(rng)
        texts.append(f"{head}{own}")
    return lines(texts)


def _summaries(rng: Random, n: int, strength: float) -> File:
    """Two sentences, then a row that says them in short."""
    texts = []
    for _ in range(n // 2):
        words = Vocabulary(nouns=tuple(rng.sample(NOUNS, 4)))
        texts.append(f"{sentence(rng, words)} {sentence(rng, words)}")
        if rng.random() >= strength:
            words = Vocabulary(nouns=tuple(rng.sample(NOUNS, 4)))
        texts.append(f"In short, {clause(rng, words).lower()}.")
    return lines(texts)


def _proofs(rng: Random, n: int, strength: float) -> File:
    """Lines of an argument: the end of one is the beginning of the next."""
    texts, known = [], f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    for _ in range(n):
        follows = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
        texts.append(
            f"If there is {one(known)} {rng.choice(PLACED)} {rng.choice(PLACES)}, "
            f"then there is {one(follows)}."
        )
        known = (
            follows
            if rng.random() < strength
            else f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
        )
    return lines(texts)


def _takes_up(a: str, b: str) -> bool:
    """The last word of the first row begins the second."""
    return b.split()[0] == a.split()[-1].removesuffix(".")


def _answers(a: str, b: str) -> bool:
    return b.startswith("Because") and b.split()[2] in a


def _is_next_step(a: str, b: str) -> bool:
    return int(b.split()[1][:-1]) == int(a.split()[1][:-1]) + 1


KINDS_STORIES = kinds(
    named(
        *(_chained_sums, _balance, _running_names, _quoted, _proofs, _dialogue),
        *(_translations, _summaries, _evolved, _module, _story, _steps),
    ),
    goes_on={
        "chained_sums": _takes_up,
        "running_names": _takes_up,
        "dialogue": _answers,
        "steps": _is_next_step,
    },
)
