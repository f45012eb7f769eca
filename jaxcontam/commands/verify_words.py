"""What `verify` checks of the words that verdicts rest on."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from jaxcontam.analyses.audit_design import chosen_tests
from jaxcontam.commands import canary as canary_command
from jaxcontam.data.lm_eval_tasks import TASK_PREFIX
from jaxcontam.methods import METHODS, canary, options, reported_method, variants
from jaxcontam.methods.method import TestMethod
from jaxcontam.methods.order_test import assumed_null
from jaxcontam.results import DECLARED, DESIGNED, RELEASED, OrderResult, Report
from jaxcontam.results.terms import Provenance
from jaxcontam.stats.pretests import is_directional, made_of_any_file
from jaxcontam.verdict import MIN_EFFECT

# Where a command's words do not say it; `variants` has one for each of its units.
_MIN_EFFECTS = {
    "audit": MIN_EFFECT,
    "prove": MIN_EFFECT,
    "canary": canary_command.MIN_EFFECT,
}


def with_premises(stated: OrderResult, command: Sequence[str]) -> OrderResult:
    """A row with the provenance, null and validity that method and flags give."""
    method, origin = reported_method(stated.method), stated.order_provenance
    null, validity = method.null, method.validity
    if method.name == options.METHOD.name and "--fix-answer" in command:
        null = options.FIXED_NULL
    elif method.name == variants.METHOD.name:
        by_design = "--randomised" in command
        null = DESIGNED if by_design else variants.DECLARED
        validity = "exact" if by_design else "heuristic"
    elif isinstance(method, TestMethod):
        # Studies of known orders say their provenance themselves.
        if list(command[:1]) == ["audit"]:
            origin = _audited_order(origin, command)
        null = assumed_null(
            method,
            origin,
            group_field=stated.group_field,
            block_field=stated.block_field,
        )
    return dataclasses.replace(
        stated, order_provenance=origin, null=null, validity=validity
    )


def _audited_order(stated: Provenance, command: Sequence[str]) -> Provenance:
    """Provenance of the order of a file that was audited."""
    if "--seed-file" in command:
        return RELEASED
    if "--shuffled" in command:
        return DECLARED
    # A task whose code made its documents has an order that nobody knows.
    has_task = any(word.startswith(TASK_PREFIX) for word in command[2:])
    return "unknown" if has_task and stated == "unknown" else "published"


def pretest_faults(stated: OrderResult, *, scored: bool) -> list[str]:
    """Whether the pre-tests that are always made are there, each with a p-value.

    Args:
        stated: A row of the report.
        scored: The report names a model, so files were checked before.
    """
    names = {test.name for test in stated.pretests}
    missing = _always_made(stated.method) - names if scored else set()
    faults = [f"pre-tests are missing: {', '.join(sorted(missing))}"] * bool(missing)
    if len(names) < len(stated.pretests):
        faults.append("a pre-test stands twice")
    faults += [
        f"pre-test {test.name}: directional is {test.directional}"
        for test in stated.pretests
        if _has_battery(stated.method) and test.directional != is_directional(test.name)
    ]
    return faults + [
        f"pre-test {test.name}: p_value is {test.p_value!r}"
        for test in stated.pretests
        if not 0 < test.p_value <= 1 or (test.p_value < 1 and not test.applicable)
    ]


def report_faults(report: Report, rows: Sequence[OrderResult]) -> list[str]:
    """Whether one test of each benchmark decides, by the effect that was asked for."""
    faults = []
    if len({(row.benchmark, row.method) for row in rows}) < len(rows):
        faults.append("a test stands twice")
    of_file = {row.benchmark: row.pretests for row in rows if _has_battery(row.method)}
    faults += [
        f"{row.benchmark}: its tests state different pre-tests"
        for row in rows
        if _has_battery(row.method) and row.pretests != of_file[row.benchmark]
    ]
    # Each secret alone has its own name, and the joint test decides.
    deciding = {row.benchmark: 0 for row in rows if row.method != canary.ALONE.name}
    deciding |= Counter(row.benchmark for row in rows if row.primary)
    faults += [
        f"{name}: {n} tests decide, not 1" for name, n in deciding.items() if n != 1
    ]
    # What is known of an order says who decides, and nothing else does.
    asked = _asked_to_decide(report.command)
    of_order: dict[str, str] = {}
    for row in rows:
        if row.primary:
            known = of_order.setdefault(row.order_provenance, asked or row.method)
            if row.method != known:
                faults.append(f"{row.benchmark}: {row.method} decides, not {known}")
    expected = _least_effect(report.command)
    if expected not in (None, report.min_effect):
        words = f"min_effect is {report.min_effect!r}"
        faults.append(f"{words}, the command's is {expected!r}")
    return faults


def _asked_to_decide(command: Sequence[str]) -> str | None:
    """The test that decides by the command's words; None where they do not say it."""
    tests = _word_after("--tests", command)
    if tests is None and list(command[:1]) != ["audit"]:
        return None
    effort = _word_after("--effort", command) or "standard"
    known = "--shuffled" in command or "--seed-file" in command
    return chosen_tests(tests, effort=effort, known=known)[0]


def _least_effect(command: Sequence[str]) -> float | None:
    """Effect that was asked for; None where the words do not say it."""
    word = _word_after("--min-effect", command)
    if word is not None:
        return float(word)
    return _MIN_EFFECTS.get(command[0]) if command else None


def _word_after(flag: str, command: Sequence[str]) -> str | None:
    """Value of a flag; flags stand at the end, behind names of files."""
    places = [i for i, word in enumerate(command[:-1]) if word == flag]
    return command[places[-1] + 1] if places else None


def _has_battery(method: str) -> bool:
    """Whether rows of a test hold the checks of the order of their file."""
    return getattr(METHODS.get(method), "is_of_order", False)


def _always_made(method: str) -> set[str]:
    """Names of the pre-tests that every file gets."""
    if method == options.METHOD.name:
        return {"option_length", "option_alphabet"}
    if not _has_battery(method):
        return set()
    return {test.name for test in made_of_any_file()}
