"""What to do about a verdict that a file's order leaves open: words and a command."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.why import (
    ALONE,
    APPROXIMATE,
    ATTRACTION,
    GATE,
    TEMPLATED,
    attracting,
    base_null,
    direction_beside,
    failed_checks,
    is_of_order,
    reasons,
)

__all__ = ["WayOut", "advice", "plain_name", "remedy", "ways_out"]

Row = Mapping[str, Any]

# In the order in which they are tried: ids in the text spoil every test; then strata,
# then blocks.
_CURES = {
    "--template": "leave the numbers out of the text",
    "--text-field": "leave the numbers out of the text",
    "--group-field": "permute only among examples of equal {value}",
    "--block-field": "move examples of equal {value} as one block",
}
_STRIPS = ("--template", "--text-field")
_DIRECTION = "test the direction alone: neighbours are as alike read backwards"
_FIX_ANSWER = "move only wrong options, so that each right one keeps its place"
_NO_OPTIONS = "test the order of the file instead: its options are not in random order"
_REWRITE = "write the file again without the numbers in its texts"
_NOTHING_LEFT = (
    "no order test of this file alone is sound, and the reference model prefers its "
    "order, too: ask with other texts of the same benchmark, or of their options"
)
_REFERENCE = "compare with a model that cannot have seen the file"
_POINTS = (
    "no order test of this file alone is sound; score it beside a model that cannot "
    "have seen it: the verdict stays, the difference of the two is what to look at"
)
_SHUFFLED = "if you know that the file was shuffled before it was published, say so"
_OPTIONS = "test the order of the answer options, which needs none of the file's"
_EXACT = "take an exact test"

# Tests whose pairs a reference model can be compared by.
_OF_PAIRS = {"direction", "adjacency", "adjacency_normal", "two_min"}
# What other tests than `options` refuse, and what it refuses.
_OF_OPTIONS = {"--options-field", "--answer-field"}
_NOT_OF_OPTIONS = {"--block-field", "--text-field"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """One thing to do.

    Attributes:
        words: What, without a full stop.
        line: The command; DIR stands for a folder of the user's. None without one.
    """

    words: str
    line: str | None


def advice(row: Row, command: Sequence[str]) -> str | None:
    """The first thing to do, in words; None where nothing need be done."""
    ways = ways_out(row, command)
    return ways[0].words if ways else None


def remedy(row: Row, command: Sequence[str]) -> str | None:
    """The line of the first thing to do; None without one."""
    ways = ways_out(row, command)
    return ways[0].line if ways else None


def ways_out(
    row: Row, command: Sequence[str], results: Sequence[Row] = ()
) -> list[WayOut]:
    """What to do next about a row, each with a line to run where one helps.

    More orders of the same file after a look at the result would be a second test, and
    hardly a stronger one: only more examples are.

    Args:
        row: A primary row, or a file that was not scored.
        command: The words that made it.
        results: All rows of its report.
    """
    if row["verdict"] == "invalid design":
        found = [_of_invalid(row, command)]
    elif row["verdict"] == "suspected" and is_of_order(row):
        found = _of_suspected(row, command, results)
    else:
        return []
    is_audit = list(command[:1]) == ["audit"]
    return [
        WayOut(words=words, line=_line(command, flags) if flags and is_audit else None)
        for words, flags in found
    ]


def _of_invalid(row: Row, command: Sequence[str]) -> tuple[str, list[str] | None]:
    """The first remedy that is left: its words, and its flags if it has any."""
    failed = failed_checks(row)
    if row["method"] == "options":
        only_answers = [test["name"] for test in failed] == ["answer_place"]
        if only_answers and "--fix-answer" not in command:
            return _FIX_ANSWER, ["--fix-answer"]
        return _NO_OPTIONS, None
    # Of several fields the one with the most equal neighbours explains the most.
    failed.sort(key=lambda test: -test.get("statistic", 0.0))
    cures = [shlex.split(test.get("remedy", "")) for test in failed]
    moved = row.get("group_field") is not None or bool(
        {"--block-field", "--group-field"} & set(command)
    )
    for flag, words in _CURES.items():
        for cure in cures:
            if cure[:1] != [flag] or (moved and flag not in _STRIPS):
                continue
            if flag not in command or command[list(command).index(flag) + 1] != cure[1]:
                return words.format(value=cure[1]), cure
    if any(_rises(test["name"]) for test in failed):
        return _REWRITE, None
    arrow = not failed or any(test.get("directional", False) for test in failed)
    if not arrow and base_null(row) != "reversibility":
        return _DIRECTION, ["--tests", "direction"]
    if "--reference" in command:
        return _NOTHING_LEFT, None
    anyway = [] if "--score-anyway" in command else ["--score-anyway"]
    return _POINTS, [*_reference_flags(command), *anyway]


def _of_suspected(
    row: Row, command: Sequence[str], results: Sequence[Row]
) -> list[tuple[str, list[str] | None]]:
    """All that may turn a suspicion into a verdict."""
    found: list[tuple[str, list[str] | None]] = []
    why = reasons(row, results)
    points = any(test.get("directional", False) for test in failed_checks(row))
    if ALONE in why and not points:
        found.append((_DIRECTION, ["--tests", "direction"]))
    if why == [APPROXIMATE]:
        beside = direction_beside(row, results)
        exact = "adjacency" if beside is None else "direction"
        found.append((_EXACT, ["--tests", exact]))
    if ATTRACTION in why and "--shuffled" not in command:
        found.append((_SHUFFLED, _shuffled_flags(row, command, results)))
    wants_reference = {ATTRACTION, TEMPLATED, GATE} & set(why)
    if wants_reference and "--reference" not in command:
        found.append((_REFERENCE, _reference_flags(command)))
    if ATTRACTION in why and row.get("has_options"):
        found.append((_OPTIONS, ["--tests", "options"]))
    return found


def _shuffled_flags(
    row: Row, command: Sequence[str], results: Sequence[Row]
) -> list[str]:
    """The user's word, and the test that then decides if the command names another."""
    other = attracting(row, results)
    if other is None or "--tests" not in command:
        return ["--shuffled"]
    return ["--tests", other["method"], "--shuffled"]


def _reference_flags(command: Sequence[str]) -> list[str]:
    """Name a reference, and a test that it can take if there is none."""
    words = list(command)
    tests = words[words.index("--tests") + 1] if "--tests" in words else "direction"
    has_pairs = not _OF_PAIRS.isdisjoint(name.strip() for name in tests.split(","))
    return [*([] if has_pairs else ["--tests", "direction"]), "--reference", "DIR"]


def _rises(name: str) -> bool:
    """Whether a pre-test looks at numbers that stand in the texts."""
    return name.startswith("number_")


def _line(command: Sequence[str], flags: Sequence[str]) -> str:
    """The command with other flags, less those that contradict them."""
    replaced = {flag for flag in flags if flag.startswith("--")}
    if not replaced.isdisjoint(_STRIPS):
        replaced |= set(_STRIPS)
    switches: set[str] = set()
    if "--tests" in replaced:
        replaced.add("--effort")
        if "options" in flags:
            replaced |= _NOT_OF_OPTIONS
        else:
            replaced |= _OF_OPTIONS
            switches.add("--fix-answer")
        if "direction" in flags:
            # Checks spoke against it.
            switches.add("--shuffled")
    words = [word for word in _without(command, replaced) if word not in switches]
    return shlex.join(["jaxcontam", *words, *flags])


def _without(command: Sequence[str], flags: set[str]) -> list[str]:
    """The command's words less some flags and the value after each."""
    words = list(command)
    for flag in flags & set(words):
        place = words.index(flag)
        del words[place : place + 2]
    return words
