"""The table of hardware: names, sizes and speeds against numbers told elsewhere."""

import pytest

from jaxcontam.errors import InputError
from train.hardware import CHIPS, machine


@pytest.mark.parametrize(
    ("name", "n_chips"),
    [
        ("v4-8", 4),
        ("v5p-8", 4),
        ("v4-512", 256),
        ("v5e-8", 8),
        ("v5litepod-64", 64),
        ("v6e-8", 8),
        ("h100-8", 8),
        ("a100-40-8", 8),
        ("a100-8", 8),
    ],
)
def test_v4_and_v5p_count_cores_and_the_others_chips(name, n_chips):
    assert machine(name).n_chips == n_chips


def test_a_slice_is_named_by_the_sides_that_its_chips_make():
    for name, as_xla_has_it in (
        ("v4-8", "v4:2x2x1"),
        ("v5e-64", "v5e:8x8"),
        ("v5p-16", "v5p:2x2x2"),
        ("v6e-8", "v6e:2x4"),
        ("h100-8", None),
    ):
        assert machine(name).slice_name == as_xla_has_it


@pytest.mark.parametrize(
    # What Google Cloud's pages say of a whole pod, in 10^15 operations a second.
    ("name", "pod_chips", "pod_petaflops"),
    [("v4", 4096, 1100), ("v5e", 256, 50.63), ("v6e", 256, 234.9)],
)
def test_a_pods_peak_is_that_of_its_chips(name, pod_chips, pod_petaflops):
    # Published to two digits for v4, and to a half per cent for v5e.
    of_chips = CHIPS[name].peak_tflops * pod_chips / 1000
    assert of_chips == pytest.approx(pod_petaflops, rel=0.03)


@pytest.mark.parametrize("name", ["v5e-12", "v4-6", "v4-9", "v6e-0", "h100-0"])
def test_a_size_that_is_not_rented_is_refused_with_those_that_are(name):
    with pytest.raises(InputError, match="no such size") as refused:
        machine(name)
    assert name.rpartition("-")[0] + "-" in refused.value.hint


@pytest.mark.parametrize("card", ["a100-40", "A100-80"])
def test_a_cards_memory_is_not_taken_for_a_number_of_cards(card):
    with pytest.raises(InputError, match="how many there are is missing") as refused:
        machine(card)
    assert f"{card}-1 " in refused.value.hint
    assert machine(f"{card}-1").n_chips == 1


@pytest.mark.parametrize("name", ["v9-8", "h100", "", "8-h100", "v5e-64 "])
def test_an_unknown_name_is_one_line_with_the_choices(name):
    with pytest.raises(InputError) as refused:
        machine(name)
    assert "\n" not in str(refused.value)
    assert all(chip in refused.value.hint for chip in CHIPS)
