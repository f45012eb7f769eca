"""Why a verdict is what it is: one reason for each way to stop short of proof."""

import dataclasses

import pytest

from jaxcontam.proof.advice import AuditedFile, why
from jaxcontam.proof.result import ReferenceResult
from jaxcontam.proof.verdict import decide
from jaxcontam.stats.result import Pretest
from tests.support.report_documents import order_result

pytestmark = pytest.mark.unoptimised


def check(name, p_value=0.5, *, passed=True, applicable=True, note=None):
    return Pretest(
        name=name,
        statistic=0.4,
        p_value=p_value,
        passed=passed,
        directional=True,
        note=note,
        applicable=applicable,
    )


def order_row(method="direction", log10_p=-6.0, verdict="contaminated", **changes):
    """A primary result; checks are those given."""
    nulls = {"direction": "reversibility", "reversal": "reversibility"}
    nulls["options"] = "exchangeability of options"
    fields = {
        "method": method,
        "null": nulls.get(method, "exchangeability"),
        "log10_p": log10_p,
        "p_value": 10.0**log10_p,
        "p_adjusted": 10.0**log10_p,
        "verdict": verdict,
        "pretests": (check("length_trend"),),
    }
    return order_result(**fields | changes)


def file_of(*rows):
    """The file, decided as in a report where it is not refused."""
    test, *others = rows
    if test.verdict not in ("invalid design", None):
        test, *others = decide(rows, min_effect=0.5)
    return AuditedFile(test, tuple(others))


def beside(method, log10_p, **changes):
    """The same for a test that does not decide."""
    return order_row(method, log10_p, primary=False, p_adjusted=None, **changes)


def reference(p_value):
    return ReferenceResult(
        name="old-model",
        fingerprint="sha256:0",
        p_value=p_value,
        log10_p=-0.5 if p_value > 0.1 else -4.0,
        effect=0.0,
        effect_se=0.05,
        difference=None,
        difference_se=None,
        difference_p=1e-6,
        difference_log10_p=-6.0,
        half_p=1e-3,
        scale=1.0,
        loglik_gap=-0.4,
    )


def beside_it(p, **changes):
    """A reference whose own p-value this is, with other numbers changed."""
    return dataclasses.replace(reference(p), **changes)


@pytest.mark.parametrize(
    ("provenance", "method", "words"),
    [
        ("published", "direction", "direction, since the order is published and"),
        ("unknown", "direction", "nor how it came about"),
        ("declared", "adjacency", "order was declared shuffled by whoever ran this"),
        ("released", "adjacency", "adjacency, since the order was drawn at random by"),
        ("seeded", "adjacency", "drawn at random from a recorded seed"),
        ("published", "reversal", "reversal, since the order is published"),
        ("published", "options", "options beside a reference model, since the order"),
        ("declared", "options", "options, since the order was declared shuffled"),
    ],
)
def test_provenance_says_who_decides(provenance, method, words):
    row = order_row(method, order_provenance=provenance, reference=reference(0.3))
    said = why(file_of(row))
    assert said.startswith("Who decides: ") and words in said
    likeness = "likeness of neighbours, the same both ways, does not give" in said
    is_known = provenance not in ("published", "unknown")
    assert likeness != (is_known or method == "options")


def suspected(method="direction", log10_p=-6.0, **changes):
    return order_row(method, log10_p, "suspected", **changes)


@pytest.mark.parametrize(
    ("rows", "expected", "words"),
    [
        ([suspected(log10_p=-2.0)], ["weak"], "too large for more"),
        (
            [suspected("options"), beside("direction", -9.0)],
            ["no reference"],
            "options, which needs a random order; but the order is published",
        ),
        (
            [suspected("options", reference=beside_it(0.995, effect=-1))],
            ["reference prefers the reverse"],
            "it prefers other orders, so the options do not stand at random",
        ),
        (
            [suspected("options", reference=beside_it(1.0, effect_se=0.0))],
            ["reference ignores context"],
            "its scores hardly depend on the order of options",
        ),
        (
            [suspected(log10_p=-0.4), beside("adjacency", -9.0)],
            ["attraction"],
            "(p <= 1.0e-9 by adjacency, were the order random), but not clearly "
            "forwards more than backwards (p <= 0.399 by direction)",
        ),
        (
            [suspected("adjacency"), beside("direction", -1.0)],
            ["attraction"],
            "(p <= 1.0e-6 by adjacency, were the order random), but not clearly",
        ),
        (
            [suspected(log10_p=-2.0), beside("adjacency", -9.0)],
            ["attraction"],
            "is preferred, too weakly for proof (p <= 0.010 by direction); that",
        ),
        ([suspected("stratified")], ["alone"], "copies from its context prefers"),
        (
            [suspected("sharded_t", validity="asymptotic", n_strata=50)],
            ["approximate", "alone"],
            "an approximate test never says more than suspected",
        ),
        (
            [
                suspected(
                    "sharded_t", validity="asymptotic", order_provenance="declared"
                )
            ],
            ["approximate"],
            "Its p-value is approximate",
        ),
        ([suspected()], ["no reference"], "only a reference model that reads as well"),
        (
            [suspected(reference=beside_it(0.3, half_p=0.2))],
            ["reference may share it"],
            "it is not shown to gain less than 50% of what the model gains: its effect "
            "is 0.00 ± 0.05, and 50% of the model's scores less its own have p = "
            "0.200, where at most 0.05 is needed (the model's effect is 0.30 ± 0.05).",
        ),
        (
            [
                suspected("adjacency"),
                beside("direction", -9.0, reference=reference(0.005)),
            ],
            ["reference prefers it"],
            "foretold by reading: it prefers the order, too, p <= 1.0e-4.",
        ),
        (
            [suspected(reference=beside_it(0.3, half_p=0.2, scale=3))],
            ["reference may share it"],
            "its effect is 0.00 ± 0.05 times 3, and 50%",
        ),
        (
            [suspected(reference=beside_it(0.995, effect=-0.2))],
            ["reference prefers the reverse"],
            "it prefers the order reversed, so the file is not as good backwards",
        ),
        (
            [suspected(reference=beside_it(1.0, effect_se=0.0))],
            ["reference ignores context"],
            "its scores hardly depend on what stands before",
        ),
    ],
)
def test_every_suspicion_has_its_reason(rows, expected, words):
    assert list(file_of(*rows).test.reasons) == expected
    assert words in why(file_of(*rows))


def test_silent_reference_stands_beside_a_proof():
    """Of a shuffled file nothing is asked of its effect, so nothing is said of it."""
    row = order_row("direction", reference=reference(0.3))
    assert (
        "old-model, the reference model, gains less than 50% of what the model gains: "
        "its effect is 0.00 ± 0.05, and 50% of the model's scores less its own have "
        "p = 1.0e-3. That settles it if old-model cannot have seen the file and"
    ) in why(file_of(row))
    shared = dataclasses.replace(reference(0.3), half_p=0.9)
    row = order_row("adjacency", order_provenance="declared", reference=shared)
    row = file_of(row)
    assert row.test.verdict == "contaminated" and "50%" not in why(row)


def test_invalid_design_names_what_refuses_it():
    failed = (check("blind_direction:words", 1e-4, passed=False),)
    row = order_row(verdict="invalid design", pretests=failed)
    said = why(file_of(row))
    assert said.startswith("Nothing decides: the file itself points forward (a directi")
    row = order_row("adjacency", verdict="invalid design", pretests=failed)
    assert "the file's own order is not random (a direction" in why(file_of(row))
    row = order_row(verdict="invalid design", reference=reference(1e-4))
    said = why(file_of(row))
    assert "old-model, the reference model" in said and "prefers its order, too" in said
    row = order_row("options", verdict="invalid design", reference=reference(1e-4))
    assert "prefers its order of options, too" in why(file_of(row))


def test_tests_that_decide_nothing_and_versions_have_no_reason():
    assert why(file_of(order_row(verdict=None))) == ""
    drawn = {"null": "designed randomisation", "order_provenance": "declared"}
    assert why(file_of(order_row(**drawn))) == ""
    assert why(file_of(order_row(null="exchangeability (declared)"))) == ""
    drawn["order_provenance"] = "seeded"
    assert why(file_of(order_row(**drawn))).startswith("Who decides: direction, since")
