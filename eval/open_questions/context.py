"""Context against the length of examples, at equal tokens planted and trained on.

Sets of one number of tokens in 10, 20 or 40 tokens an example, models whose rows are
64, 128 or 256 tokens long. A model may be audited in shorter strata than it was
trained on, so a model of 256 is also tested as if it read 64 or 128.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.open_questions.rows import (
    Answer,
    Question,
    Row,
    cells,
    mean_interval,
    where,
    words,
)
from eval.open_questions.scores import SetScores
from eval.study import Grid
from jaxcontam.methods import adjacency, stratified

CONTEXTS = (64, 128, 256)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow(Row):
    """One test of one set.

    Attributes:
        test: `adjacency` or `stratified`.
        trained: Tokens of a training row.
        read: Tokens that the test let the model read at once.
        tokens: Mean ids of an example.
        stratum: Mean examples of a stratum.
        z: Effect over its standard error.
        log10_p: Of the exact p-value.
    """

    test: str
    trained: int
    read: int
    tokens: float
    stratum: float
    z: float
    log10_p: float


def measure(scores: SetScores) -> list[ContextRow]:
    """`stratified` at each context that the model has, `adjacency` once."""
    from jaxcontam.stats.pair_test import adjacency_test

    subject = scores.subject
    n = len(subject.benchmark)
    pairs = scores.pairs(adjacency.METHOD.size)
    numbers = adjacency_test(
        pairs.strata(),
        seed=subject.seed,
        content_digest=subject.benchmark.content_digest,
    )
    found = [("adjacency", subject.context, n / pairs.layout.n_strata, numbers)]
    for read in CONTEXTS:
        if read <= subject.context:
            orders = scores.orders(stratified.METHOD, None, context=read)
            found.append(("stratified", read, n / orders.n_strata, orders.numbers))
    return [
        ContextRow(
            **where(scores),
            test=test,
            trained=subject.context,
            read=read,
            tokens=subject.n_ids / n,
            stratum=stratum,
            z=one.effect / one.effect_se if one.effect and one.effect_se else 0.0,
            log10_p=one.log10_p,
        )
        for test, read, stratum, one in found
    ]


def answer(rows: Sequence[ContextRow]) -> Answer:
    """Mean z by test, context, length and copies."""
    copies = sorted({row.copies for row in rows})
    lines = []
    for (test, tokens, trained, read), found in cells(
        # Populations of one length differ a little in their mean.
        rows,
        lambda row: (row.test, _length(row), row.trained, row.read),
    ).items():
        by_copies = cells(found, lambda row: row.copies)
        lines.append(
            (
                test,
                f"{tokens}",
                str(trained),
                str(read),
                f"{np.mean([row.stratum for row in found]):.1f}",
                str(max(len(group) for group in by_copies.values())),
                *(
                    words(mean_interval([row.z for row in by_copies.get(n, ())]), 1)
                    if n in by_copies
                    else ""
                    for n in copies
                ),
            )
        )
    return Answer(
        (
            Grid(
                "z (effect over its standard error) at equal tokens; 95 % intervals "
                "over models",
                (
                    "test",
                    "tokens an example",
                    "trained on",
                    "read",
                    "stratum",
                    "models",
                    *(f"{n} copies" for n in copies),
                ),
                tuple(lines),
            ),
        )
    )


def _length(row: ContextRow) -> int:
    """The cut of the population, which its name ends in."""
    return int(row.population.rpartition("x")[2])


QUESTION = Question("context", ContextRow, measure, answer)
