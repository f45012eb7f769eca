"""Counts, times and sizes within a sentence, as an editor would have them."""

import math


def counted(n: int, one: str, several: str | None = None) -> str:
    """`1 text`, `2,000 texts`; `several` where an s does not make the plural."""
    return f"{n:,} {one if n == 1 else several or f'{one}s'}"


def amount(value: float | None, digits: int = 2, *, padded: bool = True) -> str:
    """A number to so many significant digits: 0.97, 1.0, 140, 12,000.

    Written out, but for what is below 0.0001; a dash for none. `padded` keeps zeros at
    the end.
    """
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    # Rounded first: 0.999 is 1.0 to two digits.
    value = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if decimals > digits + 3:
        return f"{value:.{digits}g}"
    text = f"{value:,.{max(0, decimals)}f}"
    return text if padded or "." not in text else text.rstrip("0").rstrip(".")


def duration_words(seconds: float) -> str:
    """An estimated time as a reader says it: about 1 second, about 2.5 hours."""
    if seconds < 0.5:
        return "less than a second"
    # Two of a unit still say more in the smaller one.
    if seconds < 119.5:
        n, unit = f"{seconds:.0f}", "second"
    elif seconds < 119.5 * 60:
        n, unit = f"{seconds / 60:.0f}", "minute"
    else:
        n, unit = f"{seconds / 3600:,.1f}".removesuffix(".0"), "hour"
    return f"about {n} {unit}{'s' if n != '1' else ''}"
