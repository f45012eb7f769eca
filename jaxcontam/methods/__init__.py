"""Detection methods: one module each, one row each in `METHODS`."""

from collections.abc import Mapping

from jaxcontam.errors import unknown_name
from jaxcontam.methods import (
    adjacency,
    min_k,
    permutation,
    permutation_besag_clifford,
    permutation_sequential,
    reversal,
    sequential,
    sharded_t,
    stratified,
)
from jaxcontam.methods.method import ScoreMethod, TestMethod

METHODS: Mapping[str, TestMethod | ScoreMethod] = {
    method.name: method
    for method in (
        adjacency.METHOD,
        stratified.METHOD,
        reversal.METHOD,
        permutation.METHOD,
        sequential.METHOD,
        permutation_sequential.METHOD,
        permutation_besag_clifford.METHOD,
        adjacency.NORMAL,
        sharded_t.METHOD,
        sharded_t.RELEASED,
        min_k.METHOD,
    )
}


def order_method(name: str) -> TestMethod:
    """Look an order test up by name.

    Raises:
        InputError: If there is none of that name; suggests the nearest one.
    """
    method = METHODS.get(name)
    if method is not None and not isinstance(method, ScoreMethod):
        return method
    tests = [key for key, row in METHODS.items() if not isinstance(row, ScoreMethod)]
    raise unknown_name("test", name, tests)
