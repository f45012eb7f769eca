"""Tests of the order of a file: `TESTS`, a row each."""

from collections.abc import Mapping, Sequence

from jaxcontam.errors import check_names, unknown_name
from jaxcontam.orders import (
    adjacency,
    direction,
    options,
    permutation,
    reversal,
    sharded_t,
    stratified,
)
from jaxcontam.orders.method import TestMethod
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.methods import joined_rows, words_of

TESTS: Mapping[str, TestRow] = joined_rows(
    (
        direction.METHOD,
        adjacency.METHOD,
        stratified.METHOD,
        reversal.METHOD,
        permutation.METHOD,
        sharded_t.METHOD,
        sharded_t.RELEASED,
        options.METHOD,
    ),
    TestRow,
)
"""Tests that may follow `--tests`, those of other packages last."""

WORDS = {name: words_of(row) for name, row in TESTS.items()}
"""What reports say of each."""


def methods_to_score(names: Sequence[str]) -> list[TestRow]:
    """Tests that names after `--tests` ask for."""
    check_names("test", names, TESTS)
    return [TESTS[name] for name in names]


def order_method(name: str) -> TestMethod:
    """Look up a test of the order of a file by name."""
    tests = {key: row for key, row in TESTS.items() if isinstance(row, TestMethod)}
    if name not in tests:
        raise unknown_name("test", name, tests)
    return tests[name]
