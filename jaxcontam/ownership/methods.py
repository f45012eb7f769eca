"""Tests of what an owner made before a model was trained: `TESTS`, a row each."""

from collections.abc import Mapping

from jaxcontam.ownership import canary, keyed_canary, variants
from jaxcontam.proof.kind import kind_of_tests
from jaxcontam.proof.test_row import TestRow

TESTS: Mapping[str, TestRow] = {
    row.name: row
    for row in (variants.METHOD, canary.METHOD, canary.ALONE, keyed_canary.METHOD)
}

VERSIONS = kind_of_tests(TESTS)
"""Reports of `canary` and `variants`."""
