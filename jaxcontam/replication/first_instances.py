"""Ask a model for the first instances of a split, and see what it writes."""

import re
from collections.abc import Mapping, Sequence

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.progress import Progress
from jaxcontam.replication.questions import (
    FIRST_INSTANCES,
    ComparisonInputs,
    Found,
    filled,
    words_version,
)
from jaxcontam.replication.result import ComparisonResult, ReplicationVerdict
from jaxcontam.replication.rouge import ANY_WORD, stands_within, words_f1
from jaxcontam.scoring.completer import without_thoughts
from jaxcontam.stats.proportions import rate_interval

FIRST_INSTANCES_VERSION = words_version("first_instances", FIRST_INSTANCES)
"""Version of the question's wording."""

N_ASKED = 5
"""Instances asked for, and rows compared."""

FEWEST_WORDS = 8
"""Words of a row that can be told from chance, at least."""

NEAR = 0.75
"""F1 of the common words of a row and a line of the answer, at least."""

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
    of a first row; or all labels of a field, one of them uncommon. `nothing found`:
    nothing of that, which does not show that the model saw nothing. The source calls
    the first of these contaminated; here the verdict is at most `suspected`, for there
    is no control. The model is asked once, at temperature 0, for the split as it was
    published.

    Source:
        Sainz et al. 2023, "Did ChatGPT cheat on your test?", a blog post that sorts
        answers by hand into contaminated, suspicious and clean. The rule above is ours.
    """
    benchmark, names = asked.benchmark, asked.names
    n = min(N_ASKED, len(benchmark))
    prompt = filled(
        FIRST_INSTANCES, count=str(N_ASKED), dataset=names.dataset, split=names.split
    )
    ((completion,),) = asked.completer.complete(
        [prompt], max_tokens=asked.max_tokens, seed=asked.seed, progress=progress
    )
    answer = without_thoughts(completion.text)
    texts = [_texts_of_row(benchmark, i) for i in range(n)]
    rows = [_compared(i, row_texts, answer) for i, row_texts in enumerate(texts)]
    long_enough = [row for row in rows if row["match"] is not None]
    n_exact = sum(row["match"] == "exact" for row in rows)
    n_near = sum(row["match"] == "near" for row in rows)
    signs = format_signs(benchmark, n, answer)
    finding, verdict = _finding(n_exact, n_near, signs)
    warnings = []
    if completion.refused:
        finding, verdict = "refused", None
        warnings.append(f"The request was refused: {completion.refused}.")
    elif not answer:
        finding, verdict = "no answer", None
        warnings.append("The answer is empty.")
    elif len(long_enough) < n:
        warnings.append(
            f"{n - len(long_enough)} of {n} rows have fewer than {FEWEST_WORDS} words, "
            "too few to tell a copy from chance."
        )
    if signs and finding != "refused":
        warnings.append(f"The answer has of this file: {', '.join(signs)}.")
    n_found = n_exact + n_near
    rate, low, high = rate_interval(n_found, len(long_enough) if answer else 0)
    result = ComparisonResult(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        method="first_instances",
        n_instances=n,
        n_found=n_found,
        n_refused=int(bool(completion.refused)),
        rate=rate,
        rate_low=low,
        rate_high=high,
        finding=finding,
        setting=f"{FIRST_INSTANCES_VERSION}, {N_ASKED} instances",
        verdict=verdict,
        warnings=tuple(warnings),
    )
    return result, rows


def match_of(texts: Sequence[str], answer: str) -> str | None:
    """Copy of a row in an answer: `exact`, `near`, `no`, or None if it is short."""
    whole = [word for text in texts for word in _words(text)]
    longest = max((_words(text) for text in texts), key=len, default=[])
    needle = longest if len(longest) >= FEWEST_WORDS else whole
    if len(needle) < FEWEST_WORDS:
        return None
    if stands_within(needle, _words(answer)):
        return "exact"
    lines = [_words(line) for line in answer.splitlines()]
    close = any(
        words_f1(row, line) >= NEAR for line in lines for row in (needle, whole)
    )
    return "near" if close else "no"


def format_signs(benchmark: Benchmark, n: int, answer: str) -> tuple[str, ...]:
    """Words for what an answer has of the file beside its texts."""
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


def _finding(
    n_exact: int, n_near: int, signs: Sequence[str]
) -> tuple[str, ReplicationVerdict]:
    if n_exact or n_near > 1:
        # Nothing was asked that the model cannot know.
        return "copied", "suspected"
    if n_near or signs:
        return "suspicious", "no evidence"
    return "nothing found", "no evidence"


def _texts_of_row(benchmark: Benchmark, i: int) -> list[str]:
    row = benchmark.rows[i]
    if row is None:
        return [benchmark.texts[i]]
    return [text for text in _leaves(row) if text]


def _leaves(value: object) -> list[str]:
    """Texts and numbers anywhere in a record."""
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _leaves(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _leaves(inner)]
    return [] if value is None else [_value(value)]


def _compared(i: int, texts: Sequence[str], answer: str) -> dict:
    return {"index": i, "match": match_of(texts, answer) if answer else None}


def _value(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


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
    return any(
        len(word) > 2 and word not in _COMMON and not word.isdigit()
        for one in words
        for word in one
    )


def _is_identifier(value: str) -> bool:
    """True if a value looks like `dev_0042` or `Mercury_7175875`, not like 17."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return " " not in value and len(value) >= 4 and has_both
