"""p-values as people read them: rounded up, and deeper ones never larger."""

import itertools
import math
import re

import numpy as np
import pytest

from jaxcontam.reports.numbers import p_text, p_words

pytestmark = pytest.mark.unoptimised

# p_text forgives 1e-9 of a unit in the last printed place, so that 0.05 computed as
# 0.05 + 1e-17 is not printed as 0.051.
GRACE = 1e-9


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
        text = p_text(log10_p)
        assert re.fullmatch(r"\d\.\de-\d+", text), text
        above = log10_of(text) - log10_p
        # The second digit of the mantissa is worth at most 0.1 / 1.0 of it; 1e-12 is
        # the float error of a logarithm of that size.
        assert -GRACE - 1e-12 <= above <= math.log10(1.1) + 1e-12, (text, log10_p)


def test_shallow_pvalue_is_never_rounded_down_nor_up_by_more_than_a_thousandth():
    for p in shallow_pvalues():
        text = p_text(math.log10(p))
        assert re.fullmatch(r"[01]\.\d{3}", text), text
        assert -GRACE <= 1000 * (float(text) - p) < 1 + GRACE, (text, p)


def test_deeper_pvalue_never_reads_larger():
    # Read from the deepest up; the two formats meet at 0.01.
    logs = sorted([*deep_logs(), *np.log10(shallow_pvalues())])
    texts = [p_text(log10_p) for log10_p in logs]
    found = [log10_of(text) for text in texts]
    # Equal texts give equal logarithms; 1e-12 is float error between the formats.
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("log10_p", "validity", "words"),
    [
        (-15.397, "exact", "p <= 4.1e-16"),
        (0.0, "exact", "p <= 1.000"),
        (math.log10(0.0421), "exact", "p <= 0.043"),
        (-400.0, "exact", "p <= 1.0e-400"),
        (-5.0000001, "exact", "p <= 1.0e-5"),
        # Never quoted deeper.
        *(
            (deep, "asymptotic", "p < 1e-15")
            for deep in (-15.001, -16.0, -38.0, -400.0)
        ),
        (-3.0, "asymptotic", "p = 0.001"),
    ],
)
def test_pvalues_in_words_are_rounded_up(log10_p, validity, words):
    assert p_words(log10_p, validity) == words
    if words == "p < 1e-15":
        assert p_text(log10_p, validity) == "< 1e-15"
