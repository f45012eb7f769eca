"""Hidden parts of items, which a model is asked for: words, options, files of fixes.

A wrong option can hardly be worked out from the question, so a model that writes it has
seen it; a word often can be guessed from its sentence, which is why its rate says less.
Without the repository a model cannot look a file up. It can know the repository, guess
from how such projects are laid out, or have read the benchmark with its fixes.
"""

import dataclasses
import hashlib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

from jaxcontam.data.answer_options import Item
from jaxcontam.data.benchmark import Benchmark, fingerprint
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.replication.comparisons import (
    ComparisonInputs,
    ComparisonResult,
    Found,
    Issue,
    cdd,
    comparison_result,
    first_instances,
    words_version,
)
from jaxcontam.replication.control import Side, more_copies
from jaxcontam.replication.instances import ANY_WORD, filled
from jaxcontam.replication.overlap import (
    ReplicationVerdict,
    has_rouge_words,
    rouge_l,
    words_f1,
)
from jaxcontam.reports.terms import SUSPECTED_LEVEL
from jaxcontam.scoring.completer import answer_forms, is_answer, plain_text, readings

MASKED_WORD = (
    "One word of the text below, which is from the {split} split of the {dataset} "
    "dataset, is hidden behind {mask}. Answer with that one word alone.\n\n"
    "Text: {text}\n\nWord:"
)
MASKED_OPTION = (
    "Below stands a multiple-choice item from the {split} split of the {dataset} "
    "dataset. One of its wrong options is hidden behind {mask}. Answer with the text "
    "of that option alone, word for word as the dataset has it.\n\n"
    "{text}\n\nHidden option:"
)
FILE_PATH = (
    "Below stands an issue of a software project. Which one file has to be changed to "
    "resolve it? Answer with its path from the root of the repository alone.\n\n"
    "{text}\n\nFile:"
)
MASK = "[MASK]"
TS_GUESSING_VERSION = words_version("ts_guessing", MASKED_WORD, MASKED_OPTION)
"""Version of the questions' wording."""

# Letters of a word that may be hidden, at least.
_SHORTEST_WORD = 4
# ROUGE-L of the hidden option with one that stays to be read, at most.
_MOST_ALIKE = 0.65
_Place = TypeVar("_Place")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
# Options that anybody would guess.
_OBVIOUS_WORDS = """
yes no true false maybe none all both neither unknown unclear
positive negative neutral entailment contradiction
"""
_OBVIOUS = frozenset(_OBVIOUS_WORDS.split())
# Words of English that say little by themselves; shorter ones are never hidden.
_WORDS = """
about above across after again against almost along already also although always
among another anyone anything around aren't because been before behind being below
beneath beside besides between beyond both cannot can't could couldn't despite
didn't does doesn't doing done don't down during each either else enough even ever
every everyone everything except from further hadn't hasn't have haven't having
hence here hers herself himself however indeed inside instead into isn't it's itself
just least less like many maybe might mine more moreover most much must myself near
neither never nevertheless none nothing often once only onto other others otherwise
ought ours ourselves outside over perhaps quite rather really same several shall
should shouldn't since some someone something somewhat sometimes somewhere still
such than that that's their theirs them themselves then there there's thereby
therefore these they they're this those though through throughout thus together
toward towards under underneath unless unlike until upon very want wasn't we're well
were weren't what whatever what's when whenever where whereas wherever whether which
whichever while whoever whole whom whose will with within without won't would
wouldn't your you're yours yourself yourselves
"""
_FUNCTION_WORDS = frozenset(_WORDS.split())


def ts_guessing_word(
    asked: ComparisonInputs, progress: Progress | None = None
) -> Found:
    """Rate at which the model names a word that is hidden in a text.

    The text is the first one of a pair, and otherwise the whole instance. The word is
    drawn among those of four letters or more that are no function words and stand in
    the text once.

    Source:
        Deng et al. 2023, "Investigating Data Contamination in Modern Benchmarks",
        arXiv:2311.09783. They choose nouns, adjectives and verbs by a tagger; here a
        list of function words does, and a word that stands twice is not chosen.
    """
    hidden: list[tuple[int, str, str]] = []
    for instance in asked.instances:
        text = instance.first_piece
        if instance.cut != "pair":
            text = f"{text} {instance.second_piece}".strip()
        if (span := hidden_word(text, seed=asked.seed)) is not None:
            start, end = span
            masked = text[:start] + MASK + text[end:]
            hidden.append((instance.index, masked, text[start:end]))
    return _ask(
        hidden,
        asked,
        progress,
        method="ts_guessing_word",
        template=MASKED_WORD,
        max_tokens=20,
        of=(len(asked.instances), "text"),
        notes=(
            "A word can often be guessed from its sentence: compare the rate with that "
            "of a set that cannot have been seen.",
        ),
    )


def hidden_word(text: str, *, seed: int) -> tuple[int, int] | None:
    """Place of the word to hide, its begin and end; None if none may be hidden."""
    if MASK in text:
        return None
    words = [(match.span(), match[0].casefold()) for match in _WORD.finditer(text)]
    n_said = Counter(word for _, word in words)
    spans = [
        span
        for span, word in words
        if len(word) >= _SHORTEST_WORD
        and word not in _FUNCTION_WORDS
        and n_said[word] == 1
    ]
    return _drawn(spans, seed, text)


def ts_guessing_option(
    asked: ComparisonInputs, progress: Progress | None = None
) -> Found:
    """Rate at which the model writes a wrong option that is hidden in its item.

    Left out are items with fewer than three options or without a known right one, and
    wrong options that could be guessed: numbers, words such as `yes` or `none of the
    above`, and options much like one that stays to be read.

    Source:
        As `ts_guessing_word`. The code of LLMSanitize compares the answer with the
        right option, which is not hidden.
    """
    items = asked.items
    hidden = [
        (item.number - 1, _masked_item(item, place), item.options[place])
        for item in items
        if (place := hidden_option(item, seed=asked.seed)) is not None
    ]
    texts = [one.text(range(len(one.options))) for one in items]
    asked = dataclasses.replace(asked, fingerprint=fingerprint(texts))
    return _ask(
        hidden,
        asked,
        progress,
        method="ts_guessing_option",
        template=MASKED_OPTION,
        max_tokens=50,
        of=(len(items), "item"),
    )


def hidden_option(item: Item, *, seed: int) -> int | None:
    """Place of the wrong option to hide; None if none may be hidden."""
    text = item.text(range(len(item.options)))
    if item.answer is None or len(item.options) < 3 or MASK in text:
        return None
    places = [
        place
        for place, option in enumerate(item.options)
        if place != item.answer and not _is_guessable(place, option, item.options)
    ]
    return _drawn(places, seed, text)


def _is_guessable(place: int, option: str, options: Sequence[str]) -> bool:
    plain = plain_text(option)
    if not any(map(str.isalpha, plain)) or plain.split()[0] in _OBVIOUS:
        return True
    return any(
        plain_text(other) == plain or _overlap(option, other) > _MOST_ALIKE
        for j, other in enumerate(options)
        if j != place
    )


def _overlap(option: str, other: str) -> float:
    """ROUGE-L, or the same share of words of an alphabet that ROUGE does not know."""
    if has_rouge_words(option):
        return rouge_l(option, other).f1
    a, b = (ANY_WORD.findall(text.casefold()) for text in (option, other))
    return words_f1(a, b)


def _masked_item(item: Item, place: int) -> str:
    """The item's text with one option hidden; quotes round it stay."""

    def shown(part: str | int) -> str:
        if isinstance(part, str):
            return part
        source = item.sources[part]
        if part != place:
            return source
        is_quoted = len(source) > 1 and source[0] == source[-1] == '"'
        return f'"{MASK}"' if is_quoted else MASK

    return "".join(map(shown, item.parts))


def _drawn(places: Sequence[_Place], seed: int, text: str) -> _Place | None:
    """A place that depends on the seed and the text alone; None where there is none."""
    digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest[:8], "big")
    return places[number % len(places)] if places else None


def _ask(
    hidden: list[tuple[int, str, str]],
    asked: ComparisonInputs,
    progress: Progress | None,
    *,
    method: str,
    template: str,
    max_tokens: int,
    of: tuple[int, str],
    notes: tuple[str, ...] = (),
) -> Found:
    """Ask for each hidden text; `hidden` holds (index, masked text, its secret)."""
    n_all, what = of
    if not hidden:
        raise InputError(
            f"{asked.benchmark.name}: {method}: no {what} of {n_all} has anything "
            "to hide",
            hint="leave out this method for this benchmark",
        )
    rows = asked_rows(hidden, template, max_tokens, asked, progress)
    n_out, warnings = n_all - len(rows), notes
    if n_out:
        warnings = (f"{n_out} of {n_all} {what}s have nothing to hide.", *notes)
    return hidden_result(rows, method, asked, warnings=warnings), rows


def asked_rows(
    hidden: Sequence[tuple[int, str, str]],
    template: str,
    max_tokens: int,
    asked: ComparisonInputs,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Rows of answers; `hidden` holds (index, text to read, its secret)."""
    names = {"dataset": asked.dataset, "split": asked.split, "mask": MASK}
    prompts = [filled(template, text=text, **names) for _, text, _ in hidden]
    answers = asked.completer.complete(
        prompts,
        max_tokens=min(max_tokens, asked.max_tokens),
        seed=asked.seed,
        progress=progress,
    )
    rows = []
    for (index, _, word), (answer,) in zip(hidden, answers, strict=True):
        given, is_refused = readings(answer.text), bool(answer.refused)
        row = {"index": index, "hidden": word, "answer": answer.text}
        row |= {"refused": is_refused, "found": None, "rouge_l": None}
        if not is_refused:
            row["found"] = is_answer(word, given)
            if has_rouge_words(word):
                shares = (rouge_l(word, one).f1 for one in given)
                row["rouge_l"] = max(shares, default=0.0)
        rows.append(row)
    return rows


def hidden_result(
    rows: list[dict[str, Any]], method: str, asked: ComparisonInputs, **fields: Any
) -> ComparisonResult:
    """Result of answers that are what was hidden, with the rate by chance."""
    answered = [row for row in rows if not row["refused"]]
    n_found = sum(row["found"] for row in answered)
    given = [readings(row["answer"]) for row in answered]
    finding = "refused"
    if answered:
        finding = f"{n_found} of {len(answered)} answers match what was hidden"
        measured = [row["rouge_l"] for row in answered if row["rouge_l"] is not None]
        if measured:
            finding += f"; mean ROUGE-L {statistics.fmean(measured):.3f}"
    return comparison_result(
        asked,
        method,
        n_instances=len(rows),
        n_found=n_found,
        n_answered=len(answered),
        n_refused=len(rows) - len(answered),
        chance=rate_by_chance([row["hidden"] for row in answered], given),
        finding=finding,
        setting=TS_GUESSING_VERSION,
        **fields,
    )


def rate_by_chance(
    hidden: Sequence[str], given: Sequence[tuple[str, ...]]
) -> float | None:
    """Rate at which answers match what was hidden in other items; None for one item."""
    n = len(hidden)
    if n < 2:
        return None
    places: dict[str, set[int]] = defaultdict(set)
    for i, text in enumerate(hidden):
        for form in answer_forms(text):
            places[form].add(i)
    n_other = 0
    for i, one in enumerate(given):
        met = set().union(*(places[form] for form in one if form in places))
        n_other += len(met - {i})
    return n_other / (n * (n - 1))


_ISSUE_FIELDS = ("problem_statement", "issue", "text")
_FILE_FIELDS = ("file", "path")
_CHANGED = re.compile(r"^--- a/(\S+)$", re.MULTILINE)
_MAX_TOKENS = 50
_KNOWN = (
    "A model that knows a repository can name its files without having read the "
    "benchmark"
)
_NOT_INDEPENDENT = (
    "The p-value assumes independent issues, but issues of one repository are not, and "
    "no record names its repository (repo)"
)


def read_issues(benchmark: Benchmark) -> list[Issue]:
    """Issues whose fix changes one file, which they do not name; copies once.

    Records have `problem_statement`, `issue` or `text`, and `patch` (a unified diff, as
    SWE-bench has it), `file` or `path`; the model is told `repo`, if there is one.
    """
    found: dict[str, Issue] = {}
    for index, row in enumerate(benchmark.rows):
        if row is None:
            continue
        text = next((row[name] for name in _ISSUE_FIELDS if name in row), None)
        files = {row[name] for name in _FILE_FIELDS if isinstance(row.get(name), str)}
        if isinstance(patch := row.get("patch"), str):
            files = {*_CHANGED.findall(patch)}
        if not isinstance(text, str) or len(files) != 1:
            continue
        (file,) = map(str, files)
        if PurePosixPath(file).name.casefold() in text.casefold():
            continue
        repository = str(row.get("repo") or "")
        asked = f"Repository: {repository}\n\n{text}" if repository else text
        found.setdefault(asked, Issue(index, asked, file, repository))
    if not found:
        raise InputError(
            f"{benchmark.name}: file_path: no issue of {len(benchmark)} whose fix "
            "changes one file that it does not name",
            hint="give records with problem_statement, issue or text, and patch, file "
            "or path, or leave out this method",
        )
    return list(found.values())


def file_path(asked: ComparisonInputs, progress: Progress | None = None) -> Found:
    """Rate at which the model names the file from the issue alone, beside a control.

    Null hypothesis of the p-value: a file is as easy to name in the control. It is at
    most suspicion: repositories that are better known, or laid out in a plainer way,
    are named more often without the benchmark having been read. Repositories change
    sides whole, as `beside_control` exchanges sources; without their names issues are
    taken as independent. A refusal is a miss in the benchmark and a hit in the control,
    so that none makes the p-value smaller.

    Source:
        Liang, Garg and Moghaddam, "The SWE-Bench Illusion", arXiv:2506.12286: up to 76
        % on SWE-bench Verified, up to 53 % on repositories outside it. The test, and
        leaving out issues that name the file, are ours.
    """
    issues = asked.issues
    texts = [f"{one.text}\n{one.file}" for one in issues]
    asked = dataclasses.replace(asked, fingerprint=fingerprint(texts))
    hidden = [
        (one.index, one.text, one.file) for one in (*issues, *asked.control_issues)
    ]
    rows = asked_rows(hidden, FILE_PATH, _MAX_TOKENS, asked, progress)
    own, theirs = rows[: len(issues)], rows[len(issues) :]
    found = hidden_result(own, "file_path", asked)
    n, n_control = len(own), len(theirs)
    n_refused = sum(row["refused"] for row in theirs)
    n_met = sum(bool(row["found"]) for row in theirs)
    p_value: float | None = None
    verdict: ReplicationVerdict | None = None
    warnings = [_KNOWN]
    repositories = [one.repository for one in (*issues, *asked.control_issues)]
    if not all(repositories):
        # One value for all would say that they belong together.
        repositories = []
        warnings.append(_NOT_INDEPENDENT)
    words = f"{found.n_found} of {n} files are named"
    if not n_control:
        warnings.append("file_path has no control (--control), so it gives no verdict")
    elif found.n_refused < n:
        met = [bool(row["found"]) or row["refused"] for row in theirs]
        control = Side(copies=met, groups=repositories[n:])
        named = [bool(row["found"]) for row in own]
        answered = [not row["refused"] for row in own]
        # The second says what all answers being right would have given.
        sides = (
            Side(copies=copies, groups=repositories[:n]) for copies in (named, answered)
        )
        p_value, smallest = (
            more_copies(side, control, seed=asked.seed).p_value for side in sides
        )
        verdict = "inconclusive"
        if p_value <= SUSPECTED_LEVEL:
            verdict = "suspected"
        elif smallest <= SUSPECTED_LEVEL:
            verdict = "no evidence"
        words += f", {n_met} of {n_control} of the control, p {p_value:.2g}"
    if found.n_refused or n_refused:
        words += (
            f"; {found.n_refused} refused, counted as misses, and {n_refused} of the "
            "control, counted as named"
        )
    result = dataclasses.replace(
        found,
        finding=words if found.n_refused < n else "refused",
        setting=words_version("file_path", FILE_PATH),
        n_control=n_control - n_refused,
        n_control_found=n_met,
        n_control_refused=n_refused,
        p_control=p_value,
        verdict=verdict,
        warnings=tuple(warnings),
    )
    return result, rows


COMPARISONS: Mapping[str, Callable[[ComparisonInputs, Progress | None], Found]] = {
    "first_instances": first_instances,
    "cdd": cdd,
    "ts_guessing_word": ts_guessing_word,
    "ts_guessing_option": ts_guessing_option,
    "file_path": file_path,
}
"""Methods of `--compare`, which ask for something else than the second piece."""
