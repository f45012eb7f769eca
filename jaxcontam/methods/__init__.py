"""Detection methods: one module each, one row each in `METHODS`."""

from collections.abc import Mapping, Sequence

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
    two_min,
)
from jaxcontam.methods.method import ScoreMethod, TestMethod
from jaxcontam.methods.two_min import CombinedMethod

METHODS: Mapping[str, TestMethod | CombinedMethod | ScoreMethod] = {
    method.name: method
    for method in (
        adjacency.METHOD,
        stratified.METHOD,
        two_min.METHOD,
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
    """Look an order test up by name; one that is scored, not made of others.

    Raises:
        InputError: If there is none of that name; suggests the nearest one.
    """
    (method,) = methods_to_score([name])
    return method


def methods_to_score(names: Sequence[str]) -> list[TestMethod]:
    """Tests that names ask for: a combined one asks for its parts, each once.

    A test that is also a part of a combined one is scored as that part.

    Raises:
        InputError: If there is no test of a name; suggests the nearest one.
    """
    asked: dict[str, TestMethod] = {}
    parts: dict[str, TestMethod] = {}
    for name in names:
        method = METHODS.get(name)
        if method is None or isinstance(method, ScoreMethod):
            tests = [
                k for k, row in METHODS.items() if not isinstance(row, ScoreMethod)
            ]
            raise unknown_name("test", name, tests)
        if isinstance(method, CombinedMethod):
            parts |= {part.name: part for part in method.parts}
        else:
            asked[name] = method
    return list((asked | parts).values())
