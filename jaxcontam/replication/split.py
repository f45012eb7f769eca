"""Instances of a partition: which are drawn, and where each is cut in two.

Draws and cuts are functions of the seed and of the texts. The file's order does not
count, and the first ten of fifty instances are those that a draw of ten gives.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Collection, Sequence

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.templates import is_missing
from jaxcontam.errors import InputError
from jaxcontam.replication.fields import Fields
from jaxcontam.replication.instance import Cut, Instance, text_key

# Between these shares of the words a text of several sentences is cut, if it can be.
_MIDDLE = (0.3, 0.7)
# The same where it is cut inside a sentence; the paper leaves 30 to 60 % to the model.
_INSIDE = (0.4, 0.7)
# A piece of fewer words says little, so no cut at a sentence leaves one.
_FEWEST_WORDS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Instances that were drawn, and what was left out.

    Attributes:
        n_too_short: Texts of one word or null, and pairs with an empty side; never
            drawn.
        n_duplicates: Examples whose text stands in the file before; never drawn.
        n_elsewhere: Examples whose text stands more than once in both files together;
            never drawn.
    """

    instances: tuple[Instance, ...]
    n_rows: int
    n_too_short: int
    n_duplicates: int
    n_elsewhere: int
    fingerprint: str
    warnings: tuple[str, ...]


def draw_instances(
    benchmark: Benchmark,
    fields: Fields,
    *,
    k: int,
    seed: int,
    label_names: Sequence[str] = (),
    group_field: str | None = None,
    elsewhere: Collection[str] = (),
) -> Drawn:
    """Draw k instances at random without replacement, and cut each in two.

    A file of fewer than k gives all that it has, with a warning. `label_names` are
    those of the labels 0, 1, ...; label 1 is then written as `1 (entailment)`.
    `group_field` names the source that instances have in common; texts of `elsewhere`,
    by `text_keys`, are never drawn.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, section 3.1. Their code cuts every text
        at one and the same share and joins its pieces with single spaces; here the
        share differs between texts, and line breaks stay.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    groups = None if group_field is None else benchmark.groups(group_field)
    # By content: texts, label and place of its first row, whatever the file's order is.
    rows: dict[str, tuple[tuple[str, ...], str, int]] = {}
    n_too_short = n_elsewhere = 0
    for index in range(len(benchmark)):
        texts = fields.texts_of(benchmark, index)
        is_short = len(texts) == 1 and len(texts[0].split()) < 2
        if is_short or not all(text.strip() for text in texts):
            n_too_short += 1
            continue
        key = text_key(*texts)
        if key in elsewhere:
            n_elsewhere += 1
            continue
        row = texts, _label(fields.label_of(benchmark, index), label_names), index
        rows[key] = min(rows.get(key, row), row)
    if not rows and n_elsewhere:
        raise InputError(
            f"{benchmark.name}: all its instances stand more than once in both files "
            "together",
            hint="a control holds other instances, which cannot have been seen",
        )
    if not rows:
        raise InputError(
            f"{benchmark.name}: no text can be cut in two",
            hint="every text has a single word, or one side of every pair is empty",
        )
    drawn = sorted(rows.values(), key=lambda row: _digest(seed, "draw", *row[0]))[:k]
    instances = tuple(
        _cut_instance(*row, None if groups is None else str(groups[row[-1]]), seed)
        for row in drawn
    )
    n_unlabelled = sum(one.label is None for one in instances) if fields.label else 0
    warnings = list(benchmark.left_out)
    if len(instances) < k:
        warnings.append(f"only {len(instances)} of {k} instances could be drawn")
    if n_unlabelled:
        warnings.append(f"{n_unlabelled} of {len(instances)} instances have no label")
    return Drawn(
        instances=instances,
        n_rows=len(benchmark),
        n_too_short=n_too_short,
        n_duplicates=len(benchmark) - n_too_short - n_elsewhere - len(rows),
        n_elsewhere=n_elsewhere,
        fingerprint=instances_fingerprint(instances),
        warnings=tuple(warnings),
    )


def text_keys(benchmark: Benchmark, fields: Fields) -> list[str]:
    """`text_key` of every example."""
    return [
        text_key(*fields.texts_of(benchmark, index)) for index in range(len(benchmark))
    ]


def cut_text(text: str, *, seed: int) -> tuple[str, str, Cut] | None:
    """Cut a text at a random sentence, or inside its only sentence at a random word.

    Both pieces keep their characters, but for the space around the text and the one run
    of space at the cut. None for fewer than two words.
    """
    text = text.strip()
    words = _word_starts(text)
    if len(words) < 2:
        return None
    rng = np.random.default_rng(int.from_bytes(_digest(seed, "cut", text)))
    places = {place: number for number, place in enumerate(words)}
    starts = [
        place
        for place in sentence_starts(text)
        if _FEWEST_WORDS <= places[place] <= len(words) - _FEWEST_WORDS
    ]
    kind: Cut = "sentence" if starts else "inside"
    if starts:
        shares = [places[place] / len(words) for place in starts]
        low, high = _MIDDLE
        middle = [p for p, s in zip(starts, shares, strict=True) if low <= s <= high]
        nearest = min(zip(shares, starts, strict=True), key=lambda x: abs(x[0] - 0.5))
        place = middle[rng.integers(len(middle))] if middle else nearest[1]
    else:
        low, high = _INSIDE
        most = max(1, min(int(high * len(words)), len(words) - _FEWEST_WORDS))
        fewest = min(most, math.ceil(low * len(words)))
        place = words[rng.integers(fewest, most + 1)]
    return text[:place].rstrip(), text[place:], kind


def instances_fingerprint(instances: Sequence[Instance]) -> str:
    """Digest of the instances in their order: pieces, labels and cuts, not places."""
    content = [
        [one.first_piece, one.second_piece, one.label, one.cut] for one in instances
    ]
    words = json.dumps(content, ensure_ascii=True).encode()
    return "sha256:" + hashlib.sha256(words).hexdigest()


def _cut_instance(
    texts: tuple[str, ...], label: str, index: int, group: str | None, seed: int
) -> Instance:
    if len(texts) == 2:
        first, second, cut = texts[0].strip(), texts[1].strip(), "pair"
    else:
        found = cut_text(texts[0], seed=seed)
        assert found is not None
        first, second, cut = found
    return Instance(
        index=index,
        first_piece=first,
        second_piece=second,
        label=label or None,
        cut=cut,
        group=group,
    )


def _word_starts(text: str) -> list[int]:
    return [
        place
        for place in range(len(text))
        if not text[place].isspace() and (place == 0 or text[place - 1].isspace())
    ]


def _label(value: object, names: Sequence[str]) -> str:
    """A label as the prompt shows it; "" for none, and for -1, which hides one."""
    if is_missing(value) or value == "" or str(value) == "-1":
        return ""
    if isinstance(value, bool) or not names:
        return value if isinstance(value, str) else json.dumps(value)
    text = str(value)
    if text in names:
        return f"{list(names).index(text)} ({text})"
    if not text.isdecimal() or int(text) >= len(names):
        raise InputError(
            f"label {text!r} has no name (there are {len(names)}: {', '.join(names)})",
            hint="--label-names takes the names of labels 0, 1, ... in this order",
        )
    return f"{text} ({names[int(text)]})"


def _digest(seed: int, *words: str) -> bytes:
    return hashlib.sha256(json.dumps([seed, *words]).encode()).digest()


# The mark, closing quotes and brackets, and the space behind them. A mark with space
# before it ends no sentence, but one behind it does; a run of marks is tried but once.
_END = re.compile(
    r"""(?<![.!?\u2026])(?:(?<=\S)|[.!?\u2026])([.!?\u2026]++)["'\u201d\u2019)\]]*+\s+"""
)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_ABBREVIATIONS = re.compile(
    "mr|mrs|ms|dr|prof|rev|gen|sen|rep|gov|capt|col|lt|sgt|st|jr|sr|vs|etc|inc|ltd|co|"
    "corp|dept|est|fig|figs|eq|vol|ed|eds|pp|sec|approx|ca|cf|al|jan|feb|mar|apr|jun|"
    "jul|aug|sep|sept|oct|nov|dec|mt|ave|blvd|rd|univ"
)
# Longer than any abbreviation, so a look back stays short in texts without spaces.
_LOOK_BACK = 24


def sentence_starts(text: str) -> list[int]:
    """Places at which a sentence begins, but for the first one.

    A sentence ends with a full stop, an exclamation or question mark or an ellipsis,
    before a space and what is no small letter; not after an abbreviation, an initial or
    letters with dots between them; and before a blank line. It misses sentences without
    a space between them, and those that begin with a small letter.
    """
    starts = {
        match.end()
        for match in _END.finditer(text)
        if match.end() < len(text)
        and not text[match.end()].islower()
        and not _is_abbreviated(text, match)
    }
    starts |= {match.end() for match in _BLANK_LINE.finditer(text)}
    first = len(text) - len(text.lstrip())
    return sorted(start for start in starts if first < start < len(text))


def _is_abbreviated(text: str, end: re.Match[str]) -> bool:
    if end[1] != ".":
        return False
    before = text[max(0, end.start(1) - _LOOK_BACK) : end.start(1)].split()
    word = re.split(r"""["'(\[\u201c\u2018-]""", before[-1])[-1] if before else ""
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    has_dots = "." in word.strip(".")
    return is_initial or has_dots or bool(_ABBREVIATIONS.fullmatch(word.lower()))
