"""Files whose order was drawn at random: what no audit should refuse or accuse."""

import json
from collections.abc import Callable
from random import Random

from eval.natural_order.kind import File, Kind, lines, records
from eval.natural_order.words import (
    NAMES,
    OF_TOPIC,
    PLACES,
    answer,
    clause,
    foreign_sentence,
    language,
    pseudoword,
    question,
    sentence,
    thing,
)


def _sentences(rng: Random) -> str:
    return sentence(rng)


def _questions(rng: Random) -> str:
    return f"Q: {question(rng)} A: {answer(rng)}"


def _labelled(rng: Random) -> str:
    return f"{sentence(rng)} Label: {rng.choices(('yes', 'no'), (0.8, 0.2))[0]}"


def _numbered(rng: Random) -> str:
    return f"[{rng.randrange(10**6):06d}] {sentence(rng)}"


def _sums(rng: Random) -> str:
    first, second = rng.randrange(1000), rng.randrange(1000)
    return f"What is {first} + {second}? It is {first + second}."


def _languages(rng: Random) -> str:
    return foreign_sentence(rng, _SPOKEN[rng.randrange(4)])


def _topics(rng: Random) -> str:
    return sentence(rng, rng.choice(OF_TOPIC))


def _long_tailed(rng: Random) -> str:
    """Lengths over more than a decade, as in most files."""
    n_clauses = min(12, 1 + int(rng.expovariate(0.7)))
    return f"{'; '.join(clause(rng) for _ in range(n_clauses))}."


def _template(rng: Random) -> str:
    return f"What is the price of the {thing(rng)} in {rng.choice(PLACES)}?"


def _code(rng: Random) -> str:
    name, value = pseudoword(rng, 2), rng.randrange(100)
    return f"def {name}(x): return {pseudoword(rng, 2)}(x) + {value}"


def _html(rng: Random) -> str:
    tag, style = rng.choice(("p", "li", "td")), pseudoword(rng, 2)
    return f'<{tag} class="{style}">{sentence(rng)}</{tag}>'


_SPOKEN = tuple(language(number) for number in range(4))

_LINES: dict[str, Callable[[Random], str]] = {
    "sentences": _sentences,
    "questions": _questions,
    "labelled": _labelled,
    "numbered": _numbered,
    "sums": _sums,
    "languages": _languages,
    "topics": _topics,
    "long_tailed": _long_tailed,
    "template": _template,
    "code": _code,
    "html": _html,
}


def _independent(row: Callable[[Random], str]) -> Callable[[Random, int, float], File]:
    """Rows drawn one by one from one law."""
    return lambda rng, n, strength: lines([row(rng) for _ in range(n)])


def _json_records(rng: Random, n: int, strength: float) -> File:
    rows = [
        {
            "id": f"{rng.randrange(16**6):06x}",
            "question": question(rng),
            "label": rng.choice(("a", "b", "c")),
        }
        for _ in range(n)
    ]
    return records(rows)


def _exporters(rng: Random, n: int, strength: float) -> File:
    rows, texts = [], []
    for _ in range(n):
        row = {"name": rng.choice(NAMES), "text": sentence(rng)}
        if rng.random() < 0.5:
            row = dict(reversed(row.items()))
        rows.append(row)
        form = ((", ", ": "), (",", ":"))[rng.randrange(2)]
        texts.append(json.dumps(row, separators=form))
    return File(tuple(texts), tuple(rows))


def _resampled(rng: Random, n: int, strength: float) -> File:
    """Drawn with replacement: a third of the rows repeat another one."""
    pool = [sentence(rng) for _ in range(n)]
    return lines(rng.choices(pool, k=n))


def _shuffled_passages(rng: Random, n: int, strength: float) -> File:
    """Groups of rows about one thing, well shuffled."""
    rows = []
    while len(rows) < n:
        subject = f"the {thing(rng)} of {rng.choice(PLACES)}"
        rows += [
            {"title": subject, "question": f"{question(rng)[:-1]} with {subject}?"}
            for _ in range(4)
        ]
    rows = rows[:n]
    rng.shuffle(rows)
    return records(rows)


def _shuffled_counter(rng: Random, n: int, strength: float) -> File:
    """Rows numbered before they were shuffled."""
    texts = [f"{i}. {sentence(rng)}" for i in range(1, n + 1)]
    rng.shuffle(texts)
    return lines(texts)


_FILES: dict[str, Callable[[Random, int, float], File]] = {
    **{name: _independent(row) for name, row in _LINES.items()},
    "json_records": _json_records,
    "exporters": _exporters,
    "resampled": _resampled,
    "passages": _shuffled_passages,
    "counter": _shuffled_counter,
}

KINDS = tuple(
    Kind(
        name=f"random_{name}",
        family="random",
        law="exchangeable",
        strengths=(0.0,),
        strength_is="none",
        make=make,
    )
    for name, make in _FILES.items()
)
