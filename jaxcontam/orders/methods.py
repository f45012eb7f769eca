"""Detection methods, one row each in `METHODS`.

Rows of other packages join behind those that are here: a package names them as entry
points of the group `jaxcontam.methods`.
"""

import importlib.metadata
from collections.abc import Collection, Mapping, Sequence

from jaxcontam.errors import check_names, unknown_name
from jaxcontam.members import text_scores, token_scores
from jaxcontam.members.score import ScoreMethod
from jaxcontam.orders import (
    adjacency,
    direction,
    options,
    permutation,
    reversal,
    sharded_t,
    stratified,
)
from jaxcontam.orders.method import TestMethod, TestRow
from jaxcontam.ownership import (
    keyed_test as canary_chat,
)
from jaxcontam.ownership import (
    secret_test as canary,
)
from jaxcontam.ownership import (
    variants_test as variants,
)

ENTRY_POINTS = "jaxcontam.methods"
"""Group by which other packages name their tests and scores, wherever this file is."""

_HERE: Mapping[str, TestRow | ScoreMethod] = {
    method.name: method
    for method in (
        direction.METHOD,
        adjacency.METHOD,
        stratified.METHOD,
        reversal.METHOD,
        permutation.METHOD,
        sharded_t.METHOD,
        sharded_t.RELEASED,
        options.METHOD,
        variants.METHOD,
        canary.METHOD,
        canary.ALONE,
        canary_chat.METHOD,
        token_scores.MIN_K,
        token_scores.MIN_K_PP,
        text_scores.LOSS,
        text_scores.ZLIB,
        token_scores.SURP,
        token_scores.GAP_K,
        token_scores.DC_PDD,
        text_scores.LOWERCASE,
        text_scores.NEIGHBOURHOOD,
        text_scores.REFERENCE,
        text_scores.RECALL,
        text_scores.CON_RECALL,
        text_scores.CODEC,
        text_scores.GRADIENT_NORM,
    )
}


def _own_methods(taken: Collection[str]) -> dict[str, TestMethod | ScoreMethod]:
    """Rows by name, in the order of the names of their entry points."""
    rows: dict[str, TestMethod | ScoreMethod] = {}
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    for point in sorted(points, key=lambda one: one.name):
        row = point.load()
        package = point.dist.name if point.dist else point.value
        if not isinstance(row, TestMethod | ScoreMethod):
            raise ValueError(
                f"{package}: {ENTRY_POINTS}: {point.value} must be a test or a score, "
                f"got {row!r}"
            )
        if row.name in taken or row.name in rows:
            raise ValueError(
                f"{package}: {ENTRY_POINTS}: the name {row.name!r} is taken"
            )
        rows[row.name] = row
    return rows


OWN: Mapping[str, TestMethod | ScoreMethod] = _own_methods(_HERE)
"""Rows of other packages."""

METHODS: Mapping[str, TestRow | ScoreMethod] = {
    **_HERE,
    **OWN,
}

SCORES: Mapping[str, ScoreMethod] = {
    name: row for name, row in METHODS.items() if isinstance(row, ScoreMethod)
}
"""The membership scores among them."""

TESTS: Mapping[str, TestRow] = {
    name: row
    for name, row in METHODS.items()
    if isinstance(row, TestRow) and row.command == "audit"
}
"""Tests that may follow `--tests`."""


def score_method(name: str) -> ScoreMethod:
    """Look up a membership score by name, such as `loss`, `min_k` or `min_k_10`.

    Min-K% and Min-K%++ take any share of tokens: a number of percent after the name.
    """
    if name in SCORES:
        return SCORES[name]
    kind, _, percent = name.rpartition("_")
    try:
        if kind in token_scores.AT_K and 0 < float(percent) <= 100:
            return token_scores.AT_K[kind](float(percent) / 100)
    except ValueError:
        pass
    raise unknown_name("score", name, SCORES)


def methods_to_score(names: Sequence[str]) -> list[TestRow]:
    """Tests that names after `--tests` ask for."""
    check_names("test", names, TESTS)
    return [TESTS[name] for name in names]


def order_method(name: str) -> TestMethod:
    """Look up a test of the order of a file by name."""
    tests = {key: row for key, row in METHODS.items() if isinstance(row, TestMethod)}
    if name not in tests:
        raise unknown_name("test", name, tests)
    return tests[name]


def reported_method(name: str) -> TestRow:
    """Look up the test that a row of a report names."""
    method = METHODS.get(name)
    if isinstance(method, TestRow):
        return method
    raise unknown_name("test", name, METHODS)
