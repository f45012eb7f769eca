"""What to do about a verdict that a file's order leaves open, with the flags."""

import dataclasses
import shlex
from collections.abc import Sequence

from jaxcontam.report.decision import (
    OF_REFERENCE,
    AuditedFile,
    is_of_options,
    is_of_order,
)
from jaxcontam.report.order_words import proof_words
from jaxcontam.results import OrderResult, UnscoredFile
from jaxcontam.results.terms import Words, base_null
from jaxcontam.terminal import printable, shell_line

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
_LET_DIRECTION = "let the test decide that a reference model can take, too"
_REWRITE = "write the file again without the numbers in its texts"
_NOTHING_LEFT = (
    "no order test of this file alone is sound, and the reference model prefers its "
    "order, too: ask with other texts of the same benchmark, or of their options"
)
_REFERENCE = "compare with a model that cannot have seen the file"
_OTHER_REFERENCE = (
    "compare with another such model, of the same kind and size as this one"
)
_POINTS = (
    "no order test of this file alone is sound; score it beside a model that cannot "
    "have seen it: the verdict stays, the difference of the two is what to look at"
)
_SHUFFLED = "if you know that {what} was shuffled before it was published, say so"
_EXACT = "take an exact test"


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """What is to be done about reports of one command.

    Attributes:
        command: The words that made the report.
        words: Of the methods, in the order in which they are recommended.
    """

    command: Sequence[str]
    words: Words

    def about_file(self, file: UnscoredFile) -> list[str]:
        """What to do about a file that was not scored."""
        return self._sentences([self._of_invalid(file)])

    def about(self, file: AuditedFile) -> list[str]:
        """What to do next about a verdict, with the flags of `audit` where they help.

        More orders of the same file after a look at the result would be a second test,
        and hardly a stronger one: only more examples are.
        """
        if file.test.verdict == "invalid design":
            return self._sentences([self._of_invalid(file.test)])
        if file.test.verdict == "suspected" and is_of_order(file.test):
            return self._sentences(self._of_suspected(file))
        return []

    def _sentences(self, ways: Sequence[tuple[str, list[str]]]) -> list[str]:
        is_audit = list(self.command[:1]) == ["audit"]
        return [
            f"{words} ({shell_line(flags)})" if flags and is_audit else words
            for words, flags in ways
        ]

    def _test_under(self, null: str) -> list[str]:
        """Flags that name the first exact test under a null."""
        found = (
            name
            for name, one in self.words.items()
            if (one.null, one.validity) == (null, "exact")
        )
        return ["--tests", next(found)]

    def _of_invalid(self, test: OrderResult | UnscoredFile) -> tuple[str, list[str]]:
        """The first remedy that is left: its words, and its flags if it has any."""
        failed, command = list(test.refusals), list(self.command)
        own = proof_words(self.words, test.method)
        if own.otherwise:
            names = [check.name for check in failed]
            words, flag = own.cures.get(names[0] if len(names) == 1 else "", ("", ""))
            if flag and flag not in command:
                return words, [flag]
            return own.otherwise, []
        # Of several fields the one with the most equal neighbours explains the most.
        failed.sort(key=lambda check: -check.statistic)
        cures = [shlex.split(check.remedy) for check in failed]
        moved = getattr(test, "group_field", None) is not None
        moved |= bool({"--block-field", "--group-field"} & set(command))
        for flag, words in _CURES.items():
            for cure in cures:
                if cure[:1] != [flag] or (moved and flag not in _STRIPS):
                    continue
                if flag not in command or command[command.index(flag) + 1] != cure[1]:
                    return words.format(value=printable(cure[1])), cure
        # Numbers that stand in the texts.
        if any(check.name.startswith("number_") for check in failed):
            return _REWRITE, []
        arrow = any(check.directional for check in failed)
        if not arrow and base_null(test.null) != "reversibility":
            return _DIRECTION, self._test_under("reversibility")
        if "--reference" in command:
            return _NOTHING_LEFT, []
        anyway = [] if "--score-anyway" in command else ["--score-anyway"]
        return _POINTS, [*self._reference_flags(), *anyway]

    def _of_suspected(self, file: AuditedFile) -> list[tuple[str, list[str]]]:
        """All that may turn a suspicion into a verdict."""
        found: list[tuple[str, list[str]]] = []
        why = set(file.test.reasons)
        if "alone" in why:
            return [(_DIRECTION, self._test_under("reversibility"))]
        if "approximate" in why:
            null = "exchangeability" if file.directed is None else "reversibility"
            return [(_EXACT, self._test_under(null))]
        if "no reference" in why and "--reference" in self.command:
            # The test that decides takes none.
            return [(_LET_DIRECTION, self._test_under("reversibility"))]
        if "no reference" in why:
            found.append((_REFERENCE, self._reference_flags()))
        if why.intersection(OF_REFERENCE):
            found.append((_OTHER_REFERENCE, ["--reference", "DIR"]))
        if why - {"weak"} and "--shuffled" not in self.command:
            # The test that then decides, if the command names another.
            other, named = file.attracting, "--tests" in self.command
            tests = ["--tests", other.method] if other is not None and named else []
            what = "each list of options" if is_of_options(file.test) else "the file"
            found.append((_SHUFFLED.format(what=what), [*tests, "--shuffled"]))
        return found

    def _reference_flags(self) -> list[str]:
        """Name a reference, and a test that it can take if there is none."""
        words, tests = list(self.command), self._test_under("reversibility")
        named = words[words.index("--tests") + 1] if "--tests" in words else tests[1]
        taken = [
            proof_words(self.words, name.strip()).takes_reference
            for name in named.split(",")
        ]
        return [*([] if any(taken) else tests), "--reference", "DIR"]
