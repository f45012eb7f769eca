"""Print an audit: checks, the table, notes of each benchmark, remedies.

Also any table on the terminal, that of a page or of order tests.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxcontam.proof.advice import (
    AuditedFile,
    Step,
    audited_files,
    effect_words,
    in_short,
    next_steps,
    plain_name,
    proof_words,
    told,
    why,
    why_inconclusive,
)
from jaxcontam.proof.result import MembershipResult, OrderResult, UnscoredFile
from jaxcontam.proof.sentences import (
    attraction_sentence,
    commitment_sentence,
    invalid_sentence,
    own_order_sentence,
    pair_test,
    reference_sentence,
    referred_test,
)
from jaxcontam.reports import page
from jaxcontam.reports.methods import Words
from jaxcontam.reports.numbers import p_text
from jaxcontam.stats.result import Pretest
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import visible

_VERDICT_STYLE = {
    "contaminated": "bold red",
    "suspected": "yellow",
    "invalid design": "magenta",
    "inconclusive": "dim",
}
# Columns from which standard errors fit.
_WIDE = 100
# Longer names are folded where the terminal is narrow, to no less than this.
_NAME_WIDTH = 16


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
    results: list[OrderResult],
    command: Sequence[str],
    words: Words,
    console: Terminal,
    *,
    explain: bool,
) -> None:
    """Print decided results, and of each file in a line why, and what to do next.

    `explain` gives reasons, notes and next steps in full.
    """
    print_results(results, console)
    files = audited_files(results)
    if not explain:
        lines: dict[tuple[str, str], list[str]] = {}
        for file in files:
            lines.setdefault(_line(file, command, words), []).append(
                file.test.benchmark
            )
        for line, names in lines.items():
            _print_line(f"{told(names)}: ", *line, console)
        if n := len({words for file in files for words in file.test.warnings}):
            warnings = f"{n} warning{'s' if n > 1 else ''}"
            console.print(f"{warnings}, in the report and with --explain")
        for file in files:
            if sealed := commitment_sentence(file.test):
                console.print(f"{file.test.benchmark}: {sealed}")
        return
    notes: dict[str, list[str]] = {}
    ways: dict[tuple[Step, ...], list[str]] = {}
    for file in files:
        name = file.test.benchmark
        for note in (*file.test.warnings, *_notes(file, words)):
            notes.setdefault(note, []).append(name)
        ways.setdefault(next_steps(file, command, words), []).append(name)
    for note, names in notes.items():
        console.print(f"{told(names)}: {note}")
    for found, names in ways.items():
        _print_steps(found, console, names if len(files) > 1 else ())


def print_unscored(
    files: Sequence[UnscoredFile],
    command: Sequence[str],
    words: Words,
    console: Terminal,
    *,
    explain: bool,
) -> None:
    """Verdict and next step of files that were not scored."""
    for file in files:
        if not explain:
            said, step = _line(file, command, words)
            name = f"{file.benchmark}: {file.verdict}, not scored: "
            _print_line(name, said, step, console)
            continue
        failed = [plain_name(test.name) for test in file.refusals]
        console.say(
            f"{file.benchmark}: {file.verdict}, not scored: {'; '.join(failed)}."
        )
        _print_steps(next_steps(file, command, words), console)
        console.print("  --order anyway scores it; the verdict stays the same.")


def _line(
    file: AuditedFile | UnscoredFile, command: Sequence[str], words: Words
) -> tuple[str, str]:
    """Why, and what to do next, in a few words each."""
    steps = next_steps(file, command, words)
    flags = [
        f"{step.to_add or step.words}{' if shuffled' * step.if_shuffled}"
        for step in steps
    ]
    said = in_short(file, words).replace("per example boundary", "per boundary")
    return said, (f"-> {' or '.join(flags)}" if flags else "")


def _print_line(name: str, said: str, step: str, console: Terminal) -> None:
    if len(line := f"{name}{said} {step}".strip()) <= console.width:
        console.print(line)
        return
    console.print(f"{name}{said}")
    if step:
        # Flags are copied: never broken over lines.
        console.say(f"  {step}")


def _print_steps(
    steps: Sequence[Step], console: Terminal, names: Sequence[str] = ()
) -> None:
    for i, step in enumerate(steps):
        remedy = f"remedy for {told(names)}" if names else "remedy"
        begin = f"  {'or' if i else remedy}: "
        if step.flags and len(f"{begin}{step}") > console.width:
            console.print(f"{begin}{step.words}")
            # Flags are copied: never broken over lines.
            console.say(f"    ({step.to_add})")
        else:
            console.print(f"{begin}{step}")


def _notes(file: AuditedFile, words: Words) -> list[str]:
    test = file.test
    own = proof_words(words, test.method)
    if test.verdict == "invalid design" and own.found is not None:
        return [invalid_sentence(test, words).removeprefix(f"{test.benchmark}: ")]
    is_silent = test.verdict in ("no evidence", "inconclusive")
    pairs = None if is_silent else pair_test(file)
    referred = referred_test(file)
    is_random = all(check.passed for check in test.pretests)
    # Its warnings already say that all orders score alike.
    is_open = test.verdict == "inconclusive" and not test.numbers.all_alike
    found = (
        commitment_sentence(test),
        None if is_silent else why(file),
        f"inconclusive: {why_inconclusive(test, own)}." if is_open else None,
        pairs and attraction_sentence(pairs, test.verdict),
        referred and reference_sentence(referred),
        None if is_random else own_order_sentence(test.pretests),
    )
    return [note for note in found if note]


def bare_table(
    header: Sequence[str],
    rows: Iterable[Sequence[RenderableType]] = (),
    *,
    words: Container[int] = (0,),
    gap: int = 1,
    fold: bool = False,
) -> Table:
    """A table without lines, whose first column is folded where it has no room.

    Columns not among `words` are numbers, at the right; `gap` blanks stand between
    columns; `fold` folds all of them.
    """
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold")
    for i, name in enumerate(header):
        folded = fold or not i
        table.add_column(
            name,
            justify="left" if i in words else "right",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
        )
    for cells in rows:
        table.add_row(*cells)
    return table


def first_that_fits(tables: Sequence[Table], console: Console) -> tuple[Table, int]:
    """The first table that the terminal has room for, and the width it needs.

    The widest comes first. Where none fits the last is as wide as it must be, and is
    printed with `crop=False`: a number cut short is wrong.
    """
    unbound = console.options.update(max_width=1_000)
    for table in tables:
        needed = Measurement.get(console, unbound, table).maximum
        if needed <= console.width:
            return table, needed
    tables[-1].width = needed = Measurement.get(console, unbound, tables[-1]).maximum
    return tables[-1], needed


def print_table(
    table: page.Table, console: Console, *, most: int | None = None
) -> None:
    """Print a table of words as a page shows it; `most` rows, all unless given."""
    n = len(table.header)
    words = range(n) if table.is_text else (0, *table.words)
    cells = ([Text(visible(str(cell))) for cell in row] for row in table.rows[:most])
    console.print(bare_table(table.header, cells, words=words, fold=True))


def print_results(
    results: Sequence[OrderResult | MembershipResult], console: Console
) -> None:
    """One line a benchmark: the primary test, then what stands beside it.

    Where not the same test decides everywhere, each that does has a column, and a star
    stands before the p-value that decides. Where the terminal is narrow, standard
    errors are left out, then the effect.
    """
    names = ("benchmark", *(visible(result.benchmark) for result in results))
    longest = max(map(len, names))
    name_width = min(longest, _NAME_WIDTH)
    kinds = ((True, console.width >= _WIDE), (True, False), (False, False))
    tables = [_table(results, effect=effect, errors=errors) for effect, errors in kinds]
    for table in tables:
        table.columns[0].width = name_width
    table, needed = first_that_fits(tables, console)
    spare = max(0, console.width - needed)
    table.columns[0].width = min(longest, name_width + spare)
    console.print(table, crop=False)


def _table(
    results: Sequence[OrderResult | MembershipResult], *, effect: bool, errors: bool
) -> Table:
    primaries = [r for r in results if isinstance(r, OrderResult) and r.primary]
    names = {primary.benchmark for primary in primaries}
    by_place = {(r.benchmark, r.method): r for r in results if r.benchmark in names}
    by_place |= {(primary.benchmark, primary.method): primary for primary in primaries}
    methods = dict.fromkeys(method for _, method in by_place)
    decide = {primary.method for primary in primaries}
    deciding = [method for method in methods if method in decide]
    beside = [method for method in methods if method not in decide]
    scores = {r.method for r in by_place.values() if isinstance(r, MembershipResult)}
    has_copies = any(result.copies is not None for result in results)
    unit = primaries[0].effect_unit.replace("per example", "/")

    columns = ["benchmark", *(["copies"] if has_copies else [])]
    columns += [f"p\n{method}" for method in deciding] + ["verdict"]
    if effect:
        columns.append(f"effect\n{unit if errors else unit.split(' /')[0]}")
    columns += [f"{'AUC' if m in scores else 'p'}\n{m}" for m in beside]
    table = bare_table(columns, words=(0, columns.index("verdict")))
    for primary in primaries:
        name, verdict = primary.benchmark, primary.verdict or ""
        cells: list[str | Text] = [Text(visible(name))]
        cells += [str(primary.copies)] if has_copies else []
        for method in deciding:
            star = "*" if len(deciding) > 1 and primary.method == method else ""
            cells.append(star + _cell(by_place.get((name, method))))
        cells.append(Text(verdict, style=_VERDICT_STYLE.get(verdict, "")))
        if effect:
            se = primary.numbers.effect_se if errors else None
            cells.append(effect_words(primary.numbers.effect, se))
        cells += [_cell(by_place.get((name, m)), errors=errors) for m in beside]
        table.add_row(*cells)
    return table


def _cell(
    result: OrderResult | MembershipResult | None, *, errors: bool = False
) -> str:
    if result is None:
        return ""
    if isinstance(result, MembershipResult):
        return effect_words(result.auc, result.auc_se if errors else None)
    return p_text(result.numbers.log10_p, result.validity)
