"""Results in plain words: one sentence to paste, and what it rests on."""

import math
from collections.abc import Mapping
from typing import Any

from jaxcontam.report.plain_names import plain_name

# A run of examples is named where the chance of one as good is no larger than this.
_LOCAL_LEVEL = 0.05
# Expected share of false ones among benchmarks that are listed for a closer look.
_SCREENING_LEVEL = 0.05

_ASSUMED = {
    "exchangeability": "that, before any model was trained, every order of these "
    "examples was equally likely to be the published one",
    "reversibility": "that, before any model was trained, the published order and its "
    "reverse were equally likely",
    "reversibility of runs": "that, before any model was trained, each run of four "
    "examples was as likely to be published backwards; like examples may stand "
    "together",
    "designed randomisation": "nothing about the file: its order was drawn at random "
    "from a recorded seed",
    "exchangeability (declared)": "that, before any model was trained, every column of "
    "a row was equally likely to be the published one (declared by whoever made the "
    "matrix)",
}


# Strata with so many orders are drawn from.
_DRAWN = 99_999


def verdict_sentence(
    row: Mapping[str, Any], attracting: Mapping[str, Any] | None = None
) -> str:
    """One sentence about a primary test that can be pasted anywhere.

    Args:
        row: Of the test.
        attracting: The row beside it that raised a suspicion by itself, if one did.
    """
    if row["verdict"] == "invalid design":
        return _invalid_sentence(row)
    name, p, test = row["benchmark"], p_words(row), _kind_of_test(row)
    saw = "order seen, presence in other orders not tested"
    if row["order_provenance"] == "declared" and row["method"] != "matrix":
        # A verdict that rests on somebody's word quotes it.
        test += " of an order that was declared shuffled by whoever ran this"
    verdict = row["verdict"]
    if verdict == "contaminated":
        return f"{name}: contaminated, {p} by {test}; {saw}."
    if verdict == "suspected" and attracting is not None:
        return (
            f"{name}: suspected, {p_words(attracting)} by {attracting['method']} if "
            "the order was drawn at random, which nobody knows, and "
            f"{p} by {row['method']}, which needs no random order: no proof."
        )
    if verdict == "suspected":
        return (
            f"{name}: suspected, {p} by {test} ({row['p_adjusted']:.2g} adjusted), "
            "which is no proof."
        )
    if verdict == "no evidence":
        return (
            f"{name}: no evidence that its order was seen, {p} by {test}; an effect of "
            f"{row['mde']:.2g} {row['effect_unit']} would have been found with "
            "probability 0.8."
        )
    return f"{name}: inconclusive, {p} by {test}; {_why_inconclusive(row)}."


def assumed_sentence(row: Mapping[str, Any]) -> str:
    """What the p-value rests on."""
    null: str = row["null"].removeprefix("within-group ").removesuffix(" of blocks")
    if row["method"] == "direction" and null == "reversibility":
        null += " of runs"
    words = _ASSUMED.get(null, null)
    if row["order_provenance"] == "declared" and row["method"] != "matrix":
        words += " (declared shuffled by whoever ran this)"
    if row.get("block_field") is not None:
        words += (
            f", where examples are runs of equal {row['block_field']} and keep their "
            "inner order"
        )
    if row["group_field"] is not None:
        words += f", among examples of equal {row['group_field']}"
    if row["validity"] == "asymptotic":
        words += (
            "; and that many shards make a t-test exact, which few do not"
            if row["symmetry"] is None
            else "; and that the sum over strata is normal"
        )
    return f"Assumed: {words}."


def checked_sentence(row: Mapping[str, Any]) -> str:
    """Which pre-tests the file passed."""
    if not row["pretests"]:
        return "Checked: nothing, since only scores were given."
    # What copying gives without a model has a table of its own.
    tests = [t for t in row["pretests"] if not t["name"].startswith("blind_")]
    parts = [f"{plain_name(test['name'])} ({_check_words(test)})" for test in tests]
    tail = ""
    if row["null"] == "designed randomisation":
        tail = " Shown only: a drawn order needs no such check."
    return f"Checked: {'; '.join(parts)}.{tail}"


def _check_words(test: Mapping[str, Any]) -> str:
    if test["name"] == "templated":
        return "no" if test["note"] is None else "yes"
    if not test.get("applicable", True):
        return "not applicable"
    return f"p = {test['p_value']:.2g}{'' if test['passed'] else ', failed'}"


def chance_sentence(row: Mapping[str, Any]) -> str:
    """What would have been seen had the model never seen the file."""
    if row["validity"] == "asymptotic" and row["symmetry"] is not None:
        return (
            "By chance: the summed score of neighbours would reach the observed one "
            f"with probability {p_words(row)}, if sums over {row['n_strata']} strata "
            "were normal."
        )
    if row["validity"] == "asymptotic":
        return (
            f"By chance: the mean gain of {row['n_strata']} shards over random orders "
            "would be as many standard errors above 0 with probability "
            f"{p_words(row)}, if shards were many and their gains normal."
        )
    if row["method"] == "direction":
        return _direction_chance(row)
    m = row["n_orders"]
    if row["symmetry"] is not None:
        kind = "all its orders" if m < _DRAWN else f"{m + 1:,} orders, drawn"
        if row["group_field"] is not None:
            kind += f" that keep to equal {row['group_field']}"
        counted = "the summed score"
        if row["first_tokens"] != -1:
            counted += f" of the first {row['first_tokens']} tokens of each example"
        if row["p_lower"] is None:
            counted = "the best of several counts of first tokens, here " + counted
        return (
            f"By chance: in each of {row['n_strata']} strata the published order would "
            f"be as likely as any other of {kind} to put expected examples after each "
            f"other; {counted} would reach the observed one with probability "
            f"{p_words(row)}. The score sums over neighbours how likely an example is "
            "after the one before it, less what is likely after anything."
        )
    if row["method"] == "two_min":
        return (
            "By chance: the smaller p-value of adjacency and stratified, doubled for "
            f"having looked at two, would be as small with probability {p_words(row)}. "
            "Effect and plots are those of adjacency."
        )
    if row["stop"] is not None:
        return _sequential_chance(row)
    return (
        f"By chance: in each of {row['n_strata']} strata the published order would be "
        f"as likely as any of {m} other{'s' * (m > 1)} to score best; the summed score "
        f"would reach the observed one with probability {p_words(row)}."
    )


def symmetry_sentence(row: Mapping[str, Any]) -> str | None:
    """What symmetry says of a reversal test beside all orders; else None."""
    if row["symmetry"] is None or row["method"] == "direction":
        return None
    return (
        f"Pairs score {row['symmetry']:+.2f} alike in both directions (at 0 a reversal "
        "test is weaker than this one by a third, above 0.5 it is stronger)."
    )


def where_sentence(row: Mapping[str, Any]) -> str | None:
    """Which examples the evidence comes from; None where nothing was looked for."""
    local = row["local"]
    if local is None:
        return None
    first, last, n = local["first_example"], local["last_example"], row["n_examples"]
    p = _p_text(math.log10(local["p_value"]))
    if local["p_value"] > _LOCAL_LEVEL:
        return (
            "Where: no run of examples stands out; the best one would be as good by "
            f"chance with probability {p}."
        )
    if first == 1 and last == n:
        return (
            "Where: throughout; no run of examples stands out more than the whole file "
            f"({p})."
        )
    return (
        f"Where: examples {first} to {last} of {n} stand out most; the best run of "
        f"examples would be as good by chance with probability {p}. Its ends are not "
        "sharp, and those outside may have been seen too."
    )


def screening_sentence(document: Mapping[str, Any]) -> str | None:
    """Which of several benchmarks are worth a closer look; None where there is one."""
    rows = document.get("screening")
    if not rows:
        return None
    invalid = {
        row["benchmark"]
        for row in document["results"]
        if row["verdict"] == "invalid design"
    }
    listed = {
        name: [
            row["benchmark"]
            for row in rows
            if row[name] <= _SCREENING_LEVEL and row["benchmark"] not in invalid
        ]
        for name in ("by", "e_bh")
    }
    return (
        f"Worth a closer look among these {len(rows)}, with at most one in twenty of "
        "the list expected to be there by chance: "
        f"{', '.join(listed['by']) or 'none'} by p-values (Benjamini-Yekutieli); "
        f"{', '.join(listed['e_bh']) or 'none'} by e-values (e-BH). Verdicts rest on "
        "Holm's correction, which allows no such share."
    )


def p_words(row: Mapping[str, Any]) -> str:
    """`p <= 4e-16`: rounded up, and no deeper than the method supports."""
    log10_p = row["log10_p"]
    if row["validity"] == "asymptotic":
        if log10_p < -15:
            return "p < 1e-15"
        return f"p = {10.0**log10_p:.2g}"
    return _p_text(log10_p)


def effect_words(row: Mapping[str, Any]) -> str:
    """An effect with its standard error, as far as there are any."""
    if row["effect"] is None:
        return "-"
    if row["effect_se"] is None:
        return f"{row['effect']:.2f}"
    return f"{row['effect']:.2f} ± {row['effect_se']:.2f}"


def _p_text(log10_p: float) -> str:
    exponent = math.floor(log10_p)
    mantissa = math.ceil(10.0 ** (log10_p - exponent) * 10 - 1e-9) / 10
    if exponent >= -2:
        return f"p <= {math.ceil(10.0**log10_p * 1000 - 1e-9) / 1000:.3f}"
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"p <= {mantissa:.1f}e{exponent}"


def _direction_chance(row: Mapping[str, Any]) -> str:
    """Of the reversals of runs, and what the same sum says were all orders alike."""
    counted = "the summed score"
    if row["first_tokens"] != -1:
        counted += f" of the first {row['first_tokens']} tokens of each example"
    if row["p_lower"] is None:
        counted = "the best of several counts of first tokens, here " + counted
    within = ""
    if row["group_field"] is not None:
        within = f" among examples of equal {row['group_field']}"
    of_all = ""
    if row["log10_p_all_orders"] is not None:
        of_all = (
            f" Had the order been drawn at random, that would be worth "
            f"{_p_text(row['log10_p_all_orders'])}; shown only."
        )
    return (
        f"By chance: in each of {row['n_strata']} strata every run of at most four "
        f"examples would be as likely to stand backwards{within} (up to "
        f"{row['n_orders'] + 1} ways); {counted} would reach the observed one with "
        f"probability {p_words(row)}. The score sums how likely an example is after "
        "those before it, less how likely they are after it; what makes it likely "
        f"after anything is taken out.{of_all}"
    )


def _sequential_chance(row: Mapping[str, Any]) -> str:
    """What a test that may stop early has as its p-value, and when it did stop."""
    if row["method"] == "sequential":
        used = f"{row['n_used']} of {row['n_strata']} strata"
        fixed = "in an order fixed by the seed"
    else:
        used = f"{row['n_used']} of at most {row['n_orders']} random orders"
        fixed = "in the order of their draw"
    ended = {
        "rejected": "when the evidence had reached the level that was set before",
        "futile": "when that level was out of reach",
        "enough": "when enough of them had scored as high as the published one",
        "exhausted": "when there were no more",
    }[row["stop"]]
    return (
        f"By chance: a test that looks again and again would ever come this far with "
        f"probability {p_words(row)}. It looked at {used}, {fixed}, and ended {ended}."
    )


def _invalid_sentence(row: Mapping[str, Any]) -> str:
    name = row["benchmark"]
    failed = ", ".join(
        plain_name(t["name"]) for t in row["pretests"] if not t["passed"]
    )
    if not failed:
        return (
            f"{name}: invalid design: a reference model, which cannot have seen the "
            "file, prefers its order, too."
        )
    found = "the file's own order is not random"
    if "reversibility" in row["null"]:
        found = "the file itself points forward"
    return (
        f"{name}: invalid design: {found} ({failed}), so a model that never saw it "
        "could prefer it."
    )


def _kind_of_test(row: Mapping[str, Any]) -> str:
    if row["validity"] == "asymptotic":
        return "an approximate test"
    return "an exact test"


def _why_inconclusive(row: Mapping[str, Any]) -> str:
    if row["effect_se"] == 0.0:
        return "the model scores all orders alike"
    if row["mde"] is None:
        return "this design cannot reach p = 0.001; more examples or orders are needed"
    if row["order_provenance"] in ("tfds-hash", "unknown"):
        return "the model may have seen the file in another order than this one"
    return (
        f"only an effect of {row['mde']:.2g} {row['effect_unit']} or more would have "
        "been found with probability 0.8; more examples are needed"
    )
