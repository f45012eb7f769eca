"""Why a verdict is what it is, and what to do next.

The rule is that of `jaxcontam.proof.verdict`; this is the reason in words, read off the
results, and the steps that could settle it. Terminal, page and results.csv say the
same.
"""

import dataclasses
import itertools
import math
import shlex
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from jaxcontam.amounts import amount
from jaxcontam.arguments import keyword_of
from jaxcontam.data.files import Provenance
from jaxcontam.proof.result import DESIGNED, OrderResult, ReferenceResult, UnscoredFile
from jaxcontam.proof.verdict import difference_level
from jaxcontam.renamed import renewed, renewed_remedy
from jaxcontam.reports.methods import Words
from jaxcontam.reports.numbers import p_words, plain_p
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import (
    NOT_CHECKED,
    OF_OPTIONS,
    ORDER_WORDS,
    REFERENCE_SHARE,
    SHARE_LEVEL,
    SUSPECTED_LEVEL,
    ProofWords,
    Reason,
    base_null,
)
from jaxcontam.terminal_text import printable, shell_line

# Provenances of orders that are known to be random.
_KNOWN: dict[Provenance, str] = {
    "seeded": "the order was drawn at random from a recorded seed",
    "released": "the order was drawn at random by release and checked against its seed",
    "declared": "the order was declared shuffled by whoever ran this (--order random)",
}
_PUBLISHED = "the order is published and not known to have been drawn at random"
_UNKNOWN = "the order is not known to have been drawn at random, nor how it arose"
# Orders that mean something to a reader, of rows and of options.
_ROWS_MEAN = "causes before effects, events by date, a list that the world knows"
_OPTIONS_MEAN = "never before always, small before large, the likely one first"

OF_REFERENCE: tuple[Reason, ...] = (
    "reference ignores context",
    "reference prefers it",
    "reference prefers the reverse",
    "reference may share it",
    "reference too close",
)
"""Points that a reference leaves open; one sentence gives them together."""


_SENTENCES: dict[Reason, str] = {
    "approximate": "Its p-value is approximate, and an approximate test gives at most "
    "suspected.",
    "alone": "In files that were not shuffled neighbours tend to be alike, which any "
    "model that copies from its context prefers, so this test alone gives at most "
    "suspected.",
    "no reference": "An order that has a meaning ({means}) can be predicted by "
    "reading. Only a reference model that reads as well and cannot have seen the file "
    "can tell that from memory.",
    "weak": "The p-value is too large for a stronger verdict.",
}

# The same in a line.
_SHORT: dict[Reason, str] = {
    "approximate": "an approximate test is no proof",
    "alone": "likeness of neighbours may explain it",
    "attraction": "neighbours attract each other",
    "no reference": "reading may explain it",
    "weak": "p is too large for proof",
    "reference ignores context": "{name}, the reference, ignores what comes before",
    "reference prefers it": "{name}, the reference, prefers the order too",
    "reference prefers the reverse": "{name}, the reference, prefers the reverse",
    "reference may share it": "{name}, the reference, may gain half as much",
    "reference too close": "the difference to {name}, the reference, may be chance",
}
# In the order in which they are tried: ids in the text spoil every test; then strata,
# then blocks.
_CURES = {
    "--text": "leave the numbers out of the text",
    "--group-field": "permute only among examples of equal {value}",
    "--block-field": "move examples of equal {value} as one block",
}
_DIRECTION = "test only the direction: neighbours are as alike read backwards"
_LET_DIRECTION = "let a test decide that a reference model can also take"
_REWRITE = "write the file again without the numbers in its texts"
_NOTHING_LEFT = (
    "no order test of this file alone is sound{found}; audit other texts of the same "
    "benchmark, or test the order of their options"
)
_REFERENCE = "compare with a model that cannot have seen the file"
_MORE_ROWS = (
    "audit more rows of it: if they are like these, some {n} tell model and reference "
    "apart with probability 0.8"
)
# Standard errors that give power 0.8; root of ten times the rows: more are no remedy.
_POWER_Z, _MOST_ROWS = 0.84, 3.2
_OTHER_REFERENCE = (
    "compare with another such model, of the same kind and size as this one"
)
_POINTS_FORWARD = (
    "no order test of this file alone is sound; compare with a model that cannot have "
    "seen it: the verdict stays, but look at the difference between the two"
)
_SHUFFLED = "if you know that {what} was shuffled before it was published, say so"
_EXACT = "take an exact test"
_PLAIN = {
    "length_autocorrelation": "neighbours of similar length",
    "length_trend": "length that rises or falls along the file",
    "length_steps": "length that rises or falls from one example to the next",
    "alphabetical_trend": "alphabetical order{of_field}",
    "alphabetical_steps": "alphabetical order{of_field} from one example to the next",
    "number_trend": "numbers in the text{in_field} that rise or fall along the file",
    "number_steps": "numbers in the text{in_field} that rise or fall from one example "
    "to the next",
    "tfidf_adjacency": "likeness of neighbours' words",
    "adjacent_duplicates": "adjacent near-duplicates",
    "shared_beginning": "adjacent texts that begin alike",
    "shared_context": "adjacent examples that share {field}",
    "equal_neighbours": "neighbours of equal {field}",
    "label_trend": "sorting by {field}",
    "label_autocorrelation": "neighbours of similar {field}",
    "option_length": "options sorted by length",
    "option_alphabet": "options in alphabetical order",
    "answer_place": "right options that are more frequent at some places than at "
    "others",
    "label_steps": "{field} that rises or falls from one example to the next",
    "blind_attraction": "neighbours that are alike to a scorer without a model "
    "({field})",
    "blind_lags": "examples some places apart that are alike to a scorer without a "
    "model ({field})",
    "blind_runs": "parts of the file that are more alike within than between, to a "
    "scorer without a model ({field})",
    "blind_direction": "a direction that a scorer without a model finds ({field})",
    "forward_numbers": "numbers anywhere in the text that keep counting",
    "forward_dates": "dates, times and ordinals that keep counting",
    "forward_names": "names that carry over to the next example",
    "forward_references": "examples that refer to the one before",
    "forward_lines": "examples that end in the middle, as lines of one text do",
    "forward_turns": "questions before their answers",
    "forward_translations": "examples next to their translations",
    "learned_direction": "a rule that tells which of two examples comes first",
}
_MOST_TOLD = 5


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditedFile:
    """The test that decides about a file, and what stands beside it."""

    test: OrderResult
    beside: tuple[OrderResult, ...] = ()

    @property
    def tests(self) -> tuple[OrderResult, ...]:
        """All tests of the file, the deciding one first."""
        return self.test, *self.beside

    @property
    def reference(self) -> ReferenceResult | None:
        """Result of a reference model by the test whose null the file may satisfy."""
        return self.answering.reference

    @property
    def answering(self) -> OrderResult:
        """The deciding test, or that of direction where it needs a random order."""
        of_orders = base_null(self.test.null) == "exchangeability"
        is_known = self.test.order_provenance in _KNOWN
        return self.directed or self.test if of_orders and not is_known else self.test

    @property
    def directed(self) -> OrderResult | None:
        """The exact test under reversibility that stands beside, if one does."""
        found = self._exact_under("reversibility")
        return min(found, key=lambda other: other.reference is None, default=None)

    @property
    def attracting(self) -> OrderResult | None:
        """The test that would prove, were the order drawn; direction is silent."""
        of_direction = base_null(self.test.null) == "reversibility"
        if not of_direction or "attraction" not in self.test.reasons:
            return None
        found = self._exact_under("exchangeability")
        return min(found, key=lambda other: other.numbers.log10_p)

    def _exact_under(self, null: str) -> list[OrderResult]:
        tests = [one for one in self.beside if base_null(one.null) == null]
        return [one for one in tests if one.validity == "exact"]


def audited_files(results: Sequence[Any]) -> list[AuditedFile]:
    """Each primary order test of a report, with the tests beside it."""
    tests = [result for result in results if isinstance(result, OrderResult)]
    files = []
    for test in (one for one in tests if one.primary):
        own = [one for one in tests if one.benchmark == test.benchmark]
        beside = tuple(one for one in own if one.method != test.method)
        files.append(AuditedFile(test, beside))
    return files


def why(file: AuditedFile) -> str:
    """Name the deciding test of a file, and why; "" without a verdict or an order."""
    test = file.test
    if test.verdict is None or not is_of_order(test):
        return ""
    if test.verdict == "invalid design":
        return f"No test decides: {refusal(test)}"
    words = [_who_decides(file)]
    if test.verdict == "contaminated":
        words.append(_why_contaminated(file))
    if test.reasons:
        means = _OPTIONS_MEAN if is_of_options(test) else _ROWS_MEAN
        words += [
            _attraction_words(file)
            if reason == "attraction"
            else _SENTENCES[reason].format(means=means)
            for reason in test.reasons
            if reason not in OF_REFERENCE
        ]
        words += _unsettled(file)
    asked = test.order_provenance not in _KNOWN and file.reference
    if test.verdict == "contaminated" and asked:
        words.append(
            f"{asked.name}, the reference model, gains {_little_words(asked)}. That "
            f"settles it if {asked.name} reads as well and cannot have seen the file, "
            f"which {NOT_CHECKED}."
        )
    return " ".join(words)


def in_short(file: AuditedFile | UnscoredFile, words: Words) -> str:
    """The reason of a verdict in a few words, without a full stop; see `why`."""
    test = file if isinstance(file, UnscoredFile) else file.test
    if test.verdict == "invalid design":
        names = [plain_name(check.name) for check in test.refusals]
        if not names:
            return "the reference prefers the order too"
        points = base_null(test.null) == "reversibility"
        what = "it points forward by itself" if points else "its order is not random"
        return f"{what}: {names[0]}" + (
            f", and {len(names) - 1} more" if names[1:] else ""
        )
    assert isinstance(file, AuditedFile)
    own = proof_words(words, file.test.method)
    match file.test.verdict:
        case "contaminated":
            if file.test.order_provenance in _KNOWN:
                drawn = "drawn at random"
                if file.test.order_provenance == "declared":
                    # Somebody's word is quoted.
                    drawn = "declared shuffled by whoever ran this"
                return f"the model prefers its order, {drawn}"
            if (asked := file.reference) is None:
                return own.seen
            return (
                f"gains over twice as much as {asked.name}, which you say cannot have "
                "seen the file"
            )
        case "suspected" if not file.test.reasons:
            return "no proof"
        case "suspected":
            return _first_reason(file.test)
        case "no evidence":
            least = f"{amount(file.test.mde_adjusted)} {file.test.effect_unit}"
            return f"an effect of {least} would have been found"
        case _:
            return why_inconclusive(file.test, own)


def why_inconclusive(test: OrderResult, own: ProofWords) -> str:
    """Why a test that found nothing could not have found much, or asked of nothing."""
    if test.reasons:
        return _first_reason(test)
    if test.numbers.all_alike:
        return f"the model scores all {own.versions} alike"
    if test.mde_adjusted is None:
        many = (
            ""
            if test.numbers.mde is None
            else " once corrected for the number of benchmarks"
        )
        return f"p cannot reach 0.001 in this design{many}; {own.more}"
    if test.order_provenance == "unknown":
        return "the model may have seen the file in a different order"
    return (
        f"effects below {amount(test.mde_adjusted)} {test.effect_unit} may be missed; "
        f"{own.more}"
    )


def _first_reason(test: OrderResult) -> str:
    reasons = sorted(test.reasons, key=lambda reason: reason not in OF_REFERENCE)
    words = _SHORT[reasons[0]]
    if test.reference is None:
        # That of another test beside.
        return words.replace("{name}, the reference", "the reference")
    return words.format(name=test.reference.name)


def is_of_order(test: OrderResult | UnscoredFile) -> bool:
    """True for a null that a file can satisfy, of its order or of its options."""
    if test.null == DESIGNED:
        # Secrets and rewrites, whose owner drew them.
        return test.order_provenance != "declared"
    of_file = base_null(test.null) in ("exchangeability", "reversibility")
    return of_file or is_of_options(test)


def is_of_options(test: OrderResult | UnscoredFile) -> bool:
    """True for a test of the order of the options within items."""
    return test.null in OF_OPTIONS


def refusal(test: OrderResult | UnscoredFile, found: str | None = None) -> str:
    """Why a design is invalid: failed checks, or a reference model.

    `found` is what failed checks say of it; by default what its null says.
    """
    names = "; ".join(plain_name(check.name) for check in test.refusals)
    if names:
        points = base_null(test.null) == "reversibility"
        order = "the file's own order is not random"
        found = found or ("the file itself points forward" if points else order)
        return f"{found} ({names}), so a model that never saw it may prefer it."
    reference = test.reference if isinstance(test, OrderResult) else None
    name, p = "a", ""
    if reference is not None:
        name, p = f"{reference.name}, the", f" ({p_words(reference.log10_p)})"
    what = "its order of options" if is_of_options(test) else "its order"
    return (
        f"{name} reference model, given as one that cannot have seen the file, prefers "
        f"{what} too{p}."
    )


def _who_decides(file: AuditedFile) -> str:
    test = file.test
    method, provenance = test.method, test.order_provenance
    if provenance in _KNOWN:
        return f"Deciding test: {method}, since {_KNOWN[provenance]}."
    origin = _PUBLISHED if provenance == "published" else _UNKNOWN
    if is_of_options(test) and file.reference is not None:
        return (
            f"Deciding test: {method} with a reference model, since {origin}, which "
            f"{method} requires."
        )
    if base_null(test.null) == "reversibility":
        return (
            f"Deciding test: {method}, since {origin}. It does not require a random "
            "order: it tests whether examples are more expected forwards than "
            "backwards."
        )
    if file.directed is not None and not is_of_options(test):
        return (
            f"Deciding test: {file.directed.method} alongside {method}, since "
            f"{origin}, which {method} requires."
        )
    return f"Deciding test: {method}, which requires a random order; but {origin}."


def _why_contaminated(file: AuditedFile) -> str:
    if file.test.order_provenance in _KNOWN:
        return (
            "Before the model was trained every order was equally likely, and the "
            "model prefers this one."
        )
    if is_of_options(file.test):
        return "The model prefers the published order of options to other orders."
    beside, decider = "", file.directed
    if decider is not None and base_null(file.test.null) != "reversibility":
        beside = f" ({p_of(decider)} by {decider.method})"
    return (
        f"The model prefers the published direction to its reverse{beside}. Likeness "
        "of neighbours cannot explain that: it is the same both ways."
    )


def _attraction_words(file: AuditedFile) -> str:
    stronger, weaker = file.attracting, file.test
    if stronger is None:
        stronger, weaker = file.test, file.directed or file.test
    attract = f"{p_of(stronger)} by {stronger.method}, if the order were random"
    points = f"{p_of(weaker)} by {weaker.method}"
    if weaker.numbers.log10_p <= math.log10(SUSPECTED_LEVEL):
        return (
            "The published direction is preferred, but too weakly for proof "
            f"({points}). Neighbours attract each other ({attract}), which may be mere "
            "likeness: any model that copies from its context prefers that."
        )
    return (
        f"Neighbours attract each other ({attract}), but not clearly forwards more "
        f"than backwards ({points}): neighbours are alike, which any model that copies "
        "from its context prefers."
    )


def _unsettled(file: AuditedFile) -> list[str]:
    """Name all that a reference leaves open; nothing if it settles the verdict."""
    test, reference = file.answering, file.reference
    open_points = [reason for reason in file.test.reasons if reason in OF_REFERENCE]
    if reference is None or not open_points:
        return []
    level = difference_level(test)
    need = f"at most {level}"
    differs = reference.difference_p
    if differs <= level:
        need += " once corrected for the number of files"
    ignored = "the preceding context"
    reverse = (
        "it prefers the reverse order, so the two directions are not equally likely"
    )
    if is_of_options(test):
        ignored = "the order of options"
        reverse = "it prefers other orders, so the options are not in random order"
    words = {
        "reference ignores context": f"its scores hardly depend on {ignored}",
        "reference prefers it": "it prefers the order too, "
        f"{p_words(reference.log10_p)}",
        "reference prefers the reverse": f"{reverse}, contrary to what the test "
        "assumes",
        "reference may share it": "it is not shown to gain "
        f"{_little_words(reference)}, where at most {SHARE_LEVEL} is required (the "
        "model's effect is "
        f"{effect_words(test.numbers.effect, test.numbers.effect_se)})",
        "reference too close": f"the difference has p = {plain_p(differs)}, where "
        f"{need} is required",
    }
    found = " and ".join(words[reason] for reason in open_points)
    return [
        f"{reference.name}, the reference model, does not settle whether the order can "
        f"be predicted by reading: {found}."
    ]


def _little_words(reference: ReferenceResult) -> str:
    """Name the share that a silent reference gains less than, and its evidence."""
    # To the digits that are shown.
    times = "" if (shown := f"{reference.scale:.2g}") == "1" else f" times {shown}"
    share = f"{REFERENCE_SHARE:.0%}"
    return (
        f"less than {share} of what the model gains: its effect is "
        f"{effect_words(reference.effect, reference.effect_se)}{times}, and {share} of "
        f"the model's scores minus its own have p = {plain_p(reference.half_p)}"
    )


class Step(NamedTuple):
    """A next step: what to do, and the flags of `audit` that do it.

    `in_python`: the model is an object of Python, and flags are said as keywords.
    """

    words: str
    flags: tuple[str, ...] = ()
    in_python: bool = False

    @property
    def if_shuffled(self) -> bool:
        """True if only whoever knows that the order was random may do it."""
        return "random" in self.flags

    @property
    def to_add(self) -> str:
        """Words to add to the command or the call."""
        return _keywords(self.flags) if self.in_python else shell_line(self.flags)

    def __str__(self) -> str:
        return f"{self.words} ({self.to_add})" if self.flags else self.words


def _keywords(flags: Sequence[str]) -> str:
    own: list[str] = []
    said: dict[str, list[str]] = {}
    for word in flags:
        if word.startswith("--"):
            own = said.setdefault(keyword_of(word), [])
        else:
            # A folder of the command line is a model of any kind here.
            own.append("OTHER_MODEL" if word == "DIR" else repr(word))
    values = (
        f"({', '.join(own)})" if own[1:] else (*own, "True")[0] for own in said.values()
    )
    return ", ".join(
        f"{name}={value}" for name, value in zip(said, values, strict=True)
    )


def next_steps(
    file: AuditedFile | UnscoredFile, command: Sequence[str], words: Words
) -> tuple[Step, ...]:
    """Next steps after the verdict of a file, the best one first.

    More orders of the same file after a look at the result would be a second test, and
    hardly a stronger one: only more examples are.
    """
    command = renewed(command)
    test, steps = file if isinstance(file, UnscoredFile) else file.test, []
    if test.verdict == "invalid design":
        steps = [_out_of_invalid(test, command, words)]
    elif isinstance(file, AuditedFile) and file.test.reasons:
        steps = _after_suspicion(file, command, words) if is_of_order(test) else []
    if list(command[:1]) == ["audit"]:
        is_object = command[1].startswith("<")
        return tuple(step._replace(in_python=is_object) for step in steps)
    return tuple(Step(step.words) for step in steps)


def _out_of_invalid(
    test: OrderResult | UnscoredFile, command: Sequence[str], words: Words
) -> Step:
    failed, own = list(test.refusals), proof_words(words, test.method)
    if own.otherwise:
        names = [check.name for check in failed]
        said, setting = own.cures.get(names[0] if len(names) == 1 else "", ("", ""))
        tests = _named_tests(command) or [test.method]
        if setting and not any(one.endswith(f":{setting}") for one in tests):
            cured = (
                f"{one}:{setting}" if one.split(":")[0] == test.method else one
                for one in tests
            )
            return Step(said, ("--tests", ",".join(cured)))
        return Step(own.otherwise)
    # The field with the most equal neighbours explains the most.
    failed.sort(key=lambda check: -check.statistic)
    cures = [tuple(shlex.split(renewed_remedy(check.remedy))) for check in failed]
    moved = isinstance(test, OrderResult) and test.group_field is not None
    moved |= bool({"--block-field", "--group-field"} & set(command))
    for flag, said in _CURES.items():
        for cure in cures:
            if cure[:1] != (flag,) or (moved and flag != "--text"):
                continue
            if flag not in command or command[command.index(flag) + 1] != cure[1]:
                return Step(said.format(value=printable(cure[1])), cure)
    # Numbers that stand in the texts.
    if any(check.name.startswith("number_") for check in failed):
        return Step(_REWRITE)
    arrow = any(check.directional for check in failed)
    if not arrow and base_null(test.null) != "reversibility":
        return Step(_DIRECTION, _test_under("reversibility", words))
    if "--reference" in command:
        found = ": the verdict stays, but look at the difference from the reference"
        # No check of the file refuses it: the reference does.
        if not failed:
            found = ", and the reference model prefers its order too"
        return Step(_NOTHING_LEFT.format(found=found))
    flags = (*_reference_flags(command, words), *_with_order(command, "anyway"))
    return Step(_POINTS_FORWARD, flags)


def _after_suspicion(
    file: AuditedFile, command: Sequence[str], words: Words
) -> list[Step]:
    reasons = set(file.test.reasons)
    if "alone" in reasons:
        return [Step(_DIRECTION, _test_under("reversibility", words))]
    if "approximate" in reasons:
        null = "exchangeability" if file.directed is None else "reversibility"
        return [Step(_EXACT, _test_under(null, words))]
    steps: list[Step] = []
    if "no reference" in reasons:
        if "--reference" in command:
            # The test that decides takes none.
            return [Step(_LET_DIRECTION, _test_under("reversibility", words))]
        steps.append(Step(_REFERENCE, _reference_flags(command, words)))
    if reasons.intersection(OF_REFERENCE):
        more = _rows_needed(file)
        if more is None:
            steps.append(Step(_OTHER_REFERENCE, ("--reference", "DIR")))
        else:
            steps.append(Step(_MORE_ROWS.format(n=f"{more:,}")))
    flags = _with_order(command, "random")
    if reasons - {"weak"} and flags:
        # The test that then decides, if the command names another.
        if file.attracting is not None and "--tests" in command:
            name = file.attracting.method
            asked = (x for x in _named_tests(command) if x.split(":")[0] == name)
            flags = ("--tests", next(asked, name), *flags)
        what = "each list of options" if is_of_options(file.test) else "the file"
        steps.append(Step(_SHUFFLED.format(what=what), flags))
    return steps


def _rows_needed(file: AuditedFile) -> int | None:
    """Rows that settle it with power 0.8 if effects are as here; None: none is known.

    Standard errors grow with the root of the rows. A reference that gains, or ignores
    what it reads, stays as it is.
    """
    test, found = file.answering, file.reference
    open_points = set(file.test.reasons).intersection(OF_REFERENCE)
    if found is None or not open_points <= {*OF_REFERENCE[-2:]}:
        return None
    levels = {SHARE_LEVEL: found.half_p, difference_level(test): found.difference_p}
    ratios = [
        (_z(level) + _POWER_Z) / max(_z(p), 1e-9) if p > level else 1.0
        for level, p in levels.items()
    ]
    if not 1.0 < max(ratios) <= _MOST_ROWS or any(map(math.isnan, levels.values())):
        return None
    return math.ceil(test.n_examples * max(ratios) ** 2 / 10) * 10


def _z(p_value: float) -> float:
    """Standard errors above 0 that have this one-sided p-value."""
    return -NormalDist().inv_cdf(min(max(p_value, 1e-15), 1 - 1e-15))


def _named_tests(command: Sequence[str]) -> list[str]:
    """Words after --tests, of which none is named by default."""
    if "--tests" not in command:
        return []
    return [one.strip() for one in command[command.index("--tests") + 1].split(",")]


def _with_order(command: Sequence[str], word: str) -> tuple[str, ...]:
    """The flag --order with one word more; nothing if the command has it."""
    told: list[str] = []
    if "--order" in command:
        rest = command[command.index("--order") + 1 :]
        told += itertools.takewhile(lambda one: not one.startswith("--"), rest)
    return () if word in told else ("--order", *told, word)


def _test_under(null: str, words: Words) -> tuple[str, str]:
    """The flag that asks for the first exact test of a null."""
    found = (
        n for n, one in words.items() if (one.null, one.validity) == (null, "exact")
    )
    return "--tests", next(found)


def _reference_flags(command: Sequence[str], words: Words) -> tuple[str, ...]:
    tests = _test_under("reversibility", words)
    taken = [
        proof_words(words, one.split(":")[0]).takes_reference
        for one in _named_tests(command) or tests[1:]
    ]
    return (*(() if any(taken) else tests), "--reference", "DIR")


def proof_words(words: Words, method: str) -> ProofWords:
    """Words for a test; a study's own test is one of orders of a file."""
    found = words.get(method)
    return (found and found.proof) or ORDER_WORDS


def told(names: Sequence[str]) -> str:
    """The first names of files, and how many more there are."""
    rest = len(names) - _MOST_TOLD
    return ", ".join(names[:_MOST_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def plain_name(name: str) -> str:
    """The name of a pre-test in words for people."""
    kind, _, field = printable(name).partition(":")
    words = _PLAIN.get(kind, kind.replace("_", " ") + "{of_field}")
    return words.format(
        field=field,
        of_field=f" of {field}" if field else "",
        in_field=f" ({field})" if field else "",
    )


def verdict_fields(
    report: Report, row: OrderResult | UnscoredFile, folder: str | None
) -> dict[str, Any]:
    """Fields of a verdict beside a score that others compute.

    `row` is its deciding test, or a file that was refused; `folder` is where the report
    stands, if it was written.
    """
    assert report.model is not None
    is_scored = isinstance(row, OrderResult)
    fields = {
        "verdict": row.verdict,
        "p_value": row.p_value if is_scored else None,
        "p_adjusted": row.p_adjusted if is_scored else None,
        "test": row.method,
        "benchmark": printable(row.benchmark),
        "benchmark_fingerprint": row.fingerprint,
        "model_fingerprint": report.model.fingerprint,
        "report": None if folder is None else printable(folder),
        "report_digest": report.digest or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def p_of(result: OrderResult) -> str:
    """The p-value of a test within a sentence."""
    return p_words(result.numbers.log10_p, result.validity)


def effect_words(effect: float | None, se: float | None, dash: str = "-") -> str:
    """An effect with its standard error, as far as there are any."""
    if effect is None:
        return dash
    # z: what rounds to -0.00 is 0.00.
    return f"{effect:z.2f}" if se is None else f"{effect:z.2f} ± {se:.2f}"
