"""Files of every family onto a mesh: equal weights, each device its part, read once."""

import json

import pytest

from tests.support.family_files import RAW
from tests.support.mesh_process import started

CASES = [f"{name}-{dtype}" for name in RAW for dtype in ("float32", "bfloat16")]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    out = folder / "found.json"
    process = started("families", out, folder, n_devices=4)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.read_text())


@pytest.mark.parametrize("case", CASES)
def test_parts_make_the_weights_that_are_read_whole(loaded, case):
    assert loaded[case]["equal"] == loaded[case]["all"]


@pytest.mark.parametrize("case", CASES)
def test_each_device_keeps_a_half_of_what_is_divided(loaded, case):
    found = loaded[case]
    assert found["halves"] == found["divided"]
    kernels = {name for name in found["all"] if name.endswith(".kernel")}
    assert kernels | {"embedding"} <= set(found["divided"])


@pytest.mark.parametrize("case", CASES)
def test_no_part_is_read_twice_for_two_copies(loaded, case):
    assert loaded[case]["read"] == loaded[case]["read_whole"] > 0
