"""Who decides, and in which words."""

import dataclasses
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxcontam.proof.result import DESIGNED
from jaxcontam.proof.verdict import decide, screen
from jaxcontam.stats.result import Pretest
from tests.support.report_documents import order_result, reference_result


def result(
    p=0.5,
    *,
    name="x",
    reference=None,
    reference_effect=0.0,
    se=0.1,
    half_p=1e-3,
    p_difference=1e-9,
    **changes,
):
    """An undecided test of a file, beside a reference of a p-value if it is given."""
    fields = {"p_adjusted": None, "mde_adjusted": None, "verdict": None}
    fields |= {"p_floor": 1e-9, "e_value": 1.0, "effect_se": 0.1, "mde": 0.1}
    fields |= {"primary": True, "pretests": (), "log10_p": 0.0}
    if reference is not None:
        fields["reference"] = reference_result(
            p_value=reference,
            effect=reference_effect,
            effect_se=se,
            half_p=half_p,
            difference_p=p_difference,
        )
    return order_result(name, p_value=p, **fields | changes)


GROUPED = "within-group reversibility of blocks"
OPTIONS = "exchangeability of options"
FORWARD, BROKEN, PROOF = "reversibility", "invalid design", "contaminated"
SHARED, IGNORES = "reference may share it", "reference ignores context"
REVERSE = "reference prefers the reverse"
LOUD = {"p": 1e-9, "null": FORWARD, "reference": 0.02}
RULE = Pretest("learned_direction", 0.4, 0.6, True, directional=True)
TREND = Pretest("length_trend", 0.1, 0.5, True, directional=True)
PASSED = (RULE, TREND)
FAILED = (RULE, dataclasses.replace(TREND, p_value=1e-4, passed=False))
ALIKE = (RULE, Pretest("tfidf_adjacency", 0.9, 1e-4, False))
IDLE = (RULE, Pretest("tfidf_adjacency", 0.0, 1e-3, True, applicable=False))


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        # An order may mean something to a reader: another reader knows.
        ({"p": 1e-9, "null": FORWARD, "pretests": PASSED}, "no reference"),
        ({"p": 0.001, "null": FORWARD, "reference": 0.3}, PROOF),
        ({"p": 0.0011, "null": FORWARD, "reference": 0.3}, "weak"),
        ({"p": 1e-9, "null": GROUPED, "reference": 0.3}, PROOF),
        # Nobody knows that the order was drawn: like may stand beside like.
        ({"p": 1e-9}, "alone"),
        ({"p": 1e-9, "null": "within-group exchangeability"}, "alone"),
        ({"p": 1e-9, "validity": "asymptotic"}, "approximate, alone"),
        ({"p": 1e-9, "order_provenance": "declared"}, PROOF),
        # Authors put options in an order that means something, too.
        ({"p": 1e-9, "null": OPTIONS}, "no reference"),
        ({"p": 1e-9, "null": "exchangeability of wrong options"}, "no reference"),
        ({"p": 1e-9, "null": OPTIONS, "order_provenance": "declared"}, PROOF),
        ({"p": 1e-9, "null": OPTIONS, "reference": 0.3}, PROOF),
        ({"p": 1e-9, "null": OPTIONS, "reference": 0.3, "half_p": 0.06}, SHARED),
        ({"p": 1e-9, "null": OPTIONS, "reference": 0.01}, BROKEN),
        ({"p": 1e-9, "null": DESIGNED, "validity": "asymptotic"}, "approximate"),
        ({"p": 0.05}, "weak"),
        ({"p": 0.051}, "no evidence"),
        ({"p": 0.051, "mde": 0.51}, "inconclusive"),
        ({"p": 0.051, "mde": None}, "inconclusive"),
        ({"p": 0.051, "order_provenance": "unknown"}, "inconclusive"),
        ({"p": 0.051, "order_provenance": "declared"}, "no evidence"),
        ({"p": 1e-9, "order_provenance": "seeded"}, PROOF),
        ({"p": 1e-9, "pretests": FAILED}, BROKEN),
        ({"p": 0.9, "pretests": FAILED}, BROKEN),
        ({"p": 1e-9, "pretests": FAILED, "order_provenance": "declared"}, BROKEN),
        ({"p": 1e-9, "pretests": IDLE, "null": FORWARD, "reference": 0.3}, PROOF),
        ({"p": 1e-9, "pretests": ALIKE, "null": FORWARD, "reference": 0.3}, PROOF),
        ({**LOUD, "p_difference": 0.005}, PROOF),
        ({**LOUD, "p_difference": 0.0051}, "reference too close"),
        ({**LOUD, "null": OPTIONS, "p_difference": 0.0011}, "reference too close"),
        # Beside a noisy reference half says less.
        ({**LOUD, "se": 0.11, "p_difference": 0.005}, PROOF),
        ({**LOUD, "se": 0.111, "p_difference": 0.0011}, "reference too close"),
        # It gains less than half of the model, at 5 %, whatever both estimates are.
        (LOUD, PROOF),
        ({**LOUD, "half_p": 0.05, "reference_effect": 0.45}, PROOF),
        ({**LOUD, "half_p": 0.051, "reference_effect": -0.2}, SHARED),
        ({**LOUD, "half_p": float("nan")}, SHARED),
        ({**LOUD, "reference": 0.99, "reference_effect": -0.2}, REVERSE),
        ({**LOUD, "reference": 0.99, "reference_effect": 0.0}, PROOF),
        ({**LOUD, "reference": 0.989, "reference_effect": -0.2}, PROOF),
        # It heeds no context.
        ({**LOUD, "se": float("nan")}, IGNORES),
        ({**LOUD, "se": 1e-3}, IGNORES),
        ({**LOUD, "reference": 1.0, "se": 1e-12}, IGNORES),
        # The file points forward by itself.
        ({"p": 1e-9, "null": FORWARD, "reference": 0.01}, BROKEN),
        ({"p": 1e-9, "null": DESIGNED, "reference": 0.01}, PROOF),
        ({"p": 1e-9, "pretests": FAILED, "null": DESIGNED}, PROOF),
    ],
)
def test_verdict_follows_the_rules(kwargs, said):
    """The verdict, or, where it is `suspected`, the reasons of that."""
    (found,) = decide([result(**kwargs)], min_effect=0.5)
    assert (", ".join(found.reasons) or found.verdict) == said
    assert (found.verdict == "suspected") == bool(found.reasons)


def test_beside_a_reference_that_is_alike_nothing_is_suspected():
    weak = LOUD | {"p": 0.05}
    cases = {
        "suspected": [weak | {"p_difference": 0.02}, LOUD | {"p_difference": 0.02}],
        "inconclusive": [
            one | {"p_difference": p} for one in (weak, LOUD) for p in (0.021, math.nan)
        ],
    }
    for verdict, many in cases.items():
        for one in many:
            (found,) = decide([result(**one)], min_effect=0.5)
            assert (found.verdict, bool(found.reasons)) == (verdict, True)
    # Direction's reference judges where the order would have to be random.
    order = {"p": 1e-9, "reference": 0.3, "p_difference": 0.5}
    ahead = result(**LOUD, primary=False)
    alike = result(**LOUD | {"p_difference": 0.5}, primary=False)
    for beside, verdict in ((ahead, PROOF), (alike, "inconclusive")):
        assert decide([result(**order), beside], min_effect=0.5)[0].verdict == verdict
    # Attraction that both find is no suspicion.
    silent = result(**LOUD | {"p": 0.4, "p_difference": 0.5})
    both = [silent, result(**order, primary=False)]
    assert decide(both, min_effect=0.5)[0].verdict == "no evidence"


def test_primary_pvalues_are_corrected_over_benchmarks_and_secondary_ones_are_not():
    rows = [
        result(0.0006, name="a"),
        result(1e-12, name="a", primary=False),
        result(0.3, name="b"),
        result(0.0004, name="c"),
    ]
    decided = decide(rows, min_effect=0.5)
    assert [row.p_adjusted for row in decided] == pytest.approx(
        [0.0012, None, 0.3, 0.0012]
    )
    verdicts = ["suspected", None, "no evidence", "suspected"]
    assert [row.verdict for row in decided] == verdicts


def test_a_difference_from_the_reference_counts_for_every_file():
    rows = [result(name=name, **LOUD | {"p_difference": 3e-3}) for name in "ab"]
    assert decide(rows[:1], min_effect=0.5)[0].verdict == PROOF
    assert decide(rows, min_effect=0.5)[0].reasons == ("reference too close",)


def test_an_effect_that_many_files_hide_is_no_evidence_of_nothing():
    """3.090 + 0.842 errors for one file, 4.265 + 0.842 at the level of a hundredth."""
    rows = [result(name=f"{i}", mde=0.4) for i in range(100)]
    assert decide(rows[:1], min_effect=0.5)[0].verdict == "no evidence"
    of_many = decide([*rows, result(primary=False)], min_effect=0.5)
    assert of_many[0].mde_adjusted == pytest.approx(0.4 * 5.107 / 3.932, rel=1e-3)
    assert of_many[0].verdict == "inconclusive"
    assert of_many[-1].mde_adjusted is None
    # A floor of p that one file reaches, and two do not.
    rows = [result(name=name, p_floor=7e-4) for name in "ab"]
    assert decide(rows[:1], min_effect=0.5)[0].verdict == "no evidence"
    (first, _) = decide(rows, min_effect=0.5)
    assert (first.mde_adjusted, first.verdict) == (None, "inconclusive")


def test_screening_by_hand():
    rows = [
        result(0.001, name="a", e_value=60.0),
        result(1e-9, name="a", e_value=1e9, primary=False),
        result(0.5, name="b", e_value=0.5),
        result(0.02, name="c", e_value=None, log10_p=-4.0),
    ]
    found = screen(rows)
    assert [row.benchmark for row in found] == ["a", "b", "c"]
    # 1 + 1/2 + 1/3 = 11/6 for three benchmarks.
    assert [row.by for row in found] == pytest.approx([0.0055, 0.5 * 11 / 6, 0.055])
    # e-values 60, 0.5 and, from p = 1e-4, 50: 3 / (2 * 50), 3 / 60 and so on.
    assert [row.e_bh for row in found] == pytest.approx([0.03, 1.0, 0.03])
    # One benchmark needs none.
    assert screen(rows[:2]) == ()


def beside(p, *, null, **kwargs):
    return result(p, null=null, primary=False, method="other", **kwargs)


def test_direction_beside_a_test_of_random_orders_makes_it_a_proof():
    """At the level halved, since two tests of one file were looked at."""
    named = result(1e-9, reference=0.3)
    for p, verdict in ((5e-4, PROOF), (6e-4, "suspected")):
        directed = beside(p, null=FORWARD, reference=0.3)
        decided = decide([named, directed], min_effect=0.5)
        assert decided[0].verdict == verdict
    # Two tests of each of two files.
    of_two = [result(1e-9, name=name) for name in "ab"]
    of_two += [beside(3e-4, name=n, null=FORWARD, reference=0.3) for n in "ab"]
    assert decide(of_two, min_effect=0.5)[0].reasons == ("attraction",)
    # Of two tests of direction the one with a reference counts.
    alone, asked = (beside(1e-9, null=FORWARD, **r) for r in ({}, {"reference": 0.3}))
    assert decide([named, alone, asked], min_effect=0.5)[0].verdict == PROOF
    # The reference of direction counts, not that of a test of random orders.
    for kwargs, reason in (
        ({"name": "y"}, "alone"),
        ({"validity": "asymptotic"}, "alone"),
        ({"reference": None}, "no reference"),
        ({"reference": 1e-6}, "reference prefers it"),
    ):
        other = beside(1e-9, null=FORWARD, **({"reference": 0.3} | kwargs))
        assert decide([named, other], min_effect=0.5)[0].reasons == (reason,)


def test_attraction_without_direction_is_suspected_at_most():
    primary = result(0.5, null=FORWARD)
    for p, verdict in ((0.001, "suspected"), (0.0011, "no evidence")):
        decided = decide([primary, beside(p, null="exchangeability")], min_effect=0.5)
        assert decided[0].verdict == verdict
    # Of two files a p of 0.0008 is 0.0016: above what proof asks.
    other = beside(8e-4, null="exchangeability")
    for more, reasons in (([], ("attraction",)), ([result(name="y")], ())):
        found = decide([primary, *more, other], min_effect=0.5)
        assert found[0].reasons == reasons
    # Where the file's own order attracts, a model that prefers it says nothing.
    for changes in ({"pretests": FAILED}, {"validity": "asymptotic"}):
        other = beside(1e-9, null="exchangeability", **changes)
        assert decide([primary, other], min_effect=0.5)[0].verdict == "no evidence"


_STRENGTH = ("no evidence", "inconclusive", "suspected", "contaminated")
_P = st.sampled_from([1e-12, 1e-6, 4e-4, 1e-3, 2e-3, 0.01, 0.04, 0.05, 0.2, 0.9])


@st.composite
def files_and_tests(draw):
    """Three files, each with a primary test and perhaps one beside it."""
    found = []
    for name in "xyz":
        null = draw(st.sampled_from(["exchangeability", "reversibility", DESIGNED]))
        other = "reversibility" if null == "exchangeability" else "exchangeability"
        settings = {
            "name": name,
            "mde": draw(st.sampled_from([None, 0.1, 0.9])),
            "order_provenance": draw(
                st.sampled_from(["published", "seeded", "unknown"])
            ),
            "validity": draw(st.sampled_from(["exact", "asymptotic"])),
        }
        own = {"reference": draw(st.sampled_from([None, 1e-3, 0.5, 0.999]))}
        own["p_difference"] = draw(_P)
        found.append(result(draw(_P), null=null, **settings, **own))
        if draw(st.booleans()):
            beside = settings | {"validity": "exact"} | own
            found.append(result(draw(_P), null=other, primary=False, **beside))
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files_and_tests(), st.data())
def test_a_smaller_p_never_gives_a_weaker_verdict(results, data):
    before = decide(results, min_effect=0.5)
    at = data.draw(st.sampled_from([i for i, one in enumerate(results) if one.primary]))
    smaller = data.draw(_P.filter(lambda p: p <= results[at].numbers.p_value))
    numbers = dataclasses.replace(results[at].numbers, p_value=smaller)
    changed = [*results]
    changed[at] = dataclasses.replace(results[at], numbers=numbers)
    for old, new in zip(before, decide(changed, min_effect=0.5), strict=True):
        if old.primary and old.verdict != "invalid design":
            assert _STRENGTH.index(new.verdict) >= _STRENGTH.index(old.verdict)


def test_an_effect_that_was_just_detectable_is_no_evidence():
    (own,) = decide([result(0.5, mde=0.5, p_floor=0.0)], min_effect=0.5)
    assert (own.mde_adjusted, own.verdict) == (0.5, "no evidence")
    (own,) = decide([result(0.5, mde=0.5, p_floor=0.0)], min_effect=0.4999)
    assert own.verdict == "inconclusive"
