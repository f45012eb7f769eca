"""TS-guessing: does a model know what is hidden in an item of a test set?

A word of a text, or a wrong option of a multiple-choice item. A wrong option can hardly
be worked out from the question, so a model that writes it has seen it; a word often can
be guessed from its sentence, which is why its rate says less.
"""

import dataclasses
import hashlib
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.options import Item
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.replication.instance import Completion, Instance
from jaxcontam.replication.questions import (
    MASK,
    MASKED_OPTION,
    MASKED_WORD,
    ComparisonInputs,
    Found,
    Names,
    filled,
    words_version,
)
from jaxcontam.replication.result import ComparisonResult
from jaxcontam.replication.rouge import ANY_WORD, has_rouge_words, rouge_l, words_f1
from jaxcontam.scoring.completer import answer_forms, is_answer, plain_text, readings
from jaxcontam.stats.proportions import rate_interval

TS_GUESSING_VERSION = words_version("ts_guessing", MASKED_WORD, MASKED_OPTION)
"""Version of the questions' wording."""

SHORTEST_WORD = 4
"""Letters of a word that may be hidden, at least."""

MOST_ALIKE = 0.65
"""ROUGE-L of the hidden option with one that stays to be read, at most."""

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
# Options that anybody would guess.
_OBVIOUS_WORDS = """
yes no true false maybe none all both neither unknown unclear
positive negative neutral entailment contradiction
"""
_OBVIOUS = frozenset(_OBVIOUS_WORDS.split())


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """A hidden part of a text or item, and the question about it."""

    method: str
    what: str
    template: str
    max_tokens: int


_WORD_KIND = _Kind("ts_guessing_word", "text", MASKED_WORD, 20)
_OPTION_KIND = _Kind("ts_guessing_option", "item", MASKED_OPTION, 50)


def ts_guessing_word(
    asked: ComparisonInputs, progress: Progress | None = None
) -> Found:
    """How often the model names a word that is hidden in a text.

    The text is the first one of a pair, such as the question, and otherwise the whole
    instance. The word is drawn among those of four letters or more that are no function
    words and stand in the text once; it is hidden as a whole word. With a text's own
    characters the seed decides its word.

    Source:
        Deng et al. 2023, "Investigating Data Contamination in Modern Benchmarks",
        arXiv:2311.09783. They choose nouns, adjectives and verbs by a tagger; here a
        list of function words does, and a word that stands twice is not chosen.
    """
    hidden: list[tuple[int, str, str]] = []
    for instance in asked.instances:
        text = _whole(instance)
        if (span := hidden_word(text, seed=asked.seed)) is not None:
            start, end = span
            masked = text[:start] + MASK + text[end:]
            hidden.append((instance.index, masked, text[start:end]))
    return _ask(hidden, _WORD_KIND, asked, len(asked.instances), progress)


def ts_guessing_option(
    asked: ComparisonInputs, progress: Progress | None = None
) -> Found:
    """How often the model writes a wrong option that is hidden in its item.

    The answer is compared with the hidden option, and with no other one. Left out are
    items with fewer than three options or without a known right one, and wrong options
    that could be guessed: numbers, words such as `yes` or `none of the above`, and
    options much like one that stays to be read. With an item's own characters the seed
    decides its hidden option.

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
    names = dataclasses.replace(asked.names, fingerprint=fingerprint(texts))
    asked = dataclasses.replace(asked, names=names)
    return _ask(hidden, _OPTION_KIND, asked, len(items), progress)


def hidden_word(text: str, *, seed: int) -> tuple[int, int] | None:
    """Where the word to hide begins and ends; None if no word may be hidden."""
    if MASK in text:
        return None
    words = [(match.span(), match[0].casefold()) for match in _WORD.finditer(text)]
    said = [word for _, word in words]
    spans = [
        span
        for span, word in words
        if len(word) >= SHORTEST_WORD
        and word not in FUNCTION_WORDS
        and said.count(word) == 1
    ]
    return spans[_draw(seed, text, len(spans))] if spans else None


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
    return places[_draw(seed, text, len(places))] if places else None


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


def _whole(instance: Instance) -> str:
    if instance.cut == "pair":
        return instance.first_piece
    return f"{instance.first_piece} {instance.second_piece}".strip()


def _is_guessable(place: int, option: str, options: Sequence[str]) -> bool:
    words = plain_text(option).split()
    if not any(map(str.isalpha, plain_text(option))) or words[0] in _OBVIOUS:
        return True
    return any(
        plain_text(other) == plain_text(option) or _overlap(option, other) > MOST_ALIKE
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


def _draw(seed: int, text: str, n: int) -> int:
    """A number below `n` that depends on the seed and the text alone; 0 for none."""
    digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % n if n else 0


def _ask(
    hidden: list[tuple[int, str, str]],
    kind: _Kind,
    asked: ComparisonInputs,
    n_all: int,
    progress: Progress | None,
) -> Found:
    """Ask for each hidden text; `hidden` holds (index, masked text, what is hidden)."""
    names = asked.names
    if not hidden:
        raise InputError(
            f"{names.benchmark}: {kind.method}: no {kind.what} of {n_all} has anything "
            "to hide",
            hint="leave this method out for this benchmark",
        )
    rows = asked_rows(hidden, kind.template, kind.max_tokens, asked, progress)
    warnings = []
    if n_left_out := n_all - len(rows):
        warnings.append(f"{n_left_out} of {n_all} {kind.what}s have nothing to hide.")
    if kind is _WORD_KIND:
        warnings.append(
            "A word can often be guessed from its sentence: compare the rate with that "
            "of a set that cannot have been seen."
        )
    found = hidden_result(rows, kind.method, names)
    return dataclasses.replace(found, warnings=tuple(warnings)), rows


def asked_rows(
    hidden: Sequence[tuple[int, str, str]],
    template: str,
    max_tokens: int,
    asked: ComparisonInputs,
    progress: Progress | None,
) -> list[dict]:
    """A row for each answer; `hidden` holds (index, text to read, what is hidden)."""
    names = asked.names
    prompts = [
        filled(template, mask=MASK, text=text, dataset=names.dataset, split=names.split)
        for _, text, _ in hidden
    ]
    answers = asked.completer.complete(
        prompts,
        max_tokens=min(max_tokens, asked.max_tokens),
        seed=asked.seed,
        progress=progress,
    )
    return [
        _row(index, word, answer)
        for (index, _, word), (answer,) in zip(hidden, answers, strict=True)
    ]


def _row(index: int, hidden: str, answer: Completion) -> dict:
    given = readings(answer.text)
    return {
        "index": index,
        "hidden": hidden,
        "answer": answer.text,
        "refused": bool(answer.refused),
        "found": None if answer.refused else is_answer(hidden, given),
        "rouge_l": None
        if answer.refused or not has_rouge_words(hidden)
        else max((rouge_l(hidden, one).f1 for one in given), default=0.0),
    }


def hidden_result(rows: list[dict], method: str, names: Names) -> ComparisonResult:
    """How many answers are what was hidden, with an interval and the rate by chance."""
    answered = [row for row in rows if not row["refused"]]
    n_found = sum(row["found"] for row in answered)
    rate, low, high = rate_interval(n_found, len(answered))
    chance = rate_by_chance(
        [row["hidden"] for row in answered],
        [readings(row["answer"]) for row in answered],
    )
    finding = "refused"
    if answered:
        finding = f"{n_found} of {len(answered)} answers are what was hidden"
        measured = [row["rouge_l"] for row in answered if row["rouge_l"] is not None]
        if measured:
            finding += f"; mean ROUGE-L {statistics.fmean(measured):.3f}"
    return ComparisonResult(
        benchmark=names.benchmark,
        fingerprint=names.fingerprint,
        method=method,
        n_instances=len(rows),
        n_found=n_found,
        n_refused=len(rows) - len(answered),
        rate=rate,
        rate_low=low,
        rate_high=high,
        chance=chance,
        finding=finding,
        setting=TS_GUESSING_VERSION,
    )


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

FUNCTION_WORDS = frozenset(_WORDS.split())
"""In lower case."""
