"""The same test of a model that cannot have seen the file, side by side."""

from jaxcontam.report.decision import AuditedFile
from jaxcontam.report.numbers import effect_words, p_cell, p_words
from jaxcontam.results import OrderResult

SIDE_BY_SIDE_HEADER = ("model", "p", "effect ± se")
_ALIKE_LEVEL = 0.05


def referred_test(file: AuditedFile) -> OrderResult | None:
    """The test of a file that holds its reference: the deciding one, if it has one."""
    return next((test for test in file.tests if test.reference is not None), None)


def side_by_side(test: OrderResult, model: str) -> list[list[str]]:
    """The model, its reference and the difference; empty without a reference.

    Args:
        test: An order test.
        model: Name of the model that was audited.
    """
    numbers, found = test.numbers, test.reference
    if found is None:
        return []
    shown = (
        (model, numbers.log10_p, numbers.effect, numbers.effect_se),
        (f"{found.name} (reference)", found.log10_p, found.effect, found.effect_se),
        ("difference", found.difference_log10_p, found.difference, found.difference_se),
    )
    return [
        [name, p_cell(log10_p, test.validity), effect_words(effect, se)]
        for name, log10_p, effect, se in shown
    ]


def reference_sentence(test: OrderResult) -> str | None:
    """Whether the reference explains what the model shows; None without one."""
    found = test.reference
    if found is None:
        return None
    said = (
        f"The same test of {found.name}, which cannot have seen the file: "
        f"{p_words(found.log10_p, test.validity)}, effect "
        f"{effect_words(found.effect, found.effect_se)}; difference "
        f"{effect_words(found.difference, found.difference_se)}, "
        f"{p_words(found.difference_log10_p, test.validity)}"
    )
    if found.difference_p <= _ALIKE_LEVEL:
        return f"{said}: the model prefers the order more than the reference does."
    return f"{said}: what the model prefers more than the reference may be chance."
