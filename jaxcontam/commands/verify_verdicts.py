"""What `verify` checks of the words and counts that verdicts rest on."""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.analyses.audit_design import chosen_tests
from jaxcontam.commands import canary as canary_command
from jaxcontam.data.lm_eval_tasks import TASK_PREFIX
from jaxcontam.methods import METHODS, canary, options, two_min, variants
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.method import PairMethod, SequentialMethod
from jaxcontam.methods.version_method import VersionMethod
from jaxcontam.results import (
    DECLARED,
    DESIGNED,
    RELEASED,
    Evidence,
    MembershipResult,
    OrderResult,
    Pretest,
)
from jaxcontam.results.order import MATRIX as METHOD_NAME
from jaxcontam.stats.pretests.gate import gate
from jaxcontam.verdict import MIN_EFFECT

# Null of `prove`, whose user vouches for it.
_DECLARED = "exchangeability (declared)"
# Where a command's words do not say it; `variants` has one for each of its units.
_MIN_EFFECTS = {
    "audit": MIN_EFFECT,
    "prove": MIN_EFFECT,
    "canary": canary_command.MIN_EFFECT,
}
# What a combined test takes over from its first part.
_OF_FIRST_PART = (
    *("fingerprint", "content_digest", "order_provenance", "n_examples", "n_cut"),
    *("n_strata", "n_dropped", "n_orders", "group_field", "block_field"),
    *("effect_unit", "pretests"),
)


def is_score(row: Mapping[str, Any]) -> bool:
    """Whether a row names a membership score, which gives no p-value."""
    name = row.get("method")
    return isinstance(name, str) and isinstance(METHODS.get(name), ScoreMethod)


def score_faults(row: Mapping[str, Any]) -> list[str]:
    """Whether the row of a membership score claims no more than a ranking."""
    if set(row) != {field.name for field in dataclasses.fields(MembershipResult)}:
        return ["its fields are not those of a ranking"]
    claims = (row["p_value"], row["verdict"], row["primary"])
    return [] if claims == (None, None, False) else ["a ranking decides nothing"]


def row_faults(
    result: OrderResult, command: Sequence[str], *, scored: bool
) -> list[str]:
    """Whether a row's own words allow its verdict.

    Args:
        result: The row.
        command: The words that made the report.
        scored: The report names a model, so files were checked before.
    """
    null, validity = _assumed(result, command)
    faults = [
        f"{name} is {stated!r}, not {expected!r}"
        for name, stated, expected in (
            ("null", result.null, null),
            ("validity", result.validity, validity),
            ("order_provenance", result.order_provenance, _provenance(result, command)),
        )
        if stated != expected
    ]
    return faults + _pretest_faults(result, scored=scored)


def shape_faults(result: OrderResult, evidence: Evidence) -> list[str]:
    """Whether strata, orders and examples are as many as the evidence holds.

    Args:
        result: A row of a matrix or of a test of an order.
        evidence: Of it.
    """
    method = METHODS.get(result.method)
    if isinstance(method, VersionMethod):
        return []
    stated = (result.n_strata, result.n_orders + 1)
    faults = []
    if isinstance(method, PairMethod):
        faults += _pair_shape_faults(result, evidence)
    elif evidence.scores is None or evidence.scores.ndim != 2:
        faults.append("no scores")
    elif isinstance(method, SequentialMethod):
        # One of the two may have ended early.
        at = ("n_strata", "n_orders").index(method.turns_of)
        found = evidence.scores.shape
        if found[1 - at] != stated[1 - at] or found[at] > stated[at]:
            faults.append(f"{found} scores, but {stated} at most are stated")
    elif evidence.scores.shape != stated:
        faults.append(f"{evidence.scores.shape} scores, but {stated} are stated")
    if method is None:
        return faults
    if result.n_dropped < 0 or result.n_strata + result.n_dropped > result.n_examples:
        faults.append("more strata than examples")
    if evidence.cut is not None and len(evidence.cut) != result.n_examples:
        faults.append(f"n_examples is {result.n_examples}, not {len(evidence.cut)}")
    return faults


def report_faults(
    results: Sequence[OrderResult], command: Sequence[str], min_effect: object
) -> list[str]:
    """Whether one test of each benchmark decides, by the effect that was asked for.

    Args:
        results: All tests of the report.
        command: The words that made it.
        min_effect: As the report states it.
    """
    faults = []
    # Each secret alone has a name of its own, and the joint test decides.
    deciding = {r.benchmark: 0 for r in results if r.method != canary.ALONE.name}
    deciding |= Counter(r.benchmark for r in results if r.primary)
    faults += [
        f"{name}: {n} tests decide, not 1" for name, n in deciding.items() if n != 1
    ]
    # What is known of an order says who decides, and nothing else does.
    names: dict[str, set[str]] = {}
    for r in results:
        if r.primary:
            names.setdefault(r.order_provenance, set()).add(r.method)
    faults += [
        f"different tests decide where the order is {provenance}: "
        f"{', '.join(sorted(found))}"
        for provenance, found in names.items()
        if len(found) > 1
    ]
    found, asked = set[str]().union(*names.values()), _deciding(command)
    if asked is not None and found and found != {asked}:
        decide = f"{', '.join(sorted(found))} decides"
        faults.append(f"{decide}, but the command's words say {asked}")
    least = _word_after("--min-effect", command)
    expected = _MIN_EFFECTS.get(command[0]) if command else None
    if least is not None:
        try:
            expected = float(least)
        except ValueError:
            expected = math.nan
    if expected is not None and min_effect != expected:
        faults.append(f"min_effect is {min_effect!r}, the command's is {expected!r}")
    return faults + _copied_faults(results)


def _deciding(command: Sequence[str]) -> str | None:
    """The test that decides by the command's words; None where they do not say it."""
    tests = _word_after("--tests", command)
    if tests is None and list(command[:1]) != ["audit"]:
        return None
    effort = _word_after("--effort", command) or "standard"
    known = "--shuffled" in command or "--seed-file" in command
    try:
        return chosen_tests(tests, effort=effort, known=known)[0]
    except KeyError:
        return f"no --effort {effort}"


def _assumed(result: OrderResult, command: Sequence[str]) -> tuple[str, str]:
    """Null and validity that the method and the command's words give."""
    if result.method == METHOD_NAME:
        return _DECLARED, "exact"
    method = METHODS[result.method]
    assert not isinstance(method, ScoreMethod)
    if method.name == variants.METHOD.name:
        if "--randomised" in command:
            return DESIGNED, "exact"
        return variants.DECLARED, "heuristic"
    if method.name == options.METHOD.name:
        is_fixed = "--fix-answer" in command
        return options.FIXED_NULL if is_fixed else options.NULL, method.validity
    null = method.null
    if isinstance(method, VersionMethod):
        return null, method.validity
    if result.order_provenance in ("seeded", RELEASED):
        return DESIGNED, method.validity
    if result.group_field is not None:
        null = f"within-group {null}"
    if result.block_field is not None:
        null = f"{null} of blocks"
    return null, method.validity


def _provenance(result: OrderResult, command: Sequence[str]) -> str:
    """Where the order comes from; studies of known orders say it themselves."""
    method = METHODS.get(result.method)
    if isinstance(method, VersionMethod) or method is None:
        is_options = result.method == options.METHOD.name
        return "published" if is_options else "declared"
    if list(command[:1]) != ["audit"]:
        return result.order_provenance
    if "--seed-file" in command:
        return RELEASED
    if "--shuffled" in command:
        return DECLARED
    # Of a task whose code made its documents nobody knows it, and that says less.
    is_made = result.order_provenance == "unknown"
    has_task = any(word.startswith(TASK_PREFIX) for word in command[2:])
    return "unknown" if is_made and has_task else "published"


def _pretest_faults(result: OrderResult, *, scored: bool) -> list[str]:
    """Whether the checks that were made are there, and passed if Holm says so."""
    tests = result.pretests
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        return ["a pre-test stands twice"]
    faults = []
    if scored and (missing := _always_made(result.method) - set(names)):
        faults.append(f"pre-tests are missing: {', '.join(sorted(missing))}")
    for test in tests:
        p = test.p_value
        if not isinstance(p, int | float) or not 0 < p <= 1:
            return [*faults, f"pre-test {test.name}: p_value is {p!r}"]
        if not test.applicable and p != 1:
            faults.append(f"pre-test {test.name}: not applicable at p = {p!r}")
    found = [test.passed for test in tests]
    if found not in _possible(tests, every=_has_all(result.method)):
        faults.append("pre-tests did not pass as their p-values say")
    return faults


def _possible(tests: Sequence[Pretest], *, every: bool) -> list[list[bool]]:
    """What Holm may have said of these p-values.

    Where rows state some tests only, Holm counted others too, so that it may have
    passed more than it does over the stated ones, yet none with a p-value below that of
    a failed one.
    """
    passed = np.array([test.passed for test in gate(tests)], bool)
    if every:
        return [passed.tolist()]
    p_values = np.array([test.p_value for test in tests], np.float64)
    idle = np.array([not test.applicable for test in tests], bool)
    cuts = [p_values > p for p in (0.0, *p_values.tolist())]
    return [(passed | cut | idle).tolist() for cut in cuts]


def _has_all(method: str) -> bool:
    """Whether rows of a method hold the whole battery, over which Holm was taken."""
    return getattr(METHODS.get(method), "null", None) != "reversibility"


def _always_made(method: str) -> set[str]:
    """Names of the pre-tests that every file gets."""
    if method == options.METHOD.name:
        return {"option_length", "option_alphabet"}
    row = METHODS.get(method)
    if row is None or isinstance(row, VersionMethod):
        return set()
    return {name for name, points in _of_any_file() if points or _has_all(method)}


@functools.cache
def _of_any_file() -> tuple[tuple[str, bool], ...]:
    from jaxcontam.stats.pretests import blind_pretests, templated
    from jaxcontam.stats.pretests.checks import checks_of
    from jaxcontam.stats.pretests.forward import forward_pretests

    # The rows of these do not depend on the file.
    blind = [*forward_pretests(()), *blind_pretests(()), templated(())]
    found = [*checks_of("ab", {}), *blind]
    return tuple((check.name, check.directional) for check in found)


def _pair_shape_faults(result: OrderResult, evidence: Evidence) -> list[str]:
    if evidence.orders is None or evidence.codes is None:
        return ["no pair matrices"]
    if len(evidence.orders) != result.n_strata:
        return [f"n_strata is {result.n_strata}, not {len(evidence.orders)}"]
    method = METHODS[result.method]
    assert isinstance(method, PairMethod)
    if evidence.runs is None or evidence.runs.shape != evidence.codes.shape:
        return ["no runs"]
    most = max(
        method.statistic.n_orders(codes_S[row_S >= 0], runs_S[row_S >= 0])
        for codes_S, runs_S, row_S in zip(
            evidence.codes, evidence.runs, evidence.orders[:, 0], strict=True
        )
    )
    if most - 1 != result.n_orders:
        return [f"n_orders is {result.n_orders}, not {most - 1}"]
    return []


def _copied_faults(results: Sequence[OrderResult]) -> list[str]:
    """Whether tests of one benchmark say the same of its file."""
    faults = []
    by_name = {(r.benchmark, r.method): r for r in results}
    if len(by_name) < len(results):
        faults.append("a test stands twice")
    first_part = two_min.METHOD.parts[0].name
    whole = {r.benchmark: r for r in results if _has_file_checks(r)}
    for result in results:
        where = f"{result.benchmark}, {result.method}"
        first = by_name.get((result.benchmark, first_part))
        if result.method == two_min.METHOD.name and first is not None:
            faults += [
                f"{where}: {name} is not that of {first_part}"
                for name in _OF_FIRST_PART
                if getattr(result, name) != getattr(first, name)
            ]
        of_file = whole.get(result.benchmark)
        if of_file is None or isinstance(METHODS.get(result.method), VersionMethod):
            continue
        bearing = tuple(
            test
            for test in of_file.pretests
            if test.directional or _has_all(result.method)
        )
        if result.pretests != bearing:
            faults.append(f"{where}: pre-tests are not those of {of_file.method}")
    return faults


def _has_file_checks(result: OrderResult) -> bool:
    method = METHODS.get(result.method)
    is_order = method is not None and not isinstance(method, VersionMethod)
    return is_order and _has_all(result.method)


def _word_after(flag: str, command: Sequence[str]) -> str | None:
    """Value of a flag; flags stand at the end, behind names of files."""
    places = [i for i, word in enumerate(command[:-1]) if word == flag]
    return command[places[-1] + 1] if places else None
