"""What an audit prints: checks, the table, notes of each benchmark, remedies."""

from collections.abc import Mapping, Sequence

from jaxcontam.report.decision import AuditedFile, audited_files, why
from jaxcontam.report.neighbours import attraction_sentence, pair_test
from jaxcontam.report.order_words import (
    invalid_sentence,
    own_order_sentence,
    proof_words,
    reference_sentence,
    referred_test,
)
from jaxcontam.report.plain_names import plain_name, told
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.remedies import Advice, WayOut
from jaxcontam.report.table import print_results
from jaxcontam.results import OrderResult, Pretest, UnscoredFile
from jaxcontam.results.terms import Words
from jaxcontam.terminal import Terminal


def print_checks(checks: Mapping[str, Sequence[Pretest]], console: Terminal) -> None:
    """Say of each file how many checks of its order passed, and which did not."""
    for name, pretests in checks.items():
        counted = [test for test in pretests if test.applicable]
        failed = [test for test in counted if not test.passed]
        # Who reads a log wants to know what is wrong.
        if failed or console.is_terminal:
            console.print(
                f"{name}: {len(counted) - len(failed)} of {len(counted)} checks of its "
                f"order passed{':' if failed else ''}"
            )
        for test in failed:
            console.say(f"  failed  p = {test.p_value:<7.2g} {plain_name(test.name)}")


def print_outcome(
    results: list[OrderResult], command: Sequence[str], words: Words, console: Terminal
) -> None:
    """Print decided results, notes of primary ones, and what to do about them.

    What is said of several files is said once.
    """
    print_results(results, console)
    files = audited_files(results)
    advice = Advice(command, words)
    notes: dict[str, list[str]] = {}
    ways: dict[tuple[WayOut, ...], list[str]] = {}
    for file in files:
        name = file.test.benchmark
        for note in (*file.test.warnings, *_notes(file, words)):
            notes.setdefault(note, []).append(name)
        ways.setdefault(tuple(advice.about(file)), []).append(name)
    for note, names in notes.items():
        console.print(f"{told(names)}: {note}")
    for found, names in ways.items():
        _print_ways(found, console, names if len(files) > 1 else ())
    silent = [row for row in results if row.primary and row.verdict == "no evidence"]
    if (scale := scale_sentence(silent, words)) is not None:
        console.print(scale)


def print_unscored(
    files: Sequence[UnscoredFile],
    command: Sequence[str],
    words: Words,
    console: Terminal,
) -> None:
    """Verdict and remedy of files that were not scored."""
    for file in files:
        failed = [plain_name(test.name) for test in file.refusals]
        console.say(
            f"{file.benchmark}: {file.verdict}, not scored: {'; '.join(failed)}."
        )
        _print_ways(Advice(command, words).about_file(file), console)
        console.print("  --score-anyway scores it, and the verdict stays.")


def _print_ways(
    ways: Sequence[WayOut], console: Terminal, names: Sequence[str] = ()
) -> None:
    for i, way in enumerate(ways):
        line = "" if way.line is None else f": {way.line}"
        remedy = f"remedy for {told(names)}" if names else "remedy"
        console.say(f"  {'or' if i else remedy}: {way.words}{line}")


def _notes(file: AuditedFile, words: Words) -> list[str]:
    """What is said of a primary test: why, what was remembered, and how much."""
    test = file.test
    own = proof_words(words, test.method)
    if test.verdict == "invalid design" and own.found is not None:
        return [invalid_sentence(test, words).removeprefix(f"{test.benchmark}: ")]
    found: list[str | None] = []
    if test.verdict not in ("no evidence", "inconclusive"):
        found.append(why(file))
        if (pairs := pair_test(file)) is not None:
            found.append(attraction_sentence(pairs, test.verdict))
    if (referred := referred_test(file)) is not None:
        found.append(reference_sentence(referred))
    if not all(check.passed for check in test.pretests):
        found.append(own_order_sentence(test.pretests))
    return [note for note in found if note]
