"""Multiple-choice items: spans of their options, and the right one.

The text of an item is its published source up to the end of the last option, without
the answer: an answer such as `B` names a place, which in another order of the options
is another option, and a model that merely knows the subject would prefer the published
order.

Options stand in a list of texts or of objects with a text, an object with a list of
texts or with a member for each letter, or fields such as A, B, C, D or option_a, ...
"""

import collections
import dataclasses
import json
import re
import string
from collections.abc import Mapping, Sequence

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.templates import (
    Path,
    csv_spans,
    is_missing,
    json_members,
    json_span,
    template_pieces,
    text_of_field,
    value_at,
)
from jaxcontam.errors import InputError

Rows = Sequence[tuple[Mapping[str, object], list[Path]]]
"""Records with the paths of their options."""


# What is asked may speak of a point B or of a first answer.
_ASKED = (
    *("question", "query", "problem", "goal", "stem", "prompt", "instruction"),
    *("input", "passage", "context", "article", "ctx", "ctx_a", "ctx_b", "sentence"),
    *("text", "q"),
)
_LIST_NAMES = (
    "choices",
    "options",
    "endings",
    "alternatives",
    "candidates",
    "candidate_answers",
    "answer_options",
    "answers",
)
# A=... B=..., option_a=..., opa=..., ending0=..., sol1=..., answerA=...
_FIELD_NAME = re.compile(
    r"(|option|opt|op|choice|ending|sol|answer|answer_option|alternative|candidate)"
    r"[_ ]?([A-Za-z]|\d)"
)
_ANSWER_NAMES = (
    "answer",
    "answerkey",
    "answer_key",
    "answer_index",
    "answer_idx",
    "answer_id",
    "answer_label",
    "label",
    "labels",
    "gold",
    "gold_index",
    "gold_idx",
    "correct",
    "correct_option",
    "correct_index",
    "correct_idx",
    "correct_choice",
    "correct_answer",
    "correct_answer_id",
    "target",
    "cop",
    "solution",
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A multiple-choice item.

    Attributes:
        parts: Text of the item: literals, and the places of options as integers.
        answer: Place of the right option, 0-based; None if no field tells it.
        hidden: Fields that name a place among the options.
    """

    number: int
    options: tuple[str, ...]
    sources: tuple[str, ...]
    parts: tuple[str | int, ...]
    answer: int | None
    hidden: frozenset[str] = frozenset()

    def text(self, order: Sequence[int]) -> str:
        """The item with option `order[j]` at place j."""
        return "".join(
            part if isinstance(part, str) else self.sources[order[part]]
            for part in self.parts
        )


def read_items(
    benchmark: Benchmark,
    *,
    options_field: str | None = None,
    answer_field: str | None = None,
    template: str | None = None,
) -> list[Item]:
    """Find the options of each record; one without two or more is left out.

    Args:
        benchmark: Loaded without a template: its texts are the published source.
        options_field: Field of the list of options, dots for nesting
            (`question.choices`), or several fields with commas (`A,B,C,D`); by
            default common names are tried.
        answer_field: Field that tells the right option; by default common names.
        template: Text of an item in place of its source, with fields in braces:
            option fields by name, or `{options}` for lines `A. ...`, `B. ...`.
    """
    paths = [option_paths(row, options_field) for row in benchmark.rows]
    if not any(paths):
        row = benchmark.rows[0]
        has = "plain text" if row is None else f"it has: {', '.join(row)}"
        name = "options" if options_field is None else repr(options_field)
        raise InputError(
            f"{benchmark.name}: example 1: no list of {name} ({has})",
            hint="--fields options=NAME names the field, or options=A,B,C,D several",
        )
    known = [
        (number, row, raw, found)
        for number, (row, raw, found) in enumerate(
            zip(benchmark.rows, benchmark.texts, paths, strict=True), 1
        )
        if row is not None and found
    ]
    answer = answer_field or answer_field_of(
        [(row, found) for _, row, _, found in known]
    )
    if answer_field is not None:
        for number, row, _, _ in known:
            if is_missing(value_at(row, field_path(answer_field, row))):
                raise InputError(
                    f"{benchmark.name}: example {number}: no field {answer_field!r} "
                    f"(it has: {', '.join(row)})",
                    hint="--fields answer=NAME must name a field of every record",
                )
    hidden = hidden_fields([(row, found) for _, row, _, found in known], answer)
    first = first_number([(row, found) for _, row, _, found in known], answer)
    items = []
    for number, row, raw, found in known:
        values = [value_at(row, path) for path in found]
        if template is None:
            sources, parts = _source_parts(raw, row, found, hidden)
        else:
            where = f"{benchmark.name}: example {number}"
            sources, parts = _template_parts(template, row, found, hidden, where)
        items.append(
            Item(
                number=number,
                options=tuple(map(option_text, values)),
                sources=sources,
                parts=parts,
                answer=answer_place(row, found, answer, first),
                hidden=hidden,
            )
        )
    return items


def _source_parts(
    raw: str, row: Mapping[str, object], paths: list[Path], hidden: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    """The source up to the last option, hidden fields cut out with their comma."""
    if _is_json(raw):
        spans = [json_span(raw, path) for path in paths]
        start, _ = json_span(raw, ())
        members = list(json_members(raw, start))
        fields = {name: (key, end) for name, key, (_, end) in members}
    else:
        fields = csv_spans(raw, row)
        spans = [fields[str(path[0])] for path in paths]
    cuts = [fields[name] for name in hidden if name in fields]
    last = max(end for _, end in spans)
    edges = sorted(
        [(start, end, place) for place, (start, end) in enumerate(spans)]
        + [(start, end, None) for start, end in cuts if end <= last]
    )
    parts: list[str | int] = []
    at = 0
    for start, end, place in edges:
        parts.append(raw[at:start])
        at = end
        if place is None:
            while raw[at] in ", \t":
                at += 1
        else:
            parts.append(place)
    return tuple(raw[a:b] for a, b in spans), tuple(p for p in parts if p != "")


def _is_json(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def _template_parts(
    template: str,
    row: Mapping[str, object],
    paths: list[Path],
    hidden: frozenset[str],
    where: str,
) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    options = [option_text(value_at(row, path)) for path in paths]
    own = {str(path[0]): i for i, path in enumerate(paths) if len(path) == 1}
    parts: list[str | int] = []
    for literal, field in template_pieces(template):
        parts.append(literal)
        if field is None:
            continue
        if field in hidden:
            raise InputError(
                f"--text {template!r}: {field!r} names a place among the options",
                hint="leave it out: in another order it would name another option",
            )
        if field in own:
            parts.append(own[field])
        elif field == "options" or field == paths[0][0]:
            for i in range(len(paths)):
                parts += ["\n" * (i > 0) + f"{string.ascii_uppercase[i]}. ", i]
        else:
            parts.append(text_of_field(field, row, where))
    if {part for part in parts if isinstance(part, int)} != set(range(len(paths))):
        raise InputError(
            f"--text {template!r}: some options are missing",
            hint="{options} stands for lines A. ..., B. ...",
        )
    return tuple(options), tuple(part for part in parts if part != "")


def option_paths(row: Mapping[str, object] | None, field: str | None) -> list[Path]:
    """Paths of the options of a record; empty if it has fewer than two.

    `field` is a name, names with commas, or a path with dots; None tries usual names.
    """
    if row is None:
        return []
    if field is not None:
        if "," in field:
            paths: list[Path] = [(name.strip(),) for name in field.split(",")]
            return _filled(row, paths)
        path = field_path(field, row)
        return _filled(row, _paths_below(value_at(row, path), path))
    for path in _likely_lists(row):
        if len(found := _filled(row, _paths_below(value_at(row, path), path))) > 1:
            return found
    return _filled(row, _numbered_fields(row))


def field_path(field: str, row: Mapping[str, object]) -> Path:
    """A name as it is, or else a path with dots."""
    return (field,) if field in row else tuple(field.split("."))


def _likely_lists(row: Mapping[str, object]) -> list[Path]:
    """Fields of a usual name, at the top or one level down."""
    by_lower = {name.lower(): name for name in row}
    paths: list[Path] = [(by_lower[n],) for n in _LIST_NAMES if n in by_lower]
    for name, value in row.items():
        if isinstance(value, dict):
            paths += [(name, inner) for inner in _LIST_NAMES if inner in value]
    return paths


def _paths_below(value: object, path: Path) -> list[Path]:
    """Options below a value of one of the known shapes."""
    if isinstance(value, list):
        if all(isinstance(x, dict) and "text" in x for x in value):
            return [(*path, i, "text") for i in range(len(value))]
        return [(*path, i) for i in range(len(value))]
    if isinstance(value, dict):
        if isinstance(value.get("text"), list):
            return [(*path, "text", i) for i in range(len(value["text"]))]
        letters = list(string.ascii_uppercase[: len(value)])
        if len(value) > 1 and [str(key).upper() for key in value] == letters:
            return [(*path, key) for key in value]
    return []


def _numbered_fields(row: Mapping[str, object]) -> list[Path]:
    """The longest run of fields such as option_a, option_b, ... or A, B, C, ..."""
    groups: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name in row:
        match = _FIELD_NAME.fullmatch(name) or _FIELD_NAME.fullmatch(name.lower())
        if match is None:
            continue
        stem, mark = match[1], match[2].lower()
        if stem or not mark.isdigit():
            groups.setdefault((stem, mark.isdigit()), []).append((mark, name))
    best: list[Path] = []
    for (stem, is_number), found in groups.items():
        by_mark = dict(found)
        first = "0" if "0" in by_mark else "1" if is_number else "a"
        run: list[Path] = []
        while (mark := chr(ord(first) + len(run))) in by_mark:
            run.append((by_mark[mark],))
        # Two fields called A and B are hardly ever all the options of an item.
        if len(run) > max(len(best), 1 if stem else 2):
            best = run
    return best


def _filled(row: Mapping[str, object], paths: list[Path]) -> list[Path]:
    """Paths up to the last option that is not empty; none if one before it is."""
    values = [value_at(row, path) for path in paths]
    while values and (is_missing(values[-1]) or values[-1] == ""):
        values.pop()
    texts = all(
        isinstance(v, str | int | float)
        and not (isinstance(v, bool) or is_missing(v) or v == "")
        for v in values
    )
    return paths[: len(values)] if texts and len(values) > 1 else []


def answer_field_of(rows: Rows) -> str | None:
    """A usual name whose values tell a place, or repeat an option, in every record."""
    names = collections.Counter(name for row, _ in rows for name in row)
    for wanted in _ANSWER_NAMES:
        for name, count in names.items():
            if name.lower() != wanted or count < len(rows):
                continue
            first = first_number(rows, name)
            if all(answer_place(*row, name, first) is not None for row in rows):
                return name
    return None


def first_number(rows: Rows, field: str | None) -> int:
    """Number of the first place: 1 if some answer is the number of options, and none 0.

    Without a field it is 0.
    """
    if field is None:
        return 0
    numbers = [
        (_as_int(value_at(row, field_path(field, row))), len(paths))
        for row, paths in rows
    ]
    has_zero = any(value == 0 for value, _ in numbers)
    return int(not has_zero and any(value == n for value, n in numbers))


def answer_place(
    row: Mapping[str, object], paths: list[Path], field: str | None, first: int
) -> int | None:
    """Place of the right option, 0-based: from its number, letter, label or text."""
    if field is None:
        return None
    value = value_at(row, field_path(field, row))
    if isinstance(value, list) and len(value) == len(paths):
        # One mark a choice, such as [0, 0, 1, 0].
        return value.index(1) if sorted(map(str, value))[-2:] == ["0", "1"] else None
    options = [option_text(value_at(row, path)) for path in paths]
    if isinstance(value, str) and options.count(value) == 1:
        return options.index(value)
    if value in (labels := _labels(row, paths)):
        return labels.index(value)
    number = _as_int(value)
    if number is not None:
        number -= first
    elif isinstance(value, str) and re.fullmatch("[A-Za-z]", value.strip()):
        number = ord(value.strip().upper()) - ord("A")
    return number if number is not None and 0 <= number < len(paths) else None


def _labels(row: Mapping[str, object], paths: list[Path]) -> list[object]:
    """Labels beside the options, as in ARC and CommonsenseQA."""
    if paths[0][-1] == "text":
        return [value_at(row, (*path[:-1], "label")) for path in paths]
    if paths[0][-2:-1] == ("text",):
        labels = value_at(row, (*paths[0][:-2], "label"))
        return labels if isinstance(labels, list) else []
    return []


def _as_int(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\d{1,2}", value.strip()):
        return int(value)
    return None


def _names_place(value: object, n_options: int) -> bool:
    """Tell if words name an option; A is a word too, and must stand alone."""
    if not isinstance(value, str):
        return False
    last = string.ascii_uppercase[min(n_options, 26) - 1]
    letter = f"[A-{last}a-{last.lower()}]"
    return any(
        re.search(pattern, value)
        for pattern in (
            rf"(?<![\w'])[B-{last}](?![\w'])",
            rf"[(\['\"]{letter}[)\]'\"]",
            rf"(?i:\b(?:option|answer|choice|ans)s?\b\W+(?:is\W+)?)(?:{letter}|\d)(?!\w)",
            r"(?i:\b(?:first|second|third|fourth|fifth|last)\s+"
            r"(?:option|answer|choice|one)\b)",
        )
    )


def hidden_fields(rows: Rows, answer: str | None) -> frozenset[str]:
    """Fields that name a place among the options, so the text must not hold them.

    A field names one where most of its values are a place: one that is blank or damaged
    shows nothing. So does a field whose words name one in two rows or more, as an
    explanation does, unless it is by its name what is asked.
    """
    names = {name for row, _ in rows for name in row}
    hidden = {name for name in names if name.lower() in _ANSWER_NAMES}
    for name in names:
        there = [
            (row, paths)
            for row, paths in rows
            if not (is_missing(row.get(name)) or row[name] in ("", [], {}))
        ]
        places = sum(answer_place(*one, name, 0) is not None for one in there)
        words = sum(_names_place(row[name], len(paths)) for row, paths in there)
        if 2 * places > len(there) or (words > 1 and name.lower() not in _ASKED):
            hidden.add(name)
    if answer is not None:
        hidden.add(answer.split(".")[0] if answer not in names else answer)
    holders = {path[0] for _, paths in rows for path in paths}
    return frozenset(hidden - holders)


def option_text(value: object) -> str:
    """A text as it is, a number as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)
