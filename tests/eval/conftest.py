"""Studies that are run once for all tests."""

import os

import pytest

from tests.support.studies import told


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Name of a study -> its finished run at the smallest scale; read only."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return lambda name: told(name, shared)
