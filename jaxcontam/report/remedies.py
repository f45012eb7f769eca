"""What to do about a file whose order is not random: one sentence, one command."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = {
    "length_autocorrelation": "neighbours of like length",
    "length_trend": "length that rises or falls along the file",
    "length_steps": "length that rises or falls from one example to the next",
    "alphabetical_trend": "alphabetical order{of_field}",
    "number_trend": "numbers in the text{in_field} that rise or fall along the file",
    "number_steps": "numbers in the text{in_field} that rise or fall from one example "
    "to the next",
    "tfidf_adjacency": "likeness of neighbours' words",
    "adjacent_duplicates": "near-duplicates side by side",
    "shared_beginning": "texts that begin alike side by side",
    "shared_context": "examples that share {field} side by side",
    "equal_neighbours": "neighbours of equal {field}",
    "label_trend": "sorting by {field}",
    "label_autocorrelation": "neighbours of like {field}",
    "option_length": "options sorted by length",
    "option_alphabet": "options in alphabetical order",
    "answer_place": "right options in some places more than in others",
    "label_steps": "{field} that rises or falls from one example to the next",
}

# In the order in which they are tried: ids in the text spoil every test; then strata,
# then blocks.
_CURES = {
    "--template": "leave the numbers out of the text",
    "--text-field": "leave the numbers out of the text",
    "--group-field": "permute only among examples of equal {value}",
    "--block-field": "move examples of equal {value} as one block",
}
_STRIPS = ("--template", "--text-field")
_REVERSAL = "test the direction alone: neighbours are as alike read backwards"
_FIX_ANSWER = "move only wrong options, so that each right one keeps its place"
_NO_OPTIONS = "test the order of the file instead: its options are not in random order"
_REWRITE = "write the file again without the numbers in its texts"
_REFERENCE = (
    "no order test of this file alone is sound; compare with the same test of a model "
    "that cannot have seen the file: the difference of the two effects is approximate "
    "evidence"
)


def plain_name(name: str) -> str:
    """The name of a pre-test in words for people."""
    kind, _, field = name.partition(":")
    words = _PLAIN.get(kind, kind.replace("_", " ") + "{of_field}")
    return words.format(
        field=field,
        of_field=f" of {field}" if field else "",
        in_field=f" ({field})" if field else "",
    )


def advice(row: Mapping[str, Any], command: Sequence[str]) -> str | None:
    """What to do about an invalid design, in words; None for other verdicts."""
    if row["verdict"] != "invalid design":
        return None
    words, _ = _way_out(row, command)
    return words


def remedy(row: Mapping[str, Any], command: Sequence[str]) -> str | None:
    """A line to run next where one helps; else None.

    More orders of the same file after a look at the result would be a second test,
    and hardly a stronger one: only more examples are.
    """
    if list(command[:1]) != ["audit"] or row["verdict"] != "invalid design":
        return None
    _, flags = _way_out(row, command)
    if flags is None:
        return None
    replaced = {"--template", "--text-field"} if flags[0] in _STRIPS else {flags[0]}
    return shlex.join(["jaxcontam", *_without(command, replaced), *flags])


def _way_out(
    row: Mapping[str, Any], command: Sequence[str]
) -> tuple[str, list[str] | None]:
    """The first remedy that is left: its words, and its flags if it has any."""
    failed = [test for test in row["pretests"] if not test["passed"]]
    if row["method"] == "options":
        only_answers = [test["name"] for test in failed] == ["answer_place"]
        if only_answers and "--fix-answer" not in command:
            return _FIX_ANSWER, ["--fix-answer"]
        return _NO_OPTIONS, None
    # Of several fields the one with the most equal neighbours explains the most.
    failed.sort(key=lambda test: -test.get("statistic", 0.0))
    cures = [shlex.split(test.get("remedy", "")) for test in failed]
    moved = row["group_field"] is not None or "--block-field" in command
    for flag, words in _CURES.items():
        for cure in cures:
            if cure[:1] != [flag] or (moved and flag not in _STRIPS):
                continue
            if flag not in command or command[list(command).index(flag) + 1] != cure[1]:
                return words.format(value=cure[1]), cure
    if any(test["name"].startswith("number_") for test in failed):
        return _REWRITE, None
    arrow = any(test.get("directional", False) for test in failed)
    if arrow or row["method"] == "reversal":
        return _REFERENCE, None
    return _REVERSAL, ["--tests", "reversal"]


def _without(command: Sequence[str], flags: set[str]) -> list[str]:
    """The command's words less some flags and the value after each."""
    words = list(command)
    for flag in flags & set(words):
        place = words.index(flag)
        del words[place : place + 2]
    return words
