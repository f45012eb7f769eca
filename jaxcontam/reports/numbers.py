"""Numbers in words: p-values rounded up, intervals, effects."""

import math

from jaxcontam.reports.terms import Validity

# An approximate tail is not quoted deeper than this.
_ASYMPTOTIC_FLOOR = -15


def p_text(log10_p: float, validity: Validity = "exact") -> str:
    """A p-value as deep as its method supports: 0.043, 4.1e-16; never rounded down."""
    if validity == "asymptotic" and log10_p < _ASYMPTOTIC_FLOOR:
        return f"< 1e{_ASYMPTOTIC_FLOOR}"
    if log10_p >= -2:
        return f"{math.ceil(10.0**log10_p * 1000 - 1e-9) / 1000:.3f}"
    exponent = math.floor(log10_p)
    mantissa = math.ceil(10.0 ** (log10_p - exponent) * 10 - 1e-9) / 10
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.1f}e{exponent}"


def p_cell(log10_p: float, validity: Validity = "exact") -> str:
    """A p-value under a header that already says p: a bound, where it is exact."""
    if validity != "asymptotic":
        return f"≤ {p_text(log10_p)}"
    if log10_p < _ASYMPTOTIC_FLOOR:
        return p_text(log10_p, validity)
    return f"{10.0**log10_p:.2g}"


def p_words(log10_p: float, validity: Validity = "exact") -> str:
    """`p <= 4.1e-16`: a p-value within a sentence."""
    words = p_cell(log10_p, validity).replace("≤", "<=")
    return f"p {words}" if words.startswith("<") else f"p = {words}"


def plain_p(p: float | None) -> str:
    """A p-value from 0 to 1 as `p_text` has it; a dash where there is none."""
    if p is None:
        return "-"
    return p_text(math.log10(p)) if p > 0 else "0"


def shown_or_dash(value: float | None, form: str = ".2f") -> str:
    """A number; a dash where there is none."""
    return "-" if value is None else format(value, form)


def interval_of(row: object, name: str, form: str = ".2f") -> str:
    """A field of a result with its 95 % interval, which NAME_low and NAME_high hold."""
    low, high = (getattr(row, f"{name}_{end}") for end in ("low", "high"))
    return interval_words(getattr(row, name), low, high, form)


def interval_words(
    value: float | None, low: float | None, high: float | None, form: str = ".2f"
) -> str:
    """A number with its 95 % interval, as far as there are any."""
    if value is None or low is None or high is None:
        return shown_or_dash(value, form)
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
