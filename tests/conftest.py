"""Strictness for all tests, how they compile, and a small model that several share."""

import os
import signal
from pathlib import Path

import jax
import pytest

from jaxcontam.scoring.identity import keep_compiled
from tests.support.compile_mode import compile_from_now
from tests.support.pulse_run import pulse_run

# A shell starts what runs in its background deaf to Ctrl-C, and so would be all that
# tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Silent broadcasting is how a statistic goes quietly wrong.
jax.config.update("jax_numpy_rank_promotion", "raise")

# The file that makes the pulse run, by the number of its tests.
_FIRST = "test_quickstart.py"


# What a bare `pytest` runs, in three minutes on two cores: kernel, exact laws, order
# tests, parity, command line, functions, faults in small. `pytest --whole` runs all.
_TESTS = Path(__file__).parent
CORE = frozenset((_TESTS / "core.txt").read_text(encoding="utf-8").split())


def pytest_addoption(parser):
    """All tests that are not slow, and not the core alone."""
    parser.addoption("--whole", action="store_true", help="run all tests but slow ones")


def pytest_ignore_collect(collection_path, config):
    """Leave out what is not of the core where nothing was asked for by name."""
    named = {Path(word).name for word in config.args} != {"tests"}
    asked = config.getoption("--whole") or config.getoption("markexpr") != "not slow"
    if named or asked or not collection_path.name.startswith("test_"):
        return None
    place = collection_path.relative_to(_TESTS).with_suffix("")
    return place.as_posix() not in CORE or None


def pytest_collection_modifyitems(items):
    """Mark tests of parity for CI, and put files in an order that compiles little."""
    for item in items:
        if item.get_closest_marker("parity"):
            item.user_properties.append(("mark", "parity"))
    waiting = {item.path for item in items if "pulse" in item.fixturenames}

    def place(item):
        """One worker makes the pulse run, while others begin with what needs none."""
        plain = item.get_closest_marker("unoptimised") is not None
        return item.path.name != _FIRST, not plain, item.path in waiting

    # Stable: the tests of a file stay together, in their order.
    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Compile as the file asks, before its fixtures and in its child processes."""
    compile_from_now(plainly=item.get_closest_marker("unoptimised") is not None)


def _run_folder(tmp_path_factory):
    """A folder that the worker processes of one run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests neither read nor write the user's cache folder.

    What one test compiled, small programs too, all others and their child processes
    read from disk: most of what tests wait for is the compiler.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(_run_folder(tmp_path_factory) / "cache"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        keep_compiled()
        yield


@pytest.fixture
def strict_dtypes():
    """For tests of models, scoring and stats; optax.adamw needs the default."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def pulse(tmp_path_factory):
    """Folder of a finished `eval.quickstart --tiny` run with seed 0; read only."""
    return pulse_run(_run_folder(tmp_path_factory))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a model that knows `membership_model.MEMBERS` by heart; read only."""
    from tests.support.membership_model import save_overfitted

    folder = tmp_path_factory.mktemp("known") / "model"
    save_overfitted(folder)
    return str(folder)
