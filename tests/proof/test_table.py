"""The terminal table: p-values rounded up, names as they are, columns that fit."""

import io
import itertools
import math
import re

import numpy as np
import pytest
from rich.console import Console

from jaxcontam.proof.outcome import print_results
from jaxcontam.proof.result import MembershipResult, OrderResult
from jaxcontam.reports import numbers
from jaxcontam.stats.result import OrderNumbers

# p_text forgives 1e-9 of a unit in the last printed place, so that 0.05 computed as
# 0.05 + 1e-17 is not printed as 0.051.
GRACE = 1e-9


def p_text(result):
    return numbers.p_text(result.numbers.log10_p, result.validity)


def order_result(log10_p=-1.0, **fields):
    """A row of the report with these fields."""
    numbers = OrderNumbers(
        statistic=1.0,
        p_value=max(10.0**log10_p, 1e-300),
        log10_p=log10_p,
        p_lower=None,
        p_monte_carlo=None,
        p_floor=1e-20,
        e_value=1.0,
        effect=fields.pop("effect", 1.234),
        effect_se=fields.pop("effect_se", 0.056),
        mde=0.2,
        scores="centred",
    )
    stated = {
        "benchmark": "boolq",
        "fingerprint": "sha256:0",
        "content_digest": "sha256:0",
        "order_provenance": "published",
        "n_examples": 100,
        "n_cut": 0,
        "method": "stratified",
        "primary": True,
        "null": "exchangeability",
        "validity": "exact",
        "n_strata": 20,
        "n_dropped": 0,
        "n_orders": 9,
        "group_field": None,
        "tokens_scored": 1,
        "cached_tokens": 0,
        "effect_unit": "nats per example boundary",
        "verdict": "contaminated",
    }
    return OrderResult(**(stated | fields), numbers=numbers)


def membership_result(auc=0.881, auc_se=0.031, **fields):
    stated = {
        "benchmark": "boolq",
        "fingerprint": "sha256:0",
        "n_examples": 100,
        "method": "min_k",
        "reference": ("control",),
        "tokens_scored": 1,
    }
    return MembershipResult(auc=auc, auc_se=auc_se, **(stated | fields))


def printed(rows, width, **options):
    """Lines of the table without the spaces at their ends."""
    out = io.StringIO()
    print_results(rows, Console(file=out, width=width), **options)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def log10_of(text):
    """log10 of a printed p-value, also where a float cannot hold it."""
    mantissa, _, exponent = text.partition("e")
    return math.log10(float(mantissa)) + int(exponent or 0)


def deep_logs():
    """log10 p from 1e-2 down to 1e-420, and just around every power of ten."""
    rng = np.random.default_rng(0)
    powers = np.arange(-420.0, -2.0)
    near = [
        powers + sign * 10.0**-digits for sign in (-1, 1) for digits in (3, 6, 9, 12)
    ]
    drawn = [rng.uniform(-420, -2, 5000), rng.uniform(-20, -2, 5000)]
    values = np.concatenate([powers, *near, *drawn])
    return values[values < -2].tolist()


def shallow_pvalues():
    """p from 0.01 to 1: at random, each thousandth, and just beside each of those."""
    thousandths = np.arange(10, 1001) / 1000
    beside = [
        thousandths * (1 + sign * 10.0**-digits)
        for sign in (-1, 1)
        for digits in (4, 7, 11, 15)
    ]
    drawn = np.random.default_rng(1).uniform(0.01, 1.0, 5000)
    values = np.concatenate([thousandths, *beside, drawn])
    return values[(values >= 0.01) & (values <= 1)].tolist()


def test_deep_pvalue_is_never_rounded_down_nor_up_by_more_than_a_digit():
    for log10_p in deep_logs():
        text = p_text(order_result(log10_p))
        assert re.fullmatch(r"\d\.\de-\d+", text), text
        above = log10_of(text) - log10_p
        # The second digit of the mantissa is worth at most 0.1 / 1.0 of it; 1e-12 is
        # the float error of a logarithm of that size.
        assert -GRACE - 1e-12 <= above <= math.log10(1.1) + 1e-12, (text, log10_p)


def test_shallow_pvalue_is_never_rounded_down_nor_up_by_more_than_a_thousandth():
    for p in shallow_pvalues():
        text = p_text(order_result(math.log10(p)))
        assert re.fullmatch(r"[01]\.\d{3}", text), text
        assert -GRACE <= 1000 * (float(text) - p) < 1 + GRACE, (text, p)


def test_deeper_pvalue_never_reads_larger():
    # Read from the deepest up; the two formats meet at 0.01.
    logs = sorted([*deep_logs(), *np.log10(shallow_pvalues())])
    texts = [p_text(order_result(log10_p)) for log10_p in logs]
    found = [log10_of(text) for text in texts]
    # Equal texts give equal logarithms; 1e-12 is float error between the formats.
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("log10_p", [-15.001, -16.0, -38.0, -300.0, -400.0])
def test_asymptotic_pvalue_is_never_quoted_below_1e_15(log10_p):
    approximate = order_result(log10_p, validity="asymptotic", method="sharded_t")
    assert p_text(approximate) == "< 1e-15"
    exact = log10_of(p_text(order_result(log10_p)))
    assert exact < math.log10(1.1) + log10_p + 1e-12, "an exact p goes on"


ROWS = [
    order_result(-30.52),  # 3.02e-31, rounded up
    order_result(-1.0, method="reversal", primary=False, verdict=None),
    membership_result(),
    order_result(
        math.log10(0.42), benchmark="fresh", effect=-0.01, verdict="no evidence"
    ),
]


def test_wide_table_has_standard_errors_and_the_whole_unit():
    assert printed(ROWS, width=120) == [
        "                   p                       effect        p         AUC",
        "benchmark stratified verdict      nats / boundary reversal       min_k",
        "boolq        3.1e-31 contaminated     1.23 ± 0.06    0.100 0.88 ± 0.03",
        "fresh          0.420 no evidence     -0.01 ± 0.06",
    ]


def test_table_that_does_not_fit_leaves_out_the_effect_and_cuts_no_number():
    assert printed(ROWS, width=50) == [
        "                   p                     p   AUC",
        "benchmark stratified verdict      reversal min_k",
        "boolq        3.1e-31 contaminated    0.100  0.88",
        "fresh          0.420 no evidence",
    ]
    assert printed(ROWS, width=20) == printed(ROWS, width=50)


def test_each_test_that_decides_somewhere_has_a_column_and_a_star_where_it_does():
    rows = [
        order_result(-5, method="adjacency"),
        order_result(-4, method="direction", primary=False, verdict=None, effect=9.0),
        order_result(-9, benchmark="b", method="adjacency", primary=False),
        order_result(-1, benchmark="b", method="direction", verdict="suspected"),
    ]
    assert printed(rows, width=80) == [
        "                  p         p              effect",
        "benchmark adjacency direction verdict        nats",
        "boolq       *1.0e-5    1.0e-4 contaminated   1.23",
        "b            1.0e-9    *0.100 suspected      1.23",
    ]


def test_planted_copies_are_shown_where_there_are_any():
    rows = [
        order_result(benchmark="planted_10", copies=10),
        order_result(benchmark="control", copies=0),
    ]
    _, header, *lines = printed(rows, width=80)
    assert header.split()[:2] == ["benchmark", "copies"]
    assert [line.split()[:2] for line in lines] == [
        ["planted_10", "10"],
        ["control", "0"],
    ]


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[red]", "a[0]", "[/]"])
@pytest.mark.parametrize("width", [80, 120])
def test_markup_in_a_benchmark_name_is_shown_literally(name, width):
    line = printed([order_result(benchmark=name)], width)[-1]
    assert line.startswith(f"{name} ")


def test_long_benchmark_name_is_folded_and_never_shortened():
    name = "".join(f"{i:03d}" for i in range(60))
    table = printed([order_result(benchmark=name)], width=80)
    assert "".join(line.split()[0] for line in table[2:]) == name
    assert "contaminated" in table[2]


@pytest.mark.parametrize("width", range(20, 150, 7))
def test_no_width_cuts_a_cell_short(width):
    name = "mmlu_professional_psychology-held"
    row = order_result(benchmark=name, copies=100)
    beside = order_result(benchmark=name, method="permutation", primary=False)
    lines = printed([row, beside], width)
    assert "…" not in "".join(lines)
    assert "".join(line.split()[0] for line in lines[2:]) == name
    assert lines[2].split()[1:4] == ["100", "0.100", "contaminated"]
