"""Which tests compile as users do, and what does not depend on who asks first."""

import os

import pytest

from tests.compile_mode import compiles_plainly, compiling
from tests.pulse_run import pulse_run


def test_file_without_a_mark_compiles_as_users_do():
    assert not compiles_plainly()
    assert os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0"


def test_mode_of_a_block_ends_with_it():
    with pytest.raises(KeyError), compiling(plainly=True):
        assert compiles_plainly()
        assert os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"
        raise KeyError
    assert not compiles_plainly()
    assert os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0"


@pytest.mark.parametrize("plainly", [True, False])
def test_pulse_run_is_compiled_alike_whoever_asks_first(plainly, tmp_path, monkeypatch):
    modes = []

    class Stub:
        def __init__(self, *, out, tiny):
            self.out = out

        def run(self):
            modes.append(compiles_plainly())
            self.out.mkdir()
            (self.out / "report.html").touch()

    monkeypatch.setattr("eval.quickstart.Quickstart", Stub)
    with compiling(plainly=plainly):
        for _ in range(2):
            assert pulse_run(tmp_path) == tmp_path / "quickstart"
        assert compiles_plainly() == plainly
    assert modes == [True]
