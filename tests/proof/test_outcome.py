"""The terminal table of order tests: names as they are, columns that fit."""

import io
import math

import pytest
from rich.console import Console

from jaxcontam.proof.outcome import print_results
from tests.support.report_documents import order_result, ranking_result

pytestmark = pytest.mark.unoptimised


def printed(rows, width):
    """Lines of the table without the spaces at their ends."""
    out = io.StringIO()
    print_results(rows, Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_narrow_terminal_gets_no_effect_and_whole_numbers():
    silent = {"effect": -0.01, "verdict": "no evidence"}
    rows = [
        order_result(log10_p=-30.52),  # 3.02e-31, rounded up
        order_result(log10_p=-1.0, method="reversal", primary=False, verdict=None),
        ranking_result(),
        order_result("fresh", log10_p=math.log10(0.42), **silent),
    ]
    assert printed(rows, width=120) == [
        "                   p                       effect        p         AUC",
        "benchmark stratified verdict      nats / boundary reversal       min_k",
        "boolq        3.1e-31 contaminated     0.30 ± 0.05    0.100 0.88 ± 0.03",
        "fresh          0.420 no evidence     -0.01 ± 0.05",
    ]
    assert printed(rows, width=50) == [
        "                   p                     p   AUC",
        "benchmark stratified verdict      reversal min_k",
        "boolq        3.1e-31 contaminated    0.100  0.88",
        "fresh          0.420 no evidence",
    ]
    assert printed(rows, width=20) == printed(rows, width=50)


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[red]", "a[0]", "[/]"])
def test_markup_in_a_benchmark_name_is_shown_literally(name):
    assert printed([order_result(name)], width=80)[-1].startswith(f"{name} ")


@pytest.mark.parametrize("width", range(20, 150, 7))
def test_no_width_cuts_a_cell_short(width):
    name = "mmlu_professional_psychology-held" + "".join(map(str, range(40)))
    row = order_result(name, log10_p=-1.0, copies=100)
    beside = order_result(name, method="permutation", primary=False)
    lines = printed([row, beside], width)
    assert "…" not in "".join(lines)
    assert "".join(line.split()[0] for line in lines[2:]) == name
    assert lines[2].split()[1:4] == ["100", "0.100", "contaminated"]
