"""Other ways to ask: for the first instances of a split, and for many samples (CDD).

CDD finds samples that crowd round the greedy answer. A model that knows an answer by
heart writes it again and again also when it is asked to vary. So does one whose answer
can hardly be anything else, such as `Yes`, and one that has learnt another text with
the same beginning: read the rate beside that of a control set, and the overlap with the
file's own text beside the rate.
"""

import dataclasses
import hashlib
import json
import math
import re
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from jaxcontam.data.answer_options import Item
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.progress import Progress, progress_after
from jaxcontam.replication.instances import ANY_WORD, UNSPACED, Instance, filled
from jaxcontam.replication.overlap import (
    ReplicationVerdict,
    has_rouge_words,
    rouge_l,
    stands_within,
    words_f1,
)
from jaxcontam.reports.report import ResultRow
from jaxcontam.scoring.completer import Completer, Completion, without_thoughts
from jaxcontam.stats.proportions import rate_interval

Tokenize = Callable[[str], Sequence[Hashable]]


@dataclasses.dataclass(frozen=True, slots=True)
class Issue:
    """An issue, after the name of its repository if that is known, and its file."""

    index: int
    text: str
    file: str
    repository: str = ""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparisonInputs:
    """Inputs of a method that asks; `prompts` are one an instance."""

    benchmark: Benchmark
    completer: Completer
    fingerprint: str = ""
    dataset: str = ""
    split: str = ""
    instances: tuple[Instance, ...] = ()
    prompts: Sequence[str] = ()
    items: tuple[Item, ...] = ()
    issues: tuple[Issue, ...] = ()
    control_issues: tuple[Issue, ...] = ()
    tokenize: Tokenize | None = None
    n_samples: int = 20
    max_tokens: int = 500
    stop: tuple[str, ...] = ()
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult(ResultRow):
    """Findings of a method that asks otherwise; never the row that decides.

    Attributes:
        rate: Share of those answered; None where none was.
        chance: Rate by guessing; None where nobody knows.
        p_control: One-sided p-value of the rate beside the control's, as in
            `file_path`; None without a control.
        setting: Its parameters, such as `alpha=0.05, xi=0.01, 20 samples at 0.8`.
    """

    n_instances: int
    n_found: int
    n_refused: int = 0
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    chance: float | None = None
    n_control: int = 0
    n_control_found: int = 0
    n_control_refused: int = 0
    p_control: float | None = None
    finding: str
    setting: str
    verdict: ReplicationVerdict | None = None


Found = tuple[ComparisonResult, list[dict[str, Any]]]
"""A result, and a row of `texts.jsonl` for each answer."""


def comparison_result(
    asked: ComparisonInputs,
    method: str,
    *,
    n_found: int,
    n_answered: int,
    **fields: Any,
) -> ComparisonResult:
    """The result of a method that found `n_found` of those answered, with its rate."""
    rate, low, high = rate_interval(n_found, n_answered)
    return ComparisonResult(
        benchmark=asked.benchmark.name,
        fingerprint=asked.fingerprint,
        method=method,
        n_found=n_found,
        rate=rate,
        rate_low=low,
        rate_high=high,
        **fields,
    )


def words_version(name: str, *templates: str) -> str:
    """A name and a digest of words, for reports."""
    digest = hashlib.sha256("\0".join(templates).encode()).hexdigest()
    return f"{name}@{digest[:12]}"


FIRST_INSTANCES = (
    "Write down the first {count} instances of the {split} split of the {dataset} "
    "dataset, word for word as they stand in its published file and in their order. "
    "Give every field of each instance in the file's own format. Write nothing else."
)
# Instances asked for, and rows compared.
_N_ASKED = 5
# Words of a row that can be told from chance, at least.
_FEWEST_WORDS = 8
# F1 of the common words of a row and a line of the answer, at least.
_NEAR = 0.75
# Line ends and characters as JSON writes them inside a text.
_ESCAPED_END = re.compile(r"\\[nrt]")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
# Field names and labels that anybody would guess.
_COMMON_WORDS = """
text texts label labels id idx index title content sentence input output question answer
answers context category class score source target summary document
premise hypothesis sentence1 sentence2 sentence_1 sentence_2 question1 question2
text1 text2 text_a text_b gold_label passage paragraph article headline summary review
rating stars option options choice choices prompt response completion translation
yes no true false positive negative neutral entailment contradiction not_entailment
entailed contradicted equivalent duplicate
"""
_COMMON = frozenset(_COMMON_WORDS.split())
# A field of so few values is one of labels.
_MOST_LABELS = 20


def first_instances(asked: ComparisonInputs, progress: Progress | None = None) -> Found:
    """Ask the model for the first rows of the file: does it copy them, or their looks?

    `copied`: a row is copied (its longest text, or all its values where that one is
    short, stands in the answer word for word), or two are nearly (a line of the answer
    shares most words with them, in their order). `suspicious`: one is nearly copied; or
    the answer has all field names of the file, one of them uncommon; or an identifier
    of a first row; or all labels of a field, one of them uncommon. `nothing found` does
    not show that the model saw nothing. The source calls the first of these
    contaminated; here the verdict is at most `suspected`, for there is no control. The
    model is asked once, at temperature 0.

    Source:
        Sainz et al. 2023, "Did ChatGPT cheat on your test?", a blog post that sorts
        answers by hand into contaminated, suspicious and clean. The rule above is ours.
    """
    benchmark = asked.benchmark
    # The file whole, whatever instances were drawn.
    asked = dataclasses.replace(asked, fingerprint=benchmark.fingerprint)
    n = min(_N_ASKED, len(benchmark))
    prompt = filled(
        FIRST_INSTANCES, count=str(_N_ASKED), dataset=asked.dataset, split=asked.split
    )
    ((completion,),) = asked.completer.complete(
        [prompt], max_tokens=asked.max_tokens, seed=asked.seed, progress=progress
    )
    answer = without_thoughts(completion.text)
    matches = [
        match_of([text] if row is None else _leaves(row), answer) if answer else None
        for text, row in zip(benchmark.texts[:n], benchmark.rows, strict=False)
    ]
    n_exact, n_near, n_short = map(matches.count, ("exact", "near", None))
    signs = format_signs(benchmark, n, answer)
    finding: str = "nothing found"
    verdict: ReplicationVerdict | None = "no evidence"
    if n_exact or n_near > 1:
        # Nothing was asked that the model cannot know.
        finding, verdict = "copied", "suspected"
    elif n_near or signs:
        finding = "suspicious"
    warnings = []
    if completion.refused:
        finding, verdict = "refused", None
        warnings.append(f"The request was refused: {completion.refused}.")
    elif not answer:
        finding, verdict = "no answer", None
        warnings.append("The answer is empty.")
    elif n_short:
        warnings.append(
            f"{n_short} of {n} rows have fewer than {_FEWEST_WORDS} words, too few to "
            "tell a copy from chance."
        )
    if signs and finding != "refused":
        warnings.append(f"The answer contains from this file: {', '.join(signs)}.")
    version = words_version("first_instances", FIRST_INSTANCES)
    result = comparison_result(
        asked,
        "first_instances",
        n_instances=n,
        n_found=n_exact + n_near,
        n_answered=n - n_short,
        n_refused=int(bool(completion.refused)),
        finding=finding,
        setting=f"{version}, {_N_ASKED} instances",
        verdict=verdict,
        warnings=tuple(warnings),
    )
    return result, [{"index": i, "match": match} for i, match in enumerate(matches)]


def match_of(texts: Sequence[str], answer: str) -> str | None:
    """Copy of a row in an answer: `exact`, `near`, `no`, or None if it is short."""
    whole = [word for text in texts for word in _words(text)]
    longest = max((_words(text) for text in texts), key=len, default=[])
    needle = longest if len(longest) >= _FEWEST_WORDS else whole
    if len(needle) < _FEWEST_WORDS:
        return None
    if stands_within(needle, _words(answer)):
        return "exact"
    lines = [_words(line) for line in answer.splitlines()]
    close = any(
        words_f1(row, line) >= _NEAR for line in lines for row in (needle, whole)
    )
    return "near" if close else "no"


def format_signs(benchmark: Benchmark, n: int, answer: str) -> tuple[str, ...]:
    """Words for other things of the file that an answer has."""
    rows = [row for row in benchmark.rows if row is not None]
    if not rows:
        return ()
    said = set(_words(answer))
    spelled = set(re.findall(r"[^\s\"',;:(){}\[\]|]+", answer))
    signs = []
    names = list(rows[0])
    if len(names) > 1 and _all_said(names, said):
        signs.append(f"its field names ({', '.join(names)})")
    for name in names:
        values = [_value(row.get(name)) for row in rows]
        distinct = sorted(set(values) - {""})
        if 2 <= len(distinct) <= min(_MOST_LABELS, len(rows) // 2):
            if _all_said(distinct, said):
                signs.append(f"all labels of {name!r} ({', '.join(distinct)})")
        elif len(distinct) == len(rows):
            seen = [value for value in values[:n] if _is_identifier(value)]
            if found := [value for value in seen if value in spelled]:
                signs.append(f"an identifier ({found[0]})")
    return tuple(signs)


def _leaves(value: object) -> list[str]:
    """Texts and numbers anywhere in a record."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list):
        return [text for inner in value for text in _leaves(inner)]
    return [_value(value)]


def _value(value: object) -> str:
    return "" if value is None else str(value)


def _words(text: str) -> list[str]:
    """Words in lower case, the same ones whether the text is escaped or not."""
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    text = _ESCAPED_END.sub(" ", text)
    return ANY_WORD.findall(text.casefold())


def _all_said(names: Sequence[str], said: set[str]) -> bool:
    """True if an answer has all names, and one that is not common among them."""
    words = [_words(name) for name in names]
    if not all(one and set(one) <= said for one in words):
        return False
    rare = {word for one in words for word in one} - _COMMON
    return any(len(word) > 2 and not word.isdigit() for word in rare)


def _is_identifier(value: str) -> bool:
    """True if a value looks like `dev_0042` or `Mercury_7175875`, not like 17."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return " " not in value and len(value) >= 4 and has_both


# Sampling temperature.
_TEMPERATURE = 0.8
# Share of the longest answer that a copy may differ in.
_ALPHA = 0.05
# An instance is found if more than this share of its samples are copies.
_XI = 0.01
# Most tokens of an answer, and those of it that are compared.
_LENGTH = 100
# TED leaves out samples that differ from the greedy answer in so many tokens or fewer.
_TAU = 2
# Shorter answers can be alike by chance: at alpha 0.05 they must be equal.
_SHORT = 20
# ROUGE-L with the second piece below which an answer is another text.
_ANOTHER = 0.5
# Fields of a row that an empty or a refused answer leaves empty.
_MEASURED = (
    *("n_tokens", "distances", "peakedness", "found", "n_kept"),
    *("rouge_l_greedy", "rouge_l", "rouge_l_kept"),
)
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")


def cdd(asked: ComparisonInputs, progress: Progress | None = None) -> Found:
    """Peakedness of the answers to each prompt: a row an instance, and their rate.

    The paper takes 50 samples. Texts that end an answer keep a base model from going on
    with something new, which would vary.

    Source:
        Dong et al. 2024, "Generalization or Memorization", arXiv:2402.15938: CDD and
        TED, with the thresholds of the authors' code (a share of the longest answer,
        at most 100 tokens). Theirs calls an empty answer a copy of an empty one; here
        an instance with an empty greedy answer is left out.
    """
    instances, prompts, n_samples = asked.instances, asked.prompts, asked.n_samples
    total = len(prompts) * (1 + n_samples)
    ways = ((0.0, 1, 0), (_TEMPERATURE, n_samples, len(prompts)))
    greedy, sampled = (
        asked.completer.complete(
            prompts,
            max_tokens=min(_LENGTH, asked.max_tokens),
            temperature=temperature,
            n_samples=n,
            seed=asked.seed,
            stop=asked.stop,
            progress=progress_after(progress, done, total),
        )
        for temperature, n, done in ways
    )
    rows = [
        _row(instance, first, samples, asked.tokenize or words_and_marks)
        for instance, (first,), samples in zip(instances, greedy, sampled, strict=True)
    ]
    judged = [row for row in rows if row["found"] is not None]
    n_found = sum(row["found"] for row in judged)
    warnings = []
    if n_empty := sum(row["n_tokens"] == 0 for row in rows):
        warnings.append(
            f"{n_empty} greedy answers are empty (apart from reasoning) and left out: "
            "empty samples are all alike."
        )
    peaked = [row for row in judged if row["found"]]
    if n_short := sum(row["n_tokens"] < _SHORT for row in peaked):
        warnings.append(
            f"{n_short} of {n_found} peaked instances have a greedy answer of fewer "
            f"than {_SHORT} tokens: short answers can be alike without having been "
            "learned."
        )
    measured = [row for row in peaked if row["rouge_l_greedy"] is not None]
    if n_other := sum(row["rouge_l_greedy"] < _ANOTHER for row in measured):
        warnings.append(
            f"{n_other} of {n_found} peaked instances have a greedy answer unlike the "
            f"file's text (ROUGE-L below {_ANOTHER}): they recite another text."
        )
    if n_unread := sum(row["rouge_l_greedy"] is None for row in judged):
        warnings.append(
            f"{n_unread} of {len(judged)} instances are not mostly in Latin letters, "
            "the only ones that ROUGE-L counts: their overlap is not measured."
        )
    finding = (
        f"{n_found} of {len(judged)} instances are peaked" if judged else "refused"
    )
    if both := [row for row in judged if row["rouge_l_kept"] is not None]:
        names = ("rouge_l", "rouge_l_kept")
        before, after = (statistics.fmean(row[name] for row in both) for name in names)
        finding += f"; mean ROUGE-L of the samples {before:.3f}, by TED {after:.3f}"
    unit = "words and marks" if asked.tokenize is None else "tokens"
    setting = (
        f"alpha={_ALPHA:g}, xi={_XI:g}, {n_samples} samples at {_TEMPERATURE:g}, "
        f"{_LENGTH} {unit}, tau={_TAU}"
    )
    if asked.stop:
        setting += f", stop={json.dumps(list(asked.stop), ensure_ascii=False)}"
    found = comparison_result(
        asked,
        "cdd",
        n_instances=len(rows),
        n_found=n_found,
        n_answered=len(judged),
        n_refused=sum(row["n_refused"] for row in rows),
        finding=finding,
        setting=setting,
        warnings=tuple(warnings),
    )
    return found, rows


def _row(
    instance: Instance,
    greedy: Completion,
    samples: Sequence[Completion],
    tokenize: Tokenize,
) -> dict:
    answered = [sample for sample in samples if not sample.refused]
    row: dict[str, Any] = {
        "index": instance.index,
        "greedy": greedy.text,
        "refused": bool(greedy.refused) or not answered,
        "n_refused": sum(bool(c.refused) for c in (greedy, *samples)),
        "n_samples": len(answered),
    } | dict.fromkeys(_MEASURED)
    if row["refused"]:
        return row
    texts = [without_thoughts(sample.text) for sample in answered]
    written = without_thoughts(greedy.text)
    first = tokenize(written)
    tokens = [tokenize(text) for text in texts]
    row["n_tokens"] = len(first)
    if not first:
        return row
    share = peakedness(first, tokens)
    kept = ted_kept(first, tokens)
    row |= {
        "distances": token_distances(first, tokens),
        "peakedness": share,
        "found": share > _XI,
        "n_kept": len(kept),
    }
    if not has_rouge_words(instance.second_piece):
        return row
    overlaps = [rouge_l(instance.second_piece, text).f1 for text in texts]
    return row | {
        "rouge_l_greedy": rouge_l(instance.second_piece, written).f1,
        "rouge_l": statistics.fmean(overlaps),
        "rouge_l_kept": statistics.fmean(overlaps[i] for i in kept) if kept else None,
    }


def peakedness(
    greedy: Sequence[Hashable],
    samples: Sequence[Sequence[Hashable]],
    *,
    alpha: float = _ALPHA,
) -> float:
    """Share of samples that are copies of the greedy answer.

    A copy differs in at most `alpha` times the tokens of the longest answer, the
    greedy one among them.
    """
    longest = max(min(len(answer), _LENGTH) for answer in [greedy, *samples])
    # A product such as 0.29 * 100 is just below its whole number.
    most = math.floor(alpha * longest + 1e-9)
    distances = token_distances(greedy, samples)
    return sum(distance <= most for distance in distances) / len(samples)


def ted_kept(
    greedy: Sequence[Hashable], samples: Sequence[Sequence[Hashable]]
) -> tuple[int, ...]:
    """Places of the samples that TED keeps: far from the greedy answer, and unequal.

    They stand for a model that had not learnt the answer.
    """
    distances = token_distances(greedy, samples)
    kept: dict[tuple[Hashable, ...], int] = {}
    for place, (sample, distance) in enumerate(zip(samples, distances, strict=True)):
        if distance > _TAU:
            kept.setdefault(tuple(sample[:_LENGTH]), place)
    return tuple(kept.values())


def token_distances(
    greedy: Sequence[Hashable], samples: Sequence[Sequence[Hashable]]
) -> list[int]:
    """Fewest tokens to insert, delete or replace, from the greedy answer to each."""
    from rapidfuzz.distance import Levenshtein

    first = list(greedy[:_LENGTH])
    return [Levenshtein.distance(first, list(one[:_LENGTH])) for one in samples]


def words_and_marks(text: str) -> list[str]:
    """Runs of letters and digits, and each other character that is no white space."""
    return _TOKEN.findall(text)
