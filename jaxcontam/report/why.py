"""Why a verdict is what it is: which test decides, and what it can say of this file.

The rule is that of `jaxcontam.verdict`; this is the reason in words, read off the rows
of a report. Terminal, page and results.csv say the same.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.sentences import p_words

Row = Mapping[str, Any]

_LEVEL = 0.001
_GATE_LEVEL = 0.05
_REFERENCE_LEVEL = 0.01
# Nulls about the order of a file; of other tests this says nothing.
_OF_ORDERS = ("exchangeability", "reversibility", "designed randomisation")
_OF_VERSIONS = ("canary", "canary_alone", "variants", "options")

# Provenances of orders that are known to be random.
_KNOWN = {
    "seeded": "the order was drawn at random from a recorded seed",
    "released": "the order was drawn at random by release and checked against its seed",
    "recovered": "the order was found to be the draw of a known generator and seed",
    "declared": "the order was declared shuffled by whoever ran this (--shuffled)",
}
_PUBLISHED = "the order is published and nobody knows that it was drawn at random"
_UNKNOWN = "nobody knows that the order was drawn at random, nor how it came about"

APPROXIMATE = "approximate"
TEMPLATED = "templated"
ATTRACTION = "attraction"
ALONE = "alone"
GATE = "gate"
WEAK = "weak"
"""Reasons why a test says no more than `suspected`; see `reasons`."""


def why(row: Row, results: Sequence[Row]) -> str:
    """Who decides about a benchmark, and what that rests on, in plain words.

    Args:
        row: A primary row of an order test, decided.
        results: All rows of its report.

    Returns:
        Sentences; "" for tests of versions, which have words of their own, and for
        rows that decide nothing.
    """
    is_decided = row.get("primary") and row.get("verdict") is not None
    if not is_decided or "null" not in row or not is_of_order(row):
        return ""
    if row["verdict"] == "invalid design":
        return _why_invalid(row)
    decider = direction_beside(row, results)
    words = [_who_decides(row, decider)]
    if row["verdict"] == "contaminated":
        words.append(_why_contaminated(row, decider))
    if row["verdict"] == "suspected":
        words += [_said_of(reason, row, results) for reason in reasons(row, results)]
    if (silent := _silent_reference(row)) is not None:
        words.append(silent)
    return " ".join(words)


def is_of_order(row: Row) -> bool:
    """Whether a row tests the order of a file, by a null that the file can satisfy."""
    return base_null(row) in _OF_ORDERS and row["method"] not in _OF_VERSIONS


def reasons(row: Row, results: Sequence[Row]) -> list[str]:
    """Why a `suspected` row is not `contaminated`: one word each, none of them empty.

    Args:
        row: A primary row.
        results: All rows of its report.
    """
    is_known = row["order_provenance"] in _KNOWN
    if not _is_strong(row, results):
        attracts = not is_known and attracting(row, results) is not None
        return [ATTRACTION] if attracts else [WEAK]
    found = [] if row["validity"] == "exact" else [APPROXIMATE]
    if is_known:
        return found
    if base_null(row) == "exchangeability":
        beside = direction_beside(row, results)
        if beside is None:
            found.append(ALONE)
        elif not _is_strong(beside, results, n_looks=2):
            found.append(ATTRACTION)
    if is_templated(row):
        found.append(TEMPLATED)
    return found or [GATE]


def direction_beside(row: Row, results: Sequence[Row]) -> Row | None:
    """The exact test under reversibility that stands beside a row, if one does."""
    return next(
        (
            other
            for other in _beside(row, results)
            if base_null(other) == "reversibility" and other["validity"] == "exact"
        ),
        None,
    )


def attracting(row: Row, results: Sequence[Row]) -> Row | None:
    """What would be proof, had the order been drawn, beside a silent direction."""
    if base_null(row) != "reversibility" or _is_strong(row, results):
        return None
    found = [
        other
        for other in _beside(row, results)
        if base_null(other) == "exchangeability"
        and other["validity"] == "exact"
        and not failed_checks(other)
        and _is_strong(other, results)
    ]
    return min(found, key=lambda other: other["log10_p"], default=None)


def is_templated(row: Row) -> bool:
    """Whether rows differ in a few words, and no reference vouches for their order."""
    is_list = any(t["name"] == TEMPLATED and t.get("note") for t in row["pretests"])
    reference = row.get("reference")
    return is_list and (reference is None or reference["p_value"] <= _GATE_LEVEL)


def failed_checks(row: Row) -> list[Row]:
    """Pre-tests of a row that refuse it."""
    return [test for test in row["pretests"] if not test["passed"]]


def prefers_reference(row: Row) -> bool:
    """Whether a model that cannot have seen the file prefers its order, too."""
    reference = row.get("reference")
    return reference is not None and reference["p_value"] <= _REFERENCE_LEVEL


def base_null(row: Row) -> str:
    """The null hypothesis, whatever keeps together."""
    return row["null"].removeprefix("within-group ").removesuffix(" of blocks")


def _beside(row: Row, results: Sequence[Row]) -> list[Row]:
    """The other order tests of the same file."""
    return [
        other
        for other in results
        if other.get("benchmark") == row["benchmark"]
        and other.get("method") != row["method"]
        and "null" in other
    ]


def _is_strong(row: Row, results: Sequence[Row], n_looks: int = 1) -> bool:
    """Whether a p-value alone would do, with all benchmarks counted."""
    if (p := row.get("p_adjusted")) is not None:
        return p <= _LEVEL
    n = sum(bool(other.get("primary")) for other in results)
    return row["log10_p"] + math.log10(n_looks * max(1, n)) <= math.log10(_LEVEL)


def _who_decides(row: Row, decider: Row | None) -> str:
    method, provenance = row["method"], row["order_provenance"]
    if provenance in _KNOWN:
        return f"Who decides: {method}, since {_KNOWN[provenance]}."
    origin = _PUBLISHED if provenance == "published" else _UNKNOWN
    if base_null(row) == "reversibility":
        return (
            f"Who decides: {method}, since {origin}. It needs no random order: it asks "
            "whether examples are expected forwards more than backwards."
        )
    if decider is not None:
        return (
            f"Who decides: {decider['method']} beside {method}, since {origin}, as "
            f"{method} needs."
        )
    return f"Who decides: {method}, which needs a random order; but {origin}."


def _why_contaminated(row: Row, decider: Row | None) -> str:
    if row["order_provenance"] in _KNOWN:
        return (
            "Every order was as likely before the model was trained, and the model "
            "prefers this one."
        )
    beside = ""
    if decider is not None and base_null(row) != "reversibility":
        beside = f" ({p_words(decider)} by {decider['method']})"
    return (
        f"The model prefers the published direction to its reverse{beside}, which "
        "likeness of neighbours does not give."
    )


def _why_invalid(row: Row) -> str:
    names = "; ".join(plain_name(test["name"]) for test in failed_checks(row))
    if names and base_null(row) == "reversibility":
        return (
            f"Nothing decides: the file itself points forward ({names}), so a model "
            "that never saw it may prefer its direction."
        )
    if names:
        return (
            f"Nothing decides: the file's own order is not random ({names}), so a "
            "model that never saw it may prefer it."
        )
    if prefers_reference(row):
        reference = row["reference"]
        p = p_words({**row, "log10_p": reference["log10_p"]})
        return (
            f"Nothing decides: {reference['name']}, the reference model, which cannot "
            f"have seen the file, prefers its order, too ({p})."
        )
    return "Nothing decides."


def _said_of(reason: str, row: Row, results: Sequence[Row]) -> str:
    """One reason in words."""
    if reason == APPROXIMATE:
        return (
            "Its p-value is approximate, and an approximate test never says more than "
            "suspected."
        )
    if reason == ALONE:
        return (
            "Files that nobody shuffled put like beside like, which any model that "
            "copies from its context prefers, so that test alone says no more than "
            "suspected."
        )
    if reason == ATTRACTION:
        return _attraction_words(row, results)
    if reason == TEMPLATED:
        return (
            "Its rows differ in a few words only: the order of such a list may be "
            "known from elsewhere, as that of the elements is."
        )
    if reason == GATE:
        return (
            "Checks of the file come too close to their limit to accuse anyone "
            f"({_near_misses(row, results)})."
        )
    return "The p-value is too large for more than a suspicion."


def _attraction_words(row: Row, results: Sequence[Row]) -> str:
    other = attracting(row, results)
    if other is not None:
        stronger, weaker = other, row
    else:
        stronger, weaker = row, direction_beside(row, results) or row
    attract = f"{p_words(stronger)} by {stronger['method']}, were the order random"
    points = f"{p_words(weaker)} by {weaker['method']}"
    if weaker["log10_p"] <= math.log10(_GATE_LEVEL):
        return (
            f"The published direction is preferred, too weakly for proof ({points}); "
            f"that neighbours attract each other ({attract}) may be likeness, which "
            "any model that copies from its context prefers."
        )
    return (
        f"Neighbours attract each other ({attract}), but not clearly forwards more "
        f"than backwards ({points}): like stands beside like, which any model that "
        "copies from its context prefers."
    )


def _near_misses(row: Row, results: Sequence[Row]) -> str:
    """Checks that reject at the level before `contaminated`, by their p-values."""
    of = row
    if base_null(row) != "reversibility":
        of = direction_beside(row, results) or row
    tests = [test for test in of["pretests"] if test.get("applicable", True)]
    tests.sort(key=lambda test: test["p_value"])
    level = _GATE_LEVEL / max(1, len(tests))
    near = [test for test in tests if test["p_value"] <= level] or tests[:1]
    return "; ".join(
        f"{plain_name(test['name'])}, p = {_two_digits(test['p_value'])}"
        for test in near
    )


def _two_digits(p_value: float) -> str:
    """Rounded up, like all p-values."""
    if p_value <= 0:
        return "0"
    scale = 10.0 ** (1 - math.floor(math.log10(p_value)))
    return f"{math.ceil(p_value * scale - 1e-9) / scale:.2g}"


def _silent_reference(row: Row) -> str | None:
    reference = row.get("reference")
    if reference is None:
        return None
    p = p_words({**row, "log10_p": reference["log10_p"]})
    return (
        f"{reference['name']}, a reference model that cannot have seen the file, does "
        f"not prefer its order ({p})."
    )
