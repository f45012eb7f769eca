"""Order tests in plain words: one sentence to paste, and what it rests on.

A method's own words are those of its row of METHODS; see `ProofWords`.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxcontam.amounts import amount, counted
from jaxcontam.proof.advice import (
    AuditedFile,
    effect_words,
    is_of_options,
    is_of_order,
    p_of,
    plain_name,
    proof_words,
    refusal,
    why_inconclusive,
)
from jaxcontam.proof.result import DESIGNED, OrderResult, UnscoredFile
from jaxcontam.proof.verdict import difference_level
from jaxcontam.reports.methods import Words
from jaxcontam.reports.numbers import p_cell, p_text, p_words
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import (
    ProofWords,
    Validity,
    Verdict,
    base_null,
)
from jaxcontam.stats.result import Neighbours, Pretest

Kind = Literal["memory", "both", "alike", "unclear", "against", "unlike", "nothing"]

WIDTH = 1.959964
"""Standard errors on each side of a 95 % interval."""

# p-value from which memory is more than a manner of speaking.
_PROVEN = math.log10(0.001)
_CONCLUSIONS: dict[Kind, str] = {
    "both": "it gains both ways, as neighbours that are alike do, and more forwards, "
    "as memory does",
    "alike": "it gains as much in both directions: neighbours are alike, which any "
    "model that copies prefers",
    "unclear": "too little to tell memory, which gains only forwards, from likeness, "
    "which gains both ways",
    "against": "the opposite of memory; the file itself may point backwards",
    "unlike": "neighbours are unlike, as in turns of a dialogue; memory does not look "
    "like this",
    "nothing": "no more than chance gives; neither memory nor likeness of neighbours "
    "is visible",
}


class Gain(NamedTuple):
    """Nats that an example gains beside a neighbour, with a 95 % interval."""

    mean: float
    low: float
    high: float


def gains_of(found: Neighbours) -> dict[str, Gain]:
    """`forward`, `backward` and `excess`, as in `Neighbours`."""
    names = ("forward", "backward", "excess")
    return {n: _gain(getattr(found, n), getattr(found, f"{n}_se")) for n in names}


def pair_test(file: AuditedFile) -> OrderResult | None:
    """The test whose gains are shown: the deciding one, or a pair test beside it."""
    # All pairs are better than some.
    beside = sorted(file.tests, key=lambda one: one.numbers.lag_profile is None)
    tests = (file.test, *beside)
    return next((one for one in tests if one.numbers.neighbours is not None), None)


def kind_of(found: Neighbours) -> Kind:
    """Name the pattern of gains."""
    _, backward, excess = gains_of(found).values()
    if excess.low > 0:
        return "both" if backward.low > 0 else "memory"
    if excess.high < 0:
        return "against"
    # Var(f + b) = 2 Var f + 2 Var b - Var(f - b).
    variance = 2 * found.forward_se**2 + 2 * found.backward_se**2 - found.excess_se**2
    total = _gain(found.forward + found.backward, math.sqrt(max(0.0, variance)))
    if total.high < 0:
        return "unlike"
    if backward.low > 0:
        return "alike"
    return "unclear" if total.low > 0 else "nothing"


def attraction_sentence(test: OrderResult, verdict: Verdict | None) -> str | None:
    """Both gains of a pair test; only the verdict `contaminated` makes them memory."""
    found = test.numbers.neighbours
    if found is None:
        return None
    # Decimals that the standard errors leave a meaning.
    se = max(found.forward_se, found.backward_se)
    digits = 1 if se <= 0 else min(4, max(0, -math.floor(math.log10(se))))
    # z: what rounds to -0.0 is 0.0.
    (gain, *ends), (back, *others), _ = (
        [f"{value:z.{digits}f}" for value in one] for one in gains_of(found).values()
    )
    return (
        f"An example gains {gain} nats after the one published before it "
        f"({' to '.join(ends)}), and {back} after the one published after it "
        f"({' to '.join(others)}): {_conclusion(test, kind_of(found), verdict)}."
    )


def _conclusion(test: OrderResult, kind: Kind, verdict: Verdict | None) -> str:
    if kind != "memory":
        conclusion = _CONCLUSIONS[kind]
        if kind == "both" and verdict == "contaminated":
            conclusion += ": the order was remembered too"
        if kind == "both" and verdict == "invalid design":
            conclusion += " and a file that points forward itself"
        if kind == "alike" and test.order_provenance == "declared":
            conclusion += (
                "; a shuffled file hardly shows that, so check that it was shuffled"
            )
        return conclusion
    if verdict == "contaminated":
        return "the order was remembered, not just alike"
    if verdict == "invalid design":
        return "memory does that, and so does a file that points forward itself"
    if test.numbers.log10_p > _PROVEN:
        return "memory looks like this, but so may chance"
    return "memory looks like this, and so does an order that a reader can predict"


def _gain(mean: float, se: float) -> Gain:
    return Gain(mean, mean - WIDTH * se, mean + WIDTH * se)


OWN_ORDER_HEADER = (
    "copying",
    "neighbours attract",
    "2 to 7 places apart",
    "forwards less backwards",
)
_ALIKE, _POINTS = ("blind_attraction", "blind_lags"), "blind_direction"
_COLUMNS = (*_ALIKE, _POINTS)
SIDE_BY_SIDE_HEADER = ("model", "p", "effect ± se")
# A run of examples is named where the chance of one as good is no larger than this.
_LOCAL_LEVEL = 0.05
# Expected share of false ones among benchmarks that are listed for a closer look.
_SCREENING_LEVEL = 0.05
# Strata with so many orders are drawn from.
_DRAWN = 99_999
_ASSUMED = {
    "exchangeability": "that, before any model was trained, every order of these "
    "examples was equally likely to be the published one",
    "reversibility": "that, before any model was trained, the published order and its "
    "reverse were equally likely",
    "designed randomisation": "nothing about the file: its order was drawn at random "
    "from a recorded seed",
    "exchangeability (declared)": "that, before any model was trained, each column of "
    "a row was equally likely to be the published one (declared by whoever made the "
    "matrix)",
}
_TESTS: dict[Validity, str] = {
    "exact": "an exact test",
    "asymptotic": "an approximate test",
    "heuristic": "a heuristic test",
}


def verdict_sentence(
    test: OrderResult, words: Words, attracting: OrderResult | None = None
) -> str:
    """One sentence about a primary test, beside one that raised a suspicion itself."""
    if test.verdict == "invalid design":
        return invalid_sentence(test, words)
    own = proof_words(words, test.method)
    name, p, by = test.benchmark, p_of(test), _TESTS[test.validity]
    if _is_declared(test):
        # A verdict that rests on somebody's word quotes it.
        by += " of an order that was declared shuffled by whoever ran this"
    if test.verdict == "contaminated":
        if test.order_provenance == "declared" and not is_of_order(test):
            by += f", assuming {_assumption(test, own)}"
        return f"{name}: contaminated, {p} by {by}; {own.seen}."
    if test.verdict == "suspected" and attracting is not None:
        return (
            f"{name}: suspected, {p_of(attracting)} by {attracting.method} if the "
            f"order was drawn at random, which is not known, and {p} by {test.method}, "
            "which does not require a random order: no proof."
        )
    if test.verdict == "suspected":
        adjusted = ""
        assert test.p_adjusted is not None
        if test.p_adjusted > test.numbers.p_value:
            found = p_text(math.log10(test.p_adjusted), test.validity)
            adjusted = f" ({found} among all files)"
        return f"{name}: suspected, {p} by {by}{adjusted}: no proof."
    if test.verdict == "no evidence":
        return (
            f"{name}: no evidence {own.unseen}, {p} by {by}; a uniform effect of "
            f"{amount(test.mde_adjusted)} {test.effect_unit} would have been found "
            "with probability 0.8."
        )
    return f"{name}: inconclusive, {p} by {by}; {why_inconclusive(test, own)}."


def invalid_sentence(test: OrderResult | UnscoredFile, words: Words) -> str:
    """One sentence about a file or a test whose checks, or a reference, refuse it."""
    why = refusal(test, proof_words(words, test.method).found)
    return f"{test.benchmark}: invalid design: {why}"


def assumed_sentence(test: OrderResult, words: Words) -> str:
    """State all that the p-value rests on."""
    own = proof_words(words, test.method)
    said = _assumption(test, own)
    if _is_declared(test):
        said += " (declared shuffled by whoever ran this)"
    if test.block_field is not None:
        said += (
            f", where examples are runs of equal {test.block_field} and keep their "
            "inner order"
        )
    if test.group_field is not None:
        said += f", among examples of equal {test.group_field}"
    return f"Assumed: {said}{own.approximation}."


def commitment_sentence(test: OrderResult) -> str | None:
    """Ask to compare with all that the owner published; None without commitments."""
    if not test.commitments:
        return None
    parts = [
        f"SHA-256 of {one.file} is {one.sha256}"
        + ("" if one.made is None else f", which gives its date as {one.made}")
        for one in test.commitments
    ]
    return (
        f"Commitment: {'; '.join(parts)}. Compare it with what was published before "
        "the model was trained; otherwise the draw may have been chosen afterwards."
    )


def checked_sentence(test: OrderResult | UnscoredFile, words: Words) -> str:
    """List the pre-tests of the file."""
    if not test.pretests:
        return f"Checked: nothing, {proof_words(words, test.method).unchecked}."
    # What copying gives without a model has a table of its own.
    checks = [one for one in test.pretests if not one.name.startswith("blind_")]
    parts = [f"{plain_name(check.name)} ({_check_words(check)})" for check in checks]
    tail = ""
    if test.null == DESIGNED:
        tail = " For information only: an order drawn at random needs no such check."
    elif len(test.refusals) < sum(not check.passed for check in test.pretests):
        tail = (
            " Likeness is the same backwards, so this test relies only on the checks "
            "of what points forward."
        )
    return f"Checked: {'; '.join(parts)}.{tail}"


def chance_sentence(test: OrderResult, words: Words) -> str:
    """Describe the outcome by chance, had the model never seen the file.

    A method's own words may hold the names of the values below.
    """
    numbers, m = test.numbers, test.n_orders
    orders, within = "all its orders" if m < _DRAWN else f"{m + 1:,} orders, drawn", ""
    if test.group_field is not None:
        orders += f" that keep to equal {test.group_field}"
        within = f" among examples of equal {test.group_field}"
    if_drawn = ""
    if numbers.log10_p_all_orders is not None:
        if_drawn = (
            " If the order had been drawn at random, this would give "
            f"{p_words(numbers.log10_p_all_orders)}; for information only."
        )
    said = proof_words(words, test.method).chance.format(
        p=p_of(test),
        n_strata=test.n_strata,
        n_orders=m,
        s="s" if m > 1 else "",
        n_versions=m + 1,
        orders=orders,
        within=within,
    )
    return f"By chance: {said}.{_seam_words(test)}{if_drawn}"


def _seam_words(test: OrderResult) -> str:
    """What was scored of each pair; empty for whole examples."""
    before, scored = test.context_tokens, test.score_tokens
    parts = []
    if scored:
        parts.append(f"the first {counted(scored, 'token')} of an example")
    if before:
        parts.append(f"the last {counted(before, 'token')} of the one before it")
    return f" Scored: {', given '.join(parts)}." if parts else ""


def where_sentence(test: OrderResult) -> str | None:
    """Examples that the evidence comes from; None without a search."""
    local = test.numbers.local
    if local is None:
        return None
    first, last, n = local.first_example, local.last_example, test.n_examples
    p = p_words(math.log10(local.p_value))
    if local.p_value > _LOCAL_LEVEL:
        return (
            "Where: no run of examples stands out; by chance the best run would be as "
            f"good with probability {p}."
        )
    if first == 1 and last == n:
        return (
            "Where: throughout; no run of examples stands out more than the whole file "
            f"({p})."
        )
    return (
        f"Where: examples {first} to {last} of {n} stand out most; by chance the best "
        f"run would be as good with probability {p}. Its ends are not sharp, and "
        "examples outside it may have been seen too."
    )


def screening_sentence(report: Report) -> str | None:
    """Benchmarks that are worth a closer look; None where there is only one."""
    if not report.screening:
        return None
    tests = (row for row in report.results if isinstance(row, OrderResult))
    invalid = {row.benchmark for row in tests if row.verdict == "invalid design"}
    rows = [row for row in report.screening if row.benchmark not in invalid]
    by = [row.benchmark for row in rows if row.by <= _SCREENING_LEVEL]
    e_bh = [row.benchmark for row in rows if row.e_bh <= _SCREENING_LEVEL]
    return (
        f"Worth a closer look among these {len(report.screening)} (at most one in "
        "twenty of each list is expected to be there by chance): "
        f"{', '.join(by) or 'none'} by p-values (Benjamini-Yekutieli); "
        f"{', '.join(e_bh) or 'none'} by e-values (e-BH). Verdicts use Holm's "
        "correction, which is stricter."
    )


def referred_test(file: AuditedFile) -> OrderResult | None:
    """The test of a file that holds its reference: the deciding one, if it has one."""
    return next((test for test in file.tests if test.reference is not None), None)


def side_by_side(test: OrderResult, model: str) -> list[list[str]]:
    """The model, its reference and the difference; empty without a reference."""
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
    """Say if the reference explains the model's result; None without one."""
    found = test.reference
    if found is None:
        return None
    said = (
        f"The same test of {found.name}, the reference model: "
        f"{p_words(found.log10_p, test.validity)}, effect "
        f"{effect_words(found.effect, found.effect_se)}; difference "
        f"{effect_words(found.difference, found.difference_se)}, "
        f"{p_words(found.difference_log10_p, test.validity)}"
    )
    changes, row = "the preceding context", "example"
    if is_of_options(test):
        changes, row = "the order of options", "item"
    # To the digits that are shown.
    if (times := f"{found.scale:.2g}") != "1":
        said += (
            f" (the reference's scores depend less on {changes}, so they are "
            f"multiplied by {times})"
        )
    more = "the model prefers the order more than the reference does"
    if found.difference_p > difference_level(test):
        more = (
            "that the model prefers the order more than the reference does may be "
            "chance"
        )
    reads = (
        f"The reference finds an {row} {amount(abs(found.loglik_gap))} nats "
        f"{'less' if found.loglik_gap < 0 else 'more'} likely than the model does"
    )
    if found.loglik_gap < 0:
        reads += ": the model remembers it, or the reference reads less well and may "
        reads += "miss what the model predicts"
    return f"{said}: {more}. {reads}."


def own_order_rows(pretests: Sequence[Pretest]) -> list[list[str]]:
    """A row for each kind of copying scorer of a file; empty where none was asked."""
    cells: dict[str, dict[str, str]] = {}
    for test in pretests:
        column, _, kind = test.name.partition(":")
        said = _check_words(test)
        if test.applicable:
            said = f"{test.statistic:+.2g} nats ({said})"
        if column in _COLUMNS:
            cells.setdefault(kind, {})[column] = said
    return [
        [kind, *(own.get(column, "-") for column in _COLUMNS)]
        for kind, own in cells.items()
    ]


def own_order_sentence(pretests: Sequence[Pretest]) -> str | None:
    """Sum up the table; None where no blind scorer was asked."""
    blind = [test for test in pretests if test.name.partition(":")[0] in _COLUMNS]
    if not blind:
        return None
    failed = {test.name.partition(":")[0] for test in blind if not test.passed}
    scorer = "A scorer that knows only this file and copies what it saw"
    if not any(test.applicable for test in blind):
        return f"{scorer} finds nothing here that an order could change."
    if _POINTS in failed:
        return (
            f"{scorer} finds that the file itself points forward: no test of this file "
            "alone can tell that from memory."
        )
    if failed.intersection(_ALIKE):
        return (
            f"{scorer} prefers this order, equally in both directions: the order is "
            "not random, so a test that requires a random order proves nothing. It "
            "finds no direction."
        )
    return f"{scorer} finds no more in this order than chance gives."


def _assumption(test: OrderResult, own: ProofWords) -> str:
    null = base_null(test.null)
    return own.assumed.get(null) or _ASSUMED.get(null, null)


def _is_declared(test: OrderResult) -> bool:
    """True if the order of a file is random by somebody's word alone."""
    return test.order_provenance == "declared" and is_of_order(test)


def _check_words(test: Pretest) -> str:
    if not test.applicable:
        return "not applicable"
    return f"p = {test.p_value:.2g}{'' if test.passed else ', failed'}"
