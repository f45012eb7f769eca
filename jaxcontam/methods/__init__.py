"""Detection methods: one module each, one row each in `METHODS`."""

from collections.abc import Mapping

from jaxcontam.errors import unknown_name
from jaxcontam.methods import min_k, permutation, reversal, sharded_t, stratified
from jaxcontam.methods.method import OrderMethod, ScoreMethod

METHODS: Mapping[str, OrderMethod | ScoreMethod] = {
    method.name: method
    for method in (
        stratified.METHOD,
        reversal.METHOD,
        permutation.METHOD,
        sharded_t.METHOD,
        sharded_t.RELEASED,
        min_k.METHOD,
    )
}


def order_method(name: str) -> OrderMethod:
    """Look an order test up by name.

    Raises:
        InputError: If there is none of that name; suggests the nearest one.
    """
    method = METHODS.get(name)
    if isinstance(method, OrderMethod):
        return method
    tests = [key for key, row in METHODS.items() if isinstance(row, OrderMethod)]
    raise unknown_name("test", name, tests)
